// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory is made a segment as threads of the program live in it: their stacks, locks they wait
 * for, and what the kernel stores there by itself when one ends. As root, whose userfaultfd
 * handles the kernel's faults, and as an ordinary user, whose does not.
 */
#include <sys/epoll.h>
#include <sys/prctl.h>

#include <kedge/pageswap.h>

#include "shared.h"

#define MAKES  (int)by_circle(30, 100)
#define STACK  ((size_t)256 << 10)

static void need_stopped_threads(void)
{
	need_stopping();
	need_threads_after_fork();
}

/* In a process of its own, as @uid. */
static void run_as(uid_t uid, int (*fn)(void))
{
	pid_t pid = fork();

	if (!pid) {
		if (uid && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
			_exit(2);
		prctl(PR_SET_DUMPABLE, 1);
		alarm(100);
		_exit(fn());
	}
	ended_well(pid);
}

static void as_both(int (*fn)(void))
{
	need_stopped_threads();
	run_as(0, fn);
	if (!geteuid())
		run_as(NOBODY, fn);
}

static int make_and_remove(void *at, size_t len)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment *s;
	int rc = kedge_segment_make(at, len, NULL, &s);

	if (rc) {
		fprintf(stderr, "%s\n", kedge_strerror(rc));
		return 1;
	}
	kedge_segment_info(s, &i);
	kedge_segment_remove(s);
	return i.backend == KEDGE_SEGMENT_COPY;
}

/* ---- locks ---- */

static struct shared {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	unsigned long turns[2];
	int turn;
	bool over;
} *sh;

static void *takes_turns(void *arg)
{
	const int me = (int)(intptr_t)arg;

	pthread_mutex_lock(&sh->mutex);
	while (!sh->over) {
		if (sh->turn == me) {
			sh->turns[me]++;
			sh->turn = !me;
			pthread_cond_signal(&sh->cond);
		} else {
			pthread_cond_wait(&sh->cond, &sh->mutex);
		}
	}
	pthread_cond_broadcast(&sh->cond);
	pthread_mutex_unlock(&sh->mutex);
	return NULL;
}

static int locks_are_used(void)
{
	pthread_t t[2];
	int i;

	sh = (struct shared *)words(64 * page_len());
	memset(sh, 0, sizeof(*sh));
	pthread_mutex_init(&sh->mutex, NULL);
	pthread_cond_init(&sh->cond, NULL);
	for (i = 0; i < 2; i++)
		CHILD_CHECK(!pthread_create(&t[i], NULL, takes_turns, (void *)(intptr_t)i));
	for (i = 0; i < MAKES; i++)
		CHILD_CHECK(!make_and_remove(sh, 64 * page_len()));
	pthread_mutex_lock(&sh->mutex);
	sh->over = true;
	pthread_cond_broadcast(&sh->cond);
	pthread_mutex_unlock(&sh->mutex);
	join_threads(t, 2);
	CHILD_CHECK(sh->turns[0] - sh->turns[1] + 1 <= 2);
	return 0;
}

static void locks_in_it_are_used(void **state)
{
	as_both(locks_are_used);
}

/* ---- stacks ---- */

static _Atomic bool over;

static void *counts(void *arg)
{
	volatile uint64_t local = 0, *count = arg;

	while (!atomic_load(&over)) {
		local++;
		(*count)++;
	}
	return (void *)(uintptr_t)(local == *count);
}

static int a_stack_is_used(void)
{
	char *stack = (char *)words(STACK);
	uint64_t count = 0;
	pthread_attr_t a;
	pthread_t t;
	void *same;
	int i;

	pthread_attr_init(&a);
	CHILD_CHECK(!pthread_attr_setstack(&a, stack, STACK));
	CHILD_CHECK(!pthread_create(&t, &a, counts, &count));
	for (i = 0; i < MAKES; i++)
		CHILD_CHECK(!make_and_remove(stack, STACK));
	atomic_store(&over, true);
	pthread_join(t, &same);
	CHILD_CHECK(same);
	return 0;
}

