// SPDX-License-Identifier: BSD-2-Clause
/* Packets into buffers, buffers to the provider, and back. */
#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "channel/ofi/internal.h"

static struct ofi_buf *take_tx(struct ofi *o)
{
	struct ofi_buf *b;

	if (!o->free_cnt)
		return NULL;
	b = list_entry(o->free_tx.next, struct ofi_buf, node);
	list_remove(&b->node);
	o->free_cnt--;
	return b;
}

static void give_tx(struct ofi *o, struct ofi_buf *b)
{
	/* First: what was used last is still in the processor's cache. */
	list_add_tail(o->free_tx.next, &b->node);
	o->free_cnt++;
}

/* False: the provider has no room now, or is closed. */
static bool post(struct ofi *o, struct ofi_buf *b, bool inject)
{
	struct ofi_head *h = (struct ofi_head *)b->data;
	const struct iovec iov = { .iov_base = b->data, .iov_len = b->len };
	const struct fi_msg msg = { .msg_iov = &iov, .desc = &o->slab_desc,
				    .iov_count = 1, .addr = o->peer,
				    .context = &b->op };
	ssize_t rc;

	h->credit = (uint16_t)o->owed;
	if (inject)
		rc = fi_inject(o->ep, b->data, b->len, o->peer);
	else
		rc = fi_sendmsg(o->ep, &msg, FI_COMPLETION);
	if (rc == -FI_EAGAIN)
		return false;
	if (rc) {
		kedge__ofi_die(o, -ECONNRESET);
		return false;
	}
	o->owed -= h->credit;
	list_remove(&b->node);
	if (b == o->open)
		o->open = NULL;
	if (inject)
		give_tx(o, b);
	else
		o->sent_cnt++;
	return true;
}

void *kedge__ofi_append_at(struct ofi *o, size_t len, uint32_t spare)
{
	size_t need = sizeof(struct ofi_head) + round_up(len, 8);

	if (o->open && o->open->len && o->open->len + need > BATCH_LEN)
		o->open = NULL;
	if (!o->open && o->free_cnt > spare) {
		o->open = take_tx(o);
		o->open->len = 0;
	}
	return o->open ? o->open->data + o->open->len : NULL;
}

void kedge__ofi_append(struct ofi *o, const struct ofi_head *h, size_t len,
		       bool rts)
{
	struct ofi_buf *b = o->open;

	if (!b->len)
		list_add_tail(&o->ready, &b->node);
	o->patient = rts && (!b->len || o->patient);
	memcpy(b->data + b->len, h, sizeof(*h));
	b->len += sizeof(*h) + round_up(len, 8);
}

/* Post a head of a kind that needs no credit. */
bool kedge__ofi_post_free(struct ofi *o, enum head_kind kind)
{
	bool inject = kind == HEAD_CREDIT && o->inject_len >=
		      sizeof(struct ofi_head);
	struct ofi_buf *b = take_tx(o);

	if (!b)
		return false;
	*(struct ofi_head *)b->data = (struct ofi_head){
		.kind = (uint8_t)kind
	};
	b->len = sizeof(struct ofi_head);
	if (post(o, b, inject))
		return true;
	give_tx(o, b);
	return false;
}

/*
 * Announced one by one, each message costs a packet; those that are agreed on
 * go ahead meanwhile, and when few are left what has gathered goes at once.
 * They leave as long as the peer takes data, and this is asked in each poll.
 */
static bool may_gather(const struct ofi *o, const struct ofi_buf *b)
{
	return o->patient && b == o->open && ofi_ahead(o);
}

void kedge__ofi_pump(struct ofi *o)
{
	struct ofi_buf *b;

	while (!o->err && o->credit && !list_empty(&o->ready)) {
		b = list_entry(o->ready.next, struct ofi_buf, node);
		if (may_gather(o, b))
			break;
		if (!post(o, b, b->len <= o->inject_len))
			return;
		o->credit--;
	}
	if (!o->err && o->owed >= RX_CNT / 2)
		kedge__ofi_post_free(o, HEAD_CREDIT);
}

bool kedge__ofi_signal(struct ofi *o, enum head_kind kind, uint32_t id,
		       uint8_t cnt)
{
	const struct ofi_head h = { .kind = (uint8_t)kind, .cnt = cnt,
				    .id = id };

	if (!kedge__ofi_append_at(o, 0, 0))
		return false;
	kedge__ofi_append(o, &h, 0, false);
	return true;
}

int kedge__ofi_repost(struct ofi *o, struct ofi_buf *b)
{
	ssize_t rc = fi_recv(o->ep, b->data, BUF_LEN, o->slab_desc, o->peer,
			     &b->op);

	if (rc == -FI_EAGAIN) {
		list_add_tail(&o->unposted, &b->node);
		return 0;
	}
	b->len = 0;
	if (!rc)
		list_add_tail(&o->posted, &b->node);
	return rc ? kedge_reason(kedge__ofi_errno(rc), "fi_recv: %s",
				 fi_strerror((int)-rc))
		  : 0;
}
