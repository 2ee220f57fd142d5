// SPDX-License-Identifier: BSD-2-Clause
/* Regions, as a program makes and changes them. */
#include "look.h"
#include "remote.h"

static struct kedge_region *make(size_t len)
{
	struct kedge_region *r = NULL;
	int rc = kedge_region_create(len, NULL, &r);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	return r;
}

static bool all(const char *p, size_t len, char c)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != c)
			return false;
	return true;
}

static void pages_are_there_when_it_returns(void **state)
{
	struct kedge_region *r = make(LEN);
	char *p = bytes_of(r);
	uint64_t faults;

	assert_int_equal(look_smaps(p, "Rss"), LEN);
	assert_int_equal(look_smaps(p, "Locked"), LEN);
	faults = look_faults();
	assert_true(all(p, LEN, 0));
	memset(p, 7, LEN);
	assert_int_equal(look_faults() - faults, 0);
	assert_int_equal(bytes_had(), LEN);
	kedge_region_close(r);
	assert_int_equal(bytes_had(), 0);
}

static void a_length_is_rounded_up(void **state)
{
	struct kedge_region *r = make(1);
	struct kedge_region_info info = query(r);

	assert_int_equal(info.len, page_len());
	assert_int_equal(info.page_size, page_len());
	assert_true(info.max_len >= info.len);
	assert_int_equal(kedge_region_grow(r, page_len() + 1), 0);
	assert_int_equal(query(r).len, 2 * page_len());
	assert_int_equal(kedge_region_trim(r, 1), 0);
	assert_int_equal(query(r).len, page_len());
	kedge_region_close(r);
}

static void growing_keeps_what_there_is(void **state)
{
	struct kedge_region *r = make(LEN);
	char *p = bytes_of(r);
	size_t len;

	memset(p, 3, LEN);
	for (len = 2 * LEN; len <= 8 * LEN; len += LEN) {
		assert_int_equal(kedge_region_grow(r, len), 0);
		assert_ptr_equal(bytes_of(r), p);
		assert_true(all(p + len - LEN, LEN, 0));
		memset(p + len - LEN, 3, LEN);
	}
	assert_true(all(p, 8 * LEN, 3));
	assert_int_equal(look_smaps(p, "Locked"), 8 * LEN);
	assert_int_equal(bytes_had(), 8 * LEN);
	/* As it is: nothing to do. */
	assert_int_equal(kedge_region_grow(r, 8 * LEN), 0);
	kedge_region_close(r);
}

static void what_is_trimmed_is_gone(void **state)
{
	struct kedge_region *r = make(4 * LEN);
	char *p = bytes_of(r);

	memset(p, 5, 4 * LEN);
	assert_int_equal(kedge_region_trim(r, LEN), 0);
	assert_true(all(p, LEN, 5));
	assert_true(look_readable(p + LEN - 1));
	assert_false(look_readable(p + LEN));
	assert_int_equal(look_smaps(p, "Rss"), LEN);
	assert_int_equal(bytes_had(), LEN);
	/* Its pages were given back, so others come. */
	assert_int_equal(kedge_region_grow(r, 2 * LEN), 0);
	assert_true(all(p + LEN, LEN, 0));
	assert_false(look_readable(p + 2 * LEN));
	kedge_region_close(r);
}

