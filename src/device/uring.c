// SPDX-License-Identifier: BSD-2-Clause
/*
 * io_uring's fixed buffers as a device. A registration is one slot of the
 * ring's buffer table: the kernel pins the pages when the slot is filled and
 * lets go of them when it is emptied, so a stale slot loses data as a stale
 * key of an RDMA NIC does.
 *
 * A slot of ours is in one of three states, and in one place only:
 *   free  empty in the kernel; in stack[0, free_cnt)
 *   used  holds a registration; in nobody's list, its owner knows it
 *   lost  to be emptied, but the kernel refused: nobody may have it, because
 *         an index that is still valid somewhere would reach the old pages.
 *         In stack[slots - lost_cnt, slots), tried again by every reg and by
 *         the close
 * A thread that is at work on a slot has it in no list at all, so the system
 * calls run without the lock and the two ends of the stack never meet.
 *
 * The ring is reached through a descriptor of our own. The number in the
 * caller's struct may be closed and given to another ring while we use it,
 * whose slots we would then empty; and liburing's own register calls go by a
 * per-thread index once the caller has registered the ring's descriptor.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <liburing.h>

#include <kedge/uring.h>

#include "base/base.h"
#include "device/proc.h"
#include "device/uring.h"

/* The kernel's own limit on one buffer. */
#define MAX_LEN (1024 * MIB)
/*
 * Measured on 512 MiB: from 1 MiB up (2 MiB with huge pages) the size of the
 * piece hardly changes how long the whole takes, and 4 MiB is within 1 % of
 * the best. What one lost page costs grows with it: 0.1 ms for 4 MiB, 0.4 ms
 * for 16 MiB.
 */
#define CHUNK_LEN (4 * MIB)
/* The largest table of all kernels so far. */
#define TABLE_MAX 16384u
#define OPTS_V1 \
	(offsetof(struct kedge_uring_opts, first_slot) + sizeof(uint32_t))
/* Linux 6.3; not in the liburing of every distribution. */
#define USE_REGISTERED_RING (1u << 31)

/* ---- the ring ---- */

static int ring_call(const struct uring *u, unsigned int op, void *arg,
		     unsigned int nr)
{
	int fd = u->fd;
	int rc;

	if (fd < 0) {
		/* On another thread the same index is another ring. */
		if (gettid() != u->tid)
			return -EEXIST;
		fd = u->ring->enter_ring_fd;
		op |= USE_REGISTERED_RING;
	}
	do
		rc = io_uring_register((unsigned int)fd, op, arg, nr);
	while (rc == -EINTR);
	return rc;
}

/* At open: what the number in the caller's struct names may be no ring. */
static int first_call(const struct uring *u, unsigned int op, void *arg,
		      unsigned int nr)
{
	int rc = ring_call(u, op, arg, nr);

	return rc == -EOPNOTSUPP ? -EBADF : rc;
}

/* Put [addr, addr + len) into a slot; 0, 0 empties it. 1 or an error. */
static int update_slot(const struct uring *u, uint32_t slot, void *addr,
		       size_t len)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	struct io_uring_rsrc_update2 up = {
		.offset = u->first + slot,
		.data = (uintptr_t)&iov,
		.nr = 1,
	};

	return ring_call(u, IORING_REGISTER_BUFFERS_UPDATE, &up, sizeof(up));
}

/*
 * Ask for a slot without touching it: the kernel looks at the table before it
 * reads the buffer's description, which it cannot, so -EFAULT is yes.
 */
static int probe_slot(const struct uring *u, uint32_t index)
{
	struct io_uring_rsrc_update2 up = {
		.offset = index,
		.data = ~UINT64_C(15),
		.nr = 1,
	};

	return first_call(u, IORING_REGISTER_BUFFERS_UPDATE, &up, sizeof(up));
}

