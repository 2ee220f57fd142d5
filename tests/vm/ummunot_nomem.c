// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/ummunot where memory runs out: each allocation of each call fails once,
 * by /proc/self/fail-nth of a kernel with CONFIG_FAILSLAB and
 * CONFIG_FAIL_PAGE_ALLOC (tests/vm/debug-kernel.sh). The call ends with ENOMEM,
 * or does without; then it succeeds, and the watch sees what changes. In the
 * guest, as root; exit status 77 where the kernel injects nothing.
 */
#include <sys/mount.h>

#include "ummunot_lib.h"

#define DEBUGFS	  "/sys/kernel/debug"
#define FAIL_NTH  "/proc/thread-self/fail-nth"
#define STEPS_MAX 200
#define MANY	  40

/* The end of a child. */
enum { HIT_REFUSED, HIT_DONE_WITHOUT, NO_MORE, WRONG };

/* A call, and what is made before it, in a process of its own. */
struct call {
	int (*run)(struct um *u, char *m);
	bool opened;
	uint64_t watches; /* of its first page */
};

/* ---- the calls ---- */

static int open_file(struct um *u, char *m)
{
	u->fd = open("/dev/ummunot", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return u->fd < 0 ? -errno : 0;
}

static int watch(struct um *u, char *m)
{
	return um_watch(u, m, PAGE, 0, 0);
}

static int watch_another(struct um *u, char *m)
{
	return um_watch(u, m + PAGE, PAGE, MANY, 0);
}

static int ask_for_signals(struct um *u, char *m)
{
	return fcntl(u->fd, F_SETFL, O_NONBLOCK | O_ASYNC) ? -errno : 0;
}

/* More watches than a callback tells itself: the reader works off the log. */
static int change_and_read(struct um *u, char *m)
{
	struct ummunot_event ev[2 * MANY];
	ssize_t n;

	m[0] = 1;
	madvise(m, PAGE, MADV_DONTNEED);
	n = um_read(u, ev, 2 * MANY);
	return n < 0 ? (int)n : n != MANY + 1 ? -EIO : 0;
}

/* ---- a step ---- */

static void set_fail_nth(int fd, int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d", n);

	if (pwrite(fd, text, (size_t)len, 0) != len)
		_exit(WRONG);
}

/* The number of allocations left until the one that fails; 0: it has. */
static int fail_nth_left(int fd)
{
	char text[16] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		_exit(WRONG);
	return atoi(text);
}

static int said(const char *what, int rc)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-rc));
	return WRONG;
}

/* It is as it would be had nothing failed. */
static int works(struct um *u, char *m)
{
	struct news n;
	int rc;

	u->counter = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, u->fd, 0);
	if (u->counter == MAP_FAILED)
		return said("mmap", -errno);
	rc = um_watch(u, m + 2 * PAGE, PAGE, MANY + 1, 0);
	if (rc)
		return said("a watch after it", rc);
	um_drain(u, &n);
	u->first = um_counter(u);
	m[2 * PAGE] = 1;
	madvise(m + 2 * PAGE, PAGE, MADV_DONTNEED);
	if (!um_moved(u))
		return said("the counter", -EIO);
	um_drain(u, &n);
	return n.cnt == 1 && n.cookie == MANY + 1 ? 0 : said("the event", -EIO);
}

/* In a child, as an address space is set up once: its @nth allocation fails. */
static int step(const struct call *c, int nth)
{
	int fd = open(FAIL_NTH, O_RDWR), rc, left;
	char *m = vm_memory(3);
	struct um u;
	uint64_t i;

	signal(SIGIO, SIG_IGN);
	if (c->opened && (rc = open_file(&u, m)))
		return said("open", rc);
	for (i = 0; i < c->watches; i++)
		if ((rc = um_watch(&u, m, PAGE, i, 0)))
			return said("watch", rc);
	set_fail_nth(fd, nth);
	rc = c->run(&u, m);
	left = fail_nth_left(fd);
	set_fail_nth(fd, 0);
	if (left)
		return rc ? said("no failure", rc) : NO_MORE;
	if (rc && rc != -ENOMEM)
		return said("a failure", rc);
	if (!rc)
		return works(&u, m) ? WRONG : HIT_DONE_WITHOUT;
	rc = c->run(&u, m);
	if (rc)
		return said("once more", rc);
	return works(&u, m) ? WRONG : HIT_REFUSED;
}

static int in_child(const struct call *c, int nth)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(step(c, nth));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : WRONG;
}

/* Returns the number of them that end the call. */
static int each_allocation_of(const char *name, const struct call *c)
{
	int nth, refused = 0, without = 0, rc;

	for (nth = 1; nth < STEPS_MAX; nth++) {
		rc = in_child(c, nth);
		if (rc == NO_MORE)
			break;
		if (rc == WRONG)
			fail_msg("%s: allocation %d", name, nth);
		refused += rc == HIT_REFUSED;
		without += rc == HIT_DONE_WITHOUT;
	}
	print_message("%s: %d refused, %d done without\n", name, refused,
		      without);
	assert_true(nth < STEPS_MAX);
	return refused;
}

/* ---- the tests ---- */

static void opening_fails_whole(void **state)
{
	const struct call c = { open_file, false, 0 };

	assert_true(each_allocation_of("open", &c) >= 3);
}

static void the_first_watch_fails_whole(void **state)
{
	const struct call c = { watch, true, 0 };

	assert_true(each_allocation_of("first watch", &c) >= 3);
}

static void a_watch_fails_whole(void **state)
{
	const struct call c = { watch_another, true, 1 };

	assert_true(each_allocation_of("watch", &c) >= 1);
}

static void asking_for_signals_fails_whole(void **state)
{
	const struct call c = { ask_for_signals, true, 1 };

	assert_true(each_allocation_of("O_ASYNC", &c) >= 1);
}

static void a_change_is_told_without_memory(void **state)
{
	const struct call c = { change_and_read, true, MANY };

	assert_int_equal(each_allocation_of("change and read", &c), 0);
}

/* ---- the kernel ---- */

/* Allocations that may wait fail as well. */
static int arm(const char *which)
{
	char path[96];

	snprintf(path, sizeof(path), DEBUGFS "/%s/ignore-gfp-wait", which);
	return vm_write(path, "N");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opening_fails_whole),
		cmocka_unit_test(the_first_watch_fails_whole),
		cmocka_unit_test(a_watch_fails_whole),
		cmocka_unit_test(asking_for_signals_fails_whole),
		cmocka_unit_test(a_change_is_told_without_memory),
	};

	if (mount("none", DEBUGFS, "debugfs", 0, NULL) && errno != EBUSY)
		perror(DEBUGFS);
	if (access(FAIL_NTH, W_OK) || arm("failslab") ||
	    arm("fail_page_alloc")) {
		printf("skipped: this kernel injects no failures\n");
		return 77;
	}
	vm_write(DEBUGFS "/fail_page_alloc/min-order", "0");
	vm_write(DEBUGFS "/fail_page_alloc/ignore-gfp-highmem", "N");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
