// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads that are handed chunks by an allocator, get and put there, and give them up, each its
 * own; neighbours share a page. Two more threads make the cache drop what is freed: one trims, one
 * misses beyond the bound. After a chunk was given up no registration of it may be believed, and
 * one that its owner finds in it later is as good as before.
 */
#include <kedge/hooks.h>

#include "cache/internal.h"
#include "cache_pages.h"
#include "notify/announce/announce.h"

#define OWNERS 4
#define LONG   20 /* pages of a chunk */
#define ROUNDS 20000

bool announce_try_calls(void)
{
	return true;
}

static _Atomic bool over;
static _Atomic uint64_t believed, lost;

/* They are odd numbers of bytes, so that each page between two chunks is of both. */
static char *chunk_of(size_t owner)
{
	return at(owner * LONG) + 16;
}

static void use(char *p)
{
	const struct kedge_mr *mr;

	if (kedge_cache_get(cache, p, LONG * page - 64, WRITE, &mr)) {
		atomic_fetch_add(&lost, 1);
		return;
	}
	if (mr->addr > addr_of(p) || mr->addr + mr->len < addr_of(p) + LONG * page - 64)
		atomic_fetch_add(&lost, 1);
	kedge_cache_put(cache, mr);
}

static void give_up(char *p)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP | KEDGE_HOOK_TELL_ONLY, p, LONG * page);
	kedge_hook_end(&hook);
}

/* A region that has the middle of the chunk, where no neighbour has a part, is its owner's. */
static bool is_believed(const char *p)
{
	uint64_t middle = addr_of(p) + LONG / 2 * page, off;
	const struct region *r = &cache->regions[index_find(cache, middle)];
	uint32_t word = state_word(r);

	off = middle - __atomic_load_n(&r->mr.addr, __ATOMIC_RELAXED);
	return is_whole(word) && !(word & REGION_ASK) &&
	       off < __atomic_load_n(&r->mr.len, __ATOMIC_RELAXED) && state_word(r) == word;
}

static void *own(void *arg)
{
	char *p = chunk_of((size_t)(uintptr_t)arg);
	int i;

	for (i = 0; i < ROUNDS; i++) {
		kedge_hook_allocated(p, LONG * page);
		use(p);
		if (i % 3)
			use(p);
		give_up(p);
		if (is_believed(p))
			atomic_fetch_add(&believed, 1);
	}
	return NULL;
}

static void *trim(void *unused)
{
	struct kedge_hook hook;

	while (!atomic_load(&over)) {
		kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE | KEDGE_HOOK_TELL_ONLY, NULL,
				 SIZE_MAX - 65535);
		kedge_hook_end(&hook);
		sched_yield();
	}
	return NULL;
}

static void *miss(void *unused)
{
	const struct kedge_mr *mr;
	size_t n = OWNERS * LONG + 2;

	while (!atomic_load(&over)) {
		n = n < PAGES - 2 ? n + 2 : OWNERS * LONG + 2;
		if (!kedge_cache_get(cache, at(n), page, WRITE, &mr))
			kedge_cache_put(cache, mr);
		if (n % 16 == 0)
			kedge_cache_flush(cache);
	}
	return NULL;
}

static int setup_loaded(void **state)
{
	kedge_hook_attach(KEDGE_BLIND_RAW);
	setup(state);
	open_with((struct kedge_cache_opts){ .max_freed_bytes = 2 * LONG * page,
					     .merge_bytes = page });
	return 0;
}

static void no_freed_chunk_is_believed(void **state)
{
	pthread_t owner[OWNERS], other[2];
	size_t i;

	other[0] = run_thread(trim, NULL);
	other[1] = run_thread(miss, NULL);
	for (i = 0; i < OWNERS; i++)
		owner[i] = run_thread(own, (void *)i);
	for (i = 0; i < OWNERS; i++)
		pthread_join(owner[i], NULL);
	atomic_store(&over, true);
	pthread_join(other[0], NULL);
	pthread_join(other[1], NULL);
	assert_int_equal(believed, 0);
	assert_int_equal(lost, 0);
	kedge_cache_flush(cache);
	assert_int_equal(atomic_load(&cache->freed_bytes), 0);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, setup_loaded, teardown)
#include "stress_freed.cases.h"

int main(int argc, char **argv)
{
	return RUN_CASES(cases, argc, argv);
}
