// SPDX-License-Identifier: BSD-2-Clause
/*
 * Events between two steps of announcing and of watching: a fork, a change
 * of the mapping. The library calls an empty function there, which is ours here.
 */
#include <semaphore.h>

#include "cases.h"

#include <kedge/hooks.h>

#include "notify/announce/announce.h"
#include "notify/backend/uffd.h"
#include "notify/internal.h"

static void (*_Atomic on_adopting)(void);
static void (*_Atomic on_looked)(void);
static void (*_Atomic on_told)(void);

static void once(void (*_Atomic *slot)(void))
{
	void (*fn)(void) = atomic_exchange(slot, NULL);

	if (fn)
		fn();
}

void announce_adopting(void)
{
	once(&on_adopting);
}

void watch_looked(void)
{
	once(&on_looked);
}

void announce_told(void)
{
	once(&on_told);
}

static void (*_Atomic on_stopping)(void);
static void (*_Atomic on_let_go)(void);

void monitor_stopping(void)
{
	once(&on_stopping);
}

void monitor_let_go(void)
{
	once(&on_let_go);
}

static const char *backend;
static struct kedge_notifier *nf;
static char *mem;

static int open_nf(struct kedge_notifier **out)
{
	struct kedge_notifier_opts o = { .size = sizeof(o),
					 .backend = backend };

	kedge_hook_attach(KEDGE_BLIND_RAW);
	return kedge_notifier_open(&o, out);
}

/* The thread that opens the process's first notifier waits there. */
static sem_t inside, go_on;

static void stop(void)
{
	sem_post(&inside);
	sem_wait(&go_on);
}

static void *opens(void *arg)
{
	struct kedge_notifier *first;

	if (open_nf(&first))
		return NULL;
	kedge_notifier_close(first);
	return arg;
}

static int open_in_child(void *arg)
{
	struct kedge_notifier *own;
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kedge_event ev[2];
	struct kedge_hook hook;

	CHILD_CHECK(!open_nf(&own));
	CHILD_CHECK(!kedge_watch_add(own, p, 4096, 1));
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, p, 4096);
	CHILD_CHECK(kedge_notifier_read(own, ev, 2) == 2);
	kedge_hook_end(&hook);
	kedge_notifier_close(own);
	return 0;
}

/* Run first, in a child: each process adopts the state once. */
static int fork_inside(void *arg)
{
	int status, tries;
	pthread_t thread;
	void *ret = NULL;
	pid_t pid;

	sem_init(&inside, 0, 0);
	sem_init(&go_on, 0, 0);
	on_adopting = stop;
	CHILD_CHECK(!pthread_create(&thread, NULL, opens, &on_told));
	sem_wait(&inside);
	for (tries = 0; tries < 2; tries++) {
		pid = fork();
		if (!pid) {
			alarm(CHILD_TIMEOUT);
			_exit(open_in_child(NULL));
		}
		CHILD_CHECK(waitpid(pid, &status, 0) == pid && !status);
	}
	sem_post(&go_on);
	CHILD_CHECK(!pthread_join(thread, &ret) && ret);
	return open_in_child(NULL);
}

static void a_fork_while_the_first_notifier_opens(void **state)
{
	assert_int_equal(in_child(fork_inside, NULL), 0);
}

static int setup(void **state)
{
	mem = new_pages(16);
	return open_nf(&nf);
}

static int teardown(void **state)
{
	on_looked = NULL;
	on_told = NULL;
	kedge_notifier_close(nf);
	free_pages(mem, 16);
	return 0;
}

static void change(int kind)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, kind, mem, 16 * page_len());
	kedge_hook_end(&hook);
}

/* Other memory is put there, which this backend must not believe to be armed. */
static void replace(void)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, mem, 16 * page_len());
	assert_ptr_equal(mmap(mem, 16 * page_len(), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 mem);
	kedge_hook_end(&hook);
}

