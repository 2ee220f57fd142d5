// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels over libfabric at their ends: a message whose last bytes are under
 * way is given up, or its receiver leaves as soon as it has all of it. Both ends
 * are of this process, so that a case decides who moves when.
 */
#include "channel_pair.h"
#include "ofi_pair.h"

#include "channel/internal.h"

#define MAX  ((size_t)32 << 20)
#define STEP ((size_t)512 << 10)

static char *src, *dst;
static bool tells; /* else there is a FIN, and time until then */

static struct rdma *rdma_of(const struct end *e)
{
	return e->ch->ctx;
}

static int setup(void **state)
{
	open_pair(NULL, NULL);
	tells = rdma_of(&a)->tells;
	return 0;
}

static int teardown(void **state)
{
	close_pair();
	return 0;
}

static struct kedge_completion wait_one(struct end *e, struct end *other)
{
	uint64_t end = clock_ns() + 10000000000ull;
	ssize_t n;

	for (e->cnt = 0; !e->cnt;) {
		n = turn(e);
		assert_true(n >= 0 || n == -ECONNRESET);
		if (other)
			kedge_channel_poll(other->ch, NULL, 0);
		assert_true(clock_ns() < end);
	}
	return e->done[0];
}

/* The one flow of what @a sends, when @b has agreed to it. */
static struct flow *agreed(void)
{
	struct list *sending = &rdma_of(&a)->sending;
	uint64_t end = clock_ns() + 10000000000ull;

	while (list_empty(sending)) {
		kedge_channel_poll(b.ch, NULL, 0);
		kedge_channel_poll(a.ch, NULL, 0);
		assert_true(clock_ns() < end);
	}
	return list_entry(sending->next, struct flow, node);
}

/* As far as @a comes without @b: whether all is posted, and not all has left. */
static bool last_bytes_wait(const struct flow *f)
{
	int i;

	for (i = 0; i < 2000 && !list_empty(&rdma_of(&a)->sending); i++) {
		if (f->posted == f->len && f->in_flight && i > 500)
			return true;
		kedge_channel_poll(a.ch, NULL, 0);
	}
	return false;
}

static uint64_t begin(size_t len)
{
	uint64_t id;

	fill_bytes(src, len, len);
	memset(dst, 0, len);
	post(&b, dst, len, TAG(1), 0);
	assert_int_equal(kedge_channel_send(a.ch, src, len, 1, 0, &id), 0);
	return id;
}

/* The peer is told by what is in the network already, so it is whole on both
 * sides or on none. */
static void it_is_too_late_to_give_up(void **state)
{
	const uint64_t end = clock_ns() + 100000000000ull; /* it hangs */
	struct kedge_completion of_a, of_b;
	bool was_late = false;
	size_t len;
	uint64_t id;

	if (!tells)
		skip();
	/* The kernel takes more or less at a time: till it has left some. */
	for (len = MAX; !was_late; len = len > 3 * STEP ? len - STEP : MAX) {
		assert_true(clock_ns() < end);
		id = begin(len);
		was_late = last_bytes_wait(agreed());
		if (was_late)
			assert_int_equal(kedge_channel_cancel(a.ch, id), 0);
		of_a = wait_one(&a, &b);
		of_b = wait_one(&b, &a);
		assert_int_equal(of_a.status, 0);
		assert_int_equal(of_b.status, 0);
		assert_true(same_bytes(dst, len, len));
	}
}

static void the_receiver_leaves_at_once(void **state)
{
	struct kedge_completion c;
	const size_t len = STEP + 1;
	struct flow *f;

	if (!tells)
		skip();
	begin(len);
	f = agreed();
	/* @a does not look whether its last bytes have left. */
	while (f->posted < len)
		kedge_channel_poll(a.ch, NULL, 0);
	c = wait_one(&b, NULL);
	assert_int_equal(c.status, 0);
	assert_true(same_bytes(dst, len, len));
	kedge_channel_close(b.ch);
	b.ch = NULL;
	c = wait_one(&a, NULL);
	assert_int_equal(c.status, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_is_too_late_to_give_up),
		TEST(the_receiver_leaves_at_once),
	};
	int rc = ofi_missing();

	if (rc)
		return rc;
	src = malloc(MAX);
	dst = malloc(MAX);
	if (!src || !dst)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	free(src);
	free(dst);
	return rc;
}
