// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pages that are put under a buffer in place of its own: by what a message over RDMA
 * is received that landed elsewhere.
 */
#include <kedge/notifier.h>

#include "swap_mem.h"
#include "wrap.h"

/* mremap() fails as if the kernel had no memory: at once, or after it had unmapped the
 * place. */
static enum { GOES_WELL, FAILS_FIRST, FAILS_LATE } next_move;

WRAP(void *, mremap, void *from, size_t len, size_t new_len, int flags, ...)
{
	va_list ap;
	void *to;

	va_start(ap, flags);
	to = va_arg(ap, void *);
	va_end(ap);
	if (next_move == GOES_WELL)
		return __real_mremap(from, len, new_len, flags, to);
	if (next_move == FAILS_LATE)
		munmap(to, new_len);
	next_move = GOES_WELL;
	errno = ENOMEM;
	return MAP_FAILED;
}

static int replace(char *dst, char *src, size_t len)
{
	int rc = kedge__pages_alike(dst, src, len);

	return rc ? rc : kedge__pages_replace(dst, src, len, NULL);
}

static void the_buffer_has_the_landed_pages(void **state)
{
	size_t page = page_len(), len = 1500 * page;
	char *dst = small_area(len, 1), *src = small_area(len, 2);

	/* Neither a whole page table nor at its beginning. */
	assert_int_equal(replace(dst + 3 * page, src + 3 * page,
				 len - 10 * page), 0);
	assert_true(stamped(dst, 3 * page, 1));
	assert_int_equal(*(uint64_t *)(void *)(dst + 3 * page), stamp_of(2, 3));
	assert_int_equal(*(uint64_t *)(void *)(dst + len - 8 * page),
			 stamp_of(2, 1492));
	assert_int_equal(*(uint64_t *)(void *)(dst + len - 7 * page),
			 stamp_of(1, 1493));
	/* The range that they came from is there, and has none. */
	assert_true(stamped(src, 3 * page, 2));
	assert_true(zeros(src + 3 * page, len - 10 * page));
}

static void huge_pages_move_as_well(void **state)
{
	size_t len = 4 * pages_huge_len();
	char *dst = huge_area(len, 1), *src = huge_area(len, 2);

	assert_int_equal(replace(dst + page_len(), src + page_len(),
				 len - 2 * page_len()), 0);
	assert_int_equal(*(uint64_t *)(void *)(dst + page_len()),
			 stamp_of(2, 1));
	assert_true(stamped(dst, page_len(), 1));
}

static void the_same_buffer_again_and_again(void **state)
{
	size_t len = 64 * page_len();
	char *dst = small_area(len, 1), *src;
	uint64_t i;

	for (i = 2; i < 60; i++) {
		src = small_area(len, i);
		assert_int_equal(replace(dst, src, len), 0);
		assert_true(stamped(dst, len, i));
		area_free(src, len);
	}
}

/* ---- other threads ---- */

struct look {
	char *at;
	size_t pages;
	_Atomic uint64_t looks;
	_Atomic uint64_t holes;
	_Atomic bool stop;
};

static void *reader(void *arg)
{
	struct look *l = arg;
	size_t i;

	for (; !l->stop; l->looks++)
		for (i = 0; i < l->pages; i++)
			if (!*(volatile uint64_t *)(void *)(l->at +
							    i * page_len()))
				l->holes++;
	return NULL;
}

static void no_thread_meets_a_hole(void **state)
{
	size_t len = 64 * page_len();
	char *dst = small_area(len, 1), *src;
	struct look l = { .at = dst, .pages = 64 };
	pthread_t thread;
	uint64_t i, looks;

	assert_int_equal(pthread_create(&thread, NULL, reader, &l), 0);
	for (i = 2; i < 200; i++) {
		src = small_area(len, i);
		assert_int_equal(replace(dst, src, len), 0);
		area_free(src, len);
		/* It has a part in this, however few processors there are. */
		for (looks = l.looks; i % 20 == 0 && l.looks == looks;)
			sched_yield();
	}
	l.stop = true;
	pthread_join(thread, NULL);
	assert_int_equal(l.holes, 0);
}

static void a_notifier_hears_of_it(void **state)
{
	size_t len = 16 * page_len();
	char *dst = small_area(len, 1), *src = small_area(len, 2);
	struct kedge_event ev;
	struct kedge_notifier *nf;

	if (kedge_notifier_open(NULL, &nf))
		skip();
	assert_int_equal(kedge_watch_add(nf, dst, len, 7), 0);
	assert_int_equal(replace(dst, src, len), 0);
	assert_true(stamped(dst, len, 2));
	/* Announced: it is there when the call returns. */
	assert_int_equal(kedge_notifier_read(nf, &ev, 1), 1);
	assert_int_equal(ev.cookie, 7);
	kedge_notifier_close(nf);
}

/* ---- failures ---- */

static void a_move_that_fails_changes_nothing(void **state)
{
	size_t len = 16 * page_len();
	char *dst = small_area(len, 1), *src = small_area(len, 2);

	next_move = FAILS_FIRST;
	assert_int_equal(replace(dst, src, len), -ENOMEM);
	expect_stamps(dst, 1, src, 2, len);
	assert_int_equal(replace(dst, src, len), 0);
}

static void a_move_that_has_lost_the_place_is_made_good(void **state)
{
	size_t len = 16 * page_len();
	char *dst = small_area(len, 1), *src = small_area(len, 2);

	next_move = FAILS_LATE;
	assert_int_equal(replace(dst, src, len), 0);
	assert_true(stamped(dst, len, 2));
}

/* ---- refusals ---- */

static void differs(int (*change)(char *p, size_t len))
{
	size_t len = 16 * page_len();
	char *dst = small_area(len, 1), *src = small_area(len, 2);

	if (change(dst, len))
		skip();
	assert_int_equal(replace(dst, src, len), -EOPNOTSUPP);
	assert_true(stamped(src, len, 2));
	area_free(dst, len);
	area_free(src, len);
}

/* By the kernel: sanitizers' mlock() does nothing. */
static int locked(char *p, size_t len)
{
	return (int)syscall(SYS_mlock, p, len);
}

static int not_inherited(char *p, size_t len)
{
	return madvise(p, len, MADV_DONTFORK);
}

static int not_dumped(char *p, size_t len)
{
	return madvise(p, len, MADV_DONTDUMP);
}

static int read_only(char *p, size_t len)
{
	return mprotect(p, len, PROT_READ);
}

static int in_two_mappings(char *p, size_t len)
{
	return madvise(p + len / 2, len / 2, MADV_DONTDUMP);
}

static int shared(char *p, size_t len)
{
	return mmap(p, len, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED;
}

static void a_mapping_that_is_not_alike_is_refused(void **state)
{
	static int (*const changes[])(char *p, size_t len) = {
		locked, not_inherited, not_dumped, read_only,
		in_two_mappings, shared,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(changes); i++)
		differs(changes[i]);
}

#define LISTED PLAIN
#include "test_swap_replace.cases.h"
