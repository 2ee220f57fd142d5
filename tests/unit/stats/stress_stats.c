// SPDX-License-Identifier: BSD-2-Clause
/* A reader beside threads that open, use and close caches, and a channel that is busy. */
#include "channel_pair.h"
#include "published.h"

#define ROUNDS 300

static _Atomic bool stop;

static void *cache_user(void *unused)
{
	struct nodev *dev = nodev_new();
	char *mem = new_pages(1);
	const struct kedge_mr *mr;
	struct kedge_cache *c;
	int i, k;

	for (i = 0; i < ROUNDS; i++) {
		assert_int_equal(kedge_cache_open(dev->dev, NULL, NULL, &c), 0);
		for (k = 0; k < 20; k++) {
			assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
			kedge_cache_put(c, mr);
		}
		kedge_cache_close(c);
	}
	free_pages(mem, 1);
	nodev_free(dev);
	return unused;
}

static void *channel_user(void *unused)
{
	char buf[64];

	open_pair(NULL, NULL);
	while (!atomic_load(&stop)) {
		b.cnt = a.cnt = 0;
		assert_int_equal(kedge_channel_recv(b.ch, buf, sizeof(buf), ANY, 0, NULL), 0);
		assert_true(kedge_channel_send(a.ch, "hello", 5, 1, 0, NULL) >= 0);
		while (!b.cnt) {
			turn(&a);
			turn(&b);
		}
	}
	close_pair();
	return unused;
}

static void readers_find_sums_that_grow(void **state)
{
	const char *path = path_of("s.sock"), *text;
	double gets, last = 0;
	pthread_t users[2], talker;

	assert_int_equal(pthread_create(&talker, NULL, channel_user, NULL), 0);
	run_threads(users, 2, cache_user, NULL, 0);
	/* Each cache's gets, by the time that it is closed. */
	while (last < 2 * ROUNDS * 20) {
		text = text_of_socket(path);
		gets = text ? value_of(text, "cache_gets_total", "cache=\"closed\"", NULL) : -1;
		assert_true(gets < 0 || gets >= last);
		last = gets > last ? gets : last;
	}
	assert_int_equal(last, 2 * ROUNDS * 20);
	join_threads(users, 2);
	atomic_store(&stop, true);
	pthread_join(talker, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readers_find_sums_that_grow),
	};
	char value[256];
	int failed;

	folder_begin();
	snprintf(value, sizeof(value), "unix:%s", path_of("s.sock"));
	setenv("KEDGE_STATS", value, 1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	folder_end();
	return failed;
}
