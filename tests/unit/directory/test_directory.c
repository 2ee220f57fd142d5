// SPDX-License-Identifier: BSD-2-Clause
/* Directories of a table of functions: what open accepts of it, and what goes through. */
#include "core.h"

static void *const ctx = (void *)0x1234;
static struct kedge_directory *const before = (struct kedge_directory *)0x1;
static const struct kedge_place one = { { 1 } }, two = { { 2 } };
static int rc_next, closed;
static const struct kedge_place *got_from, *got_to;
static int got_timeout;
static bool no_memory;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
	return no_memory ? NULL : __real_malloc(size);
}

static int find(void *c, uint64_t region, struct kedge_place *place, int timeout_ms)
{
	assert_ptr_equal(c, ctx);
	assert_int_equal(region, UINT64_MAX);
	got_timeout = timeout_ms;
	*place = two;
	return rc_next;
}

static int replace(void *c, uint64_t region, const struct kedge_place *from,
		   const struct kedge_place *to, int timeout_ms)
{
	assert_ptr_equal(c, ctx);
	assert_int_equal(region, UINT64_MAX);
	got_timeout = timeout_ms;
	got_from = from;
	got_to = to;
	return rc_next;
}

static void on_close(void *c)
{
	assert_ptr_equal(c, ctx);
	closed++;
}

static const struct kedge_directory_ops good = {
	.size = sizeof(good), .find = find, .replace = replace, .close = on_close,
};

static int setup(void **state)
{
	closed = 0;
	rc_next = 0;
	no_memory = false;
	return 0;
}

static struct kedge_directory *open_good(void)
{
	struct kedge_directory *d = NULL;

	assert_int_equal(kedge_directory_open(&good, ctx, &d), 0);
	assert_non_null(d);
	return d;
}

static void expect_refusal(const struct kedge_directory_ops *ops, int rc)
{
	struct kedge_directory *d = before;

	assert_int_equal(kedge_directory_open(ops, ctx, &d), rc);
	assert_ptr_equal(d, before);
	assert_int_equal(closed, 0);
	assert_true(strlen(kedge_strerror(rc)) > 0);
}

static void ops_reach_their_context(void **state)
{
	struct kedge_directory *d = open_good();
	struct kedge_place p = one;

	assert_int_equal(kedge_directory_find(d, UINT64_MAX, &p, 7), 0);
	assert_memory_equal(&p, &two, sizeof(p));
	assert_int_equal(got_timeout, 7);
	assert_int_equal(kedge_directory_replace(d, UINT64_MAX, &one, &two, -1), 0);
	assert_int_equal(got_timeout, -1);
	assert_ptr_equal(got_from, &one);
	assert_ptr_equal(got_to, &two);
	assert_int_equal(kedge_directory_replace(d, UINT64_MAX, NULL, &two, 0), 0);
	assert_null(got_from);
	assert_int_equal(kedge_directory_replace(d, UINT64_MAX, &one, NULL, 0), 0);
	assert_null(got_to);
	kedge_directory_close(d);
	assert_int_equal(closed, 1);
}

static void results_stay_on_failure(void **state)
{
	static const int errors[] = { -ENOENT, -ETIMEDOUT, -EINPROGRESS, -ESTALE, -EKEYEXPIRED };
	struct kedge_directory *d = open_good();
	struct kedge_place p = one;
	size_t i;

	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		rc_next = errors[i];
		assert_int_equal(kedge_directory_find(d, UINT64_MAX, &p, 0), errors[i]);
		assert_memory_equal(&p, &one, sizeof(p));
		assert_int_equal(kedge_directory_replace(d, UINT64_MAX, &one, &two, 0),
				 errors[i]);
	}
	kedge_directory_close(d);
}