static void arguments_are_checked(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o) };
	struct {
		struct kedge_region_opts o;
		uint64_t more;
	} newer = { .o.size = sizeof(newer), .more = 1 };
	struct kedge_region_info small = { .size = 4 };
	struct kedge_region_budget less = { .size = 8 };
	struct kedge_region *r = NULL;

	assert_int_equal(kedge_region_create(LEN, NULL, NULL), -EINVAL);
	assert_int_equal(kedge_region_create(0, NULL, &r), -EINVAL);
	assert_int_equal(kedge_region_create(SIZE_MAX, NULL, &r), -EINVAL);
	o.size = 4;
	assert_int_equal(kedge_region_create(LEN, &o, &r), -EINVAL);
	assert_int_equal(kedge_region_create(LEN, &newer.o, &r), -E2BIG);
	o = (struct kedge_region_opts){ .size = sizeof(o), .flags = 2 };
	assert_int_equal(kedge_region_create(LEN, &o, &r), -EINVAL);
	o = (struct kedge_region_opts){ .size = sizeof(o), .max_len = LEN - 1 };
	assert_int_equal(kedge_region_create(LEN, &o, &r), -EINVAL);
	o = (struct kedge_region_opts){ .size = sizeof(o), .max_len = UINT64_MAX };
	assert_int_equal(kedge_region_create(LEN, &o, &r), -EINVAL);
	o = (struct kedge_region_opts){ .size = sizeof(o), .max_len = SIZE_MAX / 5 };
	assert_int_equal(kedge_region_create(LEN, &o, &r), -ENOMEM);
	o = (struct kedge_region_opts){ .size = sizeof(o), .page_size = 12345 };
	assert_int_equal(kedge_region_create(LEN, &o, &r), -EINVAL);
	o = (struct kedge_region_opts){ .size = sizeof(o), .page_size = (uint64_t)1 << 60 };
	assert_int_equal(kedge_region_create(LEN, &o, &r), -EINVAL);
	assert_null(r);
	assert_int_equal(kedge_region_grow(NULL, LEN), -EINVAL);
	assert_int_equal(kedge_region_trim(NULL, LEN), -EINVAL);
	assert_int_equal(kedge_region_query(NULL, &small), -EINVAL);
	assert_int_equal(kedge_region_budget(NULL), -EINVAL);
	assert_int_equal(kedge_region_budget(&less), -EINVAL);
	kedge_region_close(NULL);
	o = (struct kedge_region_opts){ .size = sizeof(o), .max_len = 2 * LEN };
	assert_int_equal(kedge_region_create(LEN, &o, &r), 0);
	assert_int_equal(query(r).max_len, 2 * LEN);
	assert_int_equal(kedge_region_query(r, &small), -EINVAL);
	assert_int_equal(kedge_region_query(r, NULL), -EINVAL);
	assert_int_equal(kedge_region_grow(r, 2 * LEN + 1), -ERANGE);
	assert_int_equal(kedge_region_grow(r, SIZE_MAX), -ERANGE);
	assert_int_equal(kedge_region_grow(r, LEN - page_len()), -EINVAL);
	assert_int_equal(kedge_region_trim(r, 0), -EINVAL);
	assert_int_equal(kedge_region_trim(r, LEN + 1), -EINVAL);
	assert_int_equal(query(r).len, LEN);
	assert_int_equal(bytes_had(), LEN);
	kedge_region_close(r);
}

static void the_budget_holds(void **state)
{
	struct kedge_region_budget b = { .size = sizeof(b) };
	struct kedge_region *r = make(LEN), *other = NULL;

	kedge_region_budget_set(2 * LEN);
	assert_int_equal(kedge_region_create(LEN + 1, NULL, &other), -EDQUOT);
	assert_non_null(strstr(kedge_strerror(-EDQUOT), "kedge_region_budget_set"));
	assert_int_equal(kedge_region_grow(r, 2 * LEN + 1), -EDQUOT);
	assert_int_equal(query(r).len, LEN);
	assert_int_equal(kedge_region_budget(&b), 0);
	assert_int_equal(b.limit, 2 * LEN);
	assert_int_equal(b.used, LEN);
	assert_int_equal(b.free, LEN);
	assert_int_equal(b.bound, KEDGE_BOUND_BUDGET);
	assert_int_equal(kedge_region_create(LEN, NULL, &other), 0);
	kedge_region_close(other);
	assert_int_equal(kedge_region_grow(r, 2 * LEN), 0);
	/* Memory that is there stays. */
	kedge_region_budget_set(LEN);
	assert_int_equal(query(r).len, 2 * LEN);
	assert_int_equal(kedge_region_grow(r, 3 * LEN), -EDQUOT);
	assert_int_equal(kedge_region_budget(&b), 0);
	assert_int_equal(b.free, 0);
	kedge_region_budget_set(UINT64_MAX);
	assert_int_equal(kedge_region_grow(r, 3 * LEN), 0);
	kedge_region_close(r);
	assert_int_equal(bytes_had(), 0);
}

static int child_of(void *arg)
{
	struct kedge_region_info info = { .size = sizeof(info) };
	struct kedge_region *r = *(struct kedge_region **)arg, *mine = NULL;
	struct kedge_region_budget b = { .size = sizeof(b) };
	char *p = ((char **)arg)[1];

	CHILD_CHECK(!look_readable(p));
	CHILD_CHECK(kedge_region_grow(r, 2 * LEN) == -ECHILD);
	CHILD_CHECK(kedge_region_trim(r, 1) == -ECHILD);
	CHILD_CHECK(kedge_region_query(r, &info) == -ECHILD);
	CHILD_CHECK(!kedge_region_budget(&b) && !b.used);
	CHILD_CHECK(!kedge_region_create(LEN, NULL, &mine));
	kedge_region_close(r);
	CHILD_CHECK(!kedge_region_budget(&b) && b.used == LEN);
	kedge_region_close(mine);
	CHILD_CHECK(!kedge_region_budget(&b) && !b.used);
	return 0;
}

