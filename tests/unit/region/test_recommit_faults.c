// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program takes a part of its region away, and has it back, and the system refuses something at
 * each step: each call in turn fails once. A call of the program's that fails works when it is made
 * again. However it ends, no access to the part works while it is gone, others work, and a put
 * is in the program's memory once the part is back; nothing is left in the end.
 */
#include "remote.h"

#include "look.h"
#include "refuse.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define REPLACES (-1)
#define ANY_ERROR 1

#define FROM ((size_t)16 << 10)
#define PART ((size_t)8 << 10)
#define OTHER ((size_t)32 << 10)

WRAP(void *, mremap, void *at, size_t len, size_t to, int flags, void *next)
{
	advice_now = REPLACES;
	return fails() ? MAP_FAILED : __real_mremap(at, len, to, flags, next);
}

/* A fault in the process that has pages for this one is not counted here, and comes again. */
#define TRIES 6

#define TRY(call)                                                                      \
	do {                                                                           \
		int try_, rc_ = -1;                                                    \
											       \
		for (try_ = 0; rc_ && try_ < TRIES; try_++) {                          \
			rc_ = call;                                                    \
			failed += rc_ != 0;                                            \
		}                                                                      \
		if (rc_)                                                               \
			fail_msg("step %u: %s: %s", step, #call, kedge_strerror(rc_)); \
	} while (0)

static unsigned int failed, step, unwatched;

static void is_gone(char *at, size_t from)
{
	const int put = kedge_remote_put(remote, from + 1, "x", 1, SOON_MS);
	char c;
	const int got = kedge_remote_get(remote, from, &c, 1, SOON_MS);

	if (!put || !got)
		fail_msg("step %u: an access goes where the program has no memory: put %d, get %d",
			 step, put, got);
	TRY(kedge_remote_put(remote, from - 1, "x", 1, SOON_MS));
	assert_int_equal(at[from - 1], 'x');
}

static void is_back(char *at)
{
	char c = 0;

	TRY(kedge_remote_put(remote, FROM, "p", 1, SOON_MS));
	assert_int_equal(at[FROM], 'p');
	at[FROM + 1] = 'q';
	TRY(kedge_remote_get(remote, FROM + 1, &c, 1, SOON_MS));
	assert_int_equal(c, 'q');
}

/* A fault may have kept the region from being watched, then its peers are served. */
static void all_of_it(int fault)
{
	const struct kedge_region_opts o = { .size = sizeof(o), .max_len = 2 * LEN };
	char *at;

	fail_with = fault;
	fail_from(step);
	TRY(kedge_region_create(LEN, &o, &region));
	at = region_at();
	memset(at, 'o', LEN);
	TRY(kedge_region_advertise(region, NULL, &handle));
	TRY(kedge_remote_open(&handle, SOON_MS, &remote));
	assert_int_equal(munmap(at + FROM, PART), 0);
	is_gone(at, FROM);
	TRY(kedge_region_recommit(region, FROM, PART, NULL));
	is_back(at);
	TRY(kedge_region_move(region, NULL, SOON_MS, NULL));
	is_back(at);
	TRY(kedge_region_grow(region, 2 * LEN));
	assert_int_equal(munmap(at + FROM, PART), 0);
	is_gone(at, FROM);
	TRY(kedge_region_recommit(region, 0, 0, NULL));
	is_back(at);
	TRY(kedge_region_trim(region, LEN));
	assert_int_equal(munmap(at + FROM, PART), 0);
	is_gone(at, FROM);
	TRY(kedge_region_recommit(region, 0, 0, NULL));
	atomic_store(&fail_at, 0);
	is_back(at);
	unwatched += !(query(region).flags & KEDGE_REGION_WATCHED);
	kedge_remote_close(remote);
	kedge_region_close(region);
}

static void each_step_fails(void **error)
{
	const int fault = *(int *)*error;
	unsigned int fds, maps, threads = threads_now();

	step = 0;
	all_of_it(fault);
	fds = open_fds();
	maps = look_maps();
	failed = unwatched = 0;
	for (step = 1; is_step(step); step++) {
		all_of_it(fault);
		assert_int_equal(open_fds(), fds);
		assert_int_equal(look_maps(), maps);
		/* Their table of descriptors has gone with the threads. */
		assert_true(threads_are(threads));
		assert_int_equal(look_status("VmLck"), 0);
	}
	print_message("# %u steps, %u failed, %u unwatched\n", step - 1, failed, unwatched);
	assert_true(failed >= 20);
	assert_int_equal(bytes_had(), 0);
}

/* ---- a part goes in the middle of a move ---- */

static char *moved;
static bool taken;

/*
 * A thread of the region's may come to the step when the move has returned, or is about to. The
 * part goes, and the move need not say so; once it is over nothing is done.
 */
static pthread_mutex_t amid = PTHREAD_MUTEX_INITIALIZER;
static bool over, by_caller;
static pthread_t caller;

static bool take_begins(void)
{
	pthread_mutex_lock(&amid);
	if (over) {
		pthread_mutex_unlock(&amid);
		return false;
	}
	taken = true;
	by_caller = pthread_equal(pthread_self(), caller);
	return true;
}

static void take_ends(void)
{
	pthread_mutex_unlock(&amid);
}

static void moves(bool does)
{
	pthread_mutex_lock(&amid);
	over = !does;
	if (does)
		taken = false;
	pthread_mutex_unlock(&amid);
}

/* What it said is what it has to say. */
static bool is_told(int rc, int lost)
{
	if (taken && !by_caller)
		return !rc || rc == lost || lost == ANY_ERROR;
	return taken ? rc && (rc == lost || lost == ANY_ERROR) : !rc;
}

/* With other memory in its place, as an allocator of another thread may have at once. Two calls of
 * a move would hit that, and no call of the system looks and does that in one. */
static void have_other_memory(void)
{
	if (advice_now == REPLACES || advice_now == MADV_DONTNEED_LOCKED || !take_begins())
		return;
	munmap(moved + FROM, PART);
	if (mmap(moved + FROM, PART, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED)
		memset(moved + FROM, 'x', PART);
	take_ends();
}

static void remove_pages(void)
{
	if (advice_now == REPLACES || !take_begins())
		return;
	__real_syscall(SYS_munlock, (long)(uintptr_t)(moved + FROM), (long)PART, 0, 0, 0, 0);
	__real_madvise(moved + FROM, PART, MADV_REMOVE);
	take_ends();
}

/* The later call of the move that fails. The program unmaps one more part when the move is over. */
static unsigned int then;

static void unmap_and_refuse(void)
{
	if (advice_now == REPLACES || !take_begins())
		return;
	munmap(moved + FROM, PART);
	fail_from(then);
	take_ends();
}

/* False: the move has no such step. */
static bool move_as_it_goes(void (*by)(void), unsigned int at)
{
	bool last;
	size_t i;
	int rc;

	caller = pthread_self();
	step = at;
	assert_int_equal(kedge_region_create(LEN, NULL, &region), 0);
	moved = region_at();
	memset(moved, 'o', LEN);
	assert_int_equal(kedge_region_advertise(region, NULL, &handle), 0);
	assert_int_equal(kedge_remote_open(&handle, SOON_MS, &remote), 0);
	moves(true);
	atomic_store(&instead, by);
	fail_from(at);
	rc = kedge_region_move(region, NULL, SOON_MS, NULL);
	moves(false);
	atomic_store(&fail_at, 0);
	last = atomic_exchange(&instead, NULL);
	if (!is_told(rc, by == unmap_and_refuse ? ANY_ERROR : -ENODATA))
		fail_msg("step %u: %s", at, rc ? kedge_strerror(rc) : "moved");
	unwatched += !(query(region).flags & KEDGE_REGION_WATCHED);
	if (by == unmap_and_refuse) {
		munmap(moved + OTHER, PART);
		is_gone(moved, OTHER);
	}
	if (taken) {
		is_gone(moved, FROM);
		for (i = 0; i < PART && by == have_other_memory; i++)
			assert_int_equal(moved[FROM + i], 'x');
		if (by == have_other_memory)
			munmap(moved + FROM, PART);
	}
	assert_int_equal(kedge_region_recommit(region, 0, 0, NULL), 0);
	is_back(moved);
	assert_true(query(region).flags & KEDGE_REGION_WATCHED);
	kedge_remote_close(remote);
	kedge_region_close(region);
	return !last;
}

static void a_part_goes_at_each_step_of_a_move(void **state)
{
	unsigned int n;

	for (n = 1; move_as_it_goes(have_other_memory, n); n++)
		;
	print_message("# %u steps\n", n - 1);
	assert_true(n > 10);
	for (n = 1; move_as_it_goes(remove_pages, n); n++)
		;
	assert_true(n > 10);
}

/* Each later call fails once, among them those that watch the region as before. */
static void and_a_later_call_fails(void **error)
{
	bool is = true;
	unsigned int n;

	fail_with = *(int *)*error;
	unwatched = 0;
	for (n = 1; is; n++)
		for (then = 1; (is = move_as_it_goes(unmap_and_refuse, n)) && is_step(then + 1);
		     then++)
			;
	print_message("# %u steps, %u unwatched\n", n - 2, unwatched);
	assert_true(n > 10 && unwatched);
}

static void *do_nothing(void *unused)
{
	return unused;
}

/* A sanitizer has a thread of its own from the program's first one on. */
static int begin_threads(void **state)
{
	pthread_t t;

	return pthread_create(&t, NULL, do_nothing, NULL) || pthread_join(t, NULL);
}

static const struct CMUnitTest tests[] = {
	error_case(each_step_fails, ENOMEM),
	error_case(each_step_fails, EMFILE),
	error_case(each_step_fails, EPERM),
	cmocka_unit_test(a_part_goes_at_each_step_of_a_move),
	error_case(and_a_later_call_fails, ENOMEM),
	error_case(and_a_later_call_fails, EPERM),
};

const long counted_calls[] = { SYS_userfaultfd, SYS_ioctl, SYS_openat, SYS_epoll_create1,
			       SYS_epoll_ctl, SYS_eventfd2, SYS_mlock, SYS_fallocate, SYS_mmap, 0 };
const struct suite suite = { "recommit_faults", SUITE_OF(tests), .by = "mapped",
			     .begin = begin_threads };