/* Closing the caller's descriptor does not close ours: look at his. */
static bool ring_is_closed(const struct uring *u)
{
	int fd = u->ring->ring_fd;

	return u->fd >= 0 && fd >= 0 && fcntl(fd, F_GETFD) < 0;
}

static int ring_open(struct uring *u, struct io_uring *ring)
{
	u->ring = ring;
	u->tid = gettid();
	u->unbound = kedge__proc_has_ipc_lock();
	u->fd = -1;
	/* liburing's mark of a ring that only has a registered index. */
	if (ring->ring_fd < 0 && ring->enter_ring_fd >= 0)
		return 0;
	u->fd = fcntl(ring->ring_fd, F_DUPFD_CLOEXEC, 0);
	if (u->fd < 0)
		return kedge_reason(-errno,
				    errno == EBADF ? "the ring is closed"
						   : "no file descriptor left: "
						     "raise ulimit -n");
	return 0;
}

static void ring_close(struct uring *u)
{
	if (u->fd >= 0)
		close(u->fd);
}

/* ---- the table ---- */

static int make_table(const struct uring *u, uint32_t nr)
{
	struct io_uring_rsrc_register reg = {
		.nr = nr,
		.flags = IORING_RSRC_REGISTER_SPARSE,
	};
	struct iovec *empty;
	int rc;

	rc = first_call(u, IORING_REGISTER_BUFFERS2, &reg, sizeof(reg));
	if (rc != -EINVAL || nr > TABLE_MAX)
		return rc;
	/* Linux 5.13 to 5.18 take a table of empty buffers instead. */
	empty = calloc(nr, sizeof(*empty));
	if (!empty)
		return -ENOMEM;
	rc = ring_call(u, IORING_REGISTER_BUFFERS, empty, nr);
	free(empty);
	/* Older ones take no empty buffer. */
	return rc == -EFAULT ? -EOPNOTSUPP : rc;
}

static void drop_table(const struct uring *u)
{
	int rc = ring_call(u, IORING_UNREGISTER_BUFFERS, NULL, 0);

	/* -ENXIO: the caller did it. */
	if (rc < 0 && rc != -ENXIO)
		kedge__log(KEDGE_LOG_ERROR,
			   "io_uring did not unregister the buffer table "
			   "(error %d): what is in it stays pinned until the "
			   "ring is closed",
			   -rc);
}

static int new_table(struct uring *u, uint32_t slots)
{
	uint32_t nr = slots ? slots : TABLE_MAX;
	int rc = make_table(u, nr);

	while (rc == -EINVAL && !slots && nr > 1) {
		nr /= 2;
		rc = make_table(u, nr);
	}
	if (rc)
		return kedge__uring_table_refused(u, rc, nr);
	rc = probe_slot(u, nr - 1);
	if (rc != -EFAULT) {
		drop_table(u);
		return kedge__uring_table_refused(
			u, rc == -EINVAL ? -EOPNOTSUPP : rc, nr);
	}
	u->made = true;
	u->slots = nr;
	return 0;
}

/* How many slots the table has from @first on; @first is one. */
static uint32_t count_slots(const struct uring *u, uint32_t first)
{
	uint64_t in = first, out = (uint64_t)first + TABLE_MAX, mid;

	while (out < UINT32_MAX && probe_slot(u, (uint32_t)out) == -EFAULT) {
		in = out;
		out *= 2;
	}
	while (out - in > 1) {
		mid = in + (out - in) / 2;
		if (probe_slot(u, (uint32_t)mid) == -EFAULT)
			in = mid;
		else
			out = mid;
	}
	return (uint32_t)(out - first);
}

