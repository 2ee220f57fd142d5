/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For programs that use libibverbs and nothing else: a device and two connected
 * queue pairs of this process on it, "home" and "peer". Needs soft-RoCE or an
 * adapter that loops back; RDMA_SERVER_DEV and RDMA_SERVER_GID name the device
 * and the index of its address.
 */
#ifndef TESTS_VERBS_ENDS_H
#define TESTS_VERBS_ENDS_H

#include <infiniband/verbs.h>

#include "vm_lib.h"

#define PEER_LEN (1u << 20)

struct ends {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *home_cq, *home_recv_cq, *peer_cq;
	struct ibv_qp *home, *peer;
	union ibv_gid gid;
	uint8_t gid_index;
	uint32_t psn; /* of this connection */
	/* The peer's memory, registered for everything. */
	unsigned char *peer_mem;
	struct ibv_mr *peer_mr;
	bool joined; /* device and domain are another's */
};

/* NULL where it cannot be opened. */
struct ibv_context *ends_device(void);

/* All of it; false, and a word on stderr, where something is missing. */
bool ends_open(struct ends *e);
/* Two more queue pairs in the domain of @with, which goes after it. */
bool ends_join(struct ends *e, const struct ends *with);
/* 0 if nothing was left on the device, else a word on stderr. */
int ends_close(struct ends *e);
bool ends_connect(struct ends *e);
/* One of them with another process' that has connected as often as this. */
bool ends_bring_up(const struct ends *e, struct ibv_qp *qp, uint32_t other);

/*
 * One transfer and what became of it. A refused one ends the connection: then
 * it is made anew. IBV_WC_GENERAL_ERR: it did not complete.
 * put: the peer writes its memory to [addr, addr + len); get: it reads. read:
 * home reads the peer's memory to [addr, addr + len) with the lkey.
 */
enum ibv_wc_status ends_put(struct ends *e, uint64_t addr, uint32_t len,
			    uint32_t rkey);
enum ibv_wc_status ends_get(struct ends *e, uint64_t addr, uint32_t len,
			    uint32_t rkey);
enum ibv_wc_status ends_read(struct ends *e, uint64_t addr, uint32_t len,
			     uint32_t lkey);

#endif /* TESTS_VERBS_ENDS_H */