/* Neither 0 nor an errno is the table's own mistake. */
static void a_positive_result_is_an_error(void **state)
{
	struct kedge_directory *d = open_good();
	struct kedge_place p = one;

	rc_next = 1;
	assert_int_equal(kedge_directory_find(d, UINT64_MAX, &p, 0), -EPROTO);
	assert_memory_equal(&p, &one, sizeof(p));
	assert_int_equal(kedge_directory_replace(d, UINT64_MAX, &one, &two, 0), -EPROTO);
	kedge_directory_close(d);
}

static void wrong_arguments_are_refused(void **state)
{
	struct kedge_directory *d = open_good();
	struct kedge_place p;

	got_timeout = 99;
	assert_int_equal(kedge_directory_find(NULL, 1, &p, 0), -EINVAL);
	assert_int_equal(kedge_directory_find(d, 1, NULL, 0), -EINVAL);
	assert_int_equal(kedge_directory_replace(NULL, 1, &one, &two, 0), -EINVAL);
	assert_int_equal(kedge_directory_replace(d, 1, NULL, NULL, 0), -EINVAL);
	assert_int_equal(got_timeout, 99);
	assert_int_equal(kedge_directory_open(&good, ctx, NULL), -EINVAL);
	expect_refusal(NULL, -EINVAL);
	kedge_directory_close(d);
	kedge_directory_close(NULL);
	assert_int_equal(closed, 1);
}

static void incomplete_ops_are_refused(void **state)
{
	struct {
		struct kedge_directory_ops ops;
		uint64_t more;
	} newer = { good, 1 };
	struct kedge_directory_ops ops = good;
	struct kedge_directory *d = NULL;

	ops.find = NULL;
	expect_refusal(&ops, -EINVAL);
	assert_non_null(strstr(kedge_strerror(-EINVAL), ".find"));
	ops = good;
	ops.replace = NULL;
	expect_refusal(&ops, -EINVAL);
	assert_non_null(strstr(kedge_strerror(-EINVAL), ".replace"));
	ops = good;
	ops.flags = 1;
	expect_refusal(&ops, -EINVAL);
	ops = good;
	ops.size--;
	expect_refusal(&ops, -EINVAL);
	newer.ops.size = sizeof(newer);
	expect_refusal(&newer.ops, -E2BIG);
	newer.more = 0;
	assert_int_equal(kedge_directory_open(&newer.ops, ctx, &d), 0);
	kedge_directory_close(d);
	assert_int_equal(closed, 1);
	closed = 0;
	no_memory = true;
	expect_refusal(&good, -ENOMEM);
	no_memory = false;
}

static void close_may_be_missing(void **state)
{
	struct kedge_directory_ops ops = good;
	struct kedge_directory *d = NULL;

	ops.close = NULL;
	assert_int_equal(kedge_directory_open(&ops, ctx, &d), 0);
	kedge_directory_close(d);
	assert_int_equal(closed, 0);
}

static int use_parents(void *arg)
{
	struct kedge_place p = one;

	got_timeout = 99;
	CHILD_CHECK(kedge_directory_find(arg, UINT64_MAX, &p, 0) == -ECHILD);
	CHILD_CHECK(!memcmp(&p, &one, sizeof(p)));
	CHILD_CHECK(kedge_directory_replace(arg, UINT64_MAX, &one, &two, 0) == -ECHILD);
	CHILD_CHECK(got_timeout == 99);
	kedge_directory_close(arg);
	CHILD_CHECK(closed == 1);
	return 0;
}

static void a_child_can_only_close(void **state)
{
	struct kedge_directory *d = open_good();

	assert_int_equal(in_child(use_parents, d), 0);
	assert_int_equal(closed, 0);
	kedge_directory_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(ops_reach_their_context, setup),
		cmocka_unit_test_setup(results_stay_on_failure, setup),
		cmocka_unit_test_setup(a_positive_result_is_an_error, setup),
		cmocka_unit_test_setup(wrong_arguments_are_refused, setup),
		cmocka_unit_test_setup(incomplete_ops_are_refused, setup),
		cmocka_unit_test_setup(close_may_be_missing, setup),
		cmocka_unit_test_setup(a_child_can_only_close, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
