// SPDX-License-Identifier: BSD-2-Clause
/*
 * Both ends know the other's queue pair before either is joined, so no connection manager is
 * needed. A close ends the queue pair: the adapter takes no more packets for it then, and has
 * finished with those that it had, whether the registration lasts for other lines of the loan or
 * ends next.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "region/verbs/internal.h"

/* 4.096 us << 16 is 268 ms, seven times: two seconds until the other end is taken for gone, as
 * soft-RoCE on a loaded machine is slow to answer. A seventh retry is without end, by InfiniBand
 * for a receiver that is not ready, and by Linux' rdma_rxe for one that is not there as well. */
#define ACK_TIMEOUT 16
#define RETRIES	    6
#define NOT_READY   12 /* 0.64 ms */
#define NOT_READY_RETRIES 7
#define HOPS	    64
#define READS	    4
/* Pieces or runs, and what follows the last one. */
#define SEND_WR	    (FABRIC_RUNS + 1)

/* ---- an end ---- */

static int make_pair(struct fabric_line *l)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = l->port.num };

	init.send_cq = init.recv_cq = l->a->cq;
	init.cap = (struct ibv_qp_cap){ .max_send_wr = l->staging ? SEND_WR : 1, .max_recv_wr = 1,
					.max_send_sge = 1, .max_recv_sge = 1 };
	l->qp = ibv_create_qp(l->a->pd, &init);
	if (!l->qp)
		return adapter_failed("ibv_create_qp");
	/* The range's rights decide. */
	if (!l->staging)
		a.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	errno = ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      IBV_QP_ACCESS_FLAGS);
	return errno ? adapter_failed("ibv_modify_qp") : 0;
}

static int make_staging(struct fabric_line *l)
{
	void *at = mmap(NULL, STAGING_LEN, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no memory for what is put and got");
	l->staging = at;
	/* A child's copy would take the pages from under the adapter. */
	if (madvise(at, STAGING_LEN, MADV_DONTFORK))
		return adapter_failed("madvise");
	return 0;
}

static void line_close(struct fabric_line *l)
{
	if (l->qp && adapter_is_ours(l->a))
		ibv_destroy_qp(l->qp);
	adapter_close(&l->own);
	if (l->staging)
		munmap(l->staging, STAGING_LEN);
	free(l);
}

static int open_own(struct fabric_line *l, const unsigned char place[16])
{
	int rc = adapter_open(&l->own, place, SEND_WR);

	l->a = &l->own;
	if (!rc)
		rc = make_staging(l);
	return rc ? rc : adapter_register(&l->own, l->staging, STAGING_LEN,
					  IBV_ACCESS_LOCAL_WRITE);
}

static int open_it(struct fabric_line *l, const unsigned char place[16], struct fabric_loan *loan)
{
	int rc = loan ? 0 : open_own(l, place);

	if (rc)
		return rc;
	if (loan)
		l->a = &loan->adapter;
	if (!adapter_port(l->a, place, &l->port))
		return kedge_reason(-ENODEV, "the adapter does not have its address any more");
	return make_pair(l);
}

static int line_open(const unsigned char place[16], struct fabric_loan *loan,
		     struct fabric_line **out, struct fabric_end *end)
{
	struct fabric_line *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return kedge_reason(-ENOMEM, "no memory for a connection of adapters");
	rc = open_it(l, place, loan);
	if (rc) {
		line_close(l);
		return rc;
	}
	/* Packets of a former connection of this number do not fit. */
	if (getrandom(&l->psn, sizeof(l->psn), 0) < 0)
		l->psn = (uint32_t)clock_ns();
	l->psn &= 0xffffff;
	memset(end, 0, sizeof(*end));
	end->kind = htole32(FABRIC_VERBS);
	memcpy(end->verbs.gid, place, sizeof(end->verbs.gid));
	end->verbs.qp = htole32(l->qp->qp_num);
	end->verbs.psn = htole32(l->psn);
	end->verbs.mtu = htole32(l->port.mtu);
	*out = l;
	return 0;
}

/* ---- two ---- */

static int be_ready_to_receive(struct fabric_line *l, const struct fabric_verbs_end *other)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = le32toh(other->mtu) < l->port.mtu ? le32toh(other->mtu)
							     : l->port.mtu,
		.dest_qp_num = le32toh(other->qp) & 0xffffff,
		.rq_psn = le32toh(other->psn) & 0xffffff,
		.max_dest_rd_atomic = READS,
		.min_rnr_timer = NOT_READY,
		.ah_attr = {
			.is_global = 1,
			.port_num = l->port.num,
			.grh = { .sgid_index = (uint8_t)l->port.gid_index, .hop_limit = HOPS },
		},
	};

	memcpy(a.ah_attr.grh.dgid.raw, other->gid, sizeof(other->gid));
	return ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER);
}

static int be_ready_to_send(struct fabric_line *l)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .sq_psn = l->psn,
				 .timeout = ACK_TIMEOUT, .retry_cnt = RETRIES,
				 .rnr_retry = NOT_READY_RETRIES, .max_rd_atomic = READS };

	return ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int line_join(struct fabric_line *l, const struct fabric_end *other)
{
	const uint32_t mtu = le32toh(other->verbs.mtu);

	if (le32toh(other->kind) != FABRIC_VERBS)
		return kedge_reason(-EPROTO, "the other side does not reach regions by libibverbs");
	if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)
		return kedge_reason(-EPROTO, "what the other side tells of its adapter is nothing");
	if (!adapter_is_ours(l->a))
		return kedge_reason(-EBADF, "the adapter's descriptor was closed by the program");
	errno = be_ready_to_receive(l, &other->verbs);
	if (!errno)
		errno = be_ready_to_send(l);
	return errno ? adapter_failed("ibv_modify_qp") : 0;
}

/* ---- memory for them ---- */

static void line_unlend(struct fabric_loan *loan)
{
	adapter_close(&loan->adapter);
	free(loan);
}

/* Its lines' completion queue remains empty: they neither send nor receive. */
static int line_lend(const unsigned char place[16], void *at, uint64_t len, bool writes,
		     struct fabric_loan **out, uint32_t *key)
{
	const int rights = IBV_ACCESS_REMOTE_READ |
			   (writes ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE : 0);
	struct fabric_loan *loan = calloc(1, sizeof(*loan));
	int rc;

	if (!loan)
		return kedge_reason(-ENOMEM, "no memory for a loan");
	rc = adapter_open(&loan->adapter, place, 1);
	if (!rc)
		rc = adapter_register(&loan->adapter, at, len, rights);
	if (rc) {
		line_unlend(loan);
		return rc;
	}
	*key = loan->adapter.mr->rkey;
	*out = loan;
	return 0;
}

const struct fabric line_fabric = {
	.open = line_open,
	.join = line_join,
	.lend = line_lend,
	.unlend = line_unlend,
	.put = line_put,
	.put_runs = line_put_runs,
	.get = line_get,
	.close = line_close,
};
