// SPDX-License-Identifier: BSD-2-Clause
/*
 * The adapters without regions: reads and writes between memory of two processes that is registered
 * once, by a queue pair of their own, as a program does that knows both sides. One work request has
 * all of an access, and one completion tells its end.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include <kedge/verbs.h>

#include "base/base.h"
#include "tools/common/rdma/rdma.h"
#include "tools/perf/region/region.h"

#define MEET_MS 10000
#define DONE_NS UINT64_C(10000000000)
#define DEPTH	2
/* After which an adapter that is software is given the processor. */
#define SPINS	2000

/* The other side's way to it. */
struct place {
	uint64_t at;
	uint32_t key;
	uint32_t pad;
};

/* @flushed: what the read behind a write brings */
struct raw_verbs {
	struct rdma_dev dev;
	struct rdma_end end;
	struct ibv_mr *mr;
	struct ibv_mr *flush_mr;
	struct place other;
	char *memory;
	char flushed;
};

int raw_verbs_use(void)
{
	return kedge_region_use_verbs();
}

static int meet(struct raw_verbs *r, int fd)
{
	const struct place ours = { (uintptr_t)r->memory, r->mr->rkey, 0 };
	int rc = rdma_meet(&r->end, fd, MEET_MS);

	if (!rc)
		rc = proc_send(fd, &ours, sizeof(ours));
	return rc ? rc : proc_recv(fd, &r->other, sizeof(r->other));
}

static int have_memory(struct raw_verbs *r, size_t len)
{
	r->mr = ibv_reg_mr(r->dev.pd, r->memory, len, IBV_ACCESS_LOCAL_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	r->flush_mr = ibv_reg_mr(r->dev.pd, &r->flushed, 1, IBV_ACCESS_LOCAL_WRITE);
	return r->mr && r->flush_mr ? 0 : kedge_reason(-ENOMEM, "the adapter registers no memory: "
						       "raise RLIMIT_MEMLOCK with ulimit -l");
}

int raw_verbs_open(const char *node, int fd, void *memory, size_t len, struct raw_verbs **raw)
{
	struct raw_verbs *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	r->memory = memory;
	rc = rdma_dev_open_at(&r->dev, node);
	if (rc)
		goto free_it;
	rc = rdma_end_open(&r->end, &r->dev, DEPTH);
	if (rc)
		goto close_dev;
	rc = have_memory(r, len);
	if (!rc)
		rc = meet(r, fd);
	if (rc)
		goto close_all;
	*raw = r;
	return 0;

close_all:
	raw_verbs_close(r);
	return rc;
close_dev:
	rdma_dev_close(&r->dev);
free_it:
	free(r);
	return rc;
}

void raw_verbs_close(struct raw_verbs *r)
{
	if (!r)
		return;
	rdma_end_close(&r->end);
	if (r->mr)
		ibv_dereg_mr(r->mr);
	if (r->flush_mr)
		ibv_dereg_mr(r->flush_mr);
	rdma_dev_close(&r->dev);
	free(r);
}

static int wait_one(struct raw_verbs *r)
{
	const uint64_t until = clock_ns() + DONE_NS;
	struct ibv_wc wc;
	unsigned int i;
	int n;

	for (i = 0; !(n = ibv_poll_cq(r->end.cq, 1, &wc)); i++) {
		if (i < SPINS)
			cpu_relax();
		else if (clock_ns() < until)
			sched_yield();
		else
			return -ETIMEDOUT;
	}
	return n < 0 || wc.status != IBV_WC_SUCCESS ? -EIO : 0;
}

int raw_verbs_read(struct raw_verbs *r, size_t len)
{
	struct ibv_sge s = { (uintptr_t)r->memory, (uint32_t)len, r->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = r->other.at, .rkey = r->other.key },
	};

	return ibv_post_send(r->end.qp, &wr, &bad) ? -EIO : wait_one(r);
}

int raw_verbs_write(struct raw_verbs *r, size_t len, bool flush)
{
	struct ibv_sge to = { (uintptr_t)&r->flushed, 1, r->flush_mr->lkey };
	struct ibv_send_wr *bad, behind = {
		.sg_list = &to, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = r->other.at + len - 1, .rkey = r->other.key },
	};
	struct ibv_sge s = { (uintptr_t)r->memory, (uint32_t)len, r->mr->lkey };
	struct ibv_send_wr wr = {
		.next = flush ? &behind : NULL,
		.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flush ? 0 : IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = r->other.at, .rkey = r->other.key },
	};

	return ibv_post_send(r->end.qp, &wr, &bad) ? -EIO : wait_one(r);
}
