// SPDX-License-Identifier: BSD-2-Clause
/*
 * The notifier and the rest of the process: fork, vfork, exec, signals, and a
 * program that closes descriptors which it does not know. A case that may hang runs
 * in a child under alarm().
 */
#include <sys/time.h>

#include "notifier.h"

static char *pages;

#define PAGES 4

static int setup(void **state)
{
	nf = open_uffd();
	pages = new_pages(PAGES);
	return 0;
}

static void expect_unmap(uint64_t g, size_t page)
{
	struct kedge_event ev[2];

	assert_true(kedge_notifier_generation(nf) > g);
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_UNMAP);
	assert_int_equal(ev[0].start, addr_of(pages) + page * page_len());
	assert_int_equal(ev[0].end, addr_of(pages) + (page + 1) * page_len());
}

/* Nothing in the child is the parent's; it may open its own. */
static int use_in_child(void *arg)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier *own;
	struct kedge_event ev[2];
	uint64_t g;

	CHILD_CHECK(kedge_notifier_generation(nf) == 0);
	CHILD_CHECK(kedge_watch_add(nf, pages, 1, 9) == -ECHILD);
	CHILD_CHECK(kedge_watch_remove(nf, 1) == -ECHILD);
	CHILD_CHECK(kedge_notifier_read(nf, ev, 2) == -ECHILD);
	CHILD_CHECK(kedge_notifier_fd(nf) == -ECHILD);
	CHILD_CHECK(kedge_notifier_info(nf, &info) == -ECHILD);
	CHILD_CHECK(strstr(kedge_strerror(-ECHILD), "fork"));
	/* Not watched here: nobody would answer. */
	CHILD_CHECK(!munmap(pages, page_len()));
	CHILD_CHECK(kedge_notifier_generation(nf) == 0);

	CHILD_CHECK(!kedge_notifier_open(&o, &own));
	CHILD_CHECK(kedge_watch_add(own, pages + page_len(), 1, 1) == 0);
	g = kedge_notifier_generation(own);
	CHILD_CHECK(!munmap(pages + page_len(), page_len()));
	CHILD_CHECK(kedge_notifier_generation(own) > g);
	CHILD_CHECK(kedge_notifier_read(own, ev, 2) == 2);
	CHILD_CHECK(ev[0].kind == KEDGE_EVENT_UNMAP);
	kedge_notifier_close(nf);
	CHILD_CHECK(kedge_notifier_generation(own) > g);
	kedge_notifier_close(own);
	CHILD_CHECK(!munmap(pages + 2 * page_len(), page_len()));
	return 0;
}

static void check_after_child(void)
{
	uint64_t g = kedge_notifier_generation(nf);

	/* The child's munmap() and close are nothing to the parent. */
	assert_int_not_equal(g, 0);
	assert_int_equal(munmap(pages + page_len(), page_len()), 0);
	expect_unmap(g, 1);
}

static void a_child_is_told_not_yours(void **state)
{
	assert_int_equal(kedge_watch_add(nf, pages, PAGES * page_len(), 1), 0);
	assert_int_equal(in_child(use_in_child, NULL), 0);
	check_after_child();
}

static void so_is_one_of_a_raw_fork(void **state)
{
	assert_int_equal(kedge_watch_add(nf, pages, PAGES * page_len(), 1), 0);
	assert_int_equal(in_raw_child(use_in_child, NULL), 0);
	check_after_child();
}

static int use_in_grandchild(void *arg)
{
	struct kedge_notifier *own = open_uffd();

	CHILD_CHECK(kedge_watch_add(own, pages, page_len(), 1) == 0);
	CHILD_CHECK(in_child(use_in_child, NULL) == 0);
	nf = own;
	CHILD_CHECK(in_child(use_in_child, NULL) == 0);
	CHILD_CHECK(!munmap(pages, page_len()));
	return 0;
}

static void so_is_a_grandchild(void **state)
{
	assert_int_equal(in_child(use_in_grandchild, NULL), 0);
}

/*
 * A child keeps copies of every descriptor. When the parent closes its notifier
 * the registrations must go all the same, or the parent's munmap() waits for a
 * reader that is no more.
 */