static void a_child_has_nothing_of_it(void **state)
{
	struct kedge_region *r;
	void *arg[2];

	need_threads_after_fork();
	r = make(LEN);
	arg[0] = r;
	arg[1] = bytes_of(r);
	memset(bytes_of(r), 1, LEN);
	assert_int_equal(in_child(child_of, arg), 0);
	assert_int_equal(in_raw_child(child_of, arg), 0);
	assert_true(all(bytes_of(r), LEN, 1));
	assert_int_equal(kedge_region_grow(r, 2 * LEN), 0);
	assert_int_equal(kedge_region_trim(r, LEN), 0);
	kedge_region_close(r);
}

static int a_program_may_close_all_descriptors(void *arg)
{
	struct kedge_region *r = make(LEN);
	char *p = bytes_of(r);
	int fd, last;

	memset(p, 1, LEN);
	closefrom(3);
	CHILD_CHECK(!kedge_region_grow(r, 2 * LEN));
	CHILD_CHECK(!kedge_region_trim(r, LEN));
	/* The program's own come to have the numbers. */
	last = open("/dev/null", O_RDONLY);
	for (fd = 4; fd < 64; fd++)
		dup2(last, fd);
	CHILD_CHECK(!kedge_region_grow(r, 2 * LEN));
	CHILD_CHECK(all(p, LEN, 1) && all(p + LEN, LEN, 0));
	kedge_region_close(r);
	for (fd = 4; fd < 64; fd++)
		CHILD_CHECK(fcntl(fd, F_GETFD) >= 0);
	CHILD_CHECK(!look_readable(p));
	return 0;
}

static int a_filter_may_forbid_one_of_both(void *arg)
{
	struct kedge_region *r = NULL;

	CHILD_CHECK(refuse_call(SYS_unshare));
	CHILD_CHECK(!kedge_region_create(LEN, NULL, &r));
	kedge_region_close(r);
	r = NULL;
	CHILD_CHECK(refuse_call(SYS_close_range));
	CHILD_CHECK(kedge_region_create(LEN, NULL, &r) == -EPERM && !r);
	CHILD_CHECK(strstr(kedge_strerror(-EPERM), "seccomp"));
	CHILD_CHECK(!bytes_had());
	return 0;
}

static void descriptors_are_in_a_table_of_their_own(void **state)
{
	struct kedge_region *r, *other;
	unsigned int fds = open_fds();
	uint64_t bytes;

	r = make(LEN);
	assert_int_equal(open_fds(), fds);
	assert_int_equal(look_files(&bytes), 1);
	assert_int_equal(bytes, LEN);
	other = make(LEN);
	assert_int_equal(look_files(&bytes), 2);
	assert_int_equal(bytes, 2 * LEN);
	kedge_region_close(other);
	assert_int_equal(look_files(&bytes), 1);
	kedge_region_close(r);
	assert_int_equal(open_fds(), fds);
}

static void nothing_is_left(void **state)
{
	struct kedge_region *r;
	unsigned int fds, maps, i, threads = threads_now();

	kedge_region_close(make(LEN));
	fds = open_fds();
	maps = look_maps();
	for (i = 0; i < 20; i++) {
		r = make(LEN);
		assert_int_equal(kedge_region_grow(r, 4 * LEN), 0);
		assert_int_equal(kedge_region_trim(r, LEN), 0);
		kedge_region_close(r);
	}
	assert_int_equal(open_fds(), fds);
	assert_int_equal(look_maps(), maps);
	/* The thread has gone with the last. */
	assert_true(threads_are(threads));
	assert_int_equal(look_status("VmLck"), 0);
}

static void a_region_is_one_mapping(void **state)
{
	struct kedge_region *r = make(LEN);
	unsigned int before = look_maps(), i;

	for (i = 2; i < 16; i++)
		assert_int_equal(kedge_region_grow(r, i * LEN), 0);
	assert_int_equal(look_maps(), before);
	kedge_region_close(r);
}

