// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions that are reached by an adapter (kedge_region_use_verbs()): that they are, what is put and
 * got then, and that nothing goes by it while the region is suspended, or after its end.
 */
#include "remote.h"
#include "suites.h"

#define LARGE ((size_t)3 << 20)

static void whatever_is_put_is_got(void **state)
{
	static const size_t lens[] = { 1, 7, 4096, 65536, 262144, 262145, 1048576, LARGE - 12345 };
	unsigned char *data = malloc(LARGE), *got = malloc(LARGE);
	size_t i, n;

	assert_true(data && got);
	begin_remote_of(LARGE, NULL);
	for (n = 0; n < sizeof(lens) / sizeof(*lens); n++) {
		for (i = 0; i < LARGE; i++)
			data[i] = (unsigned char)((i * 31 >> 7) + n);
		assert_int_equal(kedge_remote_put(remote, 77, data, lens[n], SOON_MS), 0);
		assert_memory_equal(region_at() + 77, data, lens[n]);
		region_at()[77] ^= 1;
		assert_int_equal(kedge_remote_get(remote, 77, got, lens[n], SOON_MS), 0);
		data[0] ^= 1;
		assert_memory_equal(got, data, lens[n]);
	}
	assert_int_equal(way_of(remote), KEDGE_REMOTE_RDMA);
	free(data);
	free(got);
	end_remote();
}

static void a_suspension_is_alone(void **state)
{
	char c;
	int n;

	for (n = 0; n < 50; n++) {
		wait_for_lease(remote);
		assert_int_equal(kedge_remote_put(remote, 0, "a", 1, SOON_MS), 0);
		assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
		assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
		assert_int_equal(kedge_remote_put(remote, 0, "b", 1, 1), -ETIMEDOUT);
		assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 1), -ETIMEDOUT);
		assert_int_equal(region_at()[0], 'a');
		assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
		if (n % 2)
			assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
		assert_int_equal(kedge_region_resume(region), 0);
		puts_byte(remote, 0, 'c');
	}
}

/* The key that it has had is none, and nothing that it is told is stored is lost. */
static void a_peer_that_was_stopped_stores_nowhere_else(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .max_len = LEN * 2 };
	pid_t pid;

	if (!way->provider) /* whose threads are suffered */
		need_threads_after_fork();
	assert_int_equal(kedge_region_create(LEN * 2, &o, &region), 0);
	advertise(NULL);
	pid = fork_child();
	if (!pid) {
		remote = open_it();
		wait_for_lease(remote);
		raise(SIGSTOP);
		CHILD_CHECK(!kedge_remote_put(remote, LEN, "s", 1, SOON_MS));
		CHILD_CHECK(!kedge_remote_put(remote, 0, "s", 1, SOON_MS));
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	assert_int_equal(kedge_region_suspend(region, 100), -ETIMEDOUT);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	assert_int_equal(kedge_region_grow(region, LEN * 2), 0);
	assert_int_equal(region_at()[LEN], 0);
	kill(pid, SIGCONT);
	reap(pid);
	assert_int_equal(region_at()[LEN], 's');
	assert_int_equal(region_at()[0], 's');
	kedge_region_close(region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_peer_that_was_stopped_stores_nowhere_else),
	cmocka_unit_test(whatever_is_put_is_got),
	remote_case(a_suspension_is_alone),
};

const struct suite suite_region_adapter = {
	.name = "region_adapter", SUITE_OF(tests), .by = "ofi",
};
