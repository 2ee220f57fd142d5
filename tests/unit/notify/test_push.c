// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge_notifier_opts.on_event: called before a change returns to its caller, and enough for a
 * cache that has no check at its lookups.
 */
#include <kedge/hooks.h>

#include "cases.h"
#include "notify/announce/announce.h"

#define DROP_NS 20000000 /* a callback that is called too late has not ended yet */
#define ROUNDS  2000

static struct kedge_notifier *nf;
static _Atomic unsigned int ended, begun;
static _Atomic bool hold, well = true;

/* Of the latest call. The lock is for tools, which do not see what the kernel orders. */
struct call {
	struct kedge_event ev;
	pthread_t thread;
};
static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;
static struct call latest;

static struct call last_call(void)
{
	struct call c;

	pthread_mutex_lock(&call_lock);
	c = latest;
	pthread_mutex_unlock(&call_lock);
	return c;
}

static void slow(void *arg, const struct kedge_event *ev)
{
	const struct timespec t = { .tv_nsec = DROP_NS };
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	well &= arg == &well && sigismember(&mask, SIGUSR1) == 1;
	begun++;
	nanosleep(&t, NULL);
	while (hold)
		nanosleep(&t, NULL);
	pthread_mutex_lock(&call_lock);
	latest = (struct call){ *ev, pthread_self() };
	pthread_mutex_unlock(&call_lock);
	errno = ERANGE;
	ended++;
}

/* Here the test announces, not libkedge-hooks. */
bool announce_try_calls(void)
{
	return true;
}

static int open_with(const char *backend, void (*fn)(void *, const struct kedge_event *))
{
	struct kedge_notifier_opts opts = { .size = sizeof(opts), .backend = backend,
					    .on_event = fn, .on_event_arg = &well };

	return kedge_notifier_open(&opts, &nf);
}

static int setup(void **state)
{
	ended = 0;
	begun = 0;
	hold = false;
	return open_with("uffd", slow);
}

static int teardown(void **state)
{
	kedge_notifier_close(nf);
	assert_true(well);
	return 0;
}

static bool holds(const struct call *c, const char *p, size_t len)
{
	return c->ev.start <= addr_of(p) && c->ev.end >= addr_of(p) + len && !c->ev.cookie &&
	       !c->ev.generation;
}

enum how { UNMAP, DROP, MOVE, OVER };

/* By the system call alone: no library hears of it but the kernel. */
static void change(char *p, enum how how)
{
	const size_t len = page_len();

	if (how == UNMAP)
		syscall(SYS_munmap, p, len);
	else if (how == DROP)
		syscall(SYS_madvise, p, len, MADV_DONTNEED);
	else if (how == MOVE)
		p = (char *)syscall(SYS_mremap, p, len, 2 * len, MREMAP_MAYMOVE, NULL);
	else
		syscall(SYS_mmap, p, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			0L);
	assert_ptr_not_equal(p, MAP_FAILED);
}

static void it_is_called_before_a_change_returns(void **state)
{
	struct call c;
	int how, i;

	for (how = UNMAP; how <= OVER; how++)
		for (i = 0; i < 3; i++) {
			/* The second page keeps the first from growing where it is. */
			char *p = new_pages(2);

			assert_true(kedge_watch_add(nf, p, page_len(), 1) >= 0);
			ended = 0;
			change(p, how);
			assert_true(ended > 0);
			c = last_call();
			assert_true(holds(&c, p, page_len()));
			assert_int_equal(c.ev.flags, KEDGE_EVENT_UNSURE);
			assert_false(pthread_equal(c.thread, pthread_self()));
			assert_int_equal(kedge_watch_remove(nf, 1), 0);
			free_pages(p, 2);
		}
}

static void *drop_pages(void *p)
{
	change(p, DROP);
	return NULL;
}

/* Two changes wait at once: each has a call of its own, before it is let go. */
static void each_of_several_changes_has_its_call(void **state)
{
	char *p = new_pages(4);
	pthread_t t[4];

	assert_true(kedge_watch_add(nf, p, 4 * page_len(), 1) >= 0);
	run_threads(t, 4, drop_pages, p, page_len());
	join_threads(t, 4);
	assert_true(ended >= 4);
}

