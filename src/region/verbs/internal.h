/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines over queue pairs (region/fabric/fabric.h): a reliable connection each, with a device, a
 * protection domain and a completion queue of its own, so that a key which is guessed opens no
 * other line's range. They are connected by what the ends have told each other over a stream.
 */
#ifndef REGION_VERBS_INTERNAL_H
#define REGION_VERBS_INTERNAL_H

#include <infiniband/verbs.h>

#include "base/fd.h"
#include "region/fabric/fabric.h"

/* Pieces under way, each in a room of its own of the staging memory. */
#define ROOMS	 16u
#define ROOM_LEN ((uint64_t)64 << 10)
/* Behind them, for a read that shows that what was put has arrived. */
#define FLUSH_LEN 8u
#define STAGING_LEN (ROOMS * ROOM_LEN + FLUSH_LEN)
_Static_assert(FABRIC_RUNS_LEN <= ROOMS * ROOM_LEN, "runs find room in the staging memory");

/*
 * @dev_fd:  what the device's descriptor was: a program may close what is not its own
 * @staging: of an end that puts and gets
 * @dead:    a work request has failed, or was given up
 */
struct fabric_line {
	struct ibv_context *dev;
	struct fd_id dev_fd;
	uint8_t port;
	int gid_index;
	uint32_t mtu;
	uint32_t psn;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *staging;
	bool dead;
};

/* ---- find.c ---- */

/* How many adapters there are now. */
int lines_look(void);
/* Open the device that has the address as one of RoCE v2: 0 or a negative errno with its reason. */
int line_find(struct fabric_line *l, const unsigned char place[16], struct fabric_end *end);
/* False: the device's descriptor is not ours any more. */
bool line_is_ours(const struct fabric_line *l);

/* ---- line.c ---- */

extern const struct fabric line_fabric;

/* ---- copy.c ---- */

int line_put(struct fabric_line *l, const struct fabric_range *to, uint64_t offset,
	     const void *data, uint64_t len, const _Atomic bool *over, uint64_t until);
int line_put_runs(struct fabric_line *l, const struct fabric_range *to, const char *base,
		  const struct fabric_run *run, uint32_t cnt, const _Atomic bool *over,
		  uint64_t until);
int line_get(struct fabric_line *l, const struct fabric_range *from, uint64_t offset, void *data,
	     uint64_t len, const _Atomic bool *over, uint64_t until);

#endif /* REGION_VERBS_INTERNAL_H */
