// SPDX-License-Identifier: BSD-2-Clause
/* Completions, and what the head of each packet says. */
#include "channel/rdma/internal.h"

static void lies(struct rdma *r)
{
	kedge__rdma_die(r, -EPROTO);
}

/* Back to the provider, and to the peer's credit. */
static void taken(struct rdma *r, struct rdma_buf *b, bool counted)
{
	if (kedge__rdma_repost(r, b))
		kedge__rdma_die(r, -ECONNRESET);
	else if (counted)
		r->owed++;
}

static const struct rdma_head *head_at(const struct rdma_buf *b, size_t at)
{
	return (const struct rdma_head *)(b->data + at);
}

/* The head and what belongs to it. */
static size_t length_of(const struct rdma_head *h)
{
	return sizeof(*h) + (h->kind == HEAD_PACKET ? round_up(h->id, 8) : 0);
}

size_t kedge__rdma_packet_after(const struct rdma_buf *b, size_t at)
{
	do {
		at += length_of(head_at(b, at));
	} while (at < b->len && head_at(b, at)->kind != HEAD_PACKET);
	return at;
}

/* All heads of a buffer, what they say of flows done; false: nonsense. */
static bool heads_received(struct rdma *r, struct rdma_buf *b, uint32_t *packets)
{
	const struct rdma_head *h;
	size_t at, left;

	for (at = 0; at < b->len; at += length_of(h)) {
		h = head_at(b, at);
		left = b->len - at;
		if (left < sizeof(*h) || (at && h->credit))
			return false;
		if (h->kind == HEAD_PACKET) {
			if (!h->id || h->id > RDMA_PACKET_MAX ||
			    length_of(h) > left)
				return false;
			if (!(*packets)++)
				b->at = at;
		} else if (!kedge__rdma_flow_head(r, h)) {
			return false;
		}
	}
	return true;
}

static void buffer_in_turn(struct rdma *r, struct rdma_buf *b)
{
	const struct rdma_head *h = head_at(b, 0);
	const size_t len = b->len;
	uint32_t packets = 0;

	list_remove(&b->node);
	if (len < sizeof(*h) || h->credit > r->credit_max - r->credit) {
		lies(r);
		return;
	}
	r->credit += h->credit;
	if (len == sizeof(*h) && h->kind == HEAD_CREDIT)
		taken(r, b, false);
	else if (len == sizeof(*h) && h->kind == HEAD_BYE)
		kedge__rdma_die(r, -ECONNRESET);
	else if (!heads_received(r, b, &packets))
		lies(r);
	else if (packets)
		list_add_tail(&r->came, &b->node);
	else
		taken(r, b, true);
}

/* Messages take buffers in order; that they complete in order is promised for
 * connections only: a long one may be fetched while short ones come. */
static void buffer_received(struct rdma *r, struct rdma_buf *b, size_t len)
{
	if (!len) {
		lies(r);
		return;
	}
	b->len = len;
	while (!r->err && !list_empty(&r->posted)) {
		b = list_entry(r->posted.next, struct rdma_buf, node);
		if (!b->len)
			return;
		buffer_in_turn(r, b);
	}
}

void kedge__rdma_op_done(struct rdma *r, struct rdma_op *op, size_t len)
{
	switch (op->kind) {
	case RDMA_RX:
		buffer_received(r, container_of(op, struct rdma_buf, op), len);
		return;
	case RDMA_TX:
		list_add_tail(r->free_tx.next,
			      &container_of(op, struct rdma_buf, op)->node);
		r->free_cnt++;
		r->sent_cnt--;
		return;
	case RDMA_WRITE:
		kedge__rdma_write_done(r,
				       container_of(op, struct rdma_write, op));
		return;
	case RDMA_READ:
		kedge__rdma_read_done(r,
				      container_of(op, struct flow, read_op));
		return;
	case RDMA_OWN:
		return;
	}
}

void kedge__rdma_landed(struct rdma *r, struct rdma_op *op, uint64_t id)
{
	struct rdma_buf *b;

	if (op) {
		b = container_of(op, struct rdma_buf, op);
		list_remove(&b->node);
		taken(r, b, true);
	}
	if (!kedge__rdma_flow_landed(r, id))
		lies(r);
}
