// SPDX-License-Identifier: BSD-2-Clause
/* Operations that are submitted, and their completions, as a program has them. */
#include "submit.h"
#include "suites.h"

/* ---- each operation ---- */

static void each_operation_does_what_the_call_does(void **state)
{
	char got[8] = { 0 };
	struct kedge_remote_op o[] = {
		put_of(4096, "seven..", 8, 1), get_of(4096, got, 8, 2), add_of(8, 5, 3),
		op_of(KEDGE_REMOTE_COMPARE_SWAP, 8, NULL, 0, 4),
		op_of(KEDGE_REMOTE_COMPARE_SWAP, 8, NULL, 0, 5), add_of(8, 0, 6),
	};
	struct kedge_remote_completion c;

	o[3].expected = 5;
	o[3].value = 9;
	o[4].expected = 5;
	o[4].value = 10;
	submit(remote, o, 6);
	c = ends(1, 0);
	assert_int_equal(c.len, 8);
	assert_int_equal(c.op, KEDGE_REMOTE_PUT);
	assert_string_equal(c.reason, "");
	assert_memory_equal(region_at() + 4096, "seven..", 8);
	assert_int_equal(ends(2, 0).len, 8);
	assert_string_equal(got, "seven..");
	assert_int_equal(ends(3, 0).old, 0);
	assert_int_equal(ends(4, 0).old, 5);
	assert_int_equal(ends(5, 0).old, 9);
	c = ends(6, 0);
	assert_int_equal(c.old, 9);
	assert_int_equal(c.len, 8);
	assert_int_equal(read_now(), 0);
}

static void one_that_fails_does_not_keep_others(void **state)
{
	char a = 1, b = 2, c = 0;
	struct kedge_remote_op o[] = {
		put_of(0, &a, 1, 1),	get_of(LEN, &c, 1, 2),	put_of(UINT64_MAX, &a, 1, 3),
		put_of(1, NULL, 1, 4),	add_of(4, 1, 5),	add_of(LEN, 1, 6),
		get_of(LEN, NULL, 0, 7), get_of(8, &c, SIZE_MAX, 8), put_of(0, &b, 1, 9),
	};
	static const int status[] = { 0, -EFAULT, -EFAULT, -EINVAL, -EINVAL, -EFAULT, 0, -EFAULT,
				      0 };
	struct kedge_remote_completion done;
	uint64_t i;

	submit(remote, o, 9);
	for (i = 0; i < 9; i++) {
		done = ends(i + 1, status[i]);
		assert_int_equal(done.len, i == 0 || i == 8);
		if (status[i])
			assert_string_equal(kedge_remote_strerror(&done), done.reason);
		if (status[i] == -EFAULT)
			assert_non_null(strstr(kedge_strerror(-EFAULT), "the region has"));
	}
	assert_int_equal(region_at()[0], 2);
}

static void operations_of_a_thread_are_in_order(void **state)
{
	enum { CNT = 200 };
	struct kedge_remote_op o[CNT];
	char from[CNT], got[CNT] = { 0 };
	int i;

	begin_queue(CNT);
	for (i = 0; i < CNT; i += 2) {
		from[i] = (char)i;
		o[i] = put_of(7, &from[i], 1, (uint64_t)i);
		o[i + 1] = get_of(7, &got[i], 1, (uint64_t)i + 1);
	}
	submit(remote, o, CNT);
	for (i = 0; i < CNT; i++)
		ends((uint64_t)i, 0);
	for (i = 0; i < CNT; i += 2)
		assert_int_equal(got[i], from[i]);
	end_queue();
}

/* Large ones, both ways at a time: neither side waits for the other to read. */
static void large_ones_cross(void **state)
{
	enum { LARGE = 4 << 20, CNT = 12 };
	struct kedge_remote_op o[CNT];
	char *a = malloc(LARGE), *b = calloc(1, LARGE);
	int i;

	assert_true(a && b);
	memset(a, 7, LARGE);
	make_region(LARGE, NULL);
	remote = open_it();
	queue = make_queue(0);
	for (i = 0; i < CNT; i++)
		o[i] = i % 2 ? get_of(0, b, LARGE, (uint64_t)i) : put_of(0, a, LARGE, (uint64_t)i);
	submit(remote, o, CNT);
	for (i = 0; i < CNT; i++)
		assert_int_equal(ends((uint64_t)i, 0).len, LARGE);
	assert_memory_equal(a, b, LARGE);
	end_queue();
	free(a);
	free(b);
}