static int old_table(struct uring *u, uint32_t first, uint32_t slots)
{
	uint32_t last;
	int rc;

	if (__builtin_add_overflow(first, slots ? slots - 1 : 0, &last))
		return kedge_reason(-EINVAL, "slots %u + %u wrap", first,
				    slots);
	rc = probe_slot(u, last);
	if (rc == -ENXIO)
		return kedge_reason(-EINVAL, "the ring has no buffer table: "
					     "clear KEDGE_URING_TABLE_EXISTS");
	if (rc == -EINVAL && probe_slot(u, 0) == -EINVAL)
		return kedge__uring_table_refused(u, -EOPNOTSUPP, 0);
	if (rc == -EINVAL || rc == -EOVERFLOW)
		return kedge_reason(-EINVAL,
				    "slot %u is not in the ring's buffer table",
				    last);
	if (rc != -EFAULT)
		return kedge__uring_table_refused(u, rc, 0);
	u->first = first;
	u->slots = slots ? slots : count_slots(u, first);
	return 0;
}

/* ---- slots ---- */

static int slots_init(struct uring *u)
{
	uint32_t i;

	u->stack = malloc((size_t)u->slots * sizeof(*u->stack));
	u->state = calloc(u->slots, sizeof(*u->state));
	if (!u->stack || !u->state) {
		free(u->stack);
		free(u->state);
		return kedge_reason(-ENOMEM, "no memory for %u slots",
				    u->slots);
	}
	for (i = 0; i < u->slots; i++)
		u->stack[i] = u->slots - 1 - i;
	u->free_cnt = u->slots;
	return 0;
}

static void slots_fini(struct uring *u)
{
	free(u->state);
	free(u->stack);
}

static bool take_free(struct uring *u, uint32_t *slot)
{
	bool have;

	pthread_mutex_lock(&u->lock);
	have = u->free_cnt;
	if (have) {
		*slot = u->stack[--u->free_cnt];
		u->state[*slot] = SLOT_USED;
	}
	pthread_mutex_unlock(&u->lock);
	return have;
}

