// SPDX-License-Identifier: BSD-2-Clause
/* See core.h. */
#include <dirent.h>
#include <linux/filter.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "cases.h"

uint32_t by_circle(uint32_t gate, uint32_t whole)
{
	return getenv("TESTS_WHOLE") ? whole : gate;
}

size_t page_len(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static char *map_pages(void *at, size_t cnt, int flags)
{
	size_t len = cnt * page_len(), i;
	char *p = mmap(at, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	for (i = 0; i < len; i += page_len())
		p[i] = 1;
	return p;
}

/*
 * With a page on either side that nobody may touch, so that what others map is
 * no neighbour.
 */
char *new_pages(size_t cnt)
{
	size_t page = page_len();
	char *p = mmap(NULL, (cnt + 2) * page, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	pages_at(p + page, cnt);
	return p + page;
}

void pages_at(void *at, size_t cnt)
{
	map_pages(at, cnt, MAP_FIXED);
}

void free_pages(void *at, size_t cnt)
{
	size_t page = page_len();

	assert_int_equal(munmap((char *)at - page, (cnt + 2) * page), 0);
}

struct kedge_notifier *open_uffd(void)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };
	struct kedge_notifier *nf = NULL;

	assert_int_equal(kedge_notifier_open(&o, &nf), 0);
	assert_non_null(nf);
	return nf;
}

int need_uffd(void)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };
	struct kedge_notifier *nf;
	int rc = kedge_notifier_open(&o, &nf);

	if (!rc) {
		kedge_notifier_close(nf);
		return 0;
	}
	printf("skipped: %s\n", kedge_strerror(rc));
	return 77;
}

/* It takes a clone() that shares the memory for such a fork, too. */
void need_threads_after_fork(void)
{
#ifdef __SANITIZE_THREAD__
	print_message("skipped: ThreadSanitizer ends a forked child that "
		      "starts a thread\n");
	skip();
#endif
}

/*
 * AddressSanitizer of gcc 12 does not lock its allocator at fork(): a child of a fork
 * that comes while another thread allocates finds it locked for ever. So a fork waits
 * for the moment at which the others sleep, where there is one.
 */
#ifdef __SANITIZE_ADDRESS__
#define FORK_WAIT_US  100000u /* a fork's, beside threads that never sleep */
#define FORK_WAITS_US 5000000u

static bool sleeps(int tasks, const char *tid)
{
	char path[64], line[256], *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/stat", tid);
	fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[n > 0 ? n : 0] = 0;
	state = strrchr(line, ')');
	return !state || state[2] == 'S';
}

static bool others_sleep(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	bool all = true;

	while (d && all && (e = readdir(d)))
		all = e->d_name[0] == '.' || atoi(e->d_name) == (int)gettid() ||
		      sleeps(dirfd(d), e->d_name);
	if (d)
		closedir(d);
	return all;
}

static void wait_until_others_sleep(void)
{
	static _Atomic unsigned int waited;
	unsigned int us;

	for (us = 0; us < FORK_WAIT_US && waited < FORK_WAITS_US && !others_sleep();
	     us += 200, waited += 200)
		usleep(200);
}

__attribute__((constructor)) static void fork_in_quiet(void)
{
	pthread_atfork(wait_until_others_sleep, NULL, NULL);
}
#endif

static int run_child(pid_t pid, int (*fn)(void *), void *arg)
{
	int status = -1;

	assert_int_not_equal(pid, -1);
	if (!pid) {
		alarm(CHILD_TIMEOUT);
		_exit(fn(arg));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

int in_child(int (*fn)(void *), void *arg)
{
	need_threads_after_fork();
	fflush(NULL);
	return run_child(fork(), fn, arg);
}

int in_raw_child(int (*fn)(void *), void *arg)
{
	need_threads_after_fork();
	fflush(NULL);
	/* clone() where the machine has no fork(): the same but for a signal. */
	return run_child((pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, 0, 0, 0,
					0), fn, arg);
}

void case_in_child(void **state)
{
	int (*fn)(void *) = (int (*)(void *))(uintptr_t)*state;
	const int status = in_child(fn, NULL);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

bool refuse_call(unsigned int nr)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
}

static unsigned int entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

unsigned int open_fds(void)
{
	return entries("/proc/self/fd");
}

static bool is_named(const char *tid, const char *name)
{
	char path[64], got[32] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", tid);
	/* Not open(), which fails in tests of failures. */
	fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, got, sizeof(got) - 1) > 0)
		got[strcspn(got, "\n")] = '\0';
	close(fd);
	return !strcmp(got, name);
}

