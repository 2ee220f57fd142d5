// SPDX-License-Identifier: BSD-2-Clause
/* Queue pairs: from nothing to connected, and back. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <kedge/base.h>

#include "tools/common/rdma/rdma.h"
#include "tools/common/util.h"

#define PSN_MASK 0xffffffu

/* 4.096 us << 16 is 268 ms, seven times: two seconds to a dead peer. Soft-RoCE
 * on a loaded machine is slow to answer. */
#define ACK_TIMEOUT 16
#define RETRIES	    6 /* 7 is for ever to some devices */
#define RNR_RETRIES 7 /* for ever */
#define RNR_TIMER   12

static int open_failed(const char *what)
{
	int rc = errno ? -errno : -ENOMEM;

	return kedge_reason(rc, "the RDMA device gives no %s: %s%s", what,
			    strerror(-rc), rc == -ENOMEM ?
			    "; raise RLIMIT_MEMLOCK with ulimit -l" : "");
}

int rdma_end_open(struct rdma_end *end, struct rdma_dev *dev,
		  unsigned int depth)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int rc;

	memset(end, 0, sizeof(*end));
	end->dev = dev;
	end->depth = depth;
	errno = 0;
	end->channel = ibv_create_comp_channel(dev->ctx);
	if (!end->channel)
		return open_failed("completion channel");
	end->cq = ibv_create_cq(dev->ctx, (int)depth + 1, NULL, end->channel,
				0);
	if (!end->cq) {
		rc = open_failed("completion queue");
		goto destroy_channel;
	}
	attr.send_cq = end->cq;
	attr.recv_cq = end->cq;
	end->qp = ibv_create_qp(dev->pd, &attr);
	if (!end->qp) {
		rc = open_failed("queue pair");
		goto destroy_cq;
	}
	end->psn = (uint32_t)util_rng_seed() & PSN_MASK;
	return 0;

destroy_cq:
	ibv_destroy_cq(end->cq);
destroy_channel:
	ibv_destroy_comp_channel(end->channel);
	return rc;
}

void rdma_end_close(struct rdma_end *end)
{
	ibv_destroy_qp(end->qp);
	ibv_destroy_cq(end->cq);
	ibv_destroy_comp_channel(end->channel);
}

static void rdma_end_addr(const struct rdma_end *end, struct rdma_addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->qpn = end->qp->qp_num;
	addr->psn = end->psn;
	addr->lid = end->dev->lid;
	addr->mtu = (uint16_t)end->dev->mtu;
	addr->gid = end->dev->gid;
}

static int to_init(struct rdma_end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;
	int rc;

	rc = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE);
	if (rc)
		return rc;
	/* Completions that an earlier life of it left behind. */
	while (ibv_poll_cq(end->cq, 1, &wc) > 0)
		;
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = end->dev->port;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS);
}

static int to_receive(struct rdma_end *end, const struct rdma_addr *to)
{
	struct rdma_dev *dev = end->dev;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = to->mtu < dev->mtu ? to->mtu : dev->mtu,
		.dest_qp_num = to->qpn,
		.rq_psn = to->psn,
		.max_dest_rd_atomic = dev->reads,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = { .dlid = to->lid, .port_num = dev->port },
	};

	if (dev->ethernet) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = to->gid;
		attr.ah_attr.grh.sgid_index = dev->gid_index;
		attr.ah_attr.grh.hop_limit = 64;
	}
	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static int to_send(struct rdma_end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_RETRIES,
		.sq_psn = end->psn,
		.max_rd_atomic = end->dev->reads,
	};

	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Also for an end that was connected before, or broke. */
static int rdma_end_connect(struct rdma_end *end, const struct rdma_addr *to)
{
	int rc;

	rc = to_init(end);
	if (!rc)
		rc = to_receive(end, to);
	if (!rc)
		rc = to_send(end);
	if (rc)
		return kedge_reason(-rc, "RDMA device %s does not connect: %s",
				    end->dev->name, strerror(rc));
	return 0;
}

int rdma_pair(struct rdma_end *a, struct rdma_end *b)
{
	struct rdma_addr addr_a, addr_b;
	int rc;

	rdma_end_addr(a, &addr_a);
	rdma_end_addr(b, &addr_b);
	rc = rdma_end_connect(a, &addr_b);
	return rc ? rc : rdma_end_connect(b, &addr_a);
}

/* A whole message, or a negative errno. */
static int receive(int sock, void *buf, size_t len, int timeout_ms)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	ssize_t n;
	int rc;

	do
		rc = poll(&p, 1, timeout_ms);
	while (rc < 0 && errno == EINTR);
	if (rc <= 0)
		return rc ? -errno : -ETIMEDOUT;
	do
		n = recv(sock, buf, len, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EPIPE;
}

/* Send ours, take theirs. */
static int swap(int sock, const void *ours, void *theirs, size_t len,
		int timeout_ms)
{
	ssize_t n;

	do
		n = send(sock, ours, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return receive(sock, theirs, len, timeout_ms);
}

int rdma_meet(struct rdma_end *end, int sock, int timeout_ms)
{
	struct rdma_addr ours, theirs;
	int32_t status, other = 0;
	int rc;

	rdma_end_addr(end, &ours);
	rc = swap(sock, &ours, &theirs, sizeof(ours), timeout_ms);
	if (rc)
		return kedge_reason(rc, "the peer process does not connect: %s",
				    strerror(-rc));
	status = rdma_end_connect(end, &theirs);
	/* Nobody may send before the other can receive. */
	rc = swap(sock, &status, &other, sizeof(status), timeout_ms);
	if (status)
		return status;
	if (rc || other)
		return kedge_reason(rc ? rc : other, "the peer process does "
				    "not connect: %s",
				    strerror(rc ? -rc : -other));
	return 0;
}