static bool take_lost(struct uring *u, uint32_t *slot)
{
	bool have;

	pthread_mutex_lock(&u->lock);
	have = u->lost_cnt;
	if (have) {
		*slot = u->stack[u->slots - u->lost_cnt];
		__atomic_store_n(&u->lost_cnt, u->lost_cnt - 1,
				 __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&u->lock);
	return have;
}

/* Give a slot back that is in no list, as free or as lost. */
static void give(struct uring *u, uint32_t slot, uint8_t state)
{
	pthread_mutex_lock(&u->lock);
	u->state[slot] = state;
	if (state == SLOT_FREE) {
		u->stack[u->free_cnt++] = slot;
	} else {
		__atomic_store_n(&u->lost_cnt, u->lost_cnt + 1,
				 __ATOMIC_RELAXED);
		u->stack[u->slots - u->lost_cnt] = slot;
	}
	pthread_mutex_unlock(&u->lock);
}

/* True if nothing of ours is in the slot any more. */
static bool empty_slot(const struct uring *u, uint32_t slot, int *rc)
{
	*rc = update_slot(u, slot, NULL, 0);
	/* Without a table there is no slot that could hold anything. */
	return *rc == 1 || *rc == -ENXIO;
}

static void retry_lost(struct uring *u)
{
	uint32_t slot;
	int rc;

	/* Relaxed: who misses one tries it next time. */
	if (likely(!__atomic_load_n(&u->lost_cnt, __ATOMIC_RELAXED)))
		return;
	if (take_lost(u, &slot))
		give(u, slot, empty_slot(u, slot, &rc) ? SLOT_FREE : SLOT_LOST);
}

/* ---- the ops ---- */

static int check_reg(const struct uring *u, const void *addr, size_t len,
		     uint32_t access)
{
	uintptr_t end;

	if (!*u->here)
		return kedge_reason(-ECHILD, "the ring belongs to the parent "
					     "process");
	if (!len || __builtin_add_overflow((uintptr_t)addr, len, &end))
		return kedge_reason(-EINVAL, "%s",
				    len ? "the range wraps"
					: "the length is 0");
	if (access & ~KEDGE_ACCESS_ALL)
		return kedge_reason(-EINVAL, "access %#x is unknown", access);
	if (access & ~(uint32_t)KEDGE_ACCESS_LOCAL_WRITE)
		return kedge_reason(-EOPNOTSUPP, "io_uring gives no remote "
						 "access");
	if (len > MAX_LEN)
		return kedge_reason(-E2BIG, "io_uring registers at most 1 GiB "
					    "at once");
	/* To the kernel a buffer at 0 means an empty slot. */
	if (!addr)
		return kedge_reason(-EFAULT, "the address is NULL");
	if (ring_is_closed(u))
		return kedge_reason(-EBADF, "the ring is closed");
	return 0;
}

static int uring_reg(void *ctx, void *addr, size_t len, uint32_t access,
		     struct kedge_device_mr *mr)
{
	struct uring *u = ctx;
	uint32_t slot;
	int rc;

	rc = check_reg(u, addr, len, access);
	if (rc)
		return rc;
	retry_lost(u);
	if (!take_free(u, &slot))
		return kedge__uring_full(u);
	rc = update_slot(u, slot, addr, len);
	/* The slot, or a range over two files' mappings (Linux 5.13 to 6.4)? */
	if (rc == -EINVAL && probe_slot(u, u->first + slot) == -EFAULT)
		rc = -EXDEV;
	if (rc != 1) {
		/* Filling it is the kernel's last step: an error left it be. */
		give(u, slot, rc < 0 ? SLOT_FREE : SLOT_LOST);
		return kedge__uring_reg_refused(u, rc, (uintptr_t)addr, len);
	}
	mr->handle = u->first + slot;
	mr->offset = (uintptr_t)addr;
	mr->priv = slot;
	return 0;
}

/* Used to lost, so that of two deregs of one registration one is refused. */
static bool take_used(struct uring *u, uint64_t slot)
{
	bool have;

	pthread_mutex_lock(&u->lock);
	have = slot < u->slots && u->state[slot] == SLOT_USED;
	if (have)
		u->state[slot] = SLOT_LOST;
	pthread_mutex_unlock(&u->lock);
	return have;
}

static void uring_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct uring *u = ctx;
	uint32_t slot = (uint32_t)mr->priv;
	int rc;

	if (!*u->here)
		return;
	if (!take_used(u, mr->priv)) {
		kedge__log(KEDGE_LOG_ERROR,
			   "io_uring buffer %" PRIu64 " is deregistered but "
			   "not registered",
			   mr->handle);
		return;
	}
	if (empty_slot(u, slot, &rc)) {
		give(u, slot, SLOT_FREE);
		return;
	}
	give(u, slot, SLOT_LOST);
	kedge__log(KEDGE_LOG_ERROR,
		   "io_uring did not empty buffer slot %u (error %d%s): its "
		   "pages stay pinned and it is not used again until a later "
		   "registration or the close has emptied it",
		   u->first + slot, -rc,
		   rc == -EEXIST ? ", not the ring's submitter thread" : "");
}

static int uring_query(void *ctx, struct kedge_device_attr *attr)
{
	const struct uring *u = ctx;

	attr->flags = KEDGE_DEVICE_WRITES | KEDGE_DEVICE_PINS;
	attr->max_len = MAX_LEN;
	attr->max_regions = u->slots;
	attr->chunk_len = CHUNK_LEN;
	attr->access = KEDGE_ACCESS_LOCAL_READ | KEDGE_ACCESS_LOCAL_WRITE;
	return 0;
}

/* Empty what is left of ours in a table that stays. */
static void empty_all(struct uring *u)
{
	uint32_t slot, left = 0;
	int rc, last = 0;

	for (slot = 0; slot < u->slots; slot++)
		if (u->state[slot] != SLOT_FREE && !empty_slot(u, slot, &rc)) {
			left++;
			last = rc;
		}
	if (left)
		kedge__log(KEDGE_LOG_ERROR,
			   "io_uring did not empty %u buffer slots (error "
			   "%d): their pages stay pinned until the ring is "
			   "closed",
			   left, -last);
}

