// SPDX-License-Identifier: BSD-2-Clause
/*
 * Registrations of memory that an allocator takes back and hands out again. The test is
 * the allocator, and announces as libkedge-hooks does.
 */
#include <kedge/hooks.h>

#include "cache/internal.h"
#include "cache_pages.h"
#include "notify/announce/announce.h"

#define LONG 16 /* pages of a chunk that is large enough on each machine */

bool announce_try_calls(void)
{
	return true;
}

static void (*amid_question)(void);
static int asked;

void freed_asked(void)
{
	void (*f)(void) = amid_question;

	asked++;
	amid_question = NULL;
	if (f)
		f();
}

static int setup_loaded(void **state)
{
	kedge_hook_attach(KEDGE_BLIND_RAW);
	return setup_open(state);
}

/* The bytes of a chunk begin and end within a page, as those of malloc() do. */
static char *byte(size_t n)
{
	return at(n) + 16;
}

static void allocate(size_t first, size_t cnt)
{
	kedge_hook_allocated(byte(first), cnt * page);
}

static void give_up_as(uint32_t kind, size_t first, size_t cnt)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, (int)(kind | KEDGE_HOOK_TELL_ONLY), byte(first), cnt * page);
	kedge_hook_end(&hook);
}

static void give_up(size_t first, size_t cnt)
{
	give_up_as(KEDGE_EVENT_UNMAP, first, cnt);
}

static void trim(void)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE | KEDGE_HOOK_TELL_ONLY, NULL,
			 SIZE_MAX - 65535);
	kedge_hook_end(&hook);
}

static struct region *region_at(size_t n)
{
	uint32_t id = index_find(cache, addr_of(at(n)));

	assert_int_not_equal(id, 0);
	return &cache->regions[id];
}

static uint32_t flags_at(size_t n)
{
	return state_of(region_at(n)) & ~REGION_PHASE;
}

static void use(size_t first, size_t cnt)
{
	put(get_at(byte(first), cnt * page, WRITE));
}

static bool use_hits(size_t first, size_t cnt)
{
	uint64_t before = dev->regs;

	use(first, cnt);
	return dev->regs == before;
}

static int64_t freed_bytes(void)
{
	return atomic_load(&cache->freed_bytes);
}

static void a_chunk_that_comes_back_hits_by_a_load(void **state)
{
	int i;

	allocate(0, LONG);
	use(0, LONG);
	assert_int_equal(flags_at(0), 0);
	for (i = 0; i < 100; i++) {
		give_up(0, LONG);
		assert_int_equal(flags_at(0), REGION_ASK | REGION_FREED);
		assert_int_equal(freed_bytes(), (LONG + 1) * page);
		allocate(0, LONG);
		assert_true(use_hits(0, LONG));
		assert_int_equal(flags_at(0), 0);
		assert_int_equal(freed_bytes(), 0);
	}
	assert_int_equal(stats().invalidations, 0);
}

/* It may be somebody's who does not come through libc. */
static void what_was_not_handed_out_again_is_asked_about(void **state)
{
	allocate(0, LONG);
	use(0, LONG);
	give_up(0, LONG);
	assert_true(use_hits(0, LONG));
	assert_int_equal(flags_at(0), REGION_ASK);
	assert_int_equal(freed_bytes(), 0);
	assert_true(use_hits(0, LONG));
}

static void realloc_is_a_free_and_a_malloc(void **state)
{
	allocate(0, LONG);
	use(0, LONG);
	give_up_as(KEDGE_EVENT_REMAP, 0, LONG);
	allocate(0, 2 * LONG);
	assert_true(use_hits(0, LONG));
	assert_false(use_hits(0, 2 * LONG));
	assert_int_equal(flags_at(0), 0);
}

/* The page between two chunks is as good for the one as it was for both. */
static void a_neighbour_is_left_alone(void **state)
{
	allocate(0, LONG);
	allocate(LONG, LONG);
	allocate(2 * LONG, LONG);
	use(LONG, LONG);
	give_up(0, LONG);
	give_up(2 * LONG, LONG);
	assert_int_equal(flags_at(LONG), 0);
	assert_true(use_hits(LONG, LONG));
	give_up(LONG, LONG);
	allocate(0, LONG);
	allocate(2 * LONG, LONG);
	assert_int_equal(flags_at(LONG), REGION_ASK | REGION_FREED);
	use(LONG, LONG);
	assert_int_equal(flags_at(LONG), REGION_ASK);
	allocate(LONG, LONG);
	use(LONG, LONG);
	assert_int_equal(flags_at(LONG), 0);
}

