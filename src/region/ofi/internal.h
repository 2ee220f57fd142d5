/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines by libfabric's RMA (region/fabric/fabric.h). Each is an endpoint of reliable datagrams
 * (FI_EP_RDM) with a domain, a queue and an address of its own, and an owner's has a registration
 * of its own: its key is random, and ends with it. All calls of libfabric are the driver's.
 */
#ifndef REGION_OFI_INTERNAL_H
#define REGION_OFI_INTERNAL_H

#include "region/ofi/driver.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <kedge/ofi.h>

#include "region/fabric/fabric.h"

#define OFI_API FI_VERSION(1, 17)

/* Pieces under way, each in a room of its own of the staging memory. */
#define ROOMS	 16u
#define ROOM_LEN ((uint64_t)64 << 10)
#define STAGING_LEN (ROOMS * ROOM_LEN)
#define RING	 FABRIC_RUNS
_Static_assert(FABRIC_RUNS_LEN <= STAGING_LEN, "runs find room in the staging memory");
_Static_assert(RING >= ROOMS, "so do pieces in the ring");

/* ---- provider.c ---- */

/*
 * A provider that the program has chosen.
 *
 * @number: made of the name
 * @ip:     its endpoints have the addresses of interfaces
 * @before: which threads may be at still
 */
struct choice {
	const struct choice *before;
	char name[64];
	uint32_t flags;
	uint32_t number;
	bool ip;
};

/* By the driver: look whether there is such a provider. 0 or a negative errno with its reason. */
int provider_look(struct choice *c);
/* From now on. It lives on. */
void provider_choose(struct choice *c);
const struct choice *provider_chosen(void);
/* By the driver: an endpoint at @place. 0 or a negative errno with its reason. */
int provider_find(const struct choice *c, const unsigned char place[16], struct fi_info **info);
int ofi_failed(const char *call, ssize_t rc);

/* ---- end.c ---- */

/*
 * Objects of libfabric's that a line has; the driver's.
 *
 * @desc: of the staging memory, where the provider wants one
 * @peer: to which it puts
 * @at, @key: of what it lends
 */
struct end {
	const struct choice *choice;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	void *desc;
	fi_addr_t peer;
	uint64_t at;
	uint64_t key;
};

/* 0 or a negative errno with its reason, and what was open is closed. @fd: becomes readable when
 * there is something to be done, or is -1; or NULL. */
int end_open(struct end *e, const unsigned char place[16], int *fd);
/* @access: FI_REMOTE_READ, FI_REMOTE_WRITE; or 0: it is the staging memory. Closed with the end. */
int end_register(struct end *e, void *at, uint64_t len, uint64_t access);
int end_tell(const struct end *e, struct fabric_ofi_end *out);
int end_join(struct end *e, const struct fabric_ofi_end *other);
/* Also one that is not open. No access of another is under way then. */
void end_close(struct end *e);

/* ---- line.c ---- */

/* Memory that is lent, mapped once more, as the owner's mapping may end meanwhile. */
struct fabric_loan {
	char *mapped;
	uint64_t mapped_len;
	char *at;
	uint64_t len;
	bool writes;
};

/* @room:   first, libfabric's while it is under way
 * @from:   of the staging memory
 * @offset: of the other end's
 */
struct piece {
	struct fi_context2 room;
	uint64_t from;
	uint64_t offset;
	uint64_t len;
	bool reads;
	bool finished; /* the driver's */
};

/*
 * @work, @queued: it is to look at the line
 * @pid:    of the process that opened it
 * @staging, @ring: of an end that puts and gets
 * @posted: pieces that the caller has written
 * @sent, @done: pieces that the driver has posted, and that have completed; all before them, too
 * @retry:  when it is to post again, after the provider has taken no more
 * @event:  changes with @done and @dead; the caller waits for it while @waits
 * @dead:   it has failed, or was given up
 */
struct fabric_line {
	struct work work;
	_Atomic bool queued;
	struct polled polled;
	struct end end;
	pid_t pid;
	char *staging;
	struct piece *ring;
	_Atomic uint32_t posted;
	uint32_t sent;
	uint64_t retry;
	_Atomic uint32_t done;
	_Atomic uint32_t event;
	_Atomic bool waits;
	_Atomic bool dead;
};

extern const struct fabric line_fabric;

/* ---- carry.c: by the driver ---- */

bool line_turn(struct polled *p);
/* It carries no more. */
void line_fails(struct fabric_line *l);

/* ---- copy.c ---- */

int line_put(struct fabric_line *l, const struct fabric_range *to, uint64_t offset,
	     const void *data, uint64_t len, const _Atomic bool *over, uint64_t until);
int line_put_runs(struct fabric_line *l, const struct fabric_range *to, const char *base,
		  const struct fabric_run *run, uint32_t cnt, const _Atomic bool *over,
		  uint64_t until);
int line_get(struct fabric_line *l, const struct fabric_range *from, uint64_t offset, void *data,
	     uint64_t len, const _Atomic bool *over, uint64_t until);

#endif /* REGION_OFI_INTERNAL_H */
