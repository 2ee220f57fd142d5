// SPDX-License-Identifier: BSD-2-Clause
/*
 * The chain of a grant's attachments, without a lock: the thread that takes what an owner has
 * taken back meets threads that attach and detach.
 */
#include "cases.h"
#include "segment/peer/attached.h"

#define TURNS 5000

static struct kedge_grant g;

static int setup(void **state)
{
	memset(&g, 0, sizeof(g));
	return 0;
}

static int teardown(void **state)
{
	attached_free(&g);
	return 0;
}

static struct kedge_attachment *attach(void)
{
	struct kedge_attachment *a = attached_get(&g);

	assert_non_null(a);
	a->grant = &g;
	a->gone = false;
	a->head.seen = PENDING;
	return a;
}

static void take(struct kedge_attachment *a, uint64_t start, uint64_t stop)
{
	if (a->file_off < start || a->file_off >= stop)
		return;
	a->gone = true;
	__atomic_store_n(&a->head.seen, NEVER, __ATOMIC_RELAXED);
}

static void what_is_taken_is_confirmed_no_more(void **state)
{
	struct kedge_attachment *a = attach(), *b = attach();

	a->file_off = 1;
	b->file_off = 2;
	attached_enter(a);
	attached_enter(b);
	attached_take(&g, take, 1, 2);
	assert_false(attached_confirm(a, 6));
	assert_true(attached_confirm(b, 6));
	assert_int_equal(b->head.seen, 6);
	attached_take(&g, take, 0, UINT64_MAX);
	assert_int_equal(b->head.seen, NEVER);
}

/* Generations count from 0, and are odd while events are read. */
static void what_is_taken_is_of_no_generation(void **state)
{
	assert_true(NEVER > UINT64_MAX / 2);
	assert_true(PENDING > UINT64_MAX / 2);
	assert_true(NEVER != PENDING);
}

static void what_is_not_mapped_is_not_taken(void **state)
{
	struct kedge_attachment *a = attach();

	attached_take(&g, take, 0, UINT64_MAX);
	assert_false(a->gone);
	attached_enter(a);
	attached_leave(a);
	attached_take(&g, take, 0, UINT64_MAX);
	assert_false(a->gone);
}

static void records_are_used_again(void **state)
{
	struct kedge_attachment *a = attach(), *b = attach();

	attached_put(a);
	attached_put(b);
	assert_ptr_equal(attach(), b);
	assert_ptr_equal(attach(), a);
}

/* A thread of the parent's had the spares when it forked. */
static void a_childs_detach_waits_for_nobody(void **state)
{
	struct kedge_attachment *a = attach();

	g.pid = getpid() + 1;
	g.info.backend = KEDGE_SEGMENT_CONVERT;
	atomic_flag_test_and_set(&g.spares_taken);
	attached_enter(a);
	kedge_segment_detach(a);
}

/* ---- beside each other ---- */

static _Atomic bool in_take, go_on, left, left_early;

static void take_slowly(struct kedge_attachment *a, uint64_t start, uint64_t stop)
{
	atomic_store(&in_take, true);
	while (!atomic_load(&go_on))
		usleep(100);
	atomic_store(&left_early, atomic_load(&left));
	take(a, start, stop);
}

static void *take_all_slowly(void *arg)
{
	attached_take(&g, take_slowly, 0, UINT64_MAX);
	return arg;
}

static void *leave(void *arg)
{
	attached_leave(arg);
	atomic_store(&left, true);
	return NULL;
}

static void detaching_waits_for_the_taker(void **state)
{
	struct kedge_attachment *a = attach();
	pthread_t taker, leaver;

	atomic_store(&in_take, false);
	atomic_store(&go_on, false);
	atomic_store(&left, false);
	attached_enter(a);
	assert_int_equal(pthread_create(&taker, NULL, take_all_slowly, NULL), 0);
	WAIT_FOR(atomic_load(&in_take));
	assert_int_equal(pthread_create(&leaver, NULL, leave, a), 0);
	/* A pass needs no time; one that does not wait has this to show it. */
	usleep(10000);
	atomic_store(&go_on, true);
	pthread_join(taker, NULL);
	pthread_join(leaver, NULL);
	assert_false(atomic_load(&left_early));
	assert_true(a->gone);
}

/* The words between attach() and the thread on memory that has gone: a note, then a walk. */
static _Atomic uint32_t notes, walks;
static _Atomic bool stop;

static void *note_and_take(void *arg)
{
	uint32_t n = 0;

	while (!atomic_load(&stop)) {
		atomic_store_explicit(&notes, ++n, memory_order_relaxed);
		attached_take(&g, take, 0, UINT64_MAX);
		atomic_store(&walks, n);
	}
	return arg;
}

/* Where the latest note was not seen, the walk that follows it finds the record. */
static bool is_found(struct kedge_attachment *a, uint32_t before)
{
	if (atomic_load_explicit(&notes, memory_order_relaxed) != before ||
	    !attached_confirm(a, 2))
		return true;
	while ((int32_t)(atomic_load(&walks) - before) <= 0)
		sched_yield();
	return __atomic_load_n(&a->head.seen, __ATOMIC_RELAXED) == NEVER;
}

static void *attach_and_detach(void *arg)
{
	struct kedge_attachment *a;
	uint32_t before;
	int i;

	for (i = 0; i < TURNS; i++) {
		a = attach();
		before = atomic_load_explicit(&notes, memory_order_relaxed);
		attached_enter(a);
		if (!is_found(a, before))
			arg = a;
		attached_leave(a);
		attached_put(a);
	}
	return arg;
}

static void no_record_is_missed(void **state)
{
	pthread_t taker, t[3];

	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&taker, NULL, note_and_take, NULL), 0);
	run_threads(t, 3, attach_and_detach, NULL, 0);
	join_threads(t, 3);
	atomic_store(&stop, true);
	pthread_join(taker, NULL);
}

#include "test_segment_attached.cases.h"
