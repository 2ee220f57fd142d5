/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA end points for the tools: a device, reliable connections between two
 * ends in one process or in two, reads and writes with a bound on their time.
 *
 * Functions return 0 or a negative errno that kedge_strerror() explains.
 */
#ifndef TOOLS_RDMA_H
#define TOOLS_RDMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/**
 * struct rdma_dev - an RDMA device with an active port
 * @name:     the kernel's name for it
 * @port:     the first that is active
 * @ethernet: RoCE: ends are named by GIDs, else by LIDs
 * @gid:      of @gid_index: an IPv4 address of RoCE v2 where there is one
 * @reads:    RDMA reads that an end may have under way
 */
struct rdma_dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	char name[64];
	uint8_t port;
	bool ethernet;
	uint8_t gid_index;
	union ibv_gid gid;
	uint16_t lid;
	enum ibv_mtu mtu;
	uint8_t reads;
};

/* @name NULL: the first device with an active port. */
int rdma_dev_open(struct rdma_dev *dev, const char *name);
/* The one that has the IPv4 address @addr, by RoCE v2. */
int rdma_dev_open_at(struct rdma_dev *dev, const char *addr);
void rdma_dev_close(struct rdma_dev *dev);

/* The address of an end, for the other. */
struct rdma_addr {
	uint32_t qpn;
	uint32_t psn;
	uint16_t lid;
	uint16_t mtu;
	union ibv_gid gid;
};

/**
 * struct rdma_end - one end of a reliable connection
 * @dev:   borrowed
 * @depth: transfers in one rdma_run() at the most
 */
struct rdma_end {
	struct rdma_dev *dev;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	unsigned int depth;
	uint32_t psn;
};

int rdma_end_open(struct rdma_end *end, struct rdma_dev *dev,
		  unsigned int depth);
void rdma_end_close(struct rdma_end *end);

/* Connect two ends of this process, anew after a failure. */
int rdma_pair(struct rdma_end *a, struct rdma_end *b);
/* Connect with the end of the process on the other side of @sock, a connected
 * socket whose messages have borders; both call it. */
int rdma_meet(struct rdma_end *end, int sock, int timeout_ms);

/* One transfer between this end's memory and its peer's. */
struct rdma_op {
	bool read; /* from the peer; else to it */
	void *local;
	uint32_t lkey;
	uint32_t len;
	uint64_t remote;
	uint32_t rkey;
};

/*
 * Make @cnt transfers, which don't depend on each other, and wait for all. (A
 * fence would order them, but soft-RoCE of Linux 6.1 was seen to wait at one for
 * ever.) A failure breaks the connection:
 *   -EACCES     the peer's registration does not allow it
 *   -EFAULT     ours does not
 *   -ETIMEDOUT  not done after @timeout_ms, or the peer does not answer
 *   -ECANCELED  the connection was broken before
 *   -ENODEV     the device is gone
 *   -EIO        anything else
 */
int rdma_run(struct rdma_end *end, const struct rdma_op *op, unsigned int cnt,
	     int timeout_ms);

#endif /* TOOLS_RDMA_H */
