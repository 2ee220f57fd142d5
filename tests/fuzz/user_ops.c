// SPDX-License-Identifier: BSD-2-Clause
#include "user_ops.h"

struct bytes in;
struct user_op ops[OPS];
static unsigned int live;

static struct user_op *op_new(size_t len)
{
	unsigned int i;

	for (i = 0; i < OPS; i++)
		if (!ops[i].buf)
			break;
	if (i == OPS)
		return NULL;
	ops[i].buf = malloc(len ? len : 1);
	CHECK(ops[i].buf);
	memset(ops[i].buf, 1, len);
	ops[i].len = len;
	return &ops[i];
}

static void op_over(struct user_op *o)
{
	/* An access to it from now on is seen by the sanitizer. */
	free(o->buf);
	o->buf = NULL;
	live -= o->busy;
	o->busy = false;
}

static void posted(struct user_op *o, int rc)
{
	o->busy = !rc;
	live += !rc;
	if (rc)
		op_over(o);
}

void do_recv(struct kedge_channel *ch, size_t len, uint64_t tag, uint64_t mask)
{
	struct user_op *o = op_new(len);

	if (o)
		posted(o, kedge_channel_recv(ch, o->buf, o->len, tag, mask,
					     (uint64_t)(o - ops), &o->op));
}

void do_send(struct kedge_channel *ch, size_t len, uint64_t tag)
{
	struct user_op *o = op_new(len);

	if (o)
		posted(o, kedge_channel_send(ch, o->buf, o->len, tag, (uint64_t)(o - ops),
					     &o->op));
}

void do_cancel(struct kedge_channel *ch)
{
	int rc = kedge_channel_cancel(ch, ops[take(&in) % OPS].op);

	CHECK(!rc || rc == -ENOENT);
}

ssize_t do_poll(struct kedge_channel *ch)
{
	struct kedge_completion c[4];
	ssize_t n = kedge_channel_poll(ch, c, 1 + take(&in) % 4), i;

	for (i = 0; i < n; i++) {
		CHECK(c[i].user < OPS && ops[c[i].user].busy);
		CHECK(c[i].status <= 0);
		if (!c[i].status)
			CHECK(c[i].len <= ops[c[i].user].len);
		op_over(&ops[c[i].user]);
	}
	return n;
}

ssize_t poll_to_the_end(struct kedge_channel *ch)
{
	unsigned int i;
	ssize_t n = 0;

	for (i = 0; i < 100000 && n >= 0; i++)
		n = do_poll(ch);
	CHECK(n < 0 && !live);
	for (i = 0; i < OPS; i++)
		CHECK(!ops[i].buf);
	return n;
}

void ops_end(void)
{
	unsigned int i;

	for (i = 0; i < OPS; i++)
		if (ops[i].buf)
			op_over(&ops[i]);
	CHECK(!live);
}
