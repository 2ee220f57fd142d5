// SPDX-License-Identifier: BSD-2-Clause
/*
 * See posts.h. ibv_post_send() and its kin are inline functions, which call what the device's
 * context names. A provider that a library drives past them, as UCX does mlx5, is not seen.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/base.h"
#include "preload/held.h"
#include "preload/posts.h"
#include "preload/table.h"

/* A device that was opened. It stays, so that the list needs no lock: another one at the same
 * address is found before it. */
struct device {
	struct device *next;
	const struct ibv_context *context;
	struct ibv_context_ops ops; /* the provider's */
};

static struct device *_Atomic devices;
static _Atomic uint64_t cnt;

/*
 * acquire: partner of the release in posts_follow(). A context that was not opened here has these
 * functions where a provider made it a copy of one that was: then the newest device's are meant.
 */
static const struct ibv_context_ops *ops_of(const struct ibv_context *context)
{
	const struct device *first = atomic_load_explicit(&devices, memory_order_acquire), *d;

	for (d = first; d && d->context != context; d = d->next)
		;
	return d ? &d->ops : &first->ops;
}

static void see_own(const void *context, const struct ibv_sge *sge, int sges)
{
	int i;

	atomic_fetch_add_explicit(&cnt, 1, memory_order_relaxed);
	for (i = 0; i < sges; i++)
		table_use(context, sge[i].lkey, sge[i].addr, sge[i].length);
}

static uint64_t length_of(const struct ibv_send_wr *wr)
{
	uint64_t len = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	return len;
}

static void see_peers(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		table_use(NULL, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length_of(wr));
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		table_use(NULL, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, 8);
		break;
	default:
		break;
	}
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *first, struct ibv_send_wr **bad)
{
	const struct ibv_send_wr *wr;

	held_look();
	for (wr = first; wr; wr = wr->next) {
		/* Of inline data the processor has made a copy. */
		see_own(qp->context, wr->sg_list,
			wr->send_flags & IBV_SEND_INLINE ? 0 : wr->num_sge);
		see_peers(wr);
	}
	return ops_of(qp->context)->post_send(qp, first, bad);
}

static void see_receives(const void *context, const struct ibv_recv_wr *wr)
{
	held_look();
	for (; wr; wr = wr->next)
		see_own(context, wr->sg_list, wr->num_sge);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *first, struct ibv_recv_wr **bad)
{
	see_receives(qp->context, first);
	return ops_of(qp->context)->post_recv(qp, first, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *first, struct ibv_recv_wr **bad)
{
	see_receives(srq->context, first);
	return ops_of(srq->context)->post_srq_recv(srq, first, bad);
}

void posts_follow(struct ibv_context *context)
{
	struct device *d = calloc(1, sizeof(*d));

	if (!d)
		return;
	d->context = context;
	d->ops = context->ops;
	d->next = atomic_load(&devices);
	/* release: partner of the acquire in ops_of(). */
	while (!atomic_compare_exchange_weak_explicit(&devices, &d->next, d, memory_order_release,
						      memory_order_relaxed))
		;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
}

uint64_t posts_cnt(void)
{
	return atomic_load_explicit(&cnt, memory_order_relaxed);
}
