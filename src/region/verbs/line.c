// SPDX-License-Identifier: BSD-2-Clause
/*
 * Both ends know the other's queue pair before either is joined, so no connection manager is
 * needed. A close ends the queue pair before the registration: the adapter takes no more packets
 * for it then, and has finished with those that it had.
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

static int failed(const char *call)
{
	const int err = errno ? errno : EIO;

	if (err == ENOMEM || err == EPERM)
		return kedge_reason(-ENOMEM, "%s: no memory, or RLIMIT_MEMLOCK is used up: raise "
				    "it with ulimit -l or LimitMEMLOCK=", call);
	return kedge_reason(-err, "%s: error %d", call, err);
}

/* ---- an end ---- */

static int make_pair(struct fabric_line *l)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = l->port };

	l->pd = ibv_alloc_pd(l->dev);
	if (!l->pd)
		return failed("ibv_alloc_pd");
	l->cq = ibv_create_cq(l->dev, SEND_WR, NULL, NULL, 0);
	if (!l->cq)
		return failed("ibv_create_cq");
	init.send_cq = init.recv_cq = l->cq;
	init.cap = (struct ibv_qp_cap){ .max_send_wr = SEND_WR, .max_recv_wr = 1,
					.max_send_sge = 1, .max_recv_sge = 1 };
	l->qp = ibv_create_qp(l->pd, &init);
	if (!l->qp)
		return failed("ibv_create_qp");
	/* The range's rights decide. */
	if (!l->staging)
		a.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	errno = ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      IBV_QP_ACCESS_FLAGS);
	return errno ? failed("ibv_modify_qp") : 0;
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
		return failed("madvise");
	return 0;
}

static void line_close(struct fabric_line *l)
{
	/* Numbers of others' are not written to: the kernel ends it all with the process. */
	if (l->dev && line_is_ours(l)) {
		if (l->qp)
			ibv_destroy_qp(l->qp);
		if (l->mr)
			ibv_dereg_mr(l->mr);
		if (l->cq)
			ibv_destroy_cq(l->cq);
		if (l->pd)
			ibv_dealloc_pd(l->pd);
		ibv_close_device(l->dev);
	}
	if (l->staging)
		munmap(l->staging, STAGING_LEN);
	free(l);
}

static int open_it(struct fabric_line *l, const unsigned char place[16], bool puts,
		   struct fabric_end *end)
{
	int rc = line_find(l, place, end);

	if (rc)
		return rc;
	if (puts)
		rc = make_staging(l);
	if (!rc)
		rc = make_pair(l);
	if (rc || !puts)
		return rc;
	l->mr = ibv_reg_mr(l->pd, l->staging, STAGING_LEN,
			   IBV_ACCESS_LOCAL_WRITE);
	return l->mr ? 0 : failed("ibv_reg_mr");
}

static int line_open(const unsigned char place[16], bool puts, struct fabric_line **out,
		     struct fabric_end *end)
{
	struct fabric_line *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return kedge_reason(-ENOMEM, "no memory for a connection of adapters");
	memset(end, 0, sizeof(*end));
	rc = open_it(l, place, puts, end);
	if (rc) {
		line_close(l);
		return rc;
	}
	/* Packets of a former connection of this number do not fit. */
	if (getrandom(&l->psn, sizeof(l->psn), 0) < 0)
		l->psn = (uint32_t)clock_ns();
	l->psn &= 0xffffff;
	end->qp = htole32(l->qp->qp_num);
	end->psn = htole32(l->psn);
	end->mtu = htole32(l->mtu);
	*out = l;
	return 0;
}

/* ---- two ---- */

static int be_ready_to_receive(struct fabric_line *l, const struct fabric_end *other)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = le32toh(other->mtu) < l->mtu ? le32toh(other->mtu) : l->mtu,
		.dest_qp_num = le32toh(other->qp) & 0xffffff,
		.rq_psn = le32toh(other->psn) & 0xffffff,
		.max_dest_rd_atomic = READS,
		.min_rnr_timer = NOT_READY,
		.ah_attr = {
			.is_global = 1,
			.port_num = l->port,
			.grh = { .sgid_index = (uint8_t)l->gid_index, .hop_limit = HOPS },
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
	if (le32toh(other->mtu) < IBV_MTU_256 || le32toh(other->mtu) > IBV_MTU_4096)
		return kedge_reason(-EPROTO, "what the other side tells of its adapter is nothing");
	if (!line_is_ours(l))
		return kedge_reason(-EBADF, "the adapter's descriptor was closed by the program");
	errno = be_ready_to_receive(l, other);
	if (!errno)
		errno = be_ready_to_send(l);
	return errno ? failed("ibv_modify_qp") : 0;
}

static int line_lend(struct fabric_line *l, void *at, uint64_t len, bool writes, uint32_t *key)
{
	const int rights = IBV_ACCESS_REMOTE_READ |
			   (writes ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE : 0);

	l->mr = ibv_reg_mr(l->pd, at, len, rights);
	if (!l->mr)
		return failed("ibv_reg_mr");
	*key = l->mr->rkey;
	return 0;
}

const struct fabric line_fabric = {
	.open = line_open,
	.join = line_join,
	.lend = line_lend,
	.put = line_put,
	.put_runs = line_put_runs,
	.get = line_get,
	.close = line_close,
};