static void an_announced_change_tells_its_range(void **state)
{
	char *p = new_pages(4), *other = new_pages(64);
	struct kedge_hook hook;
	struct call c;

	assert_true(kedge_watch_add(nf, p, 4 * page_len(), 1) >= 0);
	errno = 99;
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, p + page_len(), page_len());
	assert_int_equal(errno, 99);
	assert_int_equal(ended, 1);
	c = last_call();
	assert_true(pthread_equal(c.thread, pthread_self()));
	assert_int_equal(c.ev.kind, KEDGE_EVENT_UNMAP);
	assert_int_equal(c.ev.flags, 0);
	assert_int_equal(c.ev.start, addr_of(p) + page_len());
	assert_int_equal(c.ev.end, addr_of(p) + 2 * page_len());
	kedge_hook_end(&hook);

	/* It may be there still. */
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP | KEDGE_HOOK_TELL_ONLY, p, page_len());
	kedge_hook_end(&hook);
	assert_int_equal(ended, 2);
	assert_int_equal(last_call().ev.flags, KEDGE_EVENT_UNSURE);

	/* Given to somebody anew: what was there before has gone. */
	kedge_hook_mapped(p, page_len());
	assert_int_equal(ended, 3);
	c = last_call();
	assert_true(holds(&c, p, page_len()));

	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, other, 64 * page_len());
	kedge_hook_end(&hook);
	assert_int_equal(ended, 3);
}

/* A hole cannot be watched: of what comes there no change would be heard. */
static void an_end_that_loses_the_watch_calls(void **state)
{
	char *p = new_pages(2);
	struct kedge_hook hook;
	struct call c;

	assert_true(kedge_watch_add(nf, p, page_len(), 1) >= 0);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, p, page_len());
	assert_int_equal(ended, 1);
	change(p, UNMAP);
	assert_int_equal(ended, 1);
	kedge_hook_end(&hook);
	assert_int_equal(ended, 2);
	c = last_call();
	assert_int_equal(c.ev.kind, KEDGE_EVENT_UNMAP);
	assert_true(holds(&c, p, page_len()));
	free_pages(p + page_len(), 1);
}

static void *announce(void *p)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, p, page_len());
	kedge_hook_end(&hook);
	return NULL;
}

static void *let_it_end(void *unused)
{
	const struct timespec t = { .tv_nsec = 5 * DROP_NS };

	nanosleep(&t, NULL);
	hold = false;
	return NULL;
}

static void a_close_waits_for_calls(void **state)
{
	char *p = new_pages(1);
	pthread_t changer, ender;

	assert_true(kedge_watch_add(nf, p, page_len(), 1) >= 0);
	hold = true;
	assert_int_equal(pthread_create(&changer, NULL, announce, p), 0);
	WAIT_FOR(begun == 1);
	assert_int_equal(pthread_create(&ender, NULL, let_it_end, NULL), 0);
	kedge_notifier_close(nf);
	assert_int_equal(ended, 1);
	nf = NULL;
	pthread_join(changer, NULL);
	pthread_join(ender, NULL);
}

static int change_in_child(void *p)
{
	announce(p);
	change(p, DROP);
	return begun ? 1 : 0;
}

static void a_child_has_no_calls(void **state)
{
	char *p = new_pages(1);

	assert_true(kedge_watch_add(nf, p, page_len(), 1) >= 0);
	assert_int_equal(in_child(change_in_child, p), 0);
	assert_int_equal(begun, 0);
}

static void it_makes_the_checks_of_those_users_ask(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	assert_int_equal(info.check, KEDGE_CHECK_CALL);
	/* A change without an event has no call: not even where a counter sees it. */
	assert_true(info.blind & KEDGE_BLIND_SHM_REMAP);
}

static void where_the_kernel_keeps_the_queue_it_is_refused(void **state)
{
	struct kedge_notifier *mine = nf;

	assert_int_equal(open_with("ummunot", slow), -EOPNOTSUPP);
	assert_true(reason_says(-EOPNOTSUPP, "on_event"));
	assert_ptr_equal(nf, mine);
}

static struct kedge_notifier *other;

static void ask_another(void *arg, const struct kedge_event *ev)
{
	struct kedge_notifier *more = NULL;

	/* Neither may say that nothing has changed, nor take the other for lost. */
	well &= kedge_notifier_unchanged(other, kedge_notifier_generation(other)) != 1;
	if (!kedge_notifier_open(NULL, &more))
		kedge_notifier_close(more);
	ended++;
}

