// SPDX-License-Identifier: BSD-2-Clause
/*
 * The owner is killed, at any moment, while operations are under way: each has exactly one
 * completion, in its order, and all that were done are before those that were not.
 */
#include "region/peer/state.h"
#include "submit.h"

enum { AT_ONCE = 48, LARGE = 40000 };

static struct kedge_handle *shared;
static unsigned int seed;

static pid_t start_owner(void)
{
	const struct kedge_handle none = { { 0 } };
	pid_t pid;

	*shared = none;
	pid = fork_child();
	if (!pid) {
		make_region(LEN, NULL);
		*(volatile struct kedge_handle *)shared = handle;
		raise(SIGSTOP);
		for (;;)
			pause();
	}
	return pid;
}

/* It has stopped, as a sign that the handle is there, and goes on. */
static void wait_for_owner(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	kill(pid, SIGCONT);
	handle = *shared;
}

/* A peer's mapping stays until the peer closes it. */
static uint64_t number(void)
{
	const struct link *l = atomic_load(&remote->link);

	return way->served ? 0 : __atomic_load_n((uint64_t *)(void *)l->at, __ATOMIC_SEQ_CST);
}

static void kill_one(int n)
{
	static char data[LARGE];
	struct kedge_remote_op o[AT_ONCE];
	struct kedge_remote_completion c = { .size = sizeof(c) };
	const pid_t pid = start_owner();
	uint64_t taken = 0, ended = 0, done = 0, until;
	int i, rc, failed = 0;

	wait_for_owner(pid);
	remote = open_it();
	queue = make_queue(4 * AT_ONCE);
	until = now_ns() + (uint64_t)rand_r(&seed) % 3000000u;
	while (now_ns() < until || taken < 4) {
		for (i = 0; i < AT_ONCE; i++, taken++)
			o[i] = i % 8 == 7 ? put_of(4096, data, LARGE, taken) : add_of(0, 1, taken);
		rc = kedge_remote_submit(remote, queue, o, AT_ONCE);
		assert_true(rc >= 0 || rc == -EAGAIN);
		taken -= (uint64_t)(AT_ONCE - (rc > 0 ? rc : 0));
		while (n % 2 && kedge_queue_read(queue, &c, 1, 0) == 1) {
			assert_int_equal(c.user, ended++);
			assert_int_equal(c.status, 0);
			done += c.op == KEDGE_REMOTE_FETCH_ADD;
		}
	}
	kill(pid, SIGKILL);
	while (ended < taken) {
		c = next();
		assert_int_equal(c.user, ended++);
		failed += c.status != 0;
		assert_true(c.status == -ECONNRESET || (!c.status && !failed));
		if (!c.status && c.op == KEDGE_REMOTE_FETCH_ADD)
			assert_int_equal(c.old, done++);
	}
	assert_int_equal(read_now(), 0);
	if (!way->served)
		assert_int_equal(number(), done);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	submit(remote, o, 1);
	while (next().status != -ECONNRESET)
		submit(remote, o, 1);
	kedge_remote_close(remote);
	kedge_queue_close(queue);
}

static void killed_owners_leave_no_operation_without_its_end(void **state)
{
	int n;

	need_threads_after_fork();
	seed = (unsigned int)getpid();
	print_message("# seed %u\n", seed);
	shared = shared_memory(sizeof(*shared));
	for (n = 0; n < test_rounds(10, 60); n++)
		kill_one(n);
	munmap(shared, sizeof(*shared));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(killed_owners_leave_no_operation_without_its_end),
};

const struct suite suite = { "submit_kills", SUITE_OF(tests), .by = "tcp" };
