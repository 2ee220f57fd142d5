// SPDX-License-Identifier: BSD-2-Clause
/* Watches that are added without the notifier's lock, and changes that meet them. */
#include <pthread.h>
#include <sys/syscall.h>

#include "notify/internal.h"
#include "notifier.h"

#define PAGES 8
#define MANY  200
#define PRIME 1 /* the cookie of a watch that has all of it armed */

static char *pages;
static struct queue told;
static struct watch watch;
static void (*on_pushed)(void);
static void (*on_read)(void);

static int setup(void **state)
{
	nf = open_uffd();
	pages = new_pages(PAGES);
	told = (struct queue){ 0 };
	watch = (struct watch){ .queue = &told };
	return kedge_watch_add(nf, pages, PAGES * page_len(), PRIME);
}

static char *page(unsigned int n)
{
	return pages + n * page_len();
}

static int add(struct watch *w, unsigned int n)
{
	struct own_range own = { addr_of(page(n)), addr_of(page(n + 1)) };

	return notify_watch_add(nf, w, own.start, own.end, own);
}

static bool is_told(void)
{
	struct taken t;
	uint64_t drained;

	return notify_take(nf, &told, &t, 1, &drained) == 1;
}

/* What is handled now is of all calls that have returned. */
static void wait_for_monitor(void)
{
	sig_lock(&nf->lock);
	sig_unlock(&nf->lock);
}

static void *call_it(void *fn)
{
	((void (*)(void))fn)();
	return NULL;
}

/* Another thread does it. */
static void once(void (**on)(void))
{
	void (*fn)(void) = *on;
	pthread_t t;

	*on = NULL;
	if (!fn)
		return;
	assert_int_equal(pthread_create(&t, NULL, call_it, fn), 0);
	pthread_join(t, NULL);
}

void incoming_pushed(void)
{
	once(&on_pushed);
}

void incoming_read(void)
{
	once(&on_read);
}

static void unmap_it(void)
{
	syscall(SYS_munmap, page(1), page_len());
}

static void unmap_and_wait(void)
{
	unmap_it();
	wait_for_monitor();
}

static void drop_it(void)
{
	syscall(SYS_madvise, page(1), page_len(), MADV_DONTNEED);
}

static void end_the_other(void)
{
	kedge_watch_remove(nf, PRIME);
}

static void it_waits_on_the_list(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	assert_int_equal(add(&watch, 1), 0);
	assert_ptr_equal(atomic_load(&nf->incoming.first), &watch);
	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	assert_int_equal(info.watches, 2);
	notify_watch_remove(nf, &watch, true);
}

static void a_change_after_it_is_told(void **state)
{
	assert_int_equal(add(&watch, 1), 0);
	unmap_it();
	assert_true(is_told());
	notify_watch_remove(nf, &watch, true);
}

static void a_change_in_between_is_told(void **state)
{
	int rc;

	on_pushed = unmap_it;
	rc = add(&watch, 1);
	assert_true(rc < 0 || is_told());
	if (rc >= 0)
		notify_watch_remove(nf, &watch, true);
}

static void what_is_gone_is_not_armed(void **state)
{
	on_pushed = unmap_and_wait;
	assert_int_equal(add(&watch, 1), -EFAULT);
	assert_null(atomic_load(&nf->incoming.first));
}

static void nor_is_what_goes_while_it_is_looked_at(void **state)
{
	on_read = unmap_and_wait;
	assert_int_equal(add(&watch, 1), -EFAULT);
	assert_null(on_read);
}

static void a_drop_in_between_is_told(void **state)
{
	on_pushed = drop_it;
	assert_true(add(&watch, 1) >= 0);
	assert_true(is_told());
	notify_watch_remove(nf, &watch, true);
}

/* The pages go after the event, and no event says when: taint.c. */
static void where_pages_are_on_their_way_out_it_is_not_known(void **state)
{
	sig_lock(&nf->lock);
	taint_add(nf, addr_of(page(6)), addr_of(page(7)));
	queue_publish(nf, KEDGE_EVENT_REMOVE, addr_of(page(6)), addr_of(page(7)));
	incoming_know(nf, addr_of(page(0)), addr_of(page(PAGES)));
	sig_unlock(&nf->lock);
	assert_int_equal(add(&watch, 1), 0);
	assert_null(atomic_load(&nf->incoming.first));
	notify_watch_remove(nf, &watch, true);
}

static void it_keeps_its_range_registered(void **state)
{
	assert_int_equal(add(&watch, 1), 0);
	assert_int_equal(kedge_watch_remove(nf, PRIME), 0);
	unmap_it();
	assert_true(is_told());
	notify_watch_remove(nf, &watch, true);
}

static void so_it_does_where_the_last_other_ends_in_between(void **state)
{
	on_pushed = end_the_other;
	assert_int_equal(add(&watch, 1), 0);
	unmap_it();
	assert_true(is_told());
	notify_watch_remove(nf, &watch, true);
}

static void something_somewhere_is_looked_into(void **state)
{
	const uint64_t *saved = nf->head.trips;
	uint64_t trips = nf->trips_seen + 1;

	nf->head.trips = &trips;
	assert_int_equal(add(&watch, 1), 0);
	assert_null(atomic_load(&nf->incoming.first));
	assert_true(is_told());
	notify_watch_remove(nf, &watch, true);
	nf->head.trips = saved;
	nf->trips_seen = 0;
}

static size_t on_the_list(void)
{
	const struct watch *w = atomic_load(&nf->incoming.first);
	size_t n;

	for (n = 0; w; w = w->next)
		n++;
	return n;
}

static void few_wait_on_the_list(void **state)
{
	static struct watch many[MANY];
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		many[i].queue = &told;
		assert_int_equal(add(&many[i], i % PAGES), 0);
		assert_in_range(on_the_list(), 0, 64);
	}
	for (i = 0; i < MANY; i++)
		notify_watch_remove(nf, &many[i], true);
}

#define NEEDED need_uffd
#define LISTED NF_CASE
#include "test_incoming.cases.h"