static void asking_another_notifier_does_it_no_harm(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	char *p = new_pages(1), *q = new_pages(64);

	other = nf;
	assert_int_equal(open_with("uffd", ask_another), 0);
	assert_true(kedge_watch_add(nf, p, page_len(), 1) >= 0);
	change(p, DROP);
	WAIT_FOR(ended > 0);
	assert_int_equal(kedge_notifier_info(other, &info), 0);
	assert_int_equal(info.check, KEDGE_CHECK_CALL);
	assert_true(kedge_watch_add(other, q, 64 * page_len(), 1) >= 0);
	kedge_notifier_close(nf);
	nf = other;
}

/* Threads announce without a pause while notifiers come and go: a closed one has no call. */
#define COMERS 200
static _Atomic bool is_open, over;

static void only_while_open(void *arg, const struct kedge_event *ev)
{
	well &= is_open;
	ended++;
}

static void *announce_on(void *p)
{
	while (!over)
		announce(p);
	return NULL;
}

static void notifiers_come_and_go_beside_changes(void **state)
{
	char *p = new_pages(4);
	pthread_t t[4];
	int round;

	kedge_notifier_close(nf);
	over = false;
	run_threads(t, 4, announce_on, p, page_len());
	for (round = 0; round < COMERS; round++) {
		const unsigned int before = ended;

		is_open = true;
		assert_int_equal(open_with("uffd", only_while_open), 0);
		assert_true(kedge_watch_add(nf, p, 4 * page_len(), 1) >= 0);
		WAIT_FOR(ended > before);
		kedge_notifier_close(nf);
		is_open = false;
	}
	over = true;
	join_threads(t, 4);
	assert_int_equal(open_with("uffd", slow), 0);
}

/*
 * A cache without a check at its lookups: pages that are numbered as they are mapped, and the
 * number that was there when each was registered.
 */
#define SLOTS 4
static char *page_of[SLOTS];
static _Atomic uint64_t entry[SLOTS]; /* 0: none */

static void drop_all(void *arg, const struct kedge_event *ev)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (ev->start < addr_of(page_of[i]) + page_len() && ev->end > addr_of(page_of[i]))
			entry[i] = 0;
}

static uint64_t number_in(const char *p)
{
	return *(const volatile uint64_t *)p;
}

/* As the header says it has to be done. */
static void enter(int i)
{
	const uint64_t before = kedge_notifier_generation(nf);
	const int rc = kedge_watch_add(nf, page_of[i], page_len(), (uint64_t)i);

	if (rc < 0)
		return;
	entry[i] = number_in(page_of[i]);
	if (rc == KEDGE_WATCH_PROVISIONAL || kedge_notifier_unchanged(nf, before) != 1)
		entry[i] = 0;
}

static _Atomic unsigned int stale, hits;

/* Each thread has a slot of its own, and the others' changes are what it races with. */
static void *use(void *arg)
{
	const int i = (int)(intptr_t)arg;
	uint64_t number = 0, found;
	int round;

	for (round = 0; round < ROUNDS; round++) {
		change(page_of[i], round & 1 ? OVER : DROP);
		mprotect(page_of[i], page_len(), PROT_READ | PROT_WRITE);
		*(volatile uint64_t *)page_of[i] = ++number;
		found = entry[i];
		if (found && found != number)
			stale++;
		kedge_watch_remove(nf, (uint64_t)i);
		enter(i);
		found = entry[i];
		if (found && found != number)
			stale++;
		hits += found == number;
	}
	return NULL;
}

static void such_a_cache_is_never_stale(void **state)
{
	pthread_t t[SLOTS];
	int i;

	kedge_notifier_close(nf);
	for (i = 0; i < SLOTS; i++)
		page_of[i] = new_pages(1);
	assert_int_equal(open_with(NULL, drop_all), 0);
	for (i = 0; i < SLOTS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, use, (void *)(intptr_t)i), 0);
	join_threads(t, SLOTS);
	assert_int_equal(stale, 0);
	assert_true(hits > 0);
	for (i = 0; i < SLOTS; i++)
		free_pages(page_of[i], 1);
}

#include "test_push.cases.h"

int main(void)
{
	const int rc = need_uffd();

	kedge_hook_attach(0);
	return rc ? rc : cmocka_run_group_tests(cases, NULL, NULL);
}
