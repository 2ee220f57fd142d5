// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/ummunot, what one user can do to others: memory that it may take, work
 * that it makes for those that change its pages, what is left behind. In the
 * guest, as root.
 *
 *	ummunot_bounds [WATCHES]
 *
 * WATCHES (100,000) are those of one page. Times are only compared with others of
 * the same run, taken in turns, and judged by a factor that no busy host makes: a
 * module without these bounds is beyond it by tens to thousands.
 */
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "ummunot_lib.h"

#define LIMIT	 "/sys/module/ummunot/parameters/max_kib_per_user"
#define SLAB	 "/sys/kernel/slab/ummunot_watch/"
#define MAPPINGS 30000
#define FILES	 4000
#define ROUNDS	 5

static unsigned long watches = 100000;

/* ---- measuring ---- */

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double median(double *t, size_t n)
{
	qsort(t, n, sizeof(*t), compare);
	return t[n / 2];
}

/* Of a fixed-size report of a child: what @fn returns. */
static double in_child(double (*fn)(long), long arg)
{
	double t = -1;
	int p[2], status;
	pid_t pid;

	if (pipe(p))
		err(1, "pipe");
	pid = fork();
	if (!pid) {
		t = fn(arg);
		_exit(write(p[1], &t, sizeof(t)) != sizeof(t));
	}
	close(p[1]);
	if (read(p[0], &t, sizeof(t)) != sizeof(t))
		t = -1;
	close(p[0]);
	waitpid(pid, &status, 0);
	return t;
}

/* ---- memory ---- */

static uint64_t memory_kib(void)
{
	return vm_memory_kib("MemTotal:");
}

/* As many as it may have; they live until it is killed. */
static void fill_up(const char *m)
{
	struct um u;
	uint64_t n;

	um_open(&u, O_NONBLOCK);
	for (n = 0; !um_watch(&u, m, PAGE, n, 0); n++)
		;
}