/* Between the look at the mapping and its being believed. */
static void a_change_after_the_look_is_noticed(void **state)
{
	struct kedge_event ev[2];

	on_looked = replace;
	assert_int_equal(kedge_watch_add(nf, mem, 16 * page_len(), 1),
			 -EOPNOTSUPP);
	/* And the watch that was refused has left nothing behind. */
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 1);
	assert_int_equal(kedge_watch_add(nf, mem, page_len(), 2),
			 -EOPNOTSUPP);
}

static void dropped(void)
{
	change(KEDGE_EVENT_REMOVE);
}

/* The pages were dropped: the watch holds, and its event is there to read. */
static void a_drop_after_the_look_is_an_event(void **state)
{
	struct kedge_event ev[2];

	on_looked = dropped;
	assert_in_range(kedge_watch_add(nf, mem, 16 * page_len(), 1), 0, 1);
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_REMOVE);
}

static int added;

static void watches(void)
{
	added = kedge_watch_add(nf, mem, page_len(), 2);
}

/*
 * Announced, not yet made: what is registered now is not to be kept, and what
 * was looked at now is not to be believed afterwards.
 */
static void a_watch_after_the_announcement_is_provisional(void **state)
{
	struct kedge_event ev[4];
	struct kedge_hook hook;

	assert_int_equal(kedge_watch_add(nf, mem, 16 * page_len(), 1), 0);
	on_told = watches;
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, mem, 16 * page_len());
	assert_int_equal(added, KEDGE_WATCH_PROVISIONAL);
	assert_ptr_equal(mmap(mem, 16 * page_len(), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 mem);
	kedge_hook_end(&hook);
	assert_in_range(kedge_notifier_read(nf, ev, 4), 2, 3);
	assert_int_equal(kedge_watch_add(nf, mem, page_len(), 3),
			 -EOPNOTSUPP);
}

static struct kedge_hook under_way;

static void map_shared(void)
{
	assert_ptr_equal(mmap(mem, 16 * page_len(), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 mem);
	kedge_hook_end(&under_way);
}

/* Announced before the watch looks; made, and over, before it believes. */
static void a_change_around_the_look_is_noticed(void **state)
{
	assert_int_equal(kedge_watch_add(nf, mem, 16 * page_len(), 1), 0);
	kedge_hook_begin(&under_way, KEDGE_EVENT_UNMAP, mem, 16 * page_len());
	on_looked = map_shared;
	assert_int_equal(kedge_watch_add(nf, mem, page_len(), 2),
			 -EOPNOTSUPP);
}

/* ---- the monitor's end ---- */

static sem_t has_let_go;
static pid_t closer;

/* The monitor hears of the end by this change, and not by being woken. */
static void change_and_wait(void)
{
	munmap(mem, page_len());
	while (sem_wait(&has_let_go) && errno == EINTR)
		;
}

static void let_closer_wake_it(void)
{
	sem_post(&has_let_go);
	WAIT_FOR(is_asleep(closer));
}

static pid_t child_with_descriptors(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	while (!pid)
		pause();
	assert_true(pid > 0);
	return pid;
}

/* A call that begins when the monitor has answered all others would wait for ever, as the child
 * has the descriptor still. */
static void closing_while_the_monitor_ends(void **state)
{
	pid_t child;

	if (strcmp(backend, "uffd"))
		skip();
	sem_init(&has_let_go, 0, 0);
	assert_int_equal(kedge_watch_add(nf, mem, page_len(), 1), 0);
	child = child_with_descriptors();
	closer = (pid_t)syscall(SYS_gettid);
	on_stopping = change_and_wait;
	on_let_go = let_closer_wake_it;
	kedge_notifier_close(nf);
	nf = NULL;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static int run(const char *name)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fork_while_the_first_notifier_opens),
		CASE(a_change_after_the_look_is_noticed),
		CASE(a_drop_after_the_look_is_an_event),
		CASE(a_change_around_the_look_is_noticed),
		CASE(a_watch_after_the_announcement_is_provisional),
		CASE(closing_while_the_monitor_ends),
	};

	backend = name;
	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
	int failed = run("hooks");

	if (!need_uffd())
		failed += run("uffd");
	return failed ? 1 : 0;
}
