// SPDX-License-Identifier: BSD-2-Clause
/*
 * Flows: bulk data by frames of the one stream. See internal.h.
 */
#include <stdlib.h>

#include "channel/tcp/internal.h"

/* The descriptor in a CTS. */
struct tcp_desc {
	uint32_t id;
	uint32_t zero;
	uint64_t len;
};

static struct tcp_flow *flow_of(const struct bulk *b)
{
	return (struct tcp_flow *)(uintptr_t)b->priv[0];
}

/* ---- places in the pieces ---- */

static int flow_new(struct bulk *b, struct tcp_flow **out)
{
	struct tcp_flow *f;

	b->priv[0] = 0;
	if (!bulk_fits(b))
		return kedge_reason(-EINVAL, "the pieces do not hold the "
				    "message");
	f = calloc(1, sizeof(*f));
	if (!f)
		return kedge_reason(-ENOMEM, "no memory for a message");
	list_init(&f->node);
	f->bulk = b;
	f->len = b->len;
	*out = f;
	return 0;
}

/* ---- the ops ---- */

int tcp_offer(void *ctx, struct bulk *b, void *desc, size_t *len)
{
	struct tcp *t = ctx;

	(void)desc;
	b->priv[0] = 0;
	*len = 0;
	/* Its data moves in polls alone, so that its RTS waits for one, too:
	 * with others. */
	t->later = true;
	return 0;
}

int tcp_accept(void *ctx, struct bulk *b, const void *rts, size_t rts_len,
	       void *cts, size_t *cts_len)
{
	struct tcp_desc d = { .len = b->len };
	struct tcp *t = ctx;
	struct tcp_flow *f = NULL;
	int rc;

	(void)rts;
	b->priv[0] = 0;
	if (rts_len)
		return kedge_reason(-EPROTO, "the peer sent a descriptor with an "
				    "RTS, which has none over TCP");
	if (t->err)
		return t->err;
	rc = flow_new(b, &f);
	if (rc)
		return rc;
	/* 0 is no flow's. */
	if (!++t->next_id)
		t->next_id = 1;
	t->flow_cnt++;
	f->id = d.id = t->next_id;
	f->recv = true;
	list_add_tail(&t->landing, &f->node);
	b->priv[0] = (uintptr_t)f;
	t->later = true;
	*cts_len = sizeof(d);
	memcpy(cts, &d, sizeof(d));
	return 0;
}

int tcp_start(void *ctx, struct bulk *b, const void *cts, size_t cts_len)
{
	struct tcp_desc d = { 0 };
	struct tcp *t = ctx;
	struct tcp_flow *f = NULL;
	int rc;

	if (cts_len == sizeof(d))
		memcpy(&d, cts, sizeof(d));
	if (!d.id || d.zero || d.len != b->len)
		return kedge_reason(-EPROTO, "the peer answers for a message "
				    "that it was not sent");
	rc = flow_new(b, &f);
	if (rc)
		return rc;
	f->id = d.id;
	list_add_tail(&t->sending, &f->node);
	b->priv[0] = (uintptr_t)f;
	return 0;
}

int tcp_step(void *ctx, struct bulk *b)
{
	struct tcp_flow *f = flow_of(b);
	struct tcp *t = ctx;
	uint64_t before = f->seen;

	if (!f->recv)
		tcp_pump(t, true);
	if (f->err)
		return f->err;
	if (f->finished && f->recv)
		return 1;
	if (f->finished) {
		/* The kernel has it, and the peer sees its end by itself. */
		b->flags |= BULK_ACKED;
		return 1;
	}
	f->seen = f->done;
	return f->done != before ? 0 : -EAGAIN;
}

/* It never waits for the peer: see internal.h. */
int tcp_stop(void *ctx, struct bulk *b)
{
	struct tcp_flow *f = flow_of(b);
	struct tcp *t = ctx;

	if (!f)
		return 0;
	if (f->recv) {
		if (t->in.flow == f)
			t->in.flow = NULL;
	} else {
		tcp_out_drop(t, f);
		if (f->finished)
			b->flags |= BULK_ACKED;
	}
	list_remove(&f->node);
	list_init(&f->node);
	return 0;
}

void tcp_end(void *ctx, struct bulk *b)
{
	struct tcp_flow *f = flow_of(b);
	struct tcp *t = ctx;

	if (!f)
		return;
	tcp_stop(t, b);
	if (!f->recv && f->finished && t->finished_cnt)
		t->finished_cnt--;
	free(f);
	b->priv[0] = 0;
}