static void one_registration_over_two_chunks_goes_with_either(void **state)
{
	allocate(0, LONG);
	allocate(LONG, LONG);
	use(0, 2 * LONG);
	assert_int_equal(flags_at(0), 0);
	give_up(LONG, LONG);
	assert_int_equal(flags_at(0), REGION_ASK | REGION_FREED);
	use(0, LONG);
	assert_int_equal(flags_at(0), REGION_ASK);
	allocate(LONG, LONG);
	use(0, LONG);
	assert_int_equal(flags_at(0), 0);
}

/* An allocator over mmap()ed memory: its undoing is announced, whoever has the chunk. */
static void in_mapped_memory_nobody_asks(void **state)
{
	kedge_hook_mapped(at(0), PAGES * page);
	allocate(0, LONG);
	use(0, LONG);
	give_up(0, LONG);
	assert_int_equal(flags_at(0), REGION_FREED);
	sig_lock(&nf->lock); /* who asks would not be answered by the monitor */
	assert_true(use_hits(0, LONG));
	sig_unlock(&nf->lock);
	assert_int_equal(flags_at(0), 0);
	assert_int_equal(freed_bytes(), 0);
}

static void *unmap_chunk(void *p)
{
	syscall(SYS_munmap, p, (LONG + 1) * page);
	return NULL;
}

static void take_back(void *p)
{
	void *got;

	do
		got = (void *)syscall(SYS_mmap, p, (LONG + 1) * page, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0L);
	while (got == MAP_FAILED);
	assert_ptr_equal(got, p);
}

/*
 * The allocator unmaps what is free within itself, on another thread, and has the same
 * address from the kernel before that call has returned.
 */
static void a_change_under_way_is_no_hit(void **state)
{
	const struct kedge_mr *mr;
	pthread_t t;

	allocate(0, LONG);
	use(0, LONG);
	give_up(0, LONG);
	sig_lock(&nf->lock);
	assert_int_equal(pthread_create(&t, NULL, unmap_chunk, at(0)), 0);
	take_back(at(0));
	allocate(0, LONG);
	assert_int_equal(kedge_cache_tryget(cache, byte(0), LONG * page, WRITE, &mr), -EAGAIN);
	assert_int_equal(flags_at(0), REGION_ASK | REGION_FREED);
	sig_unlock(&nf->lock);
	pthread_join(t, NULL);
	assert_false(use_hits(0, LONG));
}

/* What lookups do while they ask: the answer is of before that. */
static void free_and_malloc(void)
{
	give_up(0, LONG);
	allocate(0, LONG);
}

static void an_answer_of_before_is_no_answer(void **state)
{
	allocate(0, LONG);
	use(0, LONG);
	give_up(0, LONG);
	allocate(0, LONG);
	amid_question = free_and_malloc;
	asked = 0;
	assert_true(use_hits(0, LONG));
	assert_int_equal(flags_at(0), 0);
	assert_int_equal(asked, 2);
}

/* The publisher asked before the chunk went: it may be another's memory by now. */
static void what_is_published_late_stays_freed(void **state)
{
	allocate(0, LONG);
	use(0, LONG);
	give_up(0, LONG);
	allocate(0, LONG);
	freed_settle(cache, region_at(0));
	assert_int_equal(flags_at(0), REGION_ASK | REGION_FREED);
	assert_true(use_hits(0, LONG));
	assert_int_equal(flags_at(0), 0);
}

static void holes_are_remembered_as_freed(void **state)
{
	struct kedge_hook hook;

	allocate(0, 2 * CHUNK);
	use(0, 2 * CHUNK);
	give_up(0, 2 * CHUNK);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, at(1), page);
	assert_int_equal(madvise(at(1), page, MADV_DONTNEED), 0);
	kedge_hook_end(&hook);
	allocate(0, 2 * CHUNK);
	assert_true(use_hits(2, CHUNK));
	assert_int_equal(flags_at(2), 0);
	assert_true(is_holed(state_of(region_at(2))));
	give_up(0, 2 * CHUNK);
	assert_int_equal(flags_at(2), REGION_ASK | REGION_FREED);
}

/* ---- limits ---- */

static void open_limited(struct kedge_cache_opts o)
{
	o.merge_bytes = page;
	open_with(o);
}

static void the_freed_go_first(void **state)
{
	open_limited((struct kedge_cache_opts){ .max_regions = 3 });
	allocate(2 * LONG, LONG);
	allocate(4 * LONG, LONG);
	use(0, LONG);
	use(2 * LONG, LONG);
	use(4 * LONG, LONG);
	give_up(4 * LONG, LONG);
	give_up(2 * LONG, LONG);
	use(6 * LONG, LONG);
	/* The first that was freed, though the least recently used is another. */
	assert_false(index_find(cache, addr_of(at(4 * LONG + 1))));
	use(8 * LONG, LONG);
	assert_false(index_find(cache, addr_of(at(2 * LONG + 1))));
	assert_true(use_hits(0, LONG));
	assert_int_equal(stats().evictions, 2);
}

