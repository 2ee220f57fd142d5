// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads that register, as libfabric's caches do it, while others change what is mapped: no
 * registration that a cache serves is of pages that have gone.
 *
 * A page has a number that is stored when it is mapped, and no other has it. A registration is that
 * number, read without a lock: so one may be made before a change, and be told of after it. One
 * that is made of a page before its number is there does not say which page it was, and is not
 * cached.
 */
#include "cases.h"
#include "ranges.h"
#include "sight.h"

#define PAGES	 8
#define PAGE	 4096
#define USERS	 3
#define CACHES	 2
#define CHANGES	 3000

struct entry {
	bool is;
	uint64_t number;
};

static struct ranges *t;
static char *arena;
static pthread_mutex_t mm_lock = PTHREAD_MUTEX_INITIALIZER; /* libfabric's; guards: */
static struct entry cached[CACHES][PAGES];
static pthread_rwlock_t content[PAGES]; /* a change of a page, beside its comparers */
static _Atomic uint64_t last_number;
static _Atomic bool stop;
static _Atomic unsigned int hits, stale;

static uint64_t *page_at(unsigned int page)
{
	return (uint64_t *)(void *)(arena + (size_t)page * PAGE);
}

static uint64_t number_of(unsigned int page)
{
	return __atomic_load_n(page_at(page), __ATOMIC_SEQ_CST);
}

/* By the system call itself: what reads without a lock on purpose is a race for ThreadSanitizer,
 * which takes mmap() for a store. */
static void put_page(unsigned int page)
{
	assert_int_equal(syscall(SYS_mmap, page_at(page), PAGE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L),
			 (uintptr_t)page_at(page));
	__atomic_store_n(page_at(page), atomic_fetch_add(&last_number, 1) + 1, __ATOMIC_SEQ_CST);
}

/* As fi_mr_reg(): true, a hit, with @number of the pages that a device would use. */
static bool look_up(unsigned int cache, unsigned int page, uint64_t *number)
{
	const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	struct entry *e = &cached[cache][page];
	bool hit;

	pthread_mutex_lock(&mm_lock);
	hit = e->is && ranges_valid(t, page_at(page), PAGE);
	if (hit)
		*number = e->number;
	else
		e->is = false;
	pthread_mutex_unlock(&mm_lock);
	if (hit)
		return true;
	*number = number_of(page);
	if (*number % 3 == 0)
		sched_yield();
	pthread_mutex_lock(&mm_lock);
	if (!e->is && *number && ranges_keep(t, page_at(page), PAGE, sight_before(frame)))
		*e = (struct entry){ true, *number };
	sight_note(frame, ranges_clock(t));
	pthread_mutex_unlock(&mm_lock);
	return false;
}

static void *use(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg, cache, page;
	uint64_t number;

	while (!atomic_load(&stop)) {
		cache = (unsigned int)rand_r(&seed) % CACHES;
		page = (unsigned int)rand_r(&seed) % PAGES;
		/* One without, which may be of any time. */
		look_up(cache, page, &number);
		pthread_rwlock_rdlock(&content[page]);
		if (look_up(cache, page, &number)) {
			atomic_fetch_add(&hits, 1);
			if (number != number_of(page))
				atomic_fetch_add(&stale, 1);
		}
		pthread_rwlock_unlock(&content[page]);
	}
	return NULL;
}

static void *tell(void *unused)
{
	struct span out[4];
	unsigned int page, cache;
	size_t n, i;

	while ((n = ranges_wait(t, out, 4))) {
		for (i = 0; i < n; i++) {
			page = (unsigned int)(((const char *)out[i].at - arena) / PAGE);
			pthread_mutex_lock(&mm_lock);
			for (cache = 0; cache < CACHES; cache++)
				cached[cache][page].is = false;
			pthread_mutex_unlock(&mm_lock);
		}
	}
	return NULL;
}

static void no_hit_is_stale(void **state)
{
	pthread_t user[USERS], teller;
	struct kedge_notifier *nf;
	unsigned int i, page, seed = 1;

	assert_int_equal(kedge_notifier_open(NULL, &nf), 0);
	assert_int_equal(ranges_open(nf, PAGES / 2 + 2, &t), 0);
	arena = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	assert_ptr_not_equal(arena, MAP_FAILED);
	for (page = 0; page < PAGES; page++) {
		pthread_rwlock_init(&content[page], NULL);
		put_page(page);
	}
	assert_int_equal(pthread_create(&teller, NULL, tell, NULL), 0);
	for (i = 0; i < USERS; i++)
		user[i] = run_thread(use, (void *)(uintptr_t)(i + 2));
	for (i = 0; i < CHANGES || atomic_load(&hits) < CHANGES; i++) {
		page = (unsigned int)rand_r(&seed) % PAGES;
		pthread_rwlock_wrlock(&content[page]);
		put_page(page);
		pthread_rwlock_unlock(&content[page]);
		if (i % 16 == 0)
			usleep(100);
	}
	atomic_store(&stop, true);
	join_threads(user, USERS);
	ranges_stop(t);
	pthread_join(teller, NULL);
	print_message("# %u hits, %u stale\n", atomic_load(&hits), atomic_load(&stale));
	assert_int_equal(atomic_load(&stale), 0);
	ranges_close(t);
	kedge_notifier_close(nf);
	munmap(arena, PAGES * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(no_hit_is_stale) };
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier *nf;

	if (kedge_notifier_open(NULL, &nf) || kedge_notifier_info(nf, &info))
		return 1;
	kedge_notifier_close(nf);
	if (info.level == KEDGE_LEVEL_NONE) {
		print_message("nothing can be watched here\n");
		return 77;
	}
	return RUN(tests);
}
