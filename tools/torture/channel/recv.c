// SPDX-License-Identifier: BSD-2-Clause
/*
 * A rank's receives. A receive is posted for the next message that none was
 * posted for: for its tag, for its class or for any. So messages and receives
 * meet in order, as long as nobody gives up one of either. A receive that then
 * never meets its message is given up, too, and for a message that has lost its
 * receive (r->owed of them) one is posted that takes any.
 */
#include <string.h>

#include <kedge/kedge.h>

#include "tools/torture/channel/chan.h"

static void settle(struct chan_rank *r, uint32_t n, enum chan_in in)
{
	atomic_store_explicit(&r->in->in[n], (uint8_t)in, memory_order_release);
	r->settled++;
}

/* ---- posting ---- */

struct wish {
	uint64_t tag, mask;
	size_t cap;
};

/* For message @n, of which it is known what it will be. */
static void wish_for(struct chan_rank *r, struct chan_recv *v, uint32_t n,
		     struct wish *w)
{
	uint32_t class = chan_class(&r->go, !r->me, n);
	uint64_t how = util_rng_below(&r->rng, 8);

	w->cap = chan_len(&r->go, !r->me, n);
	v->n = n;
	if (how < 4 && r->in->in[n] == IN_NONE) {
		v->pattern = PATTERN_ONE;
		w->tag = chan_tag(class, n);
		w->mask = UINT64_MAX;
		if (chan_once(r, 4))
			w->cap += util_rng_below(&r->rng, 300);
		if (chan_once(r, 50))
			w->cap = util_rng_below(&r->rng, w->cap + 1);
	} else if (how < 6) {
		v->pattern = class;
		w->tag = chan_tag(class, CHAN_NO_NUMBER);
		w->mask = CHAN_CLASS_MASK;
		w->cap = chan_class_max(class);
	} else {
		v->pattern = CHAN_CLASSES;
		w->tag = UINT64_MAX;
		w->mask = 0;
		/* Others than that one may come. */
		if (w->cap < 1024)
			w->cap = 1024;
	}
}

/* Any message that is left is taken, if it is not too long. */
static void wish_any(struct chan_rank *r, struct chan_recv *v, struct wish *w)
{
	v->pattern = CHAN_CLASSES;
	w->tag = UINT64_MAX;
	w->mask = 0;
	w->cap = chan_class_max(CHAN_CLASSES - (chan_once(r, 16) ? 1 : 3));
}

static int recv_one(struct chan_rank *r, struct chan_recv *v, bool any)
{
	struct wish w;
	int rc;

	if (any)
		wish_any(r, v, &w);
	else
		wish_for(r, v, r->next_in, &w);
	if (chan_buf_get(r, &v->buf, w.cap))
		return -ENOMEM;
	if (v->pattern == PATTERN_ONE)
		chan_buf_mark(&v->buf, chan_len(&r->go, !r->me, v->n));
	v->post = r->posts++;
	v->below = UINT64_MAX;
	rc = kedge_channel_recv(r->ch, v->buf.at, w.cap, w.tag, w.mask,
				(uint64_t)(v - r->recv), &v->op);
	if (rc) {
		chan_buf_put(r, &v->buf);
		return rc;
	}
	v->busy = true;
	r->recvs++;
	return 0;
}

/* The peer sends no more: all that is left is taken by what takes all. */
static bool is_last(const struct chan_rank *r)
{
	return atomic_load_explicit(&r->in->closed, memory_order_acquire) ||
	       r->next_in >= r->go.messages;
}

void chan_recv_some(struct chan_rank *r)
{
	bool last = is_last(r), any;
	uint32_t i, max = last ? 2 : CHAN_WINDOW;
	int rc;

	if (r->hold) {
		r->hold--;
		return;
	}
	for (i = 0; i < CHAN_WINDOW && r->recvs < max; i++) {
		if (r->recv[i].busy)
			continue;
		while (r->next_in < r->go.messages &&
		       r->in->out[r->next_in] == OUT_FAILED)
			r->next_in++;
		any = last || r->owed || r->next_in == r->go.messages;
		rc = recv_one(r, &r->recv[i], any);
		if (rc) {
			chan_failed(r, "receive", rc);
			return;
		}
		r->next_in += !any;
		r->owed -= any && r->owed;
	}
	if (chan_once(r, 256))
		r->hold = (uint32_t)util_rng_below(&r->rng, 200);
}

/* ---- completions ---- */

/* Its one message will not come: it was given up, or went elsewhere. */
static bool is_orphan(const struct chan_rank *r, const struct chan_recv *v)
{
	return v->pattern == PATTERN_ONE &&
	       (r->in->in[v->n] != IN_NONE || r->in->out[v->n] == OUT_FAILED);
}

static void got_whole(struct chan_rank *r, struct chan_recv *v, uint32_t n,
		      const struct kedge_completion *c)
{
	size_t len = chan_len(&r->go, !r->me, n);
	const char *what = chan_buf_check(&v->buf, true);
	int64_t at;

	r->tally->whole++;
	r->tally->bytes += c->len;
	r->tally->ways[c->way & 7]++;
	if (c->len != len || len > v->buf.cap) {
		chan_wrong(r->tally, "message %u has %llu bytes, not %zu", n,
			   (unsigned long long)c->len, len);
		return;
	}
	if (what)
		chan_wrong(r->tally, "message %u of %zu bytes, by %s: a byte "
			   "%s has changed", n, len, kedge_way_name(c->way),
			   what);
	at = chan_verify(&r->go, !r->me, n, v->buf.at, len);
	if (at >= 0)
		chan_wrong(r->tally, "message %u of %zu bytes, by %s: byte "
			   "%lld is wrong", n, len, kedge_way_name(c->way),
			   (long long)at);
}