/* A hog of user @uid of its namespace, which tells when it is full. */
static pid_t hog(uid_t uid, int fd)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	if (setresuid(uid, uid, uid))
		_exit(1);
	/* The id may be one that may open no more. */
	if (!access("/dev/ummunot", R_OK) && open("/dev/ummunot", O_RDONLY) >= 0)
		fill_up(vm_memory(1));
	if (write(fd, "x", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

#define HOGS 4

/* In a user namespace of uid 1000's, whose ids the parent sets. */
static void hogs_of_a_namespace(int from, int to)
{
	char c;
	int i;

	if (setresuid(1000, 1000, 1000) || unshare(CLONE_NEWUSER) ||
	    write(to, "x", 1) != 1 || read(from, &c, 1) != 1)
		_exit(1);
	if (setresuid(0, 0, 0))
		_exit(2);
	for (i = 1; i <= HOGS; i++)
		hog(i, to);
	for (;;)
		pause();
}

static void map_ids(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	assert_int_equal(vm_write(path, "0 100000 65536"), 0);
}

/* However many ids it has: all of them are charged to it. */
static void a_user_takes_no_more_than_its_share(void **state)
{
	uint64_t size = vm_number(SLAB "object_size"), before, kib;
	int to[2], from[2], i;
	pid_t pid;
	char c;

	before = vm_number(SLAB "objects");
	/* The kernel has given back some of its own memory since. */
	assert_in_range(vm_number(LIMIT), memory_kib() / 101,
			memory_kib() / 100);
	assert_int_equal(pipe(to) | pipe(from), 0);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		hogs_of_a_namespace(to[0], from[1]);
	}
	close(from[1]);
	if (read(from[0], &c, 1) != 1) {
		print_message("skipped: no user namespaces for users\n");
		skip();
	}
	map_ids(pid);
	assert_int_equal(write(to[1], "x", 1), 1);
	for (i = 0; i < HOGS; i++)
		assert_int_equal(read(from[0], &c, 1), 1);
	kib = (vm_number(SLAB "objects") - before) * size / 1024;
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
	print_message("4 ids: %llu KiB of watches, 1 %% is %llu\n",
		      (unsigned long long)kib,
		      (unsigned long long)memory_kib() / 100);
	assert_in_range(kib, memory_kib() / 200, memory_kib() / 100);
}

/* Watches, and goes; its child keeps the counter until @fd is closed. */
static void watch_and_go(int fd)
{
	char *m = vm_memory(1), c;
	struct um u;
	int i;

	um_open(&u, 0);
	for (i = 0; i < 10000; i++)
		if (um_watch(&u, m, PAGE, i, 0))
			_exit(1);
	if (fork())
		_exit(0);
	close(u.fd);
	_exit(read(fd, &c, 1) != 0 || um_moved(&u));
}

static void nothing_is_held_after_the_address_space(void **state)
{
	int p[2], status;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (!pid) {
		close(p[1]);
		watch_and_go(p[0]);
	}
	close(p[0]);
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	/* Free objects go back to the page allocator first. */
	while (vm_number(SLAB "objects")) {
		vm_write(SLAB "shrink", "1");
		usleep(10000);
	}
	close(p[1]);
}

/* ---- work ---- */

static double dontneed(char *page)
{
	double start;

	*page = 1;
	start = vm_now();
	madvise(page, PAGE, MADV_DONTNEED);
	return vm_now() - start;
}

/* A change costs the same, however many watch its page. */
static void a_change_is_bounded(void **state)
{
	const uint64_t limit = vm_number(LIMIT);
	static double one[1001], many[1001];
	char *m = vm_memory(2);
	struct um few, lot;
	unsigned long i;
	double a, b;

	vm_set(LIMIT, memory_kib());
	um_open(&few, O_NONBLOCK);
	um_open(&lot, O_NONBLOCK);
	assert_int_equal(um_watch(&few, m, PAGE, 0, 0), 0);
	for (i = 0; i < 1001; i++)
		one[i] = dontneed(m);
	for (i = 0; i < watches; i++)
		assert_int_equal(um_watch(&lot, m + PAGE, PAGE, i, 0), 0);
	for (i = 0; i < 1001; i++)
		many[i] = dontneed(m + PAGE);
	a = median(one, 1001);
	b = median(many, 1001);
	print_message("DONTNEED of a page with %lu watches: %.2f of one\n",
		      watches, b / a);
	assert_true(b < 5 * a);
	um_close(&lot);
	um_close(&few);
	vm_set(LIMIT, limit);
}

#define SETS 1000

static double change_beside(struct um *u, char *m, int sets)
{
	struct epoll_event ev = { .events = EPOLLIN };
	static double t[1001];
	int set[SETS], i;

	for (i = 0; i < sets; i++) {
		set[i] = epoll_create1(0);
		if (set[i] < 0 || epoll_ctl(set[i], EPOLL_CTL_ADD, u->fd, &ev))
			err(1, "epoll");
	}
	for (i = 0; i < 1001; i++)
		t[i] = dontneed(m);
	for (i = 0; i < sets; i++)
		close(set[i]);
	return median(t, 1001);
}

/* However many wait for news of it: the change may be another's. */
static void who_waits_costs_the_change_little(void **state)
{
	char *m = vm_memory(1);
	struct um u;
	double a, b;

	um_open(&u, O_NONBLOCK);
	assert_int_equal(um_watch(&u, m, PAGE, 0, 0), 0);
	a = change_beside(&u, m, 0);
	b = change_beside(&u, m, SETS);
	print_message("DONTNEED beside %d epoll sets: %.2f of none\n", SETS,
		      b / a);
	assert_true(b < 5 * a);
	um_close(&u);
}

/* One that has many watches to tell is told by its readers. A child is none. */
static double polls(long fd)
{
	struct pollfd p = { .fd = (int)fd, .events = POLLIN };
	struct pollfd none = { .fd = -1 };
	double first, later[101];
	int i;

	poll(&none, 1, 0); /* a child's first call takes its time by itself */
	first = vm_now();
	if (poll(&p, 1, 0) != 1)
		return -1;
	first = vm_now() - first;
	for (i = 0; i < 101; i++) {
		later[i] = vm_now();
		poll(&p, 1, 0);
		later[i] = vm_now() - later[i];
	}
	return first / median(later, 101);
}

static void a_childs_poll_works_off_nothing(void **state)
{
	char *m = vm_memory(60);
	const uint64_t limit = vm_number(LIMIT);
	struct um u;
	double ratio;
	int i;

	vm_set(LIMIT, memory_kib());
	um_open(&u, O_NONBLOCK);
	for (i = 0; i < 50000; i++)
		assert_int_equal(um_watch(&u, m, 60 * PAGE, i, 0), 0);
	dontneed(m);
	assert_true(in_child(polls, u.fd) > 0);
	for (i = 0; i < 60; i++)
		dontneed(m + i * PAGE);
	ratio = in_child(polls, u.fd);
	print_message("a child's first poll: %.1f of a later one\n", ratio);
	assert_true(ratio > 0 && ratio < 1000);
	um_close(&u);
	vm_set(LIMIT, limit);
}

/* Between being told to and having gone. */
static double exit_with(const char *node, long files)
{
	double start;
	int p[2];
	pid_t pid;
	char c;

	if (pipe(p))
		err(1, "pipe");
	pid = fork();
	if (!pid) {
		char *m = vm_memory(1);
		struct um u = { .fd = -1 };
		long i;

		for (i = 0; i < files; i++) {
			u.fd = open(node, O_RDONLY | O_CLOEXEC);
			if (u.fd < 0)
				err(1, "%s", node);
			um_watch(&u, m, PAGE, 1, 0);
		}
		if (write(p[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	close(p[1]);
	if (read(p[0], &c, 1) != 1)
		errx(1, "no child");
	start = vm_now();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(p[0]);
	return vm_now() - start;
}

static void exiting_is_bounded(void **state)
{
	double t[3][ROUNDS];
	int i;

	for (i = 0; i < ROUNDS; i++) {
		t[0][i] = exit_with("/dev/ummunot", 1);
		t[1][i] = exit_with("/dev/ummunot", FILES);
		t[2][i] = exit_with("/dev/null", FILES);
	}
	for (i = 0; i < 3; i++)
		median(t[i], ROUNDS);
	print_message("exit with %d files: %.2f of one, %.2f of as many "
		      "/dev/null\n", FILES, t[1][ROUNDS / 2] / t[0][ROUNDS / 2],
		      t[1][ROUNDS / 2] / t[2][ROUNDS / 2]);
	assert_true(t[1][ROUNDS / 2] < 4 * t[0][ROUNDS / 2]);
}

/* ---- the first watch of an address space ---- */

static void many_mappings(const char *file, int cnt)
{
	int fd = file ? open(file, O_RDONLY) : -1, i;
	char *m;

	if (file && fd < 0)
		err(1, "%s", file);
	m = mmap(NULL, 2ul * cnt * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	for (i = 0; i < cnt; i++)
		if (mmap(m + 2ul * i * PAGE, PAGE, PROT_READ, MAP_FIXED |
			 (file ? MAP_PRIVATE : MAP_PRIVATE | MAP_ANONYMOUS), fd,
			 0) == MAP_FAILED)
			err(1, "mmap");
}

static void nothing(int sig)
{
}

static double first_watch(long us)
{
	struct sigaction sa = { .sa_handler = nothing };
	struct itimerval every = { { 0, us }, { 0, us } };
	char *m = vm_memory(1);
	struct um u;
	double start;

	many_mappings(NULL, MAPPINGS);
	um_open(&u, O_NONBLOCK);
	sigaction(SIGALRM, &sa, NULL);
	if (us)
		setitimer(ITIMER_REAL, &every, NULL);
	start = vm_now();
	if (um_watch(&u, m, PAGE, 1, 0))
		return -1;
	return vm_now() - start;
}

static void signals_do_not_hold_up_the_first_watch(void **state)
{
	double t[2][ROUNDS];
	int i;

	for (i = 0; i < ROUNDS; i++) {
		t[0][i] = in_child(first_watch, 0);
		t[1][i] = in_child(first_watch, 4000);
		assert_true(t[0][i] > 0 && t[1][i] > 0);
	}
	print_message("first watch beside a signal every 4 ms: %.2f\n",
		      median(t[1], ROUNDS) / median(t[0], ROUNDS));
	assert_true(median(t[1], ROUNDS) < 2 * median(t[0], ROUNDS));
}

#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"

/* Opens, watches and closes for ever, or does as much with another file. */
static pid_t storm(const char *node)
{
	pid_t pid = fork();
	struct um u;
	char *m;

	if (pid)
		return pid;
	many_mappings(LIBC, MAPPINGS);
	m = vm_memory(1);
	for (;;) {
		u.fd = open(node, O_RDONLY);
		um_watch(&u, m, PAGE, 1, 0);
		close(u.fd);
	}
}

static double map_libc(void)
{
	int fd = open(LIBC, O_RDONLY), i;
	double start = vm_now();
	void *p;

	for (i = 0; i < 100; i++) {
		p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
		munmap(p, PAGE);
	}
	close(fd);
	return vm_now() - start;
}

static void a_storm_of_files(void **state)
{
	static const char *const node[] = { "/dev/ummunot", "/dev/null" };
	double t[2][51];
	pid_t pid[2];
	int i, k;

	for (k = 0; k < 2; k++)
		pid[k] = storm(node[k]);
	sleep(2);
	for (i = 0; i < 51; i++)
		for (k = 0; k < 2; k++) {
			kill(pid[!k], SIGSTOP);
			kill(pid[k], SIGCONT);
			usleep(20000);
			t[k][i] = map_libc();
		}
	for (k = 0; k < 2; k++) {
		kill(pid[k], SIGKILL);
		waitpid(pid[k], NULL, 0);
	}
	/* Told and not judged: a busy host decides it, too. */
	print_message("mapping libc beside a storm: %.2f of one of /dev/null\n",
		      median(t[0], 51) / median(t[1], 51));
}

static double watch_once(char *m)
{
	double start = vm_now();
	struct um u;

	u.fd = open("/dev/ummunot", O_RDONLY);
	if (u.fd < 0 || um_watch(&u, m, PAGE, 1, 0))
		err(1, "register");
	close(u.fd);
	return vm_now() - start;
}

/* The time of an address space's first watch, in times of a later one. */
static double later_watches(long cnt)
{
	char *m = vm_memory(1);
	double t[51], first;
	int i;

	many_mappings(LIBC, (int)cnt);
	first = watch_once(m);
	for (i = 0; i < 51; i++)
		t[i] = watch_once(m);
	return first / median(t, 51);
}

/* The locks of all mappings, which others map as well, are taken once. */
static void only_the_first_watch_takes_all_locks(void **state)
{
	double times = in_child(later_watches, MAPPINGS);

	print_message("the first watch of %d mappings: %.0f later ones\n",
		      MAPPINGS, times);
	assert_true(times > 10);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_user_takes_no_more_than_its_share),
		cmocka_unit_test(nothing_is_held_after_the_address_space),
		cmocka_unit_test(a_change_is_bounded),
		cmocka_unit_test(who_waits_costs_the_change_little),
		cmocka_unit_test(a_childs_poll_works_off_nothing),
		cmocka_unit_test(exiting_is_bounded),
		cmocka_unit_test(signals_do_not_hold_up_the_first_watch),
		cmocka_unit_test(only_the_first_watch_takes_all_locks),
		cmocka_unit_test(a_storm_of_files),
	};
	struct rlimit many = { 2 * FILES, 2 * FILES };

	if (argc > 1)
		watches = strtoul(argv[1], NULL, 0);
	if (setrlimit(RLIMIT_NOFILE, &many))
		err(1, "ulimit -n");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
