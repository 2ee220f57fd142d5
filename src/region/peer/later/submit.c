// SPDX-License-Identifier: BSD-2-Clause
/*
 * Operations are submitted: each is done here where it need not wait, and else by the remote's
 * thread. An operation is done here only as long as the line is empty, so those of a
 * thread keep their order.
 */
#include <limits.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "base/process/page.h"
#include "region/peer/later/later.h"

#define OP_V1 STRUCT_END(struct kedge_remote_op, flags)

static int take_it_in(struct op *o, const struct kedge_remote_op *user)
{
	int rc = kedge__opts_copy(&o->what, sizeof(o->what), OP_V1, user);

	if (rc)
		return rc;
	if (o->what.op < KEDGE_REMOTE_PUT || o->what.op > KEDGE_REMOTE_COMPARE_SWAP)
		return kedge_reason(-EINVAL, "operation %u is unknown", o->what.op);
	if (o->what.flags)
		return kedge_reason(-EINVAL, "flags of operations are 0");
	o->part = o->what.parts;
	o->cnt = o->what.part_cnt;
	if (o->part)
		return 0;
	o->one = (struct kedge_remote_part){ o->what.offset, o->what.data, o->what.len };
	o->part = &o->one;
	o->cnt = 1;
	return 0;
}

/* 0: it is over, or in the line. */
static int begin(struct kedge_remote *r, struct op *o)
{
	struct later *w = atomic_load(&r->later);
	struct access a;
	int rc = 0;

	if (!w || !atomic_load_explicit(&w->cnt, memory_order_acquire)) {
		rc = op_check(r, o);
		a = op_access(r, o);
		a.tries = true;
		if (!rc)
			rc = op_perform(&a, o);
		if (rc <= 0) {
			queue_complete(o, rc);
			return 0;
		}
		o->begun = a.begun;
	}
	rc = later_begin(r, &w);
	if (rc)
		return rc;
	if (!o->begun)
		o->begun = clock_ns();
	line_add(w, o);
	return 0;
}

static int submit_one(struct kedge_remote *r, struct kedge_queue *q,
		      const struct kedge_remote_op *user, uint32_t size)
{
	struct op *o;
	int rc;

	if (user->size != size)
		return kedge_reason(-EINVAL, "operations of %u and of %u bytes in one array", size,
				    user->size);
	rc = queue_take(q, &o);
	if (rc)
		return rc;
	rc = take_it_in(o, user);
	if (!rc)
		rc = begin(r, o);
	if (rc)
		queue_untake(o);
	return rc;
}

static int check(const struct kedge_remote *r, const struct kedge_queue *q,
		 const struct kedge_remote_op *ops, size_t cnt)
{
	if (!r || (cnt && !ops) || cnt > INT_MAX)
		return kedge_reason(-EINVAL, "the remote region or the operations are NULL, or "
				    "there are too many");
	if (r->pid != process_pid())
		return kedge_reason(-ECHILD, "it was opened by the process that this one was "
				    "forked from: open the handle here");
	if (cnt && ops->size < OP_V1)
		return kedge_reason(-EINVAL, "operations of %u bytes: set .size to sizeof",
				    ops->size);
	return queue_check(q);
}

KEDGE_API int kedge_remote_submit(struct kedge_remote *r, struct kedge_queue *q,
				  const struct kedge_remote_op *ops, size_t cnt)
{
	int i, rc = check(r, q, ops, cnt);
	const struct kedge_remote_op *o;

	NO_CANCEL();
	if (rc)
		return rc;
	for (i = 0; i < (int)cnt; i++) {
		o = (const void *)((const char *)ops + (size_t)i * ops->size);
		rc = submit_one(r, q, o, ops->size);
		if (rc)
			break;
	}
	return i ? i : rc;
}