/* The number of the message that it got, or CHAN_NO_NUMBER. */
static uint64_t number_of(const struct chan_recv *v,
			  const struct kedge_completion *c)
{
	uint64_t n = c->tag & ~CHAN_CLASS_MASK;

	/* One for this tag has the tag before it has the message. */
	if (c->status && c->status != -EMSGSIZE &&
	    v->pattern == PATTERN_ONE && !c->len)
		return CHAN_NO_NUMBER;
	return n;
}

static void got_message(struct chan_rank *r, struct chan_recv *v, uint32_t n,
			const struct kedge_completion *c)
{
	uint32_t class = chan_class(&r->go, !r->me, n);

	if (r->in->in[n] != IN_NONE)
		chan_wrong(r->tally, "message %u came twice", n);
	if (c->tag != chan_tag(class, n) ||
	    (v->pattern == PATTERN_ONE && v->n != n) ||
	    (v->pattern < CHAN_CLASSES && v->pattern != class))
		chan_wrong(r->tally, "message %u came with tag %llx, to a "
			   "receive for another", n,
			   (unsigned long long)c->tag);
	chan_order_add(r, v, class, n);
	if (!c->status) {
		got_whole(r, v, n, c);
		settle(r, n, IN_WHOLE);
		return;
	}
	if (c->status == -EMSGSIZE &&
	    chan_len(&r->go, !r->me, n) <= v->buf.cap)
		chan_wrong(r->tally, "message %u of %zu bytes did not fit "
			   "into %zu", n, chan_len(&r->go, !r->me, n),
			   v->buf.cap);
	/* The sender gave it up, and has no such memory any more. */
	if (c->status == -EFAULT && r->in->out[n] != OUT_FAILED)
		chan_wrong(r->tally, "message %u of %zu bytes, by %s: it "
			   "could not be read or written", n,
			   chan_len(&r->go, !r->me, n), kedge_way_name(c->way));
	if (chan_buf_check(&v->buf, false))
		chan_wrong(r->tally, "message %u, not received: a byte %s has "
			   "changed", n, chan_buf_check(&v->buf, false));
	settle(r, n, c->status == -EMSGSIZE ? IN_SHORT : IN_FAILED);
}

void chan_recv_over(struct chan_rank *r, const struct kedge_completion *c)
{
	struct chan_recv *v = &r->recv[c->user];
	uint64_t n;

	if (c->user >= CHAN_WINDOW || !v->busy) {
		chan_wrong(r->tally, "a completion of a receive that there is "
			   "not");
		return;
	}
	v->busy = false;
	r->recvs--;
	if (c->status)
		chan_failed(r, "receive", c->status);
	n = number_of(v, c);
	if (n < r->go.messages)
		got_message(r, v, (uint32_t)n, c);
	else if (!c->status || c->status == -EMSGSIZE || n != CHAN_NO_NUMBER)
		chan_wrong(r->tally, "a message came that was never sent, with "
			   "tag %llx", (unsigned long long)c->tag);
	else if (v->below != UINT64_MAX)
		chan_wrong(r->tally, "message %llu went to a receive that was "
			   "posted later", (unsigned long long)v->below);
	else if (!is_orphan(r, v))
		r->owed++;
	chan_buf_put(r, &v->buf);
}

/* ---- giving up ---- */

static void cancel(struct chan_rank *r, struct chan_recv *v)
{
	int rc = kedge_channel_cancel(r->ch, v->op);

	if (rc && rc != -ENOENT)
		chan_failed(r, "cancel", rc);
}

/* Any, or the one that was posted first, which is landing perhaps. */
void chan_recv_cancel(struct chan_rank *r)
{
	struct chan_recv *v = &r->recv[util_rng_below(&r->rng, CHAN_WINDOW)];
	size_t i;

	if (chan_once(r, 4))
		for (i = 0; i < CHAN_WINDOW; i++)
			if (r->recv[i].busy &&
			    (!v->busy || r->recv[i].post < v->post))
				v = &r->recv[i];
	if (v->busy)
		cancel(r, v);
}

void chan_recv_orphans(struct chan_rank *r, bool all)
{
	struct chan_recv *v;
	uint32_t i;

	for (i = 0; i < CHAN_WINDOW; i++) {
		v = &r->recv[i];
		if (!v->busy || v->pattern == CHAN_CLASSES)
			continue;
		if (all || is_orphan(r, v))
			cancel(r, v);
	}
}

void chan_recv_last(struct chan_rank *r)
{
	struct kedge_completion c;
	ssize_t n;

	while (!recv_one(r, &r->recv[0], true)) {
		n = kedge_channel_poll(r->ch, &c, 1);
		if (n != 1) {
			chan_wrong(r->tally, "a receive of what had come is "
				   "not complete: %s", kedge_strerror((int)n));
			return;
		}
		chan_recv_over(r, &c);
	}
}