static void what_is_used_again_is_not_the_first(void **state)
{
	open_limited((struct kedge_cache_opts){ .max_regions = 2 });
	allocate(2 * LONG, LONG);
	use(0, LONG);
	use(2 * LONG, LONG);
	give_up(2 * LONG, LONG);
	allocate(2 * LONG, LONG);
	use(2 * LONG, LONG);
	use(4 * LONG, LONG);
	assert_true(use_hits(2 * LONG, LONG));
}

static void what_is_held_stays_though_freed(void **state)
{
	const struct kedge_mr *mr;

	open_limited((struct kedge_cache_opts){ .max_freed_bytes = page });
	allocate(0, LONG);
	mr = get_at(byte(0), LONG * page, WRITE);
	give_up(0, LONG);
	use(4 * LONG, LONG);
	assert_true(dev->alive[mr->device_handle]);
	assert_int_equal(dev->live, 2);
	put(mr);
	use(6 * LONG, LONG);
	assert_int_equal(dev->live, 2);
	assert_int_equal(freed_bytes(), 0);
}

static void freed_bytes_are_bounded(void **state)
{
	size_t i;

	open_limited((struct kedge_cache_opts){ .max_freed_bytes = 2 * (LONG + 1) * page });
	for (i = 0; i < 6; i++) {
		allocate(2 * i * LONG, LONG);
		use(2 * i * LONG, LONG);
		give_up(2 * i * LONG, LONG);
	}
	use(14 * LONG, LONG);
	assert_int_equal(freed_bytes(), 2 * (LONG + 1) * page);
	assert_int_equal(dev->live, 3);
	assert_true(use_hits(10 * LONG, LONG));
	assert_false(use_hits(0, LONG));
}

static void a_trim_drops_what_is_freed(void **state)
{
	open_limited((struct kedge_cache_opts){ 0 });
	allocate(0, LONG);
	allocate(2 * LONG, LONG);
	use(0, LONG);
	use(2 * LONG, LONG);
	give_up(0, LONG);
	trim();
	assert_int_equal(dev->live, 1);
	assert_int_equal(freed_bytes(), 0);
	assert_true(use_hits(2 * LONG, LONG));
	/* Its place on the list is another's now. */
	allocate(0, LONG);
	use(0, LONG);
	give_up(0, LONG);
	assert_int_equal(freed_bytes(), (LONG + 1) * page);
	trim();
	assert_int_equal(dev->live, 1);
}

static void *trim_there(void *unused)
{
	trim();
	return NULL;
}

static void another_thread_trims(void **state)
{
	pthread_t t;

	allocate(0, LONG);
	use(0, LONG);
	give_up(0, LONG);
	assert_int_equal(pthread_create(&t, NULL, trim_there, NULL), 0);
	pthread_join(t, NULL);
	/* Of a cache with a single thread it is no other thread's to drop. */
	assert_int_equal(dev->live, is_single());
	assert_int_equal(use_hits(0, LONG), is_single());
}

static void a_closed_cache_is_not_told(void **state)
{
	allocate(0, LONG);
	use(0, LONG);
	close_cache();
	give_up(0, LONG);
	trim();
	assert_int_equal(dev->live, 0);
	open_cache(NULL);
}

/* ---- those that are told, as ever ---- */

static void a_watch_is_told(void **state)
{
	struct kedge_event ev[2];

	allocate(0, LONG);
	use(0, LONG);
	assert_true(kedge_watch_add(nf, at(1), page, 7) >= 0);
	give_up(0, LONG);
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
	assert_int_equal(ev[0].cookie, 7);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_UNMAP);
	assert_int_equal(ev[0].flags, KEDGE_EVENT_UNSURE);
	assert_int_equal(kedge_watch_remove(nf, 7), 0);
	allocate(0, LONG);
	assert_true(use_hits(0, LONG));
	/* Not of what a neighbour has in the same page. */
	assert_true(kedge_watch_add(nf, at(LONG), page, 8) >= 0);
	give_up(0, LONG);
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 1);
	assert_int_equal(kedge_watch_remove(nf, 8), 0);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, setup_loaded, teardown)
#include "test_cache_freed.cases.h"

int main(int argc, char **argv)
{
	return RUN_CASES(cases, argc, argv);
}
