// SPDX-License-Identifier: BSD-2-Clause
/*
 * Completions, and what the head of each packet says.
 */
#include <stdlib.h>

#include "channel/ofi/internal.h"

#define BATCH 16
/* Errors come for all that was under way, and end. */
#define ERRORS_MAX 4096

static void lies(struct ofi *o)
{
	kedge__ofi_die(o, -EPROTO);
}

/* Back to the provider, and to the peer's credit. */
static void taken(struct ofi *o, struct ofi_buf *b, bool counted)
{
	if (kedge__ofi_repost(o, b))
		kedge__ofi_die(o, -ECONNRESET);
	else if (counted)
		o->owed++;
}

static const struct ofi_head *head_at(const struct ofi_buf *b, size_t at)
{
	return (const struct ofi_head *)(b->data + at);
}

/* The head and what belongs to it. */
static size_t length_of(const struct ofi_head *h)
{
	return sizeof(*h) + (h->kind == HEAD_PACKET ? round_up(h->id, 8) : 0);
}

size_t kedge__ofi_packet_after(const struct ofi_buf *b, size_t at)
{
	do {
		at += length_of(head_at(b, at));
	} while (at < b->len && head_at(b, at)->kind != HEAD_PACKET);
	return at;
}

/* All heads of a buffer, what they say of flows done; false: nonsense. */
static bool heads_received(struct ofi *o, struct ofi_buf *b, uint32_t *packets)
{
	const struct ofi_head *h;
	size_t at, left;

	for (at = 0; at < b->len; at += length_of(h)) {
		h = head_at(b, at);
		left = b->len - at;
		if (left < sizeof(*h) || (at && h->credit))
			return false;
		if (h->kind == HEAD_PACKET) {
			if (!h->id || h->id > OFI_PACKET_MAX ||
			    length_of(h) > left)
				return false;
			if (!(*packets)++)
				b->at = at;
		} else if (!kedge__ofi_flow_head(o, h)) {
			return false;
		}
	}
	return true;
}

static void buffer_in_turn(struct ofi *o, struct ofi_buf *b)
{
	const struct ofi_head *h = head_at(b, 0);
	const size_t len = b->len;
	uint32_t packets = 0;

	list_remove(&b->node);
	if (len < sizeof(*h) || h->credit > o->credit_max - o->credit) {
		lies(o);
		return;
	}
	o->credit += h->credit;
	if (len == sizeof(*h) && h->kind == HEAD_CREDIT)
		taken(o, b, false);
	else if (len == sizeof(*h) && h->kind == HEAD_BYE)
		kedge__ofi_die(o, -ECONNRESET);
	else if (!heads_received(o, b, &packets))
		lies(o);
	else if (packets)
		list_add_tail(&o->came, &b->node);
	else
		taken(o, b, true);
}

/* Messages take buffers in order; that they complete in order is promised for
 * connections only: a long one may be fetched while short ones come. */
static void buffer_received(struct ofi *o, struct ofi_buf *b, size_t len)
{
	if (!len) {
		lies(o);
		return;
	}
	b->len = len;
	while (!o->err && !list_empty(&o->posted)) {
		b = list_entry(o->posted.next, struct ofi_buf, node);
		if (!b->len)
			return;
		buffer_in_turn(o, b);
	}
}

static void completed(struct ofi *o, const struct fi_cq_data_entry *e)
{
	struct ofi_op *op = e->op_context;

	/* A completion of the peer's write has no context of ours. */
	if (e->flags & FI_REMOTE_WRITE) {
		if (!kedge__ofi_flow_landed(o, e->data))
			lies(o);
		return;
	}
	switch (op->kind) {
	case OFI_RX:
		buffer_received(o, container_of(op, struct ofi_buf, op),
				e->len);
		return;
	case OFI_TX:
		list_add_tail(o->free_tx.next,
			      &container_of(op, struct ofi_buf, op)->node);
		o->free_cnt++;
		o->sent_cnt--;
		return;
	case OFI_WRITE:
		kedge__ofi_write_done(o,
				      container_of(op, struct ofi_write, op));
		return;
	case OFI_READ:
		kedge__ofi_read_done(o,
				     container_of(op, struct flow, read_op));
		return;
	}
}

/* The meaning of an error completion for the connection: 0 where it may be one of
 * many, after packets that came whole. */
static int error_of(const struct fi_cq_err_entry *e)
{
	const struct ofi_op *op = e->flags & FI_REMOTE_WRITE ? NULL
							     : e->op_context;

	if (e->err == FI_ETRUNC)
		return -EPROTO;
	/* A source that is no longer mapped: what follows would be taken for
	 * its data. */
	if (e->err == FI_EFAULT || (op && op->kind == OFI_WRITE &&
				    e->err != FI_ECANCELED))
		return -ECONNRESET;
	return 0;
}

void kedge__ofi_cq_drain(struct ofi *o)
{
	struct fi_cq_data_entry e[BATCH];
	struct fi_cq_err_entry err;
	unsigned int errors = 0;
	ssize_t i, n;
	int why;

	do {
		n = fi_cq_read(o->cq, e, BATCH);
		for (i = 0; i < n && !o->err; i++)
			completed(o, &e[i]);
		if (n != -FI_EAVAIL)
			continue;
		memset(&err, 0, sizeof(err));
		if (fi_cq_readerr(o->cq, &err, 0) < 0)
			break;
		why = error_of(&err);
		if (why)
			kedge__ofi_die(o, why);
	} while (!o->err && (n == BATCH ||
			     (n == -FI_EAVAIL && ++errors < ERRORS_MAX) ||
			     (n > 0 && errors)));
	if (errors || (n < 0 && n != -FI_EAGAIN && n != -FI_EAVAIL))
		kedge__ofi_die(o, -ECONNRESET);
}
