/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines over queue pairs (region/fabric/fabric.h): a reliable connection each. An end that puts and
 * gets has a device, a protection domain and a completion queue of its own. So has each loan, and
 * its lines share them, and the registration: a key that is guessed opens no other loan. Ends are
 * connected by what they have told each other over a stream.
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
 * A device that is open, and memory that is registered with it.
 * @dev_fd: what the device's descriptor was: a program may close what is not its own
 */
struct adapter {
	struct ibv_context *dev;
	struct fd_id dev_fd;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
};

/* A port by which a device has an address. */
struct port {
	uint8_t num;
	int gid_index;
	uint32_t mtu;
};

struct fabric_loan {
	struct adapter adapter;
};

/*
 * @a:       of its loan, or @own
 * @staging: of an end that puts and gets
 * @dead:    a work request has failed, or was given up
 */
struct fabric_line {
	struct adapter *a;
	struct adapter own;
	struct port port;
	uint32_t psn;
	struct ibv_qp *qp;
	char *staging;
	bool dead;
};

/* ---- adapter.c ---- */

/* Returns the number of adapters now: those are looked among from here on. */
int adapters_look(void);
/* The device that has the address as one of RoCE v2, with room for @depth completions: 0 or a
 * negative errno with its reason, and nothing is open. */
int adapter_open(struct adapter *a, const unsigned char place[16], int depth);
/* 0 or a negative errno with its reason. */
int adapter_register(struct adapter *a, void *at, uint64_t len, int rights);
/* False: the device does not have that address, or its port is down. */
bool adapter_port(const struct adapter *a, const unsigned char place[16], struct port *port);
/* False: the device's descriptor is not ours any more. */
bool adapter_is_ours(const struct adapter *a);
/* Also one that is not open. */
void adapter_close(struct adapter *a);
/* By errno. */
int adapter_failed(const char *call);

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
