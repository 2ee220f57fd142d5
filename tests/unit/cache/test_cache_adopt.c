// SPDX-License-Identifier: BSD-2-Clause
/*
 * Registrations whose pages are moved to other addresses: the cache has them there, and
 * no others that changed meanwhile.
 */
#include <kedge/hooks.h>

#include "cache/priv.h"
#include "device/device.h" /* before the fixture's dev */
#include "pages/swap.h"

#include "cache_pages.h"

#define LANDING 40 /* pages of which MOVED are moved, from page FIRST on */
#define FIRST	3
#define MOVED	30
#define HANDLE	7000

/* The calls of another thread between the move and the end of it. */
static void (*other)(void);
static void (*other_before)(void);
static struct kedge__adoption *adoption;
static char *landing;

static void *run(void *fn)
{
	((void (*)(void))fn)();
	return NULL;
}

/* With signals off, as its creator has them. */
static void by_another_thread(void (*fn)(void))
{
	if (!fn)
		return;
	in_thread(run, (void *)fn);
}

static void moving(void *ctx, void *to, void *from, size_t len)
{
	by_another_thread(other_before);
	kedge__cache_adopt_moving(ctx, to, from, len);
}

static void moved(void *ctx, int rc)
{
	assert_int_equal(rc, 0);
	by_another_thread(other);
	kedge__cache_adopt_moved(ctx, rc);
}

static struct kedge_device_mr land(void)
{
	struct kedge_device_mr mr;
	size_t i;

	landing = new_pages(LANDING);
	for (i = 0; i < LANDING; i++)
		landing[i * page] = (char)i;
	assert_int_equal(device_reg(dev->dev, landing, LANDING * page, WRITE,
				    &mr), 0);
	assert_int_equal(kedge__cache_adopt(cache, &mr, landing,
					    LANDING * page, WRITE, &adoption),
			 0);
	return mr;
}

/* Land, and move: the handle of the registration. */
static uint64_t land_and_move(void)
{
	struct kedge__move_calls calls = { moving, moved, NULL };
	struct kedge_device_mr mr;

	open_with((struct kedge_cache_opts){ 0 });
	mr = land();
	calls.ctx = adoption;
	assert_int_equal(kedge__pages_replace(at(0), landing + FIRST * page,
					      MOVED * page, &calls), 0);
	assert_true(kedge__cache_adopt_end(adoption, HANDLE));
	return mr.handle;
}

static void end_of_landing(void)
{
	munmap(landing, LANDING * page);
}

static void the_cache_has_it_where_the_pages_are(void **state)
{
	const struct kedge_mr *mr;
	uint64_t handle;

	handle = land_and_move();
	mr = get(0, MOVED, WRITE);
	assert_int_equal(dev->regs, 1);
	assert_int_equal(mr->device_handle, handle);
	assert_int_equal(mr->addr, addr_of(at(0)));
	assert_int_equal(mr->len, MOVED * page);
	assert_int_equal(mr->offset, HANDLE);
	kedge_cache_put(cache, mr);
	assert_int_equal(*at(MOVED - 1), FIRST + MOVED - 1);
	assert_int_equal(stats().regions, 1);
	end_of_landing();
	assert_true(is_hit(0, MOVED, WRITE));
	/* Later changes are told as of any other. */
	assert_int_equal(madvise(at(2), page, MADV_DONTNEED), 0);
	assert_true(is_hit(10, 4, WRITE));
	assert_false(is_hit(0, MOVED, WRITE));
	munmap(at(0), MOVED * page);
	stats();
	kedge_cache_flush(cache);
	assert_int_equal(dev->live, 0);
}

/* ---- others change the range meanwhile ---- */

static void drop_a_page(void)
{
	assert_int_equal(syscall(SYS_madvise, at(5), page, MADV_DONTNEED), 0);
}

static void map_over_a_page(void)
{
	assert_true((void *)syscall(SYS_mmap, at(MOVED - 1), page,
				    PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				    -1, 0L) == at(MOVED - 1));
}

static void map_over_all(void)
{
	assert_true((void *)syscall(SYS_mmap, at(0), MOVED * page,
				    PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				    -1, 0L) == at(0));
}

/* To the place that they came from, and away from there. */
static void move_away(void)
{
	assert_true((void *)syscall(SYS_mremap, at(0), MOVED * page,
				    MOVED * page,
				    MREMAP_MAYMOVE | MREMAP_FIXED,
				    landing + FIRST * page) ==
		    landing + FIRST * page);
	map_over_all();
}

static struct kedge_hook hook;

static void announce_a_drop(void)
{
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, at(5), page);
}

static void drop_as_announced(void)
{
	drop_a_page();
	kedge_hook_end(&hook);
}

static void watch_a_neighbour(void)
{
	assert_true(kedge_watch_add(nf, at(MOVED + 2), page, 1) >= 0);
}

static const struct {
	const char *what;
	void (*before)(void);
	void (*after)(void);
	bool kept;
} changes[] = {
	{ "a page is dropped", NULL, drop_a_page, false },
	{ "a page is mapped over", NULL, map_over_a_page, false },
	{ "all is mapped over", NULL, map_over_all, false },
	{ "all is moved away", NULL, move_away, false },
	{ "a page is dropped as announced before", announce_a_drop,
	  drop_as_announced, false },
	/* The pages that move there replace the change. */
	{ "a page is dropped before", drop_a_page, NULL, true },
	{ "all is mapped over before", map_over_all, NULL, true },
	{ "a neighbour is watched", watch_a_neighbour, NULL, false },
};

static void what_others_changed_is_not_kept(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		print_message("%s\n", changes[i].what);
		other_before = changes[i].before;
		other = changes[i].after;
		land_and_move();
		other_before = other = NULL;
		if (changes[i].kept) {
			assert_true(is_hit(0, MOVED, WRITE));
		} else {
			assert_false(is_hit(0, MOVED, WRITE));
			/* The other one was made while the drop was under way, and may end, too. */
			assert_int_equal(dev->deregs, 1 + stats().uncached);
		}
		stats();
		end_of_landing();
		teardown(state);
		setup(state);
	}
}

/* ---- nothing is moved ---- */

static void what_is_not_moved_stays_its_owners(void **state)
{
	struct kedge_device_mr mr;

	open_with((struct kedge_cache_opts){ 0 });
	mr = land();
	assert_false(kedge__cache_adopt_end(adoption, 0));
	assert_int_equal(dev->live, 1);
	device_dereg(dev->dev, &mr);

	/* The move fails. */
	end_of_landing();
	mr = land();
	kedge__cache_adopt_moving(adoption, at(0), landing, MOVED * page);
	kedge__cache_adopt_moved(adoption, -ENOMEM);
	assert_false(kedge__cache_adopt_end(adoption, 0));
	assert_int_equal(dev->live, 1);
	device_dereg(dev->dev, &mr);
	end_of_landing();
	assert_false(is_hit(0, MOVED, WRITE));
}

static void it_counts_as_others_do(void **state)
{
	struct kedge_device_mr mr;

	open_with((struct kedge_cache_opts){ .max_bytes = LANDING * page });
	get_put(100, LANDING, WRITE);
	assert_int_equal(dev->live, 1);
	/* The other one makes room. */
	mr = land();
	assert_int_equal(dev->live, 1);
	assert_false(kedge__cache_adopt_end(adoption, 0));
	device_dereg(dev->dev, &mr);
	end_of_landing();
}

#include "test_cache_adopt.cases.h"

int main(int argc, char **argv)
{
	return RUN_CASES(cases, argc, argv);
}
