// SPDX-License-Identifier: BSD-2-Clause
/* A rank's sends. */
#include <string.h>

#include <kedge/kedge.h>

#include "tools/torture/channel/chan.h"

static void settle(struct chan_rank *r, uint32_t n, enum chan_out out)
{
	atomic_store_explicit(&r->out->out[n], (uint8_t)out,
			      memory_order_release);
	r->settled++;
}

/* The library has only read it. */
static void give_back(struct chan_rank *r, struct chan_send *s)
{
	size_t len = s->buf.cap;
	const char *what = chan_buf_check(&s->buf, false);

	if (!what && chan_once(r, 16) &&
	    chan_verify(&r->go, r->me, s->n, s->buf.at, len) >= 0)
		what = "in its buffer";
	if (what)
		chan_wrong(r->tally, "message %u of %zu bytes, sent: a byte "
			   "%s has changed", s->n, len, what);
	chan_buf_put(r, &s->buf);
	s->busy = false;
}

/* 0, or a negative errno of the channel. */
static int send_one(struct chan_rank *r, struct chan_send *s)
{
	uint32_t n = r->next_out, i = (uint32_t)(s - r->send);
	size_t len = chan_len(&r->go, r->me, n);
	int rc;

	if (chan_buf_get(r, &s->buf, len))
		return -ENOMEM;
	s->n = n;
	chan_fill(&r->go, r->me, n, s->buf.at, len);
	settle(r, n, OUT_TRIED);
	r->out->sent = ++r->next_out;
	rc = kedge_channel_send(r->ch, s->buf.at, len,
				chan_tag(chan_class(&r->go, r->me, n), n),
				CHAN_WINDOW + i, &s->op);
	s->busy = !rc;
	r->sends += !rc;
	if (rc)
		settle(r, n, rc == 1 ? OUT_EAGER : OUT_FAILED);
	if (rc)
		give_back(r, s);
	return rc < 0 ? rc : 0;
}

void chan_send_some(struct chan_rank *r)
{
	uint32_t i, max = r->ledger->stop ? 0 : r->go.messages;
	int rc;

	for (i = 0; i < CHAN_WINDOW && r->next_out < max; i++) {
		if (r->send[i].busy)
			continue;
		rc = send_one(r, &r->send[i]);
		if (rc) {
			chan_failed(r, "send", rc);
			return;
		}
	}
	if (r->next_out >= max && !r->sends)
		atomic_store_explicit(&r->out->closed, 1, memory_order_release);
}

void chan_send_over(struct chan_rank *r, const struct kedge_completion *c)
{
	struct chan_send *s = &r->send[c->user - CHAN_WINDOW];

	if (c->user >= 2 * CHAN_WINDOW || !s->busy) {
		chan_wrong(r->tally, "a completion of a send that there is "
			   "not");
		return;
	}
	r->sends--;
	if (c->status)
		chan_failed(r, "send", c->status);
	if (c->status == -EFAULT)
		chan_wrong(r->tally, "message %u of %zu bytes could not be "
			   "read or written", s->n, s->buf.cap);
	settle(r, s->n, c->status ? OUT_FAILED : OUT_DONE);
	give_back(r, s);
}

void chan_send_cancel(struct chan_rank *r)
{
	struct chan_send *s = &r->send[util_rng_below(&r->rng, CHAN_WINDOW)];
	int rc;

	if (!s->busy)
		return;
	rc = kedge_channel_cancel(r->ch, s->op);
	if (rc && rc != -ENOENT)
		chan_failed(r, "cancel", rc);
}
