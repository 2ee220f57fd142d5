// SPDX-License-Identifier: BSD-2-Clause
/* A queue pair as a port. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <unistd.h>

#include "channel/rc/internal.h"

#define BATCH 16

/* ---- posts ---- */

static uint32_t lkey_of(void *desc)
{
	return (uint32_t)(uintptr_t)desc;
}

static int port_send(struct rdma *r, struct rdma_buf *b, bool inject)
{
	struct rc *c = rc_of(r);
	struct ibv_sge sge = { (uintptr_t)b->data, (uint32_t)b->len,
			       lkey_of(r->slab_desc) };
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&b->op,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED |
			      (b->len <= c->inline_max ? IBV_SEND_INLINE : 0),
	};

	(void)inject; /* inject_len is 0: what is sent inline completes as well */
	return kedge__rc_post(c, &wr);
}

static int port_recv(struct rdma *r, struct rdma_buf *b)
{
	struct ibv_sge sge = { (uintptr_t)b->data, BUF_LEN,
			       lkey_of(r->slab_desc) };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)&b->op,
				  .sg_list = &sge,
				  .num_sge = 1 };
	struct ibv_recv_wr *bad;

	return kedge__rc_posted(ibv_post_recv(rc_of(r)->id->qp, &wr, &bad),
		      "ibv_post_recv");
}

static int port_write(struct rdma *r, struct rdma_write *w, bool asked)
{
	struct ibv_sge sge = { (uintptr_t)w->from.iov_base, (uint32_t)w->len,
			       lkey_of(w->desc) };
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&w->op,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = w->tells ? IBV_WR_RDMA_WRITE_WITH_IMM
				   : IBV_WR_RDMA_WRITE,
		.send_flags = asked ? IBV_SEND_SIGNALED : 0,
		.imm_data = htonl(w->flow->id),
		.wr.rdma = { .remote_addr = w->to.addr,
			     .rkey = (uint32_t)w->to.key },
	};

	return kedge__rc_post(rc_of(r), &wr);
}

static int port_read(struct rdma *r, struct flow *f)
{
	struct rc *c = rc_of(r);
	struct ibv_sge sge = {
		(uintptr_t)f->target,
		(uint32_t)(f->target_cnt * sizeof(*f->target)),
		lkey_of(r->port->desc(f->table_reg)),
	};
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&f->read_op,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = f->table.addr,
			     .rkey = (uint32_t)f->table.key },
	};
	int rc;

	if (c->reads == READ_CNT)
		return -EAGAIN;
	rc = kedge__rc_post(c, &wr);
	if (!rc)
		c->reads++;
	return rc;
}

/* ---- completions ---- */

/* The errno that a failed completion means for the connection. Failures of the peer's
 * making are not told from a peer that is gone: either way the connection has ended. */
static int meaning(const struct ibv_wc *wc)
{
	return wc->status == IBV_WC_LOC_LEN_ERR ? -EPROTO : -ECONNRESET;
}

static void completed(struct rc *c, const struct ibv_wc *wc)
{
	struct rdma_op *op = (struct rdma_op *)(uintptr_t)wc->wr_id;
	struct rdma *r = &c->r;

	if (wc->status != IBV_WC_SUCCESS) {
		kedge__log(wc->status == IBV_WC_WR_FLUSH_ERR ? KEDGE_LOG_DEBUG
							     : KEDGE_LOG_INFO,
			   "a work request of queue pair %#x failed: %s",
			   wc->qp_num, ibv_wc_status_str(wc->status));
		kedge__rdma_die(r, meaning(wc));
		return;
	}
	if (op->kind == RDMA_READ)
		c->reads--;
	if (op->kind == RDMA_OWN)
		kedge__rc_window_done(op);
	else if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		kedge__rdma_landed(r, op, ntohl(wc->imm_data));
	else
		kedge__rdma_op_done(r, op, wc->byte_len);
}

/* Returns the number of them. */
static int drain(struct rc *c)
{
	struct ibv_wc wc[BATCH];
	int i, n, all = 0;

	do {
		n = ibv_poll_cq(c->cq, BATCH, wc);
		for (i = 0; i < n && !c->r.err; i++)
			completed(c, &wc[i]);
		if (n < 0)
			kedge__rdma_die(&c->r, -ECONNRESET);
		all += n > 0 ? n : 0;
	} while (n == BATCH && !c->r.err);
	return all;
}

static void port_poll(struct rdma *r)
{
	drain(rc_of(r));
}

static void take_notes(struct rc *c)
{
	unsigned int cnt = 0;
	struct ibv_cq *cq;
	void *ctx;

	while (!ibv_get_cq_event(c->comp, &cq, &ctx))
		cnt++;
	if (!cnt)
		return;
	ibv_ack_cq_events(c->cq, cnt);
	c->armed = false;
}

