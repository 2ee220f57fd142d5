// SPDX-License-Identifier: BSD-2-Clause
/*
 * A lookup learns of a change that is under way. The change is stopped
 * in the middle by holding the lock that the monitor needs to read its event.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <kedge/hooks.h>

#include "cache/internal.h"
#include "notify/announce/announce.h"
#include "notify/announce/origin.h"
#include "notify/backend/uffd.h"
#include "notify/internal.h"
#include "notifier.h"

/* Here the test announces, not libkedge-hooks. */
bool announce_try_calls(void)
{
	return true;
}

static uint32_t check_of(struct kedge_notifier *n)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_notifier_info(n, &info), 0);
	return info.check;
}

/* Take all events; the generation at which there were none. */
static uint64_t drain(void)
{
	struct kedge_event ev[4];
	ssize_t n;

	do {
		n = kedge_notifier_read(nf, ev, 4);
		assert_true(n >= 0);
	} while (!n || ev[n - 1].kind != KEDGE_EVENT_LAST);
	return ev[n - 1].generation;
}

static void *unmap(void *p)
{
	munmap(p, page_len());
	return NULL;
}

/* Take the page's address as soon as the kernel gives it away again. */
static void *take_address(char *p)
{
	void *got;

	do {
		got = mmap(p, page_len(), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			   -1, 0);
	} while (got == MAP_FAILED);
	assert_ptr_equal(got, p);
	return got;
}

static void a_change_under_way_is_no_rest(void **state)
{
	uint64_t generation;
	pthread_t t;
	int i;

	assert_int_equal(check_of(nf), KEDGE_CHECK_CALL);
	for (i = 0; i < 50; i++) {
		char *p = new_pages(1);

		assert_true(kedge_watch_add(nf, p, 1, 1) >= 0);
		generation = drain();
		assert_int_equal(kedge_notifier_unchanged(nf, generation), 1);
		sig_lock(&nf->lock);
		assert_int_equal(pthread_create(&t, NULL, unmap, p), 0);
		take_address(p);
		/* The range is ours now, the other's munmap() under way. */
		assert_int_equal(kedge_notifier_generation(nf), generation);
		assert_false(notify_settled(nf));
		sig_unlock(&nf->lock);
		pthread_join(t, NULL);
		assert_int_equal(kedge_notifier_unchanged(nf, generation), 0);
		assert_int_equal(kedge_notifier_unchanged(nf, drain()), 1);
		assert_int_equal(kedge_watch_remove(nf, 1), 0);
		free_pages(p, 1);
	}
}

static void an_answer_keeps_errno(void **state)
{
	errno = ERANGE;
	assert_true(notify_settled(nf));
	assert_int_equal(errno, ERANGE);
}

static void bad_arguments_are_refused(void **state)
{
	assert_int_equal(kedge_notifier_unchanged(NULL, 2), -EINVAL);
}

static int ask_in_child(void *arg)
{
	return kedge_notifier_unchanged(nf, 2) == -ECHILD ? 0 : 1;
}

static void a_child_is_refused(void **state)
{
	assert_int_equal(in_child(ask_in_child, NULL), 0);
}

/* ---- descriptors ---- */

static void *ask_without_descriptors(void *arg)
{
	bool *settled = arg;

	*settled = unshare(CLONE_FILES) || syscall(SYS_close_range, 3, ~0u, 0) ||
		   notify_settled(nf);
	return NULL;
}

/* It has lost its own, not the process's. */
static void a_thread_that_closed_its_own_descriptors(void **state)
{
	bool settled = true;
	pthread_t t;

	assert_true(notify_settled(nf));
	assert_int_equal(pthread_create(&t, NULL, ask_without_descriptors, &settled), 0);
	pthread_join(t, NULL);
	assert_false(settled);
	assert_int_equal(check_of(nf), KEDGE_CHECK_CALL);
	assert_true(notify_settled(nf));
}

/* The program has closed the descriptor of a monitor, which may be another copy's. */
static void the_number_of_a_monitor_is_not_taken(void **state)
{
	const struct uffd *u = nf->backend;
	const int number = u->fd;
	int i, fd;

	close(number);
	for (i = 0; i < 1024; i++) {
		fd = uffd_number(open("/dev/null", O_RDONLY | O_CLOEXEC));
		assert_true(fd >= 0);
		assert_int_not_equal(fd, number);
		close(fd);
	}
	assert_false(notify_settled(nf));
	assert_int_equal(check_of(nf), KEDGE_CHECK_NONE);
}

