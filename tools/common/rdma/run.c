// SPDX-License-Identifier: BSD-2-Clause
/*
 * Transfers. Who waits for one looks a few times and then sleeps: soft-RoCE
 * needs the CPU to get anything done.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/base.h"
#include "tools/common/rdma/rdma.h"

#define LOOKS	  64
#define CHAIN_MAX 16

static int failed(enum ibv_wc_status status)
{
	int rc = -EIO;

	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		rc = -EACCES;
		break;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		rc = -EFAULT;
		break;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		rc = -ETIMEDOUT;
		break;
	case IBV_WC_WR_FLUSH_ERR:
		rc = -ECANCELED;
		break;
	case IBV_WC_FATAL_ERR:
		rc = -ENODEV;
		break;
	default:
		break;
	}
	return kedge_reason(rc, "an RDMA transfer failed: %s",
			    ibv_wc_status_str(status));
}

static int post(struct rdma_end *end, const struct rdma_op *op,
		unsigned int cnt)
{
	struct ibv_send_wr wr[CHAIN_MAX], *bad;
	struct ibv_sge sge[CHAIN_MAX];
	unsigned int i;
	int rc;

	memset(wr, 0, cnt * sizeof(*wr));
	for (i = 0; i < cnt; i++) {
		sge[i].addr = (uintptr_t)op[i].local;
		sge[i].length = op[i].len;
		sge[i].lkey = op[i].lkey;
		wr[i].wr_id = i;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].opcode = op[i].read ? IBV_WR_RDMA_READ :
					    IBV_WR_RDMA_WRITE;
		wr[i].wr.rdma.remote_addr = op[i].remote;
		wr[i].wr.rdma.rkey = op[i].rkey;
		wr[i].next = i + 1 < cnt ? &wr[i + 1] : NULL;
	}
	rc = ibv_post_send(end->qp, wr, &bad);
	if (!rc)
		return 0;
	/* Some providers return -1 and set errno. */
	rc = rc > 0 ? -rc : errno ? -errno : -EIO;
	return kedge_reason(rc, "the RDMA device takes no transfer: %s",
			    strerror(-rc));
}

/* Sleep until there may be a completion. */
static int sleep_on(struct rdma_end *end, uint64_t until)
{
	struct pollfd p = { .fd = end->channel->fd, .events = POLLIN };
	uint64_t now = clock_ns();
	struct ibv_cq *cq;
	void *ctx;
	int rc;

	if (now >= until)
		return kedge_reason(-ETIMEDOUT, "an RDMA transfer is not done "
				    "in time");
	rc = poll(&p, 1, (int)((until - now) / 1000000 + 1));
	if (rc > 0) {
		if (ibv_get_cq_event(end->channel, &cq, &ctx))
			return kedge_reason(-EIO, "the RDMA device gives no "
					    "event: %s", strerror(errno));
		ibv_ack_cq_events(cq, 1);
	}
	return 0;
}

static int look(struct rdma_end *end, struct ibv_wc *wc)
{
	int n, i;

	for (i = 0; i < LOOKS; i++) {
		n = ibv_poll_cq(end->cq, 1, wc);
		if (n)
			return n;
		cpu_relax();
	}
	return 0;
}

/* The next completion, or a negative errno. */
static int next(struct rdma_end *end, struct ibv_wc *wc, uint64_t until)
{
	int rc;

	for (;;) {
		rc = look(end, wc);
		if (!rc) {
			/* One that comes before the call rings no bell. */
			if (ibv_req_notify_cq(end->cq, 0))
				return kedge_reason(-EIO, "no completion "
						    "events");
			rc = ibv_poll_cq(end->cq, 1, wc);
		}
		if (rc > 0)
			return 0;
		if (rc < 0)
			return kedge_reason(-EIO, "the completion queue is "
					    "out of order");
		rc = sleep_on(end, until);
		if (rc)
			return rc;
	}
}

int rdma_run(struct rdma_end *end, const struct rdma_op *op, unsigned int cnt,
	     int timeout_ms)
{
	uint64_t until = clock_ns() + (uint64_t)timeout_ms * 1000000;
	int status = 0, rc;
	struct ibv_wc wc;

	if (cnt > end->depth || cnt > CHAIN_MAX)
		return kedge_reason(-EINVAL, "%u transfers at once are too "
				    "many", cnt);
	rc = post(end, op, cnt);
	if (rc)
		return rc;
	/* The rest of a chain that broke comes back as flushed. */
	for (; cnt; cnt--) {
		rc = next(end, &wc, until);
		if (rc)
			return status ? status : rc;
		if (wc.status && !status)
			status = failed(wc.status);
	}
	return status;
}