static int port_arm(struct rdma *r)
{
	struct rc *c = rc_of(r);

	if (!kedge__rc_mine(c))
		return 1; /* over() tells */
	take_notes(c);
	if (c->armed)
		return 0;
	if (ibv_req_notify_cq(c->cq, 0))
		return 1;
	c->armed = true;
	/* The queue does not tell of completions from before the request. */
	return drain(c) ? 1 : 0;
}

/* ---- the end ---- */

/* Four system calls: a thread that polls all the time looks 50 times a second. */
#define OVER_NS 20000000u

static bool port_over(struct rdma *r)
{
	const uint64_t now = clock_coarse_ns();
	struct rc *c = rc_of(r);
	struct rdma_cm_event *e;
	bool over;

	if (now - c->looked < OVER_NS)
		return false;
	c->looked = now;
	over = !kedge__rc_mine(c);
	while (!over && !rdma_get_cm_event(c->events, &e)) {
		over = e->event == RDMA_CM_EVENT_DISCONNECTED ||
		       e->event == RDMA_CM_EVENT_TIMEWAIT_EXIT ||
		       e->event == RDMA_CM_EVENT_DEVICE_REMOVAL ||
		       e->event == RDMA_CM_EVENT_CONNECT_ERROR;
		rdma_ack_cm_event(e);
	}
	return over;
}

/* A queue pair that is destroyed touches nothing, whatever peers know. */
static void port_halt(struct rdma *r)
{
	struct rc *c = rc_of(r);

	/* Not ours any more: closing them has ended the queue pair, or will. */
	if (!c->id || !kedge__rc_mine(c))
		return;
	if (c->id->qp) {
		rdma_disconnect(c->id);
		kedge__rc_windows_halt(c);
		rdma_destroy_qp(c->id);
	}
}

static void free_verbs(struct rc *c)
{
	/* The kernel frees what belongs to them. */
	if (!kedge__rc_mine(c)) {
		kedge__log(KEDGE_LOG_ERROR,
			   "the program closed descriptors of a channel's: what "
			   "the adapter has pinned is freed when the process "
			   "ends");
		return;
	}
	kedge__rc_windows_fini(c);
	if (c->cq) {
		take_notes(c);
		ibv_destroy_cq(c->cq);
	}
	if (c->comp)
		ibv_destroy_comp_channel(c->comp);
	if (c->pd)
		ibv_dealloc_pd(c->pd);
	if (c->id)
		rdma_destroy_id(c->id);
	if (c->events)
		rdma_destroy_event_channel(c->events);
}

static void port_close(struct rdma *r, bool ours)
{
	struct rc *c = rc_of(r);

	if (ours) {
		free_verbs(c);
	} else if (kedge__rc_mine(c)) {
		if (c->comp)
			close(c->comp->fd);
		if (c->events)
			close(c->events->fd);
	}
	if (r->fd >= 0 && (!c->noted || kedge__fd_same(r->fd, &c->ids[3])))
		close(r->fd);
	free(c);
}

/* ---- registrations ---- */

static int port_reg(struct rdma *r, void *at, size_t len, uint32_t access,
		    void **reg)
{
	unsigned int flags = 0;
	struct ibv_mr *mr;

	if (access & (KEDGE_ACCESS_LOCAL_WRITE | KEDGE_ACCESS_REMOTE_WRITE))
		flags |= IBV_ACCESS_LOCAL_WRITE;
	if (access & KEDGE_ACCESS_REMOTE_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if (access & KEDGE_ACCESS_REMOTE_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	/* Memory that this side alone writes may be opened to the peer by a window. */
	if (access == KEDGE_ACCESS_LOCAL_WRITE && r->windows)
		flags |= IBV_ACCESS_MW_BIND;
	if (!kedge__rc_mine(rc_of(r)))
		return kedge_reason(-ECONNRESET, "the program closed the "
				    "adapter's descriptor");
	errno = 0;
	mr = ibv_reg_mr(rc_of(r)->pd, at, len, (int)flags);
	if (!mr)
		return kedge__rc_failed("ibv_reg_mr");
	*reg = mr;
	return 0;
}

static int port_dereg(struct rdma *r, void *reg)
{
	return kedge__rc_mine(rc_of(r)) ? -abs(ibv_dereg_mr(reg)) : 0;
}

static const char *port_device(const struct rdma *r)
{
	const struct rc *c = (const struct rc *)r;

	return ibv_get_device_name(c->id->verbs->device);
}

static void *port_desc(void *reg)
{
	return (void *)(uintptr_t)((struct ibv_mr *)reg)->lkey;
}

static uint64_t port_key(void *reg)
{
	return ((struct ibv_mr *)reg)->rkey;
}

const struct rdma_port kedge__rc_port = {
	.send = port_send,
	.recv = port_recv,
	.write = port_write,
	.read = port_read,
	.poll = port_poll,
	.over = port_over,
	.arm = port_arm,
	.halt = port_halt,
	.close = port_close,
	.reg = port_reg,
	.dereg = port_dereg,
	.grant = kedge__rc_grant,
	.revoke = kedge__rc_revoke,
	.device = port_device,
	.desc = port_desc,
	.key = port_key,
};
