// SPDX-License-Identifier: BSD-2-Clause
/* A submitted operation is done where the region is mapped, as the calls of access.c do it. */
#include <string.h>

#include "base/base.h"
#include "region/peer/access.h"
#include "region/peer/turn.h"

static const uint32_t needs[] = {
	[KEDGE_REMOTE_PUT] = KEDGE_HANDLE_WRITE,
	[KEDGE_REMOTE_GET] = KEDGE_HANDLE_READ,
	[KEDGE_REMOTE_FETCH_ADD] = KEDGE_HANDLE_ATOMIC,
	[KEDGE_REMOTE_COMPARE_SWAP] = KEDGE_HANDLE_ATOMIC,
};

static bool is_number(const struct op *o)
{
	return o->what.op > KEDGE_REMOTE_GET;
}

int op_check(const struct kedge_remote *r, struct op *o)
{
	int rc = o->checked ? 0 : access_check(r, needs[o->what.op]);

	if (rc || o->checked)
		return rc;
	o->checked = true;
	if (!is_number(o))
		return access_check_parts(o->part, o->cnt, &o->end);
	if (o->what.offset % sizeof(uint64_t))
		return kedge_reason(-EINVAL, "the offset is no multiple of 8");
	o->end = o->what.offset + sizeof(uint64_t);
	return 0;
}

/* Of one range what the caller gave, as it is in reasons then. */
struct access op_access(struct kedge_remote *r, const struct op *o)
{
	struct access a = { .r = r, .len = o->end, .begun = o->begun,
			    .timeout_ms = o->what.timeout_ms };

	if (is_number(o) || o->part == &o->one) {
		a.offset = o->what.offset;
		a.len = is_number(o) ? sizeof(uint64_t) : o->what.len;
	} else {
		a.part = o->part;
		a.cnt = o->cnt;
	}
	return a;
}

/* By a connection: not here. */
static int by_connection(struct access *a, void *unused)
{
	int rc;

	(void)unused;
	if (a->tries)
		return ACCESS_WAITS;
	if (a->offset > a->l->max_len || a->len > a->l->max_len - a->offset)
		return remote_beyond(a->offset, a->len, stream_had(a->l));
	rc = remote_ended(a->l);
	return rc ? rc : ACCESS_STREAMED;
}

static void copy(const struct access *a, const struct op *o)
{
	const struct kedge_remote_part *p;
	size_t i;

	for (i = 0; i < o->cnt; i++) {
		p = &o->part[i];
		if (p->len && o->what.op == KEDGE_REMOTE_PUT)
			memcpy(a->l->at + p->offset, p->data, p->len);
		else if (p->len)
			memcpy(p->data, a->l->at + p->offset, p->len);
	}
}

static void change(const struct access *a, struct op *o)
{
	uint64_t *at = (uint64_t *)(void *)(a->l->at + a->offset);

	if (o->what.op == KEDGE_REMOTE_FETCH_ADD) {
		o->old = __atomic_fetch_add(at, o->what.value, __ATOMIC_SEQ_CST);
		return;
	}
	o->old = o->what.expected;
	__atomic_compare_exchange_n(at, &o->old, o->what.value, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

int op_perform(struct access *a, struct op *o)
{
	bool go;
	int rc;

	if (!a->len)
		return 0;
	rc = access_begin(a, by_connection, NULL, &go);
	if (!go)
		return rc;
	if (is_number(o))
		change(a, o);
	else
		copy(a, o);
	gate_leave(a->l->gate);
	return 0;
}