static void parts_are_one_operation(void **state)
{
	char a[3] = "aa", b[5] = "bbbb", c[9];
	struct kedge_remote_part put[] = {
		{ 100, a, 2 }, { LEN - 4, b, 4 }, { 7, NULL, 0 }, { 101, b, 2 },
	};
	struct kedge_remote_part get[] = { { LEN - 4, c, 4 }, { 99, c + 4, 5 } };
	struct kedge_remote_part bad[] = { { 0, b, 4 }, { LEN - 3, b, 4 } };
	struct kedge_remote_op o[4] = { put_of(0, NULL, 0, 1), get_of(0, NULL, 0, 2),
					put_of(0, NULL, 0, 3), put_of(0, NULL, 0, 4) };

	o[0].parts = put;
	o[0].part_cnt = 4;
	o[1].parts = get;
	o[1].part_cnt = 2;
	o[2].parts = bad;
	o[2].part_cnt = 2;
	o[3].parts = put;
	submit(remote, o, 4);
	assert_int_equal(ends(1, 0).len, 8);
	assert_int_equal(ends(2, 0).len, 9);
	assert_memory_equal(c, "bbbb\0abb\0", 9);
	ends(3, -EFAULT);
	assert_int_equal(region_at()[0], 0);
	assert_int_equal(ends(4, 0).len, 0);
}

static void what_is_no_operation_is_not_taken(void **state)
{
	struct kedge_remote_op o[3] = { add_of(0, 1, 1), add_of(0, 1, 2), add_of(0, 1, 3) };
	struct kedge_remote_completion c = { .size = sizeof(c) };
	struct kedge_queue_opts opts = { .size = sizeof(opts), .depth = KEDGE_QUEUE_DEPTH_MAX + 1 };

	o[1].op = 5;
	assert_int_equal(kedge_remote_submit(remote, queue, o, 3), 1);
	ends(1, 0);
	assert_int_equal(kedge_remote_submit(remote, queue, o + 1, 2), -EINVAL);
	o[1].op = 0;
	assert_int_equal(kedge_remote_submit(remote, queue, o + 1, 2), -EINVAL);
	o[1].op = KEDGE_REMOTE_FETCH_ADD;
	o[1].flags = 1;
	assert_int_equal(kedge_remote_submit(remote, queue, o + 1, 2), -EINVAL);
	o[1].flags = 0;
	o[2].size = sizeof(o[2]) - 8;
	assert_int_equal(kedge_remote_submit(remote, queue, o + 1, 2), 1);
	ends(2, 0);
	assert_int_equal(kedge_remote_submit(remote, queue, o + 2, 1), -EINVAL);
	assert_int_equal(kedge_remote_submit(remote, queue, NULL, 1), -EINVAL);
	assert_int_equal(kedge_remote_submit(remote, queue, NULL, 0), 0);
	assert_int_equal(kedge_remote_submit(NULL, queue, o, 1), -EINVAL);
	assert_int_equal(kedge_remote_submit(remote, NULL, o, 1), -EINVAL);
	assert_int_equal(kedge_queue_read(queue, NULL, 1, 0), -EINVAL);
	assert_int_equal(kedge_queue_read(NULL, &c, 1, 0), -EINVAL);
	assert_int_equal(kedge_queue_read(queue, &c, 0, -1), 0);
	c.size = 8;
	assert_int_equal(kedge_queue_read(queue, &c, 1, 0), -EINVAL);
	assert_int_equal(kedge_queue_open(&opts, &queue), -E2BIG);
	assert_int_equal(kedge_queue_open(NULL, NULL), -EINVAL);
	assert_int_equal(kedge_queue_fd(NULL), -EINVAL);
	kedge_queue_close(NULL);
}

/* ---- queues ---- */