/* Where libkedge-hooks announces, nothing is asked, until it is passed by. */
static void an_unannounced_change_makes_lookups_ask(void **state)
{
	char *p = new_pages(1);
	struct kedge_hook hook;

	kedge_hook_attach(KEDGE_BLIND_RAW);
	kedge_notifier_close(nf);
	nf = open_uffd();
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);

	kedge_hook_mapped(p, page_len());
	assert_true(kedge_watch_add(nf, p, 1, 1) >= 0);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, p, page_len());
	assert_int_equal(munmap(p, page_len()), 0);
	kedge_hook_end(&hook);
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
	assert_int_equal(kedge_watch_remove(nf, 1), 0);

	pages_at(p, 1);
	kedge_hook_mapped(p, page_len());
	assert_true(kedge_watch_add(nf, p, 1, 1) >= 0);
	assert_int_equal(munmap(p, page_len()), 0);
	assert_int_equal(check_of(nf), KEDGE_CHECK_CALL);
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
	/* It is the process that does so: a later notifier asks as well. */
	kedge_notifier_close(nf);
	nf = open_uffd();
	assert_int_equal(check_of(nf), KEDGE_CHECK_CALL);
}

/*
 * An announced change that the kernel reports all the same: the monitor has read
 * the event and let the call go, and is about to look whether it was announced.
 */
static int awaited;

void announce_awaited(void)
{
	awaited++;
}

static void end_of(int kind, void *p, size_t len)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, kind, p, len);
	kedge_hook_end(&hook);
}

static void an_announcement_outlasts_the_handling_of_its_event(void **state)
{
	char *p = new_pages(1);

	kedge_hook_mapped(p, page_len());
	assert_int_equal(kedge_watch_add(nf, p, 1, 1), 0);
	awaited = 0;
	end_of(KEDGE_EVENT_UNMAP, p, page_len());
	assert_int_equal(awaited, 0);
	announce_reading(1);
	end_of(KEDGE_EVENT_REMOVE, p, page_len());
	assert_int_equal(awaited, 0);
	end_of(KEDGE_EVENT_UNMAP, p, page_len());
	end_of(KEDGE_EVENT_REMAP, p, page_len());
	assert_int_equal(awaited, 2);
	announce_reading(-1);
	end_of(KEDGE_EVENT_UNMAP, p, page_len());
	assert_int_equal(awaited, 2);
}

/* By the generation alone nobody can tell one memory from the other. */
static void a_watch_on_other_memory_makes_lookups_ask(void **state)
{
	char *p = new_pages(2);

	kedge_hook_mapped(p, page_len());
	assert_int_equal(kedge_watch_add(nf, p, 1, 1), 0);
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
	assert_int_equal(kedge_watch_add(nf, p, page_len() + 1, 2), 0);
	assert_int_equal(check_of(nf), KEDGE_CHECK_CALL);
}

static void a_watch_that_cannot_hold_is_provisional(void **state)
{
	char *p = new_pages(1);

	nf->can_ask = false;
	assert_int_equal(kedge_watch_add(nf, p, 1, 1), KEDGE_WATCH_PROVISIONAL);
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
	nf->can_ask = true;
}

/* Memory is handed out where something is watched: what was there has gone. */
static void who_watches_memory_that_is_new_is_told(void **state)
{
	char *p = new_pages(3);
	struct kedge_event ev;

	kedge_hook_mapped(p, 3 * page_len());
	assert_int_equal(kedge_watch_add(nf, p + page_len(), 1, 7), 0);
	drain();
	/* A part of a page is no news: a neighbour's may be in the rest. */
	kedge_hook_mapped(p + page_len() + 16, page_len() - 16);
	kedge_hook_mapped(p, page_len());
	kedge_hook_mapped(p + 2 * page_len(), page_len());
	assert_int_equal(kedge_notifier_read(nf, &ev, 1), 1);
	assert_int_equal(ev.kind, KEDGE_EVENT_LAST);
	kedge_hook_mapped(p + page_len(), page_len());
	assert_int_equal(kedge_notifier_read(nf, &ev, 1), 1);
	assert_int_equal(ev.kind, KEDGE_EVENT_UNMAP);
	assert_int_equal(ev.cookie, 7);
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
}

/* A cache over a device that counts. */
struct counted {
	struct nodev *dev;
	struct kedge_cache *cache;
};

static void open_counted(struct counted *c)
{
	c->dev = nodev_new();
	assert_int_equal(kedge_cache_open(c->dev->dev, nf, NULL, &c->cache), 0);
}

static void close_counted(struct counted *c)
{
	kedge_cache_close(c->cache);
	nodev_free(c->dev);
}

/* The number of registrations after a get and its put. */
static int regs_after(struct counted *c, const void *p, size_t len)
{
	const struct kedge_mr *mr;

	assert_int_equal(kedge_cache_get(c->cache, p, len, 1, &mr), 0);
	kedge_cache_put(c->cache, mr);
	return atomic_load(&c->dev->regs);
}

