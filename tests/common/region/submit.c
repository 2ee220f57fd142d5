// SPDX-License-Identifier: BSD-2-Clause
/* See submit.h. */
#include "submit.h"

struct kedge_queue *queue;

struct kedge_queue *make_queue(uint32_t depth)
{
	const struct kedge_queue_opts o = { .size = sizeof(o), .depth = depth };
	struct kedge_queue *q = NULL;

	assert_int_equal(kedge_queue_open(&o, &q), 0);
	return q;
}

struct kedge_remote_op op_of(uint32_t op, uint64_t offset, void *data, size_t len, uint64_t user)
{
	return (struct kedge_remote_op){ .size = sizeof(struct kedge_remote_op), .op = op,
					 .offset = offset, .data = data, .len = len,
					 .user = user, .timeout_ms = SOON_MS };
}

struct kedge_remote_op put_of(uint64_t offset, void *data, size_t len, uint64_t user)
{
	return op_of(KEDGE_REMOTE_PUT, offset, data, len, user);
}

struct kedge_remote_op get_of(uint64_t offset, void *data, size_t len, uint64_t user)
{
	return op_of(KEDGE_REMOTE_GET, offset, data, len, user);
}

struct kedge_remote_op add_of(uint64_t offset, uint64_t value, uint64_t user)
{
	struct kedge_remote_op o = op_of(KEDGE_REMOTE_FETCH_ADD, offset, NULL, 0, user);

	o.value = value;
	return o;
}

void submit(struct kedge_remote *r, const struct kedge_remote_op *o, int cnt)
{
	int rc = kedge_remote_submit(r, queue, o, (size_t)cnt);

	if (rc != cnt)
		fail_msg("%d: %s", rc, kedge_strerror(rc));
}

struct kedge_remote_completion next(void)
{
	struct kedge_remote_completion c = { .size = sizeof(c) };

	assert_int_equal(kedge_queue_read(queue, &c, 1, SOON_MS), 1);
	return c;
}

struct kedge_remote_completion ends(uint64_t user, int status)
{
	struct kedge_remote_completion c = next();

	if (c.user != user || c.status != status)
		fail_msg("%llu ended with %d: %s, where %llu was to end with %d",
			 (unsigned long long)c.user, c.status, kedge_remote_strerror(&c),
			 (unsigned long long)user, status);
	return c;
}

int read_now(void)
{
	struct kedge_remote_completion c = { .size = sizeof(c) };

	return kedge_queue_read(queue, &c, 1, 0);
}

void begin_queue(uint32_t depth)
{
	begin_remote(NULL);
	queue = make_queue(depth);
}

void end_queue(void)
{
	end_remote();
	kedge_queue_close(queue);
}

int with_queue(void **state)
{
	begin_queue(0);
	return 0;
}

int without_queue(void **state)
{
	end_queue();
	return 0;
}
