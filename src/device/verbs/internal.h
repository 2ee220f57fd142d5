/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the verbs device. */
#ifndef DEVICE_VERBS_INTERNAL_H
#define DEVICE_VERBS_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include <kedge/device.h>

#define MIB (UINT64_C(1) << 20)

/* Access for which the kernel wants writable memory. */
#define ACCESS_WRITES                                                     \
	((unsigned int)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
			IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND))

/*
 * A registration; kedge_device_mr.priv points to it.
 * @mr:    libibverbs'
 * @next:  in the list of the lost
 * @flags: IBV_ACCESS_* that it was made with
 */
struct region {
	struct ibv_mr *mr;
	struct region *next;
	unsigned int flags;
};

/* For the preload: libibverbs' own of a registration with this priv. */
KEDGE_PRIVATE const struct ibv_mr *kedge__verbs_mr(uint64_t priv);

/*
 * Memory windows, which need a queue pair.
 * @qp:        the caller's, lent to us
 * @boundless: the device checks a window's key and rights, but lets a peer reach
 *             all of the region
 * @lock:      guards what follows, and lets one work request be in flight
 * @ready:     the queue pair was in RTS and no request has failed since
 * @retry_at:  it did not answer: no try before that (clock_ns())
 * @last_id:   of a work request
 * @free:      windows to be bound, the one that waited longest first
 * @free_end:  where the next one is hung
 * @free_cnt:  how many
 * @lost:      windows that could not be ended; read without the lock too, as a
 *             hint
 */
struct windows {
	struct ibv_qp *qp;
	bool boundless;
	pthread_mutex_t lock;
	bool ready;
	uint64_t retry_at;
	uint64_t last_id;
	struct window *free;
	struct window **free_end;
	unsigned int free_cnt;
	struct window *lost;
};

/*
 * @pd:          the caller's
 * @name:        of the RDMA device
 * @flags:       IBV_ACCESS_* that every registration gets
 * @access:      KEDGE_ACCESS_* that the device can give
 * @max_len:     its max_mr_size; 0: no limit
 * @max_regions: its max_mr; 0: not known
 * @page_len:    of the kernel's pages
 * @here:        points to 1, but to 0 in a forked child; the page after it is
 *               there to be registered when something is tried
 * @regions:     how many registrations there are; atomic, relaxed: a hint
 * @gone:        the device was removed; atomic, relaxed: set once, and a thread
 *               that does not see it finds out by itself
 * @win:         memory windows
 * @lock:        guards what follows
 * @lost:        registrations that could not be ended, the oldest first
 * @lost_end:    where the next one is hung; lost is read without the lock, too,
 *               as a hint
 */
struct verbs {
	struct ibv_pd *pd;
	const char *name;
	unsigned int flags;
	uint32_t access;
	uint64_t max_len;
	uint64_t max_regions;
	uint64_t chunk_len;
	uint64_t iova_offset;
	size_t page_len;
	const uint32_t *here;
	uint64_t regions;
	bool gone;
	struct windows win;

	pthread_mutex_t lock;
	struct region *lost;
	struct region **lost_end;
};

/* NULL and errno on failure. */
struct ibv_mr *kedge__verbs_reg_mr(const struct verbs *v, void *addr,
				   size_t len, unsigned int flags);
/* End @r now, or later. */
void kedge__verbs_end_or_lose(struct verbs *v, struct region *r);
/* Try one of the lost again. */
void kedge__verbs_retry_lost(struct verbs *v);
/* Try them all. */
void kedge__verbs_end_lost(struct verbs *v);

/* Register the spare page and end that again: 0 or a positive errno. */
int kedge__verbs_try(struct verbs *v, unsigned int flags);

/* The result of a call of libibverbs', as 0 or a positive errno. */
int kedge__verbs_errno(int returned);

/*
 * True if the positive errno @err means that the device has been removed: then the
 * kernel has ended all that was on it. Logs it the first time.
 */
bool kedge__verbs_gone(struct verbs *v, int err);

/*
 * Record why the registration of [addr, addr + len) with IBV_ACCESS_* @flags
 * was refused with the positive errno @err, and make of it the negative one
 * that we document.
 */
int kedge__verbs_reg_refused(struct verbs *v, int err, uint64_t addr,
			     uint64_t len, unsigned int flags);

/* Can @qp bind windows on a device of @attr? 0 or a negative errno. */
int kedge__verbs_windows_check(struct verbs *v, const struct ibv_qp *qp,
			       const struct ibv_device_attr *attr);
int kedge__verbs_windows_init(struct verbs *v, struct ibv_qp *qp);
void kedge__verbs_windows_fini(struct verbs *v);
/* Try again to end a lost one. */
void kedge__verbs_windows_retry(struct verbs *v);

int kedge__verbs_bind(void *ctx, const struct kedge_device_mr *mr, void *addr,
		      size_t len, uint32_t access,
		      struct kedge_device_mr *window);
void kedge__verbs_unbind(void *ctx, const struct kedge_device_mr *window);

#endif /* DEVICE_VERBS_INTERNAL_H */