static int close_beside_child(void *arg)
{
	int hold[2];
	pid_t pid;
	char c;

	CHILD_CHECK(!pipe2(hold, O_CLOEXEC));
	CHILD_CHECK(kedge_watch_add(nf, pages, 1, 1) == 0);
	CHILD_CHECK(kedge_watch_add(nf, pages + 2 * page_len(), 1, 2) == 0);
	pid = fork();
	CHILD_CHECK(pid >= 0);
	if (!pid) {
		close(hold[1]);
		_exit(read(hold[0], &c, 1) != 0); /* till the parent ends it */
	}
	/* One that moved is found where it is now. */
	CHILD_CHECK(mremap(pages + 2 * page_len(), page_len(), page_len(),
			   MREMAP_MAYMOVE | MREMAP_FIXED,
			   pages - page_len()) == pages - page_len());
	kedge_notifier_close(nf);
	CHILD_CHECK(!munmap(pages - page_len(), (PAGES + 2) * page_len()));
	close(hold[1]);
	CHILD_CHECK(waitpid(pid, NULL, 0) == pid);
	return 0;
}

static int open_and_close_beside_child(void *arg)
{
	nf = open_uffd();
	return close_beside_child(arg);
}

static void a_close_ends_what_a_child_holds(void **state)
{
	assert_int_equal(in_child(open_and_close_beside_child, NULL), 0);
}

static int vfork_child(void *arg)
{
	/* No wrapper: nothing but the kernel learns of it. */
	syscall(SYS_munmap, pages, page_len());
	syscall(SYS_exit, 0);
	return 0;
}

static void a_vforked_child_unmaps_for_its_parent(void **state)
{
	static char stack[65536] __attribute__((aligned(64)));
	uint64_t g;
	int i;
	pid_t pid;

	need_threads_after_fork();
	for (i = 0; i < 200; i++) {
		assert_int_equal(kedge_watch_add(nf, pages, page_len(), 1), 0);
		g = kedge_notifier_generation(nf);
		pid = clone(vfork_child, stack + sizeof(stack),
			    CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
		assert_true(pid > 0);
		expect_unmap(g, 0);
		ended_well(pid);
		assert_int_equal(kedge_watch_remove(nf, 1), 0);
		pages_at(pages, 1);
	}
}

static int exec_with_notifier(void *arg)
{
	nf = open_uffd();
	CHILD_CHECK(kedge_watch_add(nf, pages, 1, 1) == 0);
	CHILD_CHECK(kedge_notifier_fd(nf) >= 0);
	execl("/bin/sh", "sh", "-c",
	      "! ls -l /proc/self/fd | grep -E 'userfaultfd|pagemap|eventfd'",
	      NULL);
	return 1;
}

static void exec_takes_nothing_along(void **state)
{
	assert_int_equal(in_child(exec_with_notifier, NULL), 0);
}

static volatile sig_atomic_t ticks;

static void on_tick(int sig)
{
	ticks++;
}

static void a_storm_of_signals_loses_nothing(void **state)
{
	struct sigaction sa = { .sa_handler = on_tick }, old;
	struct itimerval it = { { 0, 1000 }, { 0, 1000 } }, off = { { 0 } };
	uint64_t g;
	int i;

	/* Without SA_RESTART: whatever can be interrupted is. */
	assert_int_equal(sigaction(SIGPROF, &sa, &old), 0);
	assert_int_equal(setitimer(ITIMER_PROF, &it, NULL), 0);
	for (i = 0; i < 10000 || (ticks < 20 && i < 1000000); i++) {
		assert_true(kedge_watch_add(nf, pages, page_len(), 1) >= 0);
		g = kedge_notifier_generation(nf);
		assert_int_equal(munmap(pages, page_len()), 0);
		expect_unmap(g, 0);
		assert_int_equal(kedge_watch_remove(nf, 1), 0);
		pages_at(pages, 1);
	}
	setitimer(ITIMER_PROF, &off, NULL);
	sigaction(SIGPROF, &old, NULL);
	assert_true(ticks >= 20);
}

/* As daemons do. Nothing hangs, and no invalidation is missed. */
static int close_all_descriptors(void *arg)
{
	struct kedge_event ev[2];
	uint64_t g;
	size_t i;
	int fd;

	nf = open_uffd();
	CHILD_CHECK(kedge_watch_add(nf, pages, PAGES * page_len(), 1) == 0);
	CHILD_CHECK(!syscall(SYS_close_range, 3u, ~0u, 0u));
	/* The numbers are soon somebody else's. */
	for (i = 0; arg && i < 20; i++) {
		fd = memfd_create("kedge-test-other", 0);
		CHILD_CHECK(fd >= 0);
	}
	for (i = 0; i < PAGES; i++) {
		g = kedge_notifier_generation(nf);
		CHILD_CHECK(!munmap(pages + i * page_len(), page_len()));
		CHILD_CHECK(kedge_notifier_generation(nf) > g);
		CHILD_CHECK(kedge_notifier_read(nf, ev, 2) == 2);
		CHILD_CHECK(ev[0].start == addr_of(pages) + i * page_len());
	}
	pages_at(pages, PAGES);
	/* It may be refused now; what it may not is to be believed. */
	if (kedge_watch_add(nf, pages, page_len(), 2) == 0) {
		g = kedge_notifier_generation(nf);
		CHILD_CHECK(!munmap(pages, page_len()));
		CHILD_CHECK(kedge_notifier_generation(nf) > g);
	}
	kedge_notifier_close(nf);
	CHILD_CHECK(!munmap(pages, PAGES * page_len()));
	/* Not one of theirs was closed, or written to. */
	for (fd = 3; arg && fd < 23; fd++)
		CHILD_CHECK(lseek(fd, 0, SEEK_END) == 0);
	return 0;
}

static void closed_descriptors_miss_nothing(void **state)
{
	assert_int_equal(in_child(close_all_descriptors, NULL), 0);
}

static void descriptors_of_others_are_left_alone(void **state)
{
	int reuse = 1;

	assert_int_equal(in_child(close_all_descriptors, &reuse), 0);
}

/* Children that come and go while another thread unmaps what is watched. */
static _Atomic bool stop;

static void *unmap_and_check(void *arg)
{
	intptr_t rounds = 0;

	while (!atomic_load(&stop)) {
		uint64_t g;

		if (kedge_watch_add(nf, pages, page_len(), 1) < 0)
			return (void *)-1;
		g = kedge_notifier_generation(nf);
		munmap(pages, page_len());
		if (kedge_notifier_generation(nf) == g)
			return (void *)-1;
		kedge_watch_remove(nf, 1);
		pages_at(pages, 1);
		rounds++;
	}
	return (void *)rounds;
}

static int not_mine(void *arg)
{
	struct kedge_event ev;

	CHILD_CHECK(kedge_notifier_read(nf, &ev, 1) == -ECHILD);
	kedge_notifier_close(nf);
	return 0;
}

static void forks_beside_unmaps(void **state)
{
	pthread_t t;
	void *rounds;
	int i;

	need_threads_after_fork();
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&t, NULL, unmap_and_check, NULL), 0);
	for (i = 0; i < 50; i++)
		assert_int_equal(in_raw_child(not_mine, NULL), 0);
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(t, &rounds), 0);
	assert_true((intptr_t)rounds > 0);
}