static void a_full_queue_takes_no_more(void **state)
{
	struct kedge_remote_op o[5];
	struct kedge_remote_completion c[8];
	uint64_t i;

	begin_queue(4);
	for (i = 0; i < 5; i++)
		o[i] = add_of(0, 1, i);
	assert_int_equal(kedge_remote_submit(remote, queue, o, 5), 4);
	assert_int_equal(kedge_remote_submit(remote, queue, o + 4, 1), -EAGAIN);
	assert_non_null(strstr(kedge_strerror(-EAGAIN), "full"));
	ends(0, 0);
	submit(remote, o + 4, 1);
	assert_int_equal(kedge_remote_submit(remote, queue, o, 1), -EAGAIN);
	/* Several of them at once, as far as they are there. */
	c[0].size = sizeof(c[0]);
	for (i = 1; i < 5; i += (uint64_t)kedge_queue_read(queue, c, 8, SOON_MS))
		assert_int_equal(c[0].size, sizeof(c[0]));
	assert_int_equal(i, 5);
	assert_int_equal(read_now(), 0);
	end_queue();
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, ms) == 1 && p.revents == POLLIN;
}

static void its_descriptor_tells_of_completions(void **state)
{
	struct kedge_remote_op o[2] = { add_of(0, 1, 1), add_of(0, 1, 2) };
	int fd, i;

	submit(remote, o, 1);
	fd = kedge_queue_fd(queue);
	assert_true(fd >= 0);
	assert_int_equal(kedge_queue_fd(queue), fd);
	assert_true(readable(fd, SOON_MS));
	ends(1, 0);
	assert_false(readable(fd, 0));
	for (i = 0; i < 3; i++) {
		submit(remote, o, 2);
		assert_true(readable(fd, SOON_MS));
		ends(1, 0);
		assert_true(readable(fd, SOON_MS));
		ends(2, 0);
		assert_false(readable(fd, 0));
	}
	/* One that the program has closed is told of, and not written to. */
	close(fd);
	assert_int_equal(dup2(1, fd), fd);
	submit(remote, o, 2);
	ends(1, 0);
	ends(2, 0);
	assert_int_equal(kedge_queue_fd(queue), -EBADF);
	close(fd);
}

enum { THREADS = 4, EACH = 2000 };
static _Atomic int wrong;

static void *submit_many(void *arg)
{
	struct kedge_remote_op o[8];
	struct kedge_remote *r = arg;
	int i, n, rc;

	for (i = 0; i < EACH; i += rc > 0 ? rc : 0) {
		for (n = 0; n < 8; n++)
			o[n] = add_of(8, 1, 1);
		rc = kedge_remote_submit(r, queue, o, EACH - i < 8 ? (size_t)(EACH - i) : 8);
		wrong += rc < 0 && rc != -EAGAIN;
	}
	return NULL;
}

static _Atomic int read_cnt;

static void *read_many(void *unused)
{
	struct kedge_remote_completion c[3] = { { .size = sizeof(c[0]) } };
	int n, i;

	while ((n = kedge_queue_read(queue, c, 3, SOON_MS)) > 0) {
		for (i = 0; i < n; i++)
			wrong += c[i].status && c[i].user;
		if (atomic_fetch_add(&read_cnt, n) + n >= THREADS * EACH + 2)
			break;
	}
	return unused;
}

static void threads_share_a_queue(void **state)
{
	struct kedge_remote_op last[2] = { add_of(8, 0, 0), add_of(8, 0, 0) };
	struct kedge_remote *second;
	pthread_t t[THREADS], r[2];
	int i;

	begin_queue(32);
	second = open_it();
	wrong = read_cnt = 0;
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&r[i], NULL, read_many, NULL), 0);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, submit_many, i % 2 ? second : remote),
				 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	/* One for each that reads. */
	WAIT_FOR(atomic_load(&read_cnt) >= THREADS * EACH);
	submit(remote, last, 2);
	WAIT_FOR(atomic_load(&read_cnt) >= THREADS * EACH + 2);
	submit(remote, last, 2);
	for (i = 0; i < 2; i++)
		pthread_join(r[i], NULL);
	assert_int_equal(wrong, 0);
	assert_int_equal(((uint64_t *)(void *)region_at())[1], THREADS * EACH);
	kedge_remote_close(second);
	end_queue();
}

/* ---- regions that change ---- */

