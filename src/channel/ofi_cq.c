// SPDX-License-Identifier: BSD-2-Clause
/*
 * Completions, and what the head of each packet says.
 */
#include <stdlib.h>

#include "channel/ofi.h"

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

static void packet_came(struct ofi *o, struct ofi_buf *b, size_t len)
{
	struct ofi_head h;

	if (len < sizeof(h) || len > sizeof(h) + PACKET_MAX) {
		lies(o);
		return;
	}
	memcpy(&h, b->data, sizeof(h));
	if (h.credit > o->credit_max - o->credit ||
	    (h.kind != HEAD_PACKET && len != sizeof(h))) {
		lies(o);
		return;
	}
	o->credit += h.credit;
	switch (h.kind) {
	case HEAD_PACKET:
		b->len = len;
		list_add_tail(&o->came, &b->node);
		return;
	case HEAD_CREDIT:
		taken(o, b, false);
		return;
	case HEAD_BYE:
		kedge__ofi_die(o, -ECONNRESET);
		return;
	}
	if (kedge__ofi_flow_head(o, &h))
		taken(o, b, true);
	else
		lies(o);
}

static void completed(struct ofi *o, const struct fi_cq_msg_entry *e)
{
	struct ofi_op *op = e->op_context;

	switch (op->kind) {
	case OFI_RX:
		packet_came(o, container_of(op, struct ofi_buf, op), e->len);
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

/* What an error completion means for the connection: 0 where it may be one of
 * many, after packets that came whole. */
static int error_of(const struct fi_cq_err_entry *e)
{
	const struct ofi_op *op = e->op_context;

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
	struct fi_cq_msg_entry e[BATCH];
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
