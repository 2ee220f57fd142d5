// SPDX-License-Identifier: BSD-2-Clause
/* Adding and removing watches: what is registered, counted, and let go. */
#include <kedge/hooks.h>

#include "notify/announce/announce.h"
#include "notify/internal.h"
#include "notifier.h"

static char *pages;

#define PAGES 4

static int setup(void **state)
{
	nf = open_uffd();
	pages = new_pages(PAGES);
	return 0;
}

static char *page(unsigned int n)
{
	return pages + n * page_len();
}

/* True: an announcement there is looked into, as it may be watched. */
static bool is_counted(void *addr)
{
	struct kedge_hook hook;
	bool counted;

	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, addr, page_len());
	counted = hook.state;
	kedge_hook_end(&hook);
	return counted;
}

static bool covers(uint64_t start, uint64_t end)
{
	bool yes;

	sig_lock(&nf->lock);
	yes = armed_whole(nf, start, end);
	sig_unlock(&nf->lock);
	return yes;
}

static void armed_ranges_that_touch_are_one(void **state)
{
	const uint64_t at = (uint64_t)1 << 40, len = page_len();

	sig_lock(&nf->lock);
	armed_add(nf, at, at + len);
	armed_add(nf, at + 2 * len, at + 3 * len);
	sig_unlock(&nf->lock);
	assert_int_equal(nf->armed.cnt, 2);
	assert_false(covers(at, at + 3 * len));
	sig_lock(&nf->lock);
	armed_add(nf, at + len, at + 2 * len);
	sig_unlock(&nf->lock);
	assert_int_equal(nf->armed.cnt, 1);
	assert_true(covers(at, at + 3 * len));
	sig_lock(&nf->lock);
	armed_cut(nf, at, at + 3 * len);
	sig_unlock(&nf->lock);
}

/* Something happened somewhere: every mapping may be another one. */
static void a_tripwire_leaves_nothing_armed(void **state)
{
	const uint64_t at = (uintptr_t)page(1), *saved = nf->head.trips;
	uint64_t trips = nf->trips_seen;
	struct kedge_event ev;

	assert_int_equal(kedge_watch_add(nf, page(1), 1, 1), 0);
	assert_true(covers(at, at + page_len()));
	nf->head.trips = &trips;
	trips++;
	assert_int_equal(kedge_notifier_read(nf, &ev, 1), 1);
	assert_int_equal(ev.kind, KEDGE_EVENT_OTHER);
	assert_int_equal(ev.cookie, 1);
	assert_false(covers(at, at + page_len()));
	nf->head.trips = saved;
	nf->trips_seen = 0;
}

static void a_watch_ends_with_its_notifier(void **state)
{
	assert_int_equal(kedge_watch_add(nf, page(1), 1, 1), 0);
	assert_true(is_counted(page(1)));
	kedge_notifier_close(nf);
	nf = open_uffd();
	assert_false(is_counted(page(1)));
}

static void a_removed_watch_costs_nothing(void **state)
{
	assert_false(is_counted(page(1)));
	assert_int_equal(kedge_watch_add(nf, page(1), 1, 1), 0);
	assert_true(is_counted(page(1)));
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
	assert_false(is_counted(page(1)));
}

/* Too long to be counted piece by piece: it counts everywhere, and no longer. */
static void neither_does_a_long_one(void **state)
{
	const size_t len = (size_t)3 << 30;
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	skip_if(p == MAP_FAILED, "3 GiB of addresses can't be had");
	assert_int_equal(kedge_watch_add(nf, p, len, 1), 0);
	assert_true(is_counted(page(1)));
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
	assert_false(is_counted(page(1)));
	munmap(p, len);
}

static bool unmapping_is_seen(unsigned int n)
{
	uint64_t before = kedge_notifier_generation(nf);

	syscall(SYS_munmap, page(n), page_len());
	return kedge_notifier_generation(nf) != before;
}

static void a_mapping_stays_registered_for_another_watch(void **state)
{
	assert_int_equal(kedge_watch_add(nf, page(0), 1, 1), 0);
	assert_int_equal(kedge_watch_add(nf, page(2), 1, 2), 0);
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
	assert_true(unmapping_is_seen(2));
}

/* An announced drop lets go of the range for its time. */
static void what_was_let_go_is_registered_again(void **state)
{
	struct kedge_hook hook;

	assert_int_equal(kedge_watch_add(nf, page(1), 1, 1), 0);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, page(1), page_len());
	assert_int_equal(madvise(page(1), page_len(), MADV_DONTNEED), 0);
	kedge_hook_end(&hook);
	assert_true(unmapping_is_seen(1));
}

/* Its user may be unmapping it: only what is armed already is believed. */
static void an_unarmed_neighbour_is_not_taken_in(void **state)
{
	struct own_range own = { addr_of(page(1)), addr_of(page(2)) };
	struct watch w = { .queue = &nf->queue };

	assert_int_equal(notify_watch_add(nf, &w, addr_of(page(0)),
					  addr_of(page(2)), own), -ESTALE);
	assert_int_equal(kedge_watch_add(nf, page(0), 1, 1), 0);
	assert_int_equal(notify_watch_add(nf, &w, addr_of(page(0)),
					  addr_of(page(2)), own), 0);
	notify_watch_remove(nf, &w, false);
}

/* Called between an announcement and its return. */
void announce_told(void)
{
	errno = EDOM;
}

static void an_announcement_keeps_errno(void **state)
{
	struct kedge_hook hook;

	assert_int_equal(kedge_watch_add(nf, page(1), 1, 1), 0);
	errno = ERANGE;
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, page(1), page_len());
	assert_int_equal(errno, ERANGE);
	kedge_hook_end(&hook);
	assert_int_equal(errno, ERANGE);
}

#define NEEDED need_uffd
#define LISTED NF_CASE
#include "test_watch.cases.h"
