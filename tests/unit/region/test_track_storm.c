// SPDX-License-Identifier: BSD-2-Clause
/*
 * Stores while pages are told: a mirror that is made of what is told alone is equal to the
 * memory in the end.
 */
#include <sched.h>

#include "core.h"
#include "look.h"
#include "tracked.h"

#define WRITERS 3
#define ROUNDS	60

static atomic_bool enough;
static _Atomic uint64_t stores[WRITERS];
static _Atomic int failed;
static _Atomic unsigned int takes_begun;

/* Words as they come: some pages often, others rarely. */
static uint64_t *word(uint64_t *seed)
{
	uint64_t cnt;

	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	cnt = *seed >> 63 ? mem.len : mem.len / 64;
	return (uint64_t *)(void *)(mem.at + (*seed >> 16) % (cnt / 8) * 8);
}

static void *store_words(void *arg)
{
	uint64_t seed = (uintptr_t)arg + 1, n;

	for (n = 1; !atomic_load(&enough); n++) {
		__atomic_store_n(word(&seed), seed, __ATOMIC_RELAXED);
		atomic_store(&stores[(uintptr_t)arg], n);
	}
	return NULL;
}

/* ThreadSanitizer knows of neither call. */
static void *read_words(void *arg)
{
	uint64_t seed = (uintptr_t)arg + 1, n;
	int p[2];

	if (pipe(p))
		atomic_store(&failed, errno);
	for (n = 1; !atomic_load(&enough) && !atomic_load(&failed); n++) {
		if (syscall(SYS_write, p[1], &seed, 8) != 8 ||
		    syscall(SYS_read, p[0], word(&seed), 8) != 8)
			atomic_store(&failed, errno);
		atomic_store(&stores[(uintptr_t)arg], n);
	}
	close(p[0]);
	close(p[1]);
	return NULL;
}

static int copy(void *arg, uint64_t off, uint64_t len)
{
	const uint64_t *from = (const uint64_t *)(void *)mem.at;
	uint64_t i;

	for (i = off / 8; i < (off + len) / 8; i++)
		mem.copy[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
	return 0;
}

static void storm(unsigned int rounds)
{
	uint64_t before[WRITERS];
	pthread_t writers[WRITERS];
	unsigned int i, round;

	atomic_store(&enough, false);
	for (i = 0; i < WRITERS; i++)
		atomic_store(&stores[i], 0);
	for (i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&writers[i], NULL, i ? store_words : read_words,
						(void *)(uintptr_t)i), 0);
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < WRITERS; i++)
			before[i] = atomic_load(&stores[i]);
		atomic_fetch_add(&takes_begun, 1);
		assert_int_equal(track_take(track, copy, NULL), 0);
		for (i = 0; i < WRITERS; i++)
			WAIT_FOR(atomic_load(&stores[i]) != before[i] || atomic_load(&failed));
	}
	atomic_store(&enough, true);
	for (i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	assert_int_equal(atomic_load(&failed), 0);
	assert_int_equal(track_take(track, copy, NULL), 0);
	assert_memory_equal(mem.copy, mem.at, mem.len);
}

static void a_mirror_is_equal_after_a_storm(void **state)
{
	begin(*state);
	storm(ROUNDS);
}

static _Atomic unsigned int clearings;

/* Once a take, in the middle of it or not: a machine that is slow does not clear alone. */
static void *clear_again_and_again(void *arg)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	unsigned int before = UINT32_MAX, begun;

	while (!atomic_load(&enough)) {
		begun = atomic_load(&takes_begun);
		if (begun == before) {
			sched_yield();
			continue;
		}
		before = begun;
		if (syscall(SYS_write, fd, "4", 1) != 1)
			atomic_store(&failed, errno);
		atomic_fetch_add(&clearings, 1);
	}
	close(fd);
	return NULL;
}

static void a_mirror_is_equal_whatever_clears_bits(void **state)
{
	pthread_t t;

	begin(*state);
	atomic_store(&enough, false);
	assert_int_equal(pthread_create(&t, NULL, clear_again_and_again, NULL), 0);
	storm(ROUNDS / 2);
	pthread_join(t, NULL);
	assert_true(atomic_load(&clearings) > 0);
}

/* ---- huge TLB pages ---- */

static int begin_huge(void **state)
{
	look_huge_begin(4);
	return 0;
}

static int end_huge(void **state)
{
	end_test(state);
	look_huge_end();
	return 0;
}

static void need_huge(void)
{
	if (get_mem(4 * HUGE_LEN, HUGE_LEN, MFD_HUGETLB, false))
		return;
	printf("skipped: no four huge pages of 2 MiB: vm.nr_hugepages\n");
	skip();
}

static void huge_pages_are_told_as_a_whole(void **state)
{
	need_huge();
	begin(UFFD);
	takes_all();
	takes(no_page);
	by_thread(mem.at + HUGE_LEN + 12345);
	takes((const bool[PAGES]){ [1] = true });
	by_read(mem.at + 3 * HUGE_LEN);
	from_outside(mem.at + 3 * HUGE_LEN - 1);
	takes((const bool[PAGES]){ [2] = true, [3] = true });
	assert_int_equal(told.cnt, 1);
	takes(no_page);
	storm(ROUNDS / 2);
	track_end(track);
	track = NULL;
	assert_false(has_flag(mem.at, " uw"));
	memset(mem.at, 5, mem.len);
}

static void huge_pages_have_no_soft_dirty_bits(void **state)
{
	struct track *t;

	need_huge();
	assert_int_equal(track_begin(mem.at, mem.len, mem.page, SOFT, &t), -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "huge TLB pages"));
}

/* ---- all ---- */

#define HUGE(test) { #test, test, begin_huge, end_huge, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(a_mirror_is_equal_after_a_storm),
		ON(begin_any, UFFD, a_mirror_is_equal_after_a_storm),
		BY(SOFT, a_mirror_is_equal_whatever_clears_bits),
		HUGE(huge_pages_are_told_as_a_whole),
		HUGE(huge_pages_have_no_soft_dirty_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