/*
 * The other thread's munmap() is under way, unannounced; the range is ours. In
 * memory that libc did not hand out the lookup asks, and what is not the answer
 * is not served; elsewhere nobody asks.
 */
static void only_other_memory_is_asked_about(void **state)
{
	char *p = new_pages(1), *q = new_pages(1), *known = new_pages(1);
	struct counted c;
	pthread_t t;

	kedge_hook_mapped(known, page_len());
	open_counted(&c);
	assert_int_equal(regs_after(&c, p, 1), 1);
	assert_int_equal(regs_after(&c, q, 1), 2);
	assert_int_equal(regs_after(&c, known, 1), 3);
	assert_int_equal(regs_after(&c, p, 1), 3);
	assert_int_equal(regs_after(&c, known, 1), 3);
	sig_lock(&nf->lock);
	assert_int_equal(pthread_create(&t, NULL, unmap, p), 0);
	take_address(p);
	assert_int_equal(notify_settle(nf), TRUST_ANNOUNCED);
	assert_int_equal(notify_settle_asking(nf), TRUST_NONE);
	assert_int_equal(regs_after(&c, known, 1), 3);
	sig_unlock(&nf->lock);
	pthread_join(t, NULL);
	assert_int_equal(regs_after(&c, p, 1), 4);
	assert_int_equal(regs_after(&c, q, 1), 4);
	/* Nothing that libc handed out went by. */
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
	close_counted(&c);
}

/* A region may be published after a lookup decided not to ask. */
static void it_serves_nobody_who_did_not_ask(void **state)
{
	uint64_t len = page_len(), at;
	char *p = new_pages(2);
	struct region *other, *known;
	struct counted c;

	kedge_hook_mapped(p + len, len);
	open_counted(&c);
	assert_int_equal(regs_after(&c, p + len, len), 1);
	assert_int_equal(regs_after(&c, p, 1), 2);
	at = (uintptr_t)p;
	other = &c.cache->regions[index_find(c.cache, at)];
	assert_true(region_serves(c.cache, other, at, at + 1, 0, TRUST_ALL));
	assert_false(region_serves(c.cache, other, at, at + 1, 0,
				   TRUST_ANNOUNCED));
	assert_int_equal(region_run(c.cache, other, at, at + 1, 0, TRUST_ALL),
			 at + 1);
	assert_int_equal(region_run(c.cache, other, at, at + 1, 0,
				    TRUST_ANNOUNCED), at);
	kedge_cache_flush(c.cache);
	assert_int_equal(regs_after(&c, p + len, len), 3);
	at += len;
	known = &c.cache->regions[index_find(c.cache, at)];
	assert_true(region_serves(c.cache, known, at, at + 1, 0,
				  TRUST_ANNOUNCED));
	assert_false(region_serves(c.cache, known, at, at + 1, 0, TRUST_NONE));
	close_counted(&c);
}

static int pieces_after(struct counted *c, char *p, size_t len)
{
	struct kedge_piece piece[4];
	ssize_t n = kedge_cache_getv(c->cache, p, len, 1, piece, 4);

	assert_int_equal(n, 1);
	kedge_cache_putv(c->cache, piece, 1);
	return atomic_load(&c->dev->regs);
}

/* A hole leaves the rest of the region what it was. Aligned, as a piece ends where a chunk does. */
static void a_region_with_holes_goes_on_being_asked_about(void **state)
{
	size_t cnt = 64, len = cnt * page_len();
	char *room = new_pages(2 * cnt), *p = room + len - addr_of(room) % len;
	struct counted c;
	struct kedge_hook hook;

	open_counted(&c);
	assert_int_equal(regs_after(&c, p, len), 1);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, p, page_len());
	kedge_hook_end(&hook);
	assert_int_equal(regs_after(&c, p + len / 2, 1), 1);
	assert_int_equal(pieces_after(&c, p + len / 2, len / 4), 1);
	nf->can_ask = false;
	/* Without an answer it serves nobody. */
	assert_int_equal(regs_after(&c, p + len / 2, 1), 2);
	assert_int_equal(pieces_after(&c, p + len / 2, len / 4), 3);
	nf->can_ask = true;
	close_counted(&c);
}

static void where_nobody_can_be_asked_nothing_is_kept(void **state)
{
	char *p = new_pages(1), *known = new_pages(1);
	struct counted c;

	kedge_hook_mapped(known, page_len());
	nf->can_ask = false;
	open_counted(&c);
	assert_int_equal(regs_after(&c, p, 1), 1);
	assert_int_equal(atomic_load(&c.dev->live), 0);
	assert_int_equal(regs_after(&c, p, 1), 2);
	assert_int_equal(atomic_load(&c.dev->live), 0);
	assert_int_equal(regs_after(&c, known, 1), 3);
	assert_int_equal(regs_after(&c, known, 1), 3);
	nf->can_ask = true;
	close_counted(&c);
}