static void the_stack_of_a_thread_is_used(void **state)
{
	as_both(a_stack_is_used);
}

/* ---- ends ---- */

#define STACKS 8

static char *stacks;

static void *does_nothing(void *unused)
{
	return unused;
}

/* The kernel stores to the thread's stack that it has ended, which pthread_join() waits for. */
static void *starts_and_joins(void *unused)
{
	pthread_attr_t a;
	pthread_t t;
	int i;

	pthread_attr_init(&a);
	for (i = 0; !atomic_load(&over); i = (i + 1) % STACKS) {
		pthread_attr_setstack(&a, stacks + (size_t)i * STACK, STACK);
		if (pthread_create(&t, &a, does_nothing, NULL) || pthread_join(t, NULL))
			abort();
	}
	return unused;
}

static int threads_end(void)
{
	pthread_t t;
	int i;

	stacks = (char *)words(STACKS * STACK);
	CHILD_CHECK(!pthread_create(&t, NULL, starts_and_joins, NULL));
	for (i = 0; i < MAKES; i++)
		CHILD_CHECK(!make_and_remove(stacks, STACKS * STACK));
	atomic_store(&over, true);
	pthread_join(t, NULL);
	return 0;
}

static void threads_end_in_it(void **state)
{
	as_both(threads_end);
}

/* ---- pages that kedge moves ---- */

#define SWAPS 1 /* few, so that locks are taken often */

static void *swaps(void *at)
{
	const size_t len = SWAPS * page_len();
	uintptr_t *a = at, *b = (uintptr_t *)((char *)at + len);
	uintptr_t in_a = *a, in_b = *b, was;

	while (!atomic_load(&over)) {
		if (kedge_page_swap_with(a, b, len, KEDGE_SWAP_MOVE))
			abort();
		was = in_a;
		in_a = in_b;
		in_b = was;
	}
	return (void *)(uintptr_t)(*a == in_a && *b == in_b);
}

/* Both move pages, and take the same locks of kedge's. */
static int pages_are_swapped(void)
{
	char *other = (char *)words(2 * SWAPS * page_len());
	uint64_t *w = words(STACK);
	pthread_t t;
	void *right;
	int i;

	CHILD_CHECK(!pthread_create(&t, NULL, swaps, other));
	for (i = 0; i < 10 * MAKES; i++)
		CHILD_CHECK(!make_and_remove(w, STACK));
	atomic_store(&over, true);
	pthread_join(t, &right);
	CHILD_CHECK(right);
	return 0;
}

static void pages_are_swapped_meanwhile(void **state)
{
	need_stopped_threads();
	run_as(0, pages_are_swapped);
}

/* ---- what they notice ---- */

static int epoll;
static _Atomic int waits, interrupted;

static void *waits_for_nothing(void *unused)
{
	struct epoll_event ev;

	while (!atomic_load(&over)) {
		atomic_store(&waits, 1);
		if (epoll_wait(epoll, &ev, 1, 100) < 0 && errno == EINTR)
			atomic_fetch_add(&interrupted, 1);
	}
	return unused;
}

/* They are stopped: epoll_wait() is a call that fails by that. */
static void threads_are_stopped(void **state)
{
	uint64_t *w = words(STACK);
	pthread_t t;

	need_stopped_threads();
	epoll = epoll_create1(EPOLL_CLOEXEC);
	atomic_store(&over, false);
	assert_int_equal(pthread_create(&t, NULL, waits_for_nothing, NULL), 0);
	WAIT_FOR(atomic_load(&waits));
	WAIT_FOR(!make_and_remove(w, STACK) && atomic_load(&interrupted));
	atomic_store(&over, true);
	pthread_join(t, NULL);
	close(epoll);
}

#define LISTED PLAIN
#include "test_segment_threads.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN(cases);
}
