// SPDX-License-Identifier: BSD-2-Clause
/* Completions of a provider's. */
#include "channel/ofi/internal.h"

#define BATCH 16
/* Errors come for all that was under way, and end. */
#define ERRORS_MAX 4096

static void completed(struct rdma *r, const struct fi_cq_data_entry *e)
{
	/* A completion of the peer's write has no context of ours. */
	if (e->flags & FI_REMOTE_WRITE)
		kedge__rdma_landed(r, NULL, e->data);
	else
		kedge__rdma_op_done(r, e->op_context, e->len);
}

/* The meaning of an error completion for the connection: 0 where it may be one of
 * many, after packets that came whole. */
static int error_of(const struct fi_cq_err_entry *e)
{
	const struct rdma_op *op = e->flags & FI_REMOTE_WRITE ? NULL
							      : e->op_context;

	if (e->err == FI_ETRUNC)
		return -EPROTO;
	/* A source that is no longer mapped: what follows would be taken for
	 * its data. */
	if (e->err == FI_EFAULT || (op && op->kind == RDMA_WRITE &&
				    e->err != FI_ECANCELED))
		return -ECONNRESET;
	return 0;
}

void kedge__ofi_poll(struct rdma *r)
{
	struct ofi *o = ofi_of(r);
	struct fi_cq_data_entry e[BATCH];
	struct fi_cq_err_entry err;
	unsigned int errors = 0;
	ssize_t i, n;
	int why;

	do {
		n = fi_cq_read(o->cq, e, BATCH);
		for (i = 0; i < n && !r->err; i++)
			completed(r, &e[i]);
		if (n != -FI_EAVAIL)
			continue;
		memset(&err, 0, sizeof(err));
		if (fi_cq_readerr(o->cq, &err, 0) < 0)
			break;
		why = error_of(&err);
		if (why)
			kedge__rdma_die(r, why);
	} while (!r->err && (n == BATCH ||
			     (n == -FI_EAVAIL && ++errors < ERRORS_MAX) ||
			     (n > 0 && errors)));
	if (errors || (n < 0 && n != -FI_EAGAIN && n != -FI_EAVAIL))
		kedge__rdma_die(r, -ECONNRESET);
}