static void hooks_are_not_relied_on_where_asking_is_asked_for(void **state)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd",
					 .flags = KEDGE_NOTIFIER_ASK };
	struct kedge_notifier *own;

	assert_int_equal(kedge_notifier_open(&o, &own), 0);
	assert_int_equal(check_of(own), KEDGE_CHECK_CALL);
	kedge_notifier_close(own);
}

/* A cache that handled its events under the old rule does not go on by it. */
static void a_cache_follows_when_lookups_must_ask(void **state)
{
	struct kedge_cache *cache;
	struct nodev *d = nodev_new();
	const struct kedge_mr *mr;
	char *p = new_pages(1);

	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
	assert_int_equal(kedge_cache_open(d->dev, nf, NULL, &cache), 0);
	assert_int_equal(kedge_cache_get(cache, p, 1, 1, &mr), 0);
	kedge_cache_put(cache, mr);
	sig_lock(&nf->lock);
	notify_must_ask(nf, ASKS_LOST);
	sig_unlock(&nf->lock);
	/* Nothing is served any more, and nothing stays. */
	assert_int_equal(kedge_cache_get(cache, p, 1, 1, &mr), 0);
	kedge_cache_put(cache, mr);
	assert_int_equal(kedge_cache_get(cache, p, 1, 1, &mr), 0);
	kedge_cache_put(cache, mr);
	assert_int_equal(atomic_load(&d->regs), 3);
	assert_int_equal(check_of(nf), KEDGE_CHECK_NONE);
	kedge_cache_close(cache);
	assert_int_equal(atomic_load(&d->live), 0);
	nodev_free(d);
}

/* With hooks in force from the notifier's opening. */
static int load_setup(void **state)
{
	/* Forgets the marks of another test, whose memory has gone since. */
	origin_clear(0, (uint64_t)1 << 48);
	kedge_hook_attach(KEDGE_BLIND_RAW);
	return nf_open(state);
}

#define LOADED(f) cmocka_unit_test_setup_teardown(f, load_setup, nf_end)

static bool is_blind_around_libc(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	return info.blind & KEDGE_BLIND_AROUND;
}

static void lookups_that_do_not_ask_say_what_they_miss(void **state)
{
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
	assert_true(is_blind_around_libc());
	sig_lock(&nf->lock);
	notify_must_ask(nf, ASKS_KERNEL);
	sig_unlock(&nf->lock);
	assert_false(is_blind_around_libc());
}

static int new_userfaultfd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* user mode */);

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	return fd;
}

/* It would answer for its own memory, where nothing changes. */
static void another_userfaultfd_under_the_number_is_not_asked(void **state)
{
	const struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd",
					       .flags = KEDGE_NOTIFIER_ASK };
	struct kedge_notifier *mine;
	int other = new_userfaultfd(), number;

	assert_int_equal(kedge_notifier_open(&o, &mine), 0);
	number = ((struct uffd *)mine->backend)->fd;
	kedge_hook_number(number + 1);
	assert_true(notify_settled(mine));
	kedge_hook_number(number);
	assert_int_equal(dup2(other, number), number);
	assert_false(notify_settled(mine));
	assert_int_equal(check_of(mine), KEDGE_CHECK_NONE);
	kedge_notifier_close(mine);
	close(number);
	close(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NF(a_change_under_way_is_no_rest),
		NF(an_answer_keeps_errno),
		NF(bad_arguments_are_refused),
		NF(a_child_is_refused),
		NF(a_thread_that_closed_its_own_descriptors),
		NF(the_number_of_a_monitor_is_not_taken),
		NF(another_userfaultfd_under_the_number_is_not_asked),
		NF(an_unannounced_change_makes_lookups_ask),
		LOADED(an_announcement_outlasts_the_handling_of_its_event),
		LOADED(lookups_that_do_not_ask_say_what_they_miss),
		LOADED(a_watch_on_other_memory_makes_lookups_ask),
		LOADED(a_watch_that_cannot_hold_is_provisional),
		LOADED(who_watches_memory_that_is_new_is_told),
		LOADED(only_other_memory_is_asked_about),
		LOADED(it_serves_nobody_who_did_not_ask),
		LOADED(a_region_with_holes_goes_on_being_asked_about),
		LOADED(where_nobody_can_be_asked_nothing_is_kept),
		LOADED(hooks_are_not_relied_on_where_asking_is_asked_for),
		LOADED(a_cache_follows_when_lookups_must_ask),
	};

	return RUN_WITH_UFFD(tests);
}
