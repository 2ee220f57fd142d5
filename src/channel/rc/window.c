// SPDX-License-Identifier: BSD-2-Clause
/*
 * Type-2 memory windows on the connection's own queue pair: a peer's right to write a
 * part of a registration that gives none.
 *
 * The work requests of a send queue are done in order: a window that is bound there is
 * bound when the packet arrives that names its key, so nothing waits for the bind. Its
 * end is waited for, as the application gets the memory then.
 *
 * A window's key changes with each bind by its low byte, which is ours to count up. An
 * old key that a peer remembers gives no access until that byte has come round; so a
 * window is deallocated before that, and those that are idle are taken in turn.
 */
#include <stdlib.h>

#include "channel/rc/internal.h"

/* Keys of one window, but for the one it was allocated with. */
#define KEYS_MAX 255u

/*
 * The vendor of soft-RoCE, which looks at a window's key and rights and then at
 * the bounds of the region alone: seen on Linux 6.1 and 6.12.
 */
#define SOFT_ROCE 0xffffffu

enum state {
	WINDOW_BOUND,
	WINDOW_ENDING, /* posted */
	WINDOW_ENDED,
};

struct window {
	struct rdma_op op; /* of its end */
	struct list node; /* bound, idle or dropped */
	struct ibv_mw *mw;
	uint32_t keys; /* given away */
	enum state state;
};

void kedge__rc_windows_init(struct rc *c)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(c->id->verbs, &attr))
		return;
	c->r.windows = attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A |
					      IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	c->boundless = attr.vendor_id == SOFT_ROCE;
}

static void window_free(struct window *w)
{
	list_remove(&w->node);
	if (w->mw)
		ibv_dealloc_mw(w->mw);
	free(w);
}

static void free_all(struct list *windows)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, windows)
		window_free(list_entry(l, struct window, node));
}

/*
 * A queue pair must not be destroyed while windows are bound to it: soft-RoCE waits
 * for them for a minute then, and warns. Their users learn of it when they revoke them.
 */
void kedge__rc_windows_halt(struct rc *c)
{
	struct list *l, *tmp;
	struct window *w;

	list_for_each_safe(l, tmp, &c->bound) {
		w = list_entry(l, struct window, node);
		ibv_dealloc_mw(w->mw);
		w->mw = NULL;
		list_remove(&w->node);
	}
}

/* The queue pair is gone, and no completion comes. */
void kedge__rc_windows_fini(struct rc *c)
{
	free_all(&c->idle);
	free_all(&c->dropped);
}

static struct window *window_new(struct rc *c)
{
	struct window *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	list_init(&w->node);
	w->op.kind = RDMA_OWN;
	w->mw = ibv_alloc_mw(c->pd, IBV_MW_TYPE_2);
	if (!w->mw) {
		free(w);
		return NULL;
	}
	return w;
}

static struct window *window_take(struct rc *c)
{
	struct window *w;

	if (list_empty(&c->idle))
		return window_new(c);
	w = list_entry(c->idle.next, struct window, node);
	list_remove(&w->node);
	return w;
}

static void window_give(struct rc *c, struct window *w)
{
	if (w->keys >= KEYS_MAX)
		window_free(w);
	else
		list_add_tail(&c->idle, &w->node);
}

int kedge__rc_grant(struct rdma *r, void *reg, uint64_t at, uint64_t len,
		    uint64_t *key, void **window)
{
	struct ibv_mr *mr = reg;
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw.bind_info = {
			.mr = mr,
			.addr = at,
			.length = len,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
		},
	};
	struct rc *c = rc_of(r);
	struct window *w;

	if (!r->windows || c->window_cnt == WINDOW_CNT)
		return -EOPNOTSUPP;
	if (c->boundless && (at != (uintptr_t)mr->addr || len != mr->length))
		return -EOPNOTSUPP;
	w = window_take(c);
	if (!w)
		return -EOPNOTSUPP;
	wr.bind_mw.mw = w->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(w->mw->rkey);
	if (kedge__rc_post(c, &wr)) {
		window_give(c, w);
		return -EOPNOTSUPP;
	}
	/* libibverbs keeps it for type 1 alone. */
	w->mw->rkey = wr.bind_mw.rkey;
	w->keys++;
	w->state = WINDOW_BOUND;
	list_add_tail(&c->bound, &w->node);
	c->window_cnt++;
	*key = w->mw->rkey;
	*window = w;
	return 0;
}

static int end(struct rc *c, struct window *w)
{
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&w->op,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = w->mw->rkey,
	};
	int rc = kedge__rc_post(c, &wr);

	if (rc && rc != -EAGAIN)
		kedge__rdma_die(&c->r, rc);
	if (!rc)
		w->state = WINDOW_ENDING;
	return -EAGAIN;
}

/* A completion is due: that it names is there until then. */
static void drop(struct rc *c, struct window *w)
{
	ibv_dealloc_mw(w->mw);
	w->mw = NULL;
	list_add_tail(&c->dropped, &w->node);
}

int kedge__rc_revoke(struct rdma *r, void *window, bool now)
{
	struct rc *c = rc_of(r);
	struct window *w = window;

	/* A halted queue pair lets nobody in; nothing completes there. */
	if (!r->err && !now && w->state == WINDOW_BOUND)
		return end(c, w);
	if (!r->err && !now && w->state == WINDOW_ENDING)
		return -EAGAIN;
	c->window_cnt--;
	list_remove(&w->node);
	if (!kedge__rc_mine(c))
		w->mw = NULL;
	if (w->state == WINDOW_ENDED && w->mw)
		window_give(c, w);
	else if (w->state == WINDOW_ENDING && !r->err)
		drop(c, w);
	else
		window_free(w);
	return 0;
}

void kedge__rc_window_done(struct rdma_op *op)
{
	struct window *w = container_of(op, struct window, op);

	w->state = WINDOW_ENDED;
	if (!w->mw)
		window_free(w);
}
