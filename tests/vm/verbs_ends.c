// SPDX-License-Identifier: BSD-2-Clause
/* See verbs_ends.h. */
#include "verbs_ends.h"

#define PATIENCE_NS UINT64_C(20000000000)

struct ibv_context *ends_device(void)
{
	const char *name = getenv("RDMA_SERVER_DEV");
	struct ibv_device **list = ibv_get_device_list(NULL), **d;
	struct ibv_context *context = NULL;

	for (d = list; d && *d && !context; d++)
		if (!name || !strcmp(ibv_get_device_name(*d), name))
			context = ibv_open_device(*d);
	if (list)
		ibv_free_device_list(list);
	return context;
}

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *send, struct ibv_cq *recv)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send,
		.recv_cq = recv,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &init);
}

static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	if (ibv_modify_qp(qp, &a, IBV_QP_STATE))
		return -1;
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			     IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_receive(const struct ends *e, struct ibv_qp *qp, uint32_t other)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other,
		.rq_psn = e->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = e->gid,
				      .sgid_index = e->gid_index,
				      .hop_limit = 1 } },
	};

	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV |
			     IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER);
}

static int to_send(const struct ends *e, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 16, /* a loaded guest is slow to answer */
		.sq_psn = e->psn,
		.retry_cnt = 6, /* soft-RoCE takes 7 for ever */
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT |
			     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

bool ends_bring_up(const struct ends *e, struct ibv_qp *qp, uint32_t other)
{
	return !to_init(qp) && !to_receive(e, qp, other) && !to_send(e, qp);
}

bool ends_connect(struct ends *e)
{
	struct ibv_wc wc;

	/* Far from the last life's: packets of that may still be on the way. */
	e->psn = (e->psn + (1u << 20)) & 0xffffff;
	if (!ends_bring_up(e, e->home, e->peer->qp_num) ||
	    !ends_bring_up(e, e->peer, e->home->qp_num))
		return false;
	while (ibv_poll_cq(e->home_cq, 1, &wc) > 0)
		;
	while (ibv_poll_cq(e->peer_cq, 1, &wc) > 0)
		;
	return true;
}

static bool find_gid(struct ends *e)
{
	const char *index = getenv("RDMA_SERVER_GID");

	e->gid_index = (uint8_t)(index ? atoi(index) : 1);
	return !ibv_query_gid(e->context, 1, e->gid_index, &e->gid);
}

static bool make_all(struct ends *e)
{
	if (!e->joined)
		e->pd = ibv_alloc_pd(e->context);
	e->home_cq = ibv_create_cq(e->context, 16, NULL, NULL, 0);
	e->home_recv_cq = ibv_create_cq(e->context, 16, NULL, NULL, 0);
	e->peer_cq = ibv_create_cq(e->context, 16, NULL, NULL, 0);
	if (!e->pd || !e->home_cq || !e->home_recv_cq || !e->peer_cq)
		return false;
	e->home = new_qp(e->pd, e->home_cq, e->home_recv_cq);
	e->peer = new_qp(e->pd, e->peer_cq, e->peer_cq);
	e->peer_mem = aligned_alloc(PAGE, PEER_LEN);
	if (!e->home || !e->peer || !e->peer_mem)
		return false;
	memset(e->peer_mem, 'p', PEER_LEN);
	e->peer_mr = ibv_reg_mr(e->pd, e->peer_mem, PEER_LEN,
				IBV_ACCESS_LOCAL_WRITE |
				IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ);
	return e->peer_mr && ends_connect(e);
}

bool ends_open(struct ends *e)
{
	memset(e, 0, sizeof(*e));
	e->context = ends_device();
	if (e->context && find_gid(e) && make_all(e))
		return true;
	perror("the device does not open");
	return false;
}

bool ends_join(struct ends *e, const struct ends *with)
{
	*e = (struct ends){ .context = with->context, .pd = with->pd,
			    .gid = with->gid, .gid_index = with->gid_index,
			    .joined = true };
	return make_all(e);
}

int ends_close(struct ends *e)
{
	int left = ibv_dereg_mr(e->peer_mr);

	left |= ibv_destroy_qp(e->peer) | ibv_destroy_qp(e->home);
	left |= ibv_destroy_cq(e->home_cq) | ibv_destroy_cq(e->home_recv_cq) |
		ibv_destroy_cq(e->peer_cq);
	if (!e->joined) {
		left |= ibv_dealloc_pd(e->pd);
		left |= ibv_close_device(e->context);
	}
	free(e->peer_mem);
	if (left)
		fprintf(stderr, "something is left on the device\n");
	return left;
}

static enum ibv_wc_status run(struct ends *e, struct ibv_qp *qp,
			      struct ibv_send_wr *wr)
{
	uint64_t end = vm_now() + PATIENCE_NS;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int got;

	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(qp, wr, &bad))
		return IBV_WC_GENERAL_ERR;
	/* Soft-RoCE needs the CPU to get anything done. */
	while (!(got = ibv_poll_cq(qp->send_cq, 1, &wc)) && vm_now() < end)
		sched_yield();
	if (got != 1)
		wc.status = IBV_WC_GENERAL_ERR;
	/* Where that fails the next transfer does, too. */
	if (wc.status != IBV_WC_SUCCESS)
		ends_connect(e);
	return wc.status;
}

static enum ibv_wc_status by_peer(struct ends *e, enum ibv_wr_opcode op,
				  uint64_t addr, uint32_t len, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->peer_mem, .length = len,
			       .lkey = e->peer_mr->lkey };
	struct ibv_send_wr wr = { .opcode = op, .sg_list = &sge, .num_sge = 1 };

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	return run(e, e->peer, &wr);
}

enum ibv_wc_status ends_put(struct ends *e, uint64_t addr, uint32_t len,
			    uint32_t rkey)
{
	return by_peer(e, IBV_WR_RDMA_WRITE, addr, len, rkey);
}

enum ibv_wc_status ends_get(struct ends *e, uint64_t addr, uint32_t len,
			    uint32_t rkey)
{
	return by_peer(e, IBV_WR_RDMA_READ, addr, len, rkey);
}

enum ibv_wc_status ends_read(struct ends *e, uint64_t addr, uint32_t len,
			     uint32_t lkey)
{
	struct ibv_sge sge = { .addr = addr, .length = len, .lkey = lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .sg_list = &sge,
				  .num_sge = 1 };

	wr.wr.rdma.remote_addr = (uintptr_t)e->peer_mem;
	wr.wr.rdma.rkey = e->peer_mr->rkey;
	return run(e, e->home, &wr);
}
