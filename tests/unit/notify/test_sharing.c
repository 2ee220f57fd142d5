// SPDX-License-Identifier: BSD-2-Clause
/*
 * Processes that share this one's memory: nothing is kept while one lives, and what was kept before
 * it was made is told.
 */
#include <sched.h>

#include "notify/internal.h"

#include "cache_pages.h"

static char stack[65536] __attribute__((aligned(64)));
static int wait_for_end[2];

static int live_till_told(void *unused)
{
	char c;

	return read(wait_for_end[0], &c, 1) != 1;
}

static int begin(void **state)
{
	assert_int_equal(pipe(wait_for_end), 0);
	return setup_open(state);
}

static int end(void **state)
{
	close(wait_for_end[0]);
	close(wait_for_end[1]);
	return teardown(state);
}

static int make(int (*fn)(void *), int flags)
{
	int pid;

	kedge_hook_sharing(0);
	pid = clone(fn, stack + sizeof(stack), flags | SIGCHLD, NULL);
	assert_true(pid > 0);
	kedge_hook_sharing(pid);
	return pid;
}

static void let_end(int pid)
{
	assert_int_equal(write(wait_for_end[1], "", 1), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void nothing_is_kept_while_one_lives(void **state)
{
	int pid;

	get_put(0, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
	pid = make(live_till_told, CLONE_VM);
	assert_false(is_hit(0, 1, WRITE));
	assert_false(is_hit(0, 1, WRITE));
	assert_int_equal(dev->live, 0);
	let_end(pid);
	get_put(0, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
}

/* Its number may be another's, or it is not waited for. */
static void its_end_is_enough(void **state)
{
	siginfo_t info;
	int pid = make(live_till_told, CLONE_VM);

	assert_int_equal(write(wait_for_end[1], "", 1), 1);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	get_put(0, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
	waitpid(pid, NULL, 0);
}

static void a_process_with_memory_of_its_own_is_none(void **state)
{
	int pid = make(live_till_told, 0);

	get_put(0, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
	let_end(pid);
}

static void one_that_is_not_made_is_none(void **state)
{
	kedge_hook_sharing(0);
	get_put(0, 1, WRITE);
	assert_false(is_hit(0, 1, WRITE));
	kedge_hook_sharing(-1);
	get_put(0, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
}

static void begin_one(struct nodev *d, void *addr, size_t len)
{
	d->on_reg = NULL;
	kedge_hook_sharing(0);
}

static void one_that_comes_while_it_registers(void **state)
{
	dev->on_reg = begin_one;
	get_put(0, 1, WRITE);
	assert_int_equal(dev->live, 0);
	kedge_hook_sharing(-1);
}

static void all_of_several_have_to_end(void **state)
{
	int first = make(live_till_told, CLONE_VM), second;
	static char other[65536] __attribute__((aligned(64)));

	kedge_hook_sharing(0);
	second = clone(live_till_told, other + sizeof(other), CLONE_VM | SIGCHLD, NULL);
	kedge_hook_sharing(second);
	assert_int_equal(write(wait_for_end[1], "", 1), 1);
	assert_true(waitpid(-1, NULL, 0) > 0);
	get_put(0, 1, WRITE);
	assert_false(is_hit(0, 1, WRITE));
	assert_int_equal(write(wait_for_end[1], "", 1), 1);
	assert_true(waitpid(-1, NULL, 0) > 0);
	assert_true(first > 0 && second > 0);
	get_put(0, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
}

static void watches_are_provisional(void **state)
{
	int pid = make(live_till_told, CLONE_VM);

	assert_int_equal(kedge_watch_add(nf, at(0), page, 1), KEDGE_WATCH_PROVISIONAL);
	let_end(pid);
	assert_int_equal(kedge_watch_add(nf, at(0), page, 2), 0);
}

static char thread_stack[65536] __attribute__((aligned(64)));

static int end_thread_when_told(void *unused)
{
	char c;

	syscall(SYS_exit, read(wait_for_end[0], &c, 1) != 1);
	return 0;
}

/* Without libc's, which is the parent's. */
static int leave_a_thread(void *unused)
{
	clone(end_thread_when_told, thread_stack + sizeof(thread_stack),
	      CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_FS | CLONE_FILES, NULL);
	syscall(SYS_exit, 0);
	return 0;
}

static bool first_thread_has_ended(int pid)
{
	char path[32], text[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (f && !fgets(text, sizeof(text), f))
		text[0] = '\0';
	if (f)
		fclose(f);
	return strstr(text, ") Z");
}

static void its_last_thread_has_to_end(void **state)
{
	int pid = make(leave_a_thread, CLONE_VM);

	WAIT_FOR(first_thread_has_ended(pid));
	get_put(0, 1, WRITE);
	assert_false(is_hit(0, 1, WRITE));
	let_end(pid);
	get_put(0, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
}

/* In a process of its own, as it is for good. */
static int compare_is_refused(void *unused)
{
	const struct kedge_mr *mr;
	struct kedge_cache *c;
	int pid, i;

	pid = make(live_till_told, CLONE_VM);
	if (!refuse_call(SYS_kcmp))
		return 77;
	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &c));
	for (i = 0; i < 2; i++) {
		CHILD_CHECK(!kedge_cache_get(c, at(0), 1, WRITE, &mr));
		kedge_cache_put(c, mr);
		CHILD_CHECK(dev->live == 0);
	}
	CHILD_CHECK(write(wait_for_end[1], "", 1) == 1 && waitpid(pid, NULL, 0) == pid);
	for (i = 0; i < 2; i++) {
		CHILD_CHECK(!kedge_cache_get(c, at(0), 1, WRITE, &mr));
		kedge_cache_put(c, mr);
		CHILD_CHECK(dev->live == 1);
	}
	kedge_cache_close(c);
	return 0;
}

static void where_the_kernel_does_not_compare(void **state)
{
	int status;

	need_threads_after_fork();
	status = in_child(compare_is_refused, NULL);
	skip_if(status == 77 << 8, "no seccomp");
	assert_int_equal(status, 0);
}

static int is_kept(void *unused)
{
	const struct kedge_mr *mr;
	struct kedge_cache *c;

	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &c));
	CHILD_CHECK(!kedge_cache_get(c, at(0), 1, WRITE, &mr));
	kedge_cache_put(c, mr);
	CHILD_CHECK(dev->live == 1);
	kedge_cache_close(c);
	return 0;
}

/* A fork while another thread is about to make one; and while there is one. */
static void a_forked_child_shares_with_none(void **state)
{
	int pid;

	need_threads_after_fork();
	kedge_hook_sharing(0);
	assert_int_equal(in_child(is_kept, NULL), 0);
	kedge_hook_sharing(-1);
	pid = make(live_till_told, CLONE_VM);
	assert_int_equal(in_child(is_kept, NULL), 0);
	let_end(pid);
}

static void more_than_are_remembered(void **state)
{
	int i, pid = make(live_till_told, CLONE_VM);

	for (i = 0; i < 300; i++) {
		kedge_hook_sharing(0);
		kedge_hook_sharing(pid);
	}
	let_end(pid);
	get_put(0, 1, WRITE);
	assert_false(is_hit(0, 1, WRITE));
}

#define SHARED(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		SHARED(nothing_is_kept_while_one_lives),
		SHARED(its_end_is_enough),
		SHARED(a_process_with_memory_of_its_own_is_none),
		SHARED(one_that_is_not_made_is_none),
		SHARED(one_that_comes_while_it_registers),
		SHARED(all_of_several_have_to_end),
		SHARED(watches_are_provisional),
		SHARED(its_last_thread_has_to_end),
		SHARED(where_the_kernel_does_not_compare),
		SHARED(a_forked_child_shares_with_none),
		/* The last: it is for good. */
		SHARED(more_than_are_remembered),
	};

	if (UNDER_TSAN) {
		puts("skipped: ThreadSanitizer takes a process that shares the memory for a fork");
		return 77;
	}
	return RUN_CASES(tests, argc, argv);
}