static void what_must_wait_does_not_keep_the_thread(void **state)
{
	char a = 1, b = 2;
	struct kedge_remote_op o[3] = { put_of(0, &a, 1, 1), put_of(0, &b, 1, 2),
					add_of(8, 1, 3) };

	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	o[2].timeout_ms = -1;
	submit(remote, o, 3);
	assert_int_equal(read_now(), 0);
	assert_int_equal(region_at()[0], 0);
	assert_int_equal(kedge_region_resume(region), 0);
	ends(1, 0);
	ends(2, 0);
	ends(3, 0);
	assert_int_equal(region_at()[0], 2);
}

/* The thread that did them has nothing to do, once it has noticed that. */
static void what_need_not_wait_is_done_at_once(void **state)
{
	struct kedge_remote_op o = add_of(8, 1, 1);
	int in_a_row;

	submit(remote, &o, 1);
	assert_int_equal(read_now(), 1);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	submit(remote, &o, 1);
	assert_int_equal(kedge_region_resume(region), 0);
	ends(1, 0);
	/* That thread may be as fast now and then. */
	for (in_a_row = 0; in_a_row < 1000; in_a_row++) {
		submit(remote, &o, 1);
		if (read_now() == 1)
			continue;
		ends(1, 0);
		in_a_row = 0;
	}
}

static void its_time_is_over_alone(void **state)
{
	char a = 1;
	struct kedge_remote_op o[3] = { put_of(0, &a, 1, 1), put_of(1, &a, 1, 2),
					put_of(2, &a, 1, 3) };

	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	o[0].timeout_ms = 0;
	o[1].timeout_ms = 30;
	submit(remote, o, 3);
	assert_non_null(strstr(kedge_remote_strerror(
		&(struct kedge_remote_completion[]){ ends(1, -ETIMEDOUT) }[0]), "suspended"));
	ends(2, -ETIMEDOUT);
	assert_int_equal(read_now(), 0);
	assert_int_equal(kedge_region_resume(region), 0);
	ends(3, 0);
	assert_memory_equal(region_at(), "\0\0\1", 3);
}

static void what_was_moved_is_found(void **state)
{
	char c = 0;
	struct kedge_remote_op o[2] = { add_of(8, 1, 1), get_of(LEN - 1, &c, 1, 2) };
	int i;

	region_at()[LEN - 1] = 9;
	for (i = 0; i < 10; i++) {
		assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
		submit(remote, o, 2);
		assert_int_equal(ends(1, 0).old, i);
		ends(2, 0);
		assert_int_equal(c, 9);
	}
}

static void ends_of_a_handle_are_told(void **state)
{
	struct kedge_remote_op o[3] = { add_of(8, 1, 1), add_of(8, 1, 2), add_of(8, 1, 3) };

	begin_queue(0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	submit(remote, o, 2);
	assert_int_equal(kedge_region_revoke(region, &handle), 0);
	ends(1, -EKEYREVOKED);
	ends(2, -EKEYREVOKED);
	submit(remote, o + 2, 1);
	ends(3, -EKEYREVOKED);
	kedge_remote_close(remote);
	assert_int_equal(kedge_region_resume(region), 0);
	advertise(NULL);
	remote = open_it();
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	submit(remote, o, 2);
	kedge_region_close(region);
	ends(1, -EKEYREVOKED);
	ends(2, -EKEYREVOKED);
	kedge_remote_close(remote);
	kedge_queue_close(queue);
}

static const struct CMUnitTest tests[] = {
	queue_case(each_operation_does_what_the_call_does),
	queue_case(one_that_fails_does_not_keep_others),
	cmocka_unit_test(operations_of_a_thread_are_in_order),
	cmocka_unit_test(large_ones_cross),
	queue_case(parts_are_one_operation),
	queue_case(what_is_no_operation_is_not_taken),
	cmocka_unit_test(a_full_queue_takes_no_more),
	queue_case(its_descriptor_tells_of_completions),
	cmocka_unit_test(threads_share_a_queue),
	queue_case(what_must_wait_does_not_keep_the_thread),
	queue_case_for(FOR_MAPPED, what_need_not_wait_is_done_at_once),
	queue_case(its_time_is_over_alone),
	queue_case(what_was_moved_is_found),
	cmocka_unit_test(ends_of_a_handle_are_told),
};

const struct suite suite_submit = {
	.name = "submit", SUITE_OF(tests), .by = "tcp",
};
