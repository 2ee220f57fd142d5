// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads that empty pages at once, and kedge's thread is slow: it is given a while before it
 * reads what one does, in which others begin. They have one processor, with threads that are
 * always busy, so one that the reading has woken is not asleep again when it looks.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "demand.h"
#include "wrap.h"

#define EMPTIERS 6
#define ROUNDS	 200
#define FEW_ROUNDS 15
#define LESS	 (LEN / 8)
#define MOST_US	 1000
#define SPINNERS 2

static uint64_t *words_at;
static int rounds;
static pthread_barrier_t round_of;
static _Atomic bool stops;
static _Atomic bool slow;
static _Atomic bool full;	/* of descriptors, every other time */
static _Atomic bool no_process; /* is to be had for that thread */
static _Atomic int late;
static _Atomic int refused_cnt;
static _Atomic unsigned int events;

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);

static __thread bool hears; /* kedge's thread */

static bool is_event(long nr, const long a[6])
{
	const bool is = nr == SYS_read && a[2] == sizeof(struct uffd_msg);

	hears |= is;
	return is;
}

/* A look at the threads finds no descriptor. */
static bool is_refused(long nr, const long a[6])
{
	static __thread bool refused;

	if (nr != SYS_openat || !hears || !atomic_load(&full) ||
	    strncmp((const char *)a[1], "/proc/self/task", 15) != 0)
		return false;
	refused = !refused;
	return refused;
}

WRAP(int, clone, int (*fn)(void *), void *stack, int flags, void *arg)
{
	if (hears && atomic_load(&no_process)) {
		atomic_fetch_add(&refused_cnt, 1);
		errno = EAGAIN;
		return -1;
	}
	return __real_clone(fn, stack, flags, arg);
}

/* Memory is emptied after the event was read: the thread that empties it goes on already. */
static bool is_late(long nr, const long a[6])
{
	static __thread bool has_read;
	const bool is = has_read && nr == SYS_ioctl && a[1] == (long)UFFDIO_UNREGISTER;

	has_read = is_event(nr, a);
	return is;
}

/* It takes six, as syscall() does; the caller may have passed fewer. */
__attribute__((no_sanitize("address")))
long __wrap_syscall(long nr, ...)
{
	long a[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (is_event(nr, a) && atomic_load(&slow))
		usleep(atomic_fetch_add(&events, 137) % MOST_US);
	if (is_late(nr, a))
		atomic_fetch_add(&late, 1);
	if (is_refused(nr, a)) {
		errno = EMFILE;
		return -1;
	}
	return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void on_one_cpu(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* Once a round, when all of it is converted. */
static void *empties(void *arg)
{
	const size_t page = page_len();
	volatile uint64_t *w = words_at + 2 * (uintptr_t)arg * page / sizeof(*words_at);
	void *bad = NULL;
	int n;

	on_one_cpu();
	for (n = 0; n < rounds; n++) {
		*w = 1;
		pthread_barrier_wait(&round_of);
		if (madvise((void *)(uintptr_t)w, page, MADV_DONTNEED) || *w)
			bad = (void *)1;
		pthread_barrier_wait(&round_of);
	}
	return bad;
}

static void *spins(void *arg)
{
	(void)arg;
	on_one_cpu();
	while (!atomic_load(&stops))
		;
	return NULL;
}

static void one_round(void)
{
	attach_in_time((uintptr_t)words_at, LESS);
	pthread_barrier_wait(&round_of);
	pthread_barrier_wait(&round_of);
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_release(&peer), 0);
	assert_int_equal(peer_get(&peer, &id, RW), 0);
}

/* Returns how many threads found what they had emptied. */
static int run(int cnt)
{
	pthread_t thread[EMPTIERS], busy[SPINNERS];
	uintptr_t i;
	void *bad;
	int n, wrong = 0;

	rounds = cnt;
	atomic_store(&stops, false);
	words_at = words(LESS);
	begin(NULL, 0, &whole);
	atomic_store(&slow, true);
	pthread_barrier_init(&round_of, NULL, EMPTIERS + 1);
	for (i = 0; i < EMPTIERS; i++)
		pthread_create(&thread[i], NULL, empties, (void *)i);
	for (i = 0; i < SPINNERS; i++)
		pthread_create(&busy[i], NULL, spins, NULL);
	for (n = 0; n < cnt; n++)
		one_round();
	atomic_store(&slow, false);
	atomic_store(&stops, true);
	join_threads(busy, SPINNERS);
	for (i = 0; i < EMPTIERS; i++) {
		pthread_join(thread[i], &bad);
		wrong += bad != NULL;
	}
	pthread_barrier_destroy(&round_of);
	end();
	free_pages(words_at, LESS / page_len());
	return wrong;
}

static void all_that_is_emptied_at_once_is_zero(void **state)
{
	assert_int_equal(run((int)by_circle(FEW_ROUNDS, ROUNDS)), 0);
	assert_int_equal(atomic_load(&late), 0);
}

static void a_full_table_of_descriptors_is_waited_for(void **state)
{
	atomic_store(&full, true);
	assert_int_equal(run(FEW_ROUNDS), 0);
	atomic_store(&full, false);
	assert_int_equal(atomic_load(&late), 0);
}

/* Then a look is repeated for a while. That is no proof, so whether each page is zero is not
 * asked here; but all goes on. */
static void without_a_process_to_be_had_all_goes_on(void **state)
{
	atomic_store(&no_process, true);
	run(FEW_ROUNDS);
	atomic_store(&no_process, false);
	assert_true(atomic_load(&refused_cnt) > 0);
}

#define LISTED PLAIN
#include "test_segment_woken.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN(cases);
}
