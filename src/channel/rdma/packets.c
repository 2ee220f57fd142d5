// SPDX-License-Identifier: BSD-2-Clause
/* Packets into buffers, buffers to the provider, and back. */
#include "channel/rdma/internal.h"

static struct rdma_buf *take_tx(struct rdma *r)
{
	struct rdma_buf *b;

	if (!r->free_cnt)
		return NULL;
	b = list_entry(r->free_tx.next, struct rdma_buf, node);
	list_remove(&b->node);
	r->free_cnt--;
	return b;
}

static void give_tx(struct rdma *r, struct rdma_buf *b)
{
	/* First: what was used last is still in the processor's cache. */
	list_add_tail(r->free_tx.next, &b->node);
	r->free_cnt++;
}

/* False: the provider has no room now, or is closed. */
static bool post(struct rdma *r, struct rdma_buf *b, bool inject)
{
	struct rdma_head *h = (struct rdma_head *)b->data;
	int rc;

	h->credit = (uint16_t)r->owed;
	rc = r->port->send(r, b, inject);
	if (rc == -EAGAIN)
		return false;
	if (rc) {
		kedge__rdma_die(r, -ECONNRESET);
		return false;
	}
	r->owed -= h->credit;
	list_remove(&b->node);
	if (b == r->open)
		r->open = NULL;
	if (inject)
		give_tx(r, b);
	else
		r->sent_cnt++;
	return true;
}

void *kedge__rdma_append_at(struct rdma *r, size_t len, uint32_t spare)
{
	size_t need = sizeof(struct rdma_head) + round_up(len, 8);

	if (r->open && r->open->len && r->open->len + need > BATCH_LEN)
		r->open = NULL;
	if (!r->open && r->free_cnt > spare) {
		r->open = take_tx(r);
		r->open->len = 0;
	}
	return r->open ? r->open->data + r->open->len : NULL;
}

void kedge__rdma_append(struct rdma *r, const struct rdma_head *h, size_t len,
		       bool rts)
{
	struct rdma_buf *b = r->open;

	if (!b->len)
		list_add_tail(&r->ready, &b->node);
	r->patient = rts && (!b->len || r->patient);
	memcpy(b->data + b->len, h, sizeof(*h));
	b->len += sizeof(*h) + round_up(len, 8);
}

/* Post a head of a kind that needs no credit. */
bool kedge__rdma_post_free(struct rdma *r, enum head_kind kind)
{
	bool inject = kind == HEAD_CREDIT && r->inject_len >=
		      sizeof(struct rdma_head);
	struct rdma_buf *b = take_tx(r);

	if (!b)
		return false;
	*(struct rdma_head *)b->data = (struct rdma_head){
		.kind = (uint8_t)kind
	};
	b->len = sizeof(struct rdma_head);
	if (post(r, b, inject))
		return true;
	give_tx(r, b);
	return false;
}

/*
 * Announced one by one, each message costs a packet; those that are agreed on
 * go ahead meanwhile, and when few are left what has gathered goes at once.
 * They leave as long as the peer takes data, and this is asked in each poll.
 */
static bool may_gather(const struct rdma *r, const struct rdma_buf *b)
{
	return r->patient && b == r->open && rdma_ahead(r);
}

void kedge__rdma_pump(struct rdma *r)
{
	struct rdma_buf *b;

	while (!r->err && r->credit && !list_empty(&r->ready)) {
		b = list_entry(r->ready.next, struct rdma_buf, node);
		if (may_gather(r, b))
			break;
		if (!post(r, b, b->len <= r->inject_len))
			return;
		r->credit--;
	}
	if (!r->err && r->owed >= RX_CNT / 2)
		kedge__rdma_post_free(r, HEAD_CREDIT);
}

bool kedge__rdma_signal(struct rdma *r, enum head_kind kind, uint32_t id,
		       uint8_t cnt)
{
	const struct rdma_head h = { .kind = (uint8_t)kind, .cnt = cnt,
				    .id = id };

	if (!kedge__rdma_append_at(r, 0, 0))
		return false;
	kedge__rdma_append(r, &h, 0, false);
	return true;
}

int kedge__rdma_repost(struct rdma *r, struct rdma_buf *b)
{
	int rc = r->port->recv(r, b);

	if (rc == -EAGAIN) {
		list_add_tail(&r->unposted, &b->node);
		return 0;
	}
	b->len = 0;
	if (!rc)
		list_add_tail(&r->posted, &b->node);
	return rc;
}