static int use_env(void *arg)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier_opts o = { .size = sizeof(o) };
	struct kedge_notifier *n;

	setenv("KEDGE_NOTIFIER", "none", 1);
	CHILD_CHECK(!kedge_notifier_open(NULL, &n));
	CHILD_CHECK(!kedge_notifier_info(n, &info));
	CHILD_CHECK(!strcmp(info.backend, "none"));
	CHILD_CHECK(info.level == KEDGE_LEVEL_NONE);
	kedge_notifier_close(n);
	/* The program's options come first. */
	o.backend = "uffd";
	CHILD_CHECK(!kedge_notifier_open(&o, &n));
	CHILD_CHECK(!kedge_notifier_info(n, &info));
	CHILD_CHECK(!strcmp(info.backend, "uffd"));
	kedge_notifier_close(n);
	o.backend = NULL;
	o.min_level = KEDGE_LEVEL_ORDERED;
	CHILD_CHECK(kedge_notifier_open(&o, &n) == -EOPNOTSUPP);
	setenv("KEDGE_NOTIFIER", "guess", 1);
	CHILD_CHECK(kedge_notifier_open(NULL, &n) == -EINVAL);
	setenv("KEDGE_NOTIFIER", "auto", 1);
	CHILD_CHECK(!kedge_notifier_open(NULL, &n));
	kedge_notifier_close(n);
	return 0;
}

static void the_environment_chooses(void **state)
{
	assert_int_equal(in_child(use_env, NULL), 0);
}

static void a_close_leaves_nothing(void **state)
{
	unsigned int fds = open_fds(), threads = threads_now(), maps, i;

	maps = map_lines();
	for (i = 0; i < 20; i++) {
		struct kedge_notifier *n = open_uffd();

		assert_true(kedge_watch_add(n, pages, 1, 1) >= 0);
		kedge_notifier_close(n);
	}
	assert_int_equal(open_fds(), fds);
	assert_true(threads_are(threads));
#ifdef __SANITIZE_THREAD__
	maps += 1000; /* its own */
#endif
	assert_in_range(map_lines(), 1, maps + 4); /* a cached stack */
}

#define NEEDED need_uffd
#define LISTED NF_CASE
#include "test_notifier_process.cases.h"