static unsigned int threads_named(const char *name)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	unsigned int n = 0;

	assert_non_null(d);
	while ((e = readdir(d)))
		n += is_named(e->d_name, name);
	closedir(d);
	return n;
}

bool has_watchdog(void)
{
	return threads_named("kedge-pages");
}

/* The watchdog comes with a swap, and ends in its own time. */
static unsigned int but_watchdog(void)
{
	bool before = has_watchdog();
	unsigned int n = entries("/proc/self/task");

	/* A watchdog that ends meanwhile counts, in doubt: the caller looks again. */
	return n - (before && has_watchdog());
}

/* No more than @want. A thread that was joined stays listed for a moment. */
bool threads_are(unsigned int want)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;

	while (but_watchdog() > want) {
		if (now_ns() > end)
			return false;
		usleep(1000);
	}
	return true;
}

bool threads_have_own_tables(void)
{
	DIR *dir = opendir("/proc/self/task");
	bool own = true;
	struct dirent *e;
	pid_t tid;

	assert_non_null(dir);
	while ((e = readdir(dir))) {
		tid = (pid_t)atoi(e->d_name);
		if (tid > 0 && tid != gettid() &&
		    !syscall(SYS_kcmp, gettid(), tid, KCMP_FILES, 0, 0))
			own = false;
	}
	closedir(dir);
	return own;
}

/* When it has not changed for a while. */
unsigned int threads_now(void)
{
	unsigned int n = but_watchdog(), was = 0, same = 0;

	for (; same < 10; was = n, n = but_watchdog()) {
		same = n == was ? same + 1 : 0;
		usleep(5000);
	}
	return n;
}

unsigned int map_lines(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned int n = 0;
	int ch;

	assert_non_null(f);
	while ((ch = getc(f)) != EOF)
		n += ch == '\n';
	fclose(f);
	return n;
}

static pthread_mutex_t spans_lock = PTHREAD_MUTEX_INITIALIZER;

/* False: a part of it is registered. */
static bool span_take(struct nodev *d, struct nodev_span want)
{
	struct nodev_span *room = NULL;
	bool mine = true;
	size_t i;

	pthread_mutex_lock(&spans_lock);
	for (i = 0; i < NODEV_SPANS; i++) {
		struct nodev_span *s = &d->spans[i];

		if (!s->handle)
			room = s;
		else if (s->start < want.end && want.start < s->end)
			mine = false;
	}
	if (mine && room)
		*room = want;
	pthread_mutex_unlock(&spans_lock);
	return mine && room;
}

static void span_drop(struct nodev *d, uint64_t handle)
{
	size_t i;

	pthread_mutex_lock(&spans_lock);
	for (i = 0; i < NODEV_SPANS; i++)
		if (d->spans[i].handle == handle)
			d->spans[i].handle = 0;
	pthread_mutex_unlock(&spans_lock);
}

static int nodev_reg(void *ctx, void *addr, size_t len, uint32_t access,
		     struct kedge_device_mr *mr)
{
	struct nodev *d = ctx;
	uint32_t h;

	if (d->fail_cnt) {
		d->fail_cnt -= d->fail_cnt > 0;
		return kedge_reason(d->fail_rc, "the test's device was told "
						"to fail");
	}
	if (d->on_reg)
		d->on_reg(d, addr, len);
	if (d->max_live && d->live >= d->max_live)
		return kedge_reason(-ENOSPC, "the test's device is full");
	h = atomic_fetch_add(&d->next, 1) + 1;
	if (d->exclusive &&
	    !span_take(d, (struct nodev_span){ addr_of(addr), addr_of(addr) + len, h })) {
		atomic_fetch_add(&d->refused, 1);
		return -EEXIST;
	}
	atomic_fetch_add(&d->regs, 1);
	atomic_fetch_add(&d->live, 1);
	atomic_store(&d->alive[h % NODEV_HANDLES], 1);
	mr->handle = h;
	mr->offset = (uint64_t)(uintptr_t)addr;
	d->last_addr = (uint64_t)(uintptr_t)addr;
	d->last_len = len;
	d->last_access = access;
	return 0;
}

static void nodev_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct nodev *d = ctx;

	if (!atomic_exchange(&d->alive[mr->handle % NODEV_HANDLES], 0))
		atomic_fetch_add(&d->wrong, 1);
	if (d->exclusive)
		span_drop(d, mr->handle);
	atomic_fetch_add(&d->deregs, 1);
	atomic_fetch_sub(&d->live, 1);
}

