// SPDX-License-Identifier: BSD-2-Clause
/*
 * The directory in etcd where the process has no memory, lock or thread: each call in turn fails
 * once. The request fails, was not done, and leaves nothing.
 */
#include <kedge/etcd.h>

#include "fake_etcd.h"

#define LONG_MS 60000

/* Of the thread that set them: the server in etcd's place has threads, too. */
static __thread unsigned int fail_at, calls;
static _Atomic long live; /* locks and conditions */

static bool fails(void)
{
	return fail_at && ++calls == fail_at;
}

#define WRAP(type, name, ...)                   \
	extern type __real_##name(__VA_ARGS__); \
	extern type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(void *, malloc, size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

WRAP(void *, calloc, size_t cnt, size_t size)
{
	return fails() ? NULL : __real_calloc(cnt, size);
}

WRAP(char *, strdup, const char *text)
{
	return fails() ? NULL : __real_strdup(text);
}

WRAP(int, pthread_mutex_init, pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
	int rc = fails() ? ENOMEM : __real_pthread_mutex_init(m, a);

	atomic_fetch_add(&live, !rc);
	return rc;
}

WRAP(int, pthread_mutex_destroy, pthread_mutex_t *m)
{
	atomic_fetch_sub(&live, 1);
	return __real_pthread_mutex_destroy(m);
}

WRAP(int, pthread_cond_init, pthread_cond_t *c, const pthread_condattr_t *a)
{
	int rc = fails() ? ENOMEM : __real_pthread_cond_init(c, a);

	atomic_fetch_add(&live, !rc);
	return rc;
}

WRAP(int, pthread_cond_destroy, pthread_cond_t *c)
{
	atomic_fetch_sub(&live, 1);
	return __real_pthread_cond_destroy(c);
}

WRAP(int, pthread_create, pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return fails() ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

static void fail_call(unsigned int step)
{
	calls = 0;
	fail_at = step;
}

static void open_undoes_every_step(void **state)
{
	struct kedge_directory *const before = (struct kedge_directory *)0x1;
	const struct kedge_etcd_opts o = {
		.size = sizeof(o), .endpoints = "http://h", .user = "u", .password = "p",
		.ca = "/dev/null", .cert = "/dev/null", .key = "/dev/null",
	};
	struct kedge_directory *d;
	const long was = atomic_load(&live);
	unsigned int step;
	int rc;

	for (step = 1;; step++) {
		d = before;
		fail_call(step);
		rc = kedge_directory_open_etcd(&o, &d);
		fail_call(0);
		if (!rc)
			break;
		assert_int_equal(rc, -ENOMEM);
		assert_ptr_equal(d, before);
		assert_int_equal(atomic_load(&live), was);
	}
	/* The directory, seven texts, the lock, the condition, and libkedge's part. */
	assert_int_equal(step - 1, 11);
	kedge_directory_close(d);
	assert_int_equal(atomic_load(&live), was);
}

/* The first entry takes a thread, and memory for each of two requests. */
static void a_first_entry_fails_whole(void **state)
{
	const struct kedge_place to = place_of('B');
	struct fake *f = fake_start();
	struct kedge_directory *d;
	unsigned int step, failed = 0;
	int rc = -1;

	/* Makes the objects that libkedge has once for all threads of its own. */
	d = open_at(f->url, 0);
	assert_int_equal(kedge_directory_replace(d, 1, NULL, &to, LONG_MS), 0);
	kedge_directory_close(d);
	f->cnt[TXN] = 0;
	for (step = 1; rc; step++) {
		d = open_at(f->url, 0);
		fail_call(step);
		rc = kedge_directory_replace(d, 1, NULL, &to, LONG_MS);
		fail_call(0);
		if (rc) {
			failed++;
			assert_true(rc == -ENOMEM || rc == -EAGAIN);
			assert_int_equal(fake_cnt(f, TXN), 0);
			assert_int_equal(kedge_directory_replace(d, 1, NULL, &to, LONG_MS), 0);
			f->cnt[TXN] = 0;
		}
		kedge_directory_close(d);
	}
	assert_int_equal(failed, 3);
	assert_int_equal(fake_cnt(f, TXN), 1);
	fake_end(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_undoes_every_step),
		cmocka_unit_test(a_first_entry_fails_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