/* ---- several threads ---- */

#define THREADS 4
#define ROUNDS	60

static _Atomic int wrong;

static void *changes(void *arg)
{
	struct kedge_region *r = arg;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		int rc = i & 1 ? kedge_region_grow(r, (1 + i % 7) * LEN)
			       : kedge_region_trim(r, (1 + i % 5) * LEN);

		/* Another one was there before. */
		wrong |= rc && rc != -EINVAL;
		/* The first part is there whatever the others do. */
		wrong |= !all(bytes_of(r), LEN, 9);
	}
	return NULL;
}

static void threads_change_it_by_turns(void **state)
{
	struct kedge_region *r = make(LEN);
	pthread_t t[THREADS];
	unsigned int i;

	memset(bytes_of(r), 9, LEN);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, changes, r), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(wrong, 0);
	assert_int_equal(bytes_had(), query(r).len);
	kedge_region_close(r);
	assert_int_equal(bytes_had(), 0);
}

/* The node of a page, or a negative errno. */
static int node_of(void *at)
{
	int node = -1;

	return syscall(SYS_move_pages, 0, 1ul, &at, NULL, &node, 0) ? -errno : node;
}

static void pages_are_on_their_node(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .flags = KEDGE_REGION_NODE,
				       .node = 1023 };
	struct kedge_region *r = NULL;
	char *p;

	assert_int_equal(kedge_region_create(1 << 20, &o, &r), -EINVAL);
	assert_null(r);
	o.node = 1024;
	assert_int_equal(kedge_region_create(1 << 20, &o, &r), -EINVAL);
	o.flags = 0;
	o.node = 1;
	assert_int_equal(kedge_region_create(1 << 20, &o, &r), -EINVAL);
	assert_int_equal(bytes_had(), 0);
	o.flags = KEDGE_REGION_NODE;
	o.node = 0;
	assert_int_equal(kedge_region_create(1 << 20, &o, &r), 0);
	assert_int_equal(kedge_region_grow(r, 2 << 20), 0);
	p = bytes_of(r);
	assert_int_equal(node_of(p), 0);
	assert_int_equal(node_of(p + query(r).len - 1), 0);
	kedge_region_close(r);
}

static _Atomic bool all_done;

/* With a cancellation that is pending from before the first call. */
static void *use_it_cancelled(void *unused)
{
	struct kedge_region_budget b = { .size = sizeof(b) };
	struct kedge_region *r = NULL;
	struct kedge_handle h;
	bool done;

	pthread_cancel(pthread_self());
	done = !kedge_region_budget(&b) && !kedge_region_create(LEN, NULL, &r) &&
	       !kedge_region_advertise(r, NULL, &h) && !kedge_region_move(r, NULL, 0, NULL) &&
	       !kedge_region_recommit(r, 0, 0, NULL) && !kedge_region_suspend(r, 0) &&
	       !kedge_region_resume(r) && !kedge_region_revoke(r, &h) &&
	       !kedge_region_grow(r, 2 * LEN) && !kedge_region_trim(r, LEN);
	kedge_region_close(r);
	all_done = done;
	pthread_testcancel();
	return unused;
}

static void no_call_is_a_cancellation_point(void **state)
{
	pthread_t thread;
	void *end;

	assert_int_equal(pthread_create(&thread, NULL, use_it_cancelled, NULL), 0);
	assert_int_equal(pthread_join(thread, &end), 0);
	assert_true(all_done);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	assert_int_equal(bytes_had(), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(pages_are_on_their_node),
	cmocka_unit_test(pages_are_there_when_it_returns),
	cmocka_unit_test(a_length_is_rounded_up),
	cmocka_unit_test(growing_keeps_what_there_is),
	cmocka_unit_test(what_is_trimmed_is_gone),
	cmocka_unit_test(arguments_are_checked),
	cmocka_unit_test(the_budget_holds),
	cmocka_unit_test(a_child_has_nothing_of_it),
	child_case(a_program_may_close_all_descriptors),
	child_case(a_filter_may_forbid_one_of_both),
	cmocka_unit_test(descriptors_are_in_a_table_of_their_own),
	cmocka_unit_test(nothing_is_left),
	cmocka_unit_test(a_region_is_one_mapping),
	cmocka_unit_test(threads_change_it_by_turns),
	cmocka_unit_test(no_call_is_a_cancellation_point),
};

const struct suite suite = { "region", SUITE_OF(tests) };