static int nodev_try_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct nodev *d = ctx;
	int rc = d->stuck_rc;

	if (!rc)
		nodev_dereg(ctx, mr);
	return rc;
}

static int nodev_query(void *ctx, struct kedge_device_attr *attr)
{
	struct nodev *d = ctx;

	*attr = d->attr;
	return 0;
}

static int nodev_replace(void *ctx, struct kedge_device_mr *mr, void *addr,
			 size_t len, void *changed, size_t changed_len)
{
	struct nodev *d = ctx;

	if (!d->alive[mr->handle % NODEV_HANDLES])
		atomic_fetch_add(&d->wrong, 1);
	if (d->replace_rc)
		return d->replace_rc;
	if (d->on_reg)
		d->on_reg(d, addr, len);
	d->changed = (uint64_t)(uintptr_t)changed;
	d->changed_len = changed_len;
	atomic_fetch_add(&d->replaces, 1);
	return 0;
}

static int nodev_bind(void *ctx, const struct kedge_device_mr *mr, void *addr,
		      size_t len, uint32_t access,
		      struct kedge_device_mr *window)
{
	struct nodev *d = ctx;
	uint32_t h;

	if (!d->alive[mr->handle % NODEV_HANDLES])
		atomic_fetch_add(&d->wrong, 1);
	if (d->bind_rc)
		return d->bind_rc;
	h = atomic_fetch_add(&d->next, 1) + 1;
	atomic_store(&d->alive[h % NODEV_HANDLES], 1);
	atomic_fetch_add(&d->windows, 1);
	atomic_fetch_add(&d->binds, 1);
	window->handle = h;
	window->offset = (uint64_t)(uintptr_t)addr;
	window->priv = mr->handle;
	d->last_addr = window->offset;
	d->last_len = len;
	d->last_access = access;
	return 0;
}

static void nodev_unbind(void *ctx, const struct kedge_device_mr *window)
{
	struct nodev *d = ctx;

	/* While what it is a window to still is. */
	if (!atomic_exchange(&d->alive[window->handle % NODEV_HANDLES], 0) ||
	    !d->alive[window->priv % NODEV_HANDLES])
		atomic_fetch_add(&d->wrong, 1);
	atomic_fetch_sub(&d->windows, 1);
}

static void nodev_preserve(void *ctx, const struct kedge_device_mr *mr,
			   void *addr, size_t len, uint32_t flags)
{
	struct nodev *d = ctx;
	uint32_t n = atomic_fetch_add(&d->kept_cnt, 1);

	if (!d->alive[mr->handle % NODEV_HANDLES])
		atomic_fetch_add(&d->wrong, 1);
	if (n < NODEV_KEPT) {
		d->kept[n].start = addr_of(addr);
		d->kept[n].end = addr_of(addr) + len;
		d->kept[n].flags = flags;
	}
	if (d->on_preserve)
		d->on_preserve(d);
}

struct nodev *nodev_new_with(unsigned int what)
{
	struct kedge_device_ops ops = {
		.size = sizeof(ops),
		.name = "nodev",
		.reg = nodev_reg,
		.dereg = nodev_dereg,
		.query = nodev_query,
	};
	struct nodev *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	if (what & NODEV_WINDOWS) {
		ops.bind = nodev_bind;
		ops.unbind = nodev_unbind;
	}
	if (what & NODEV_STUCK) {
		ops.dereg = NULL;
		ops.try_dereg = nodev_try_dereg;
	}
	if (what & NODEV_PRESERVE)
		ops.preserve = nodev_preserve;
	if (what & NODEV_REPLACE)
		ops.replace = nodev_replace;
	d->attr.size = sizeof(d->attr);
	d->attr.access = KEDGE_ACCESS_ALL;
	d->exclusive = what & NODEV_EXCLUSIVE;
	assert_int_equal(kedge_device_open(&ops, d, &d->dev), 0);
	return d;
}

struct nodev *nodev_new(void)
{
	return nodev_new_with(0);
}

void nodev_free(struct nodev *d)
{
	kedge_device_close(d->dev);
	free(d);
}

/* A thread runs until the kernel can say which call it waits in. */
bool is_asleep(pid_t tid)
{
	char path[64], text[64] = "running";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)tid);
	f = fopen(path, "r");
	if (f && !fgets(text, sizeof(text), f))
		text[0] = '\0';
	if (f)
		fclose(f);
	return text[0] >= '0' && text[0] <= '9';
}