static void table_fini(struct uring *u)
{
	/* A forked child shares the ring: the table is the parent's. */
	if (!*u->here)
		return;
	if (u->made)
		drop_table(u);
	else
		empty_all(u);
}

static void uring_close(void *ctx)
{
	struct uring *u = ctx;

	table_fini(u);
	slots_fini(u);
	ring_close(u);
	pthread_mutex_destroy(&u->lock);
	munmap((void *)(uintptr_t)u->here, sizeof(*u->here));
	free(u);
}

/* ---- open ---- */

/* A page that reads 1 here and 0 in a forked child, whatever it shares. */
static int mark_here(struct uring *u)
{
	uint32_t *here;
	int rc;

	here = mmap(NULL, sizeof(*here), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (here == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no memory for the device");
	if (madvise(here, sizeof(*here), MADV_WIPEONFORK)) {
		rc = -errno;
		munmap(here, sizeof(*here));
		return kedge_reason(rc, "MADV_WIPEONFORK fails: error %d", -rc);
	}
	*here = 1;
	u->here = here;
	return 0;
}

static int check_opts(struct kedge_uring_opts *opts,
		      const struct kedge_uring_opts *user)
{
	int rc = kedge__opts_copy(opts, sizeof(*opts), OPTS_V1, user);

	if (rc)
		return rc;
	if (opts->flags & ~KEDGE_URING_TABLE_EXISTS)
		return kedge_reason(-EINVAL, "flags %#x are unknown",
				    opts->flags & ~KEDGE_URING_TABLE_EXISTS);
	if (opts->first_slot && !(opts->flags & KEDGE_URING_TABLE_EXISTS))
		return kedge_reason(-EINVAL,
				    "first_slot needs "
				    "KEDGE_URING_TABLE_EXISTS: a table of our "
				    "own starts at 0");
	return 0;
}

static int table_init(struct uring *u, const struct kedge_uring_opts *opts)
{
	if (opts->flags & KEDGE_URING_TABLE_EXISTS)
		return old_table(u, opts->first_slot, opts->slots);
	return new_table(u, opts->slots);
}

static const struct kedge_device_ops uring_ops = {
	.size = sizeof(uring_ops),
	.name = "uring",
	.reg = uring_reg,
	.dereg = uring_dereg,
	.query = uring_query,
	.close = uring_close,
};

int kedge_device_open_uring(struct io_uring *ring,
			    const struct kedge_uring_opts *user,
			    struct kedge_device **dev)
{
	struct kedge_uring_opts opts;
	struct uring *u;
	int rc;

	if (!ring || !dev)
		return kedge_reason(-EINVAL, "the %s is NULL",
				    ring ? "result pointer" : "ring");
	rc = check_opts(&opts, user);
	if (rc)
		return rc;

	u = calloc(1, sizeof(*u));
	if (!u)
		return kedge_reason(-ENOMEM, "no memory for the device");
	rc = -pthread_mutex_init(&u->lock, NULL);
	if (rc)
		goto free_ctx;
	rc = mark_here(u);
	if (rc)
		goto destroy_lock;
	rc = ring_open(u, ring);
	if (rc)
		goto unmark;
	rc = table_init(u, &opts);
	if (rc)
		goto close_ring;
	rc = slots_init(u);
	if (rc)
		goto drop_made;
	rc = kedge_device_open(&uring_ops, u, dev);
	if (rc)
		goto fini_slots;
	return 0;

fini_slots:
	slots_fini(u);
drop_made:
	if (u->made)
		drop_table(u);
close_ring:
	ring_close(u);
unmark:
	munmap((void *)(uintptr_t)u->here, sizeof(*u->here));
destroy_lock:
	pthread_mutex_destroy(&u->lock);
free_ctx:
	free(u);
	return rc;
}
