// SPDX-License-Identifier: BSD-2-Clause
/*
 * Why it is a moment: a thread that PTRACE_INTERRUPT has stopped is on its way back to its
 * program, out of any system call. The list of threads is read again until that finds no
 * new one, and a stopped thread makes none. One that waits for a userfaultfd does not stop,
 * and needs not: it has made its change, or makes it once somebody reads its event; a
 * fault waits for pages and changes no mapping.
 *
 * All is done by system calls: the other threads may have any lock, the allocator's, too.
 * The process ends with this thread (PR_SET_PDEATHSIG), and its end lets all threads go.
 */
#include "base/process/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/lock.h"
#include "base/process/child.h"
#include "base/process/own.h"

#define STACK_LEN ((size_t)64 << 10)
#define SPARE	  256 /* threads that may come meanwhile */
#define WAIT_NS	  1000000000u
#define NAP_NS	  20000
#define PF_IO_WORKER 0x10u /* the kernel's, as "stat" shows it */

enum how { RUNS, STOPPED, GONE };

struct other {
	pid_t tid;
	enum how how;
	int signal; /* that it was about to take */
};

struct stop {
	int (*fn)(void *arg);
	void *arg;
	uintptr_t start; /* if there is an end: those alone that may wait for a futex there */
	uintptr_t end;
	bool running; /* those alone that run, until they sleep or are stopped */
	pid_t caller;
	pid_t process;
	int tasks;	      /* /proc/PID/task */
	_Atomic uint32_t may; /* the kernel was told that it traces */
	int rc;
	bool called;
	unsigned int cnt;
	unsigned int max;
	struct other other[];
};

static struct sig_lock lock = SIG_LOCK_INIT; /* a thread has one tracer at a time; guards: */
static uintptr_t uses;
static size_t uses_len;
static _Atomic uint64_t spared; /* the process, and the thread of it */

/* ---- in the other process ---- */

struct entry { /* of getdents64() */
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

/* A file of a thread's: how many bytes, or -1. */
static long read_file(const struct stop *s, pid_t tid, const char *name, char *text,
		      size_t len)
{
	char path[48], digits[16];
	size_t n = 0, i = 0;
	long fd, got;

	for (; tid; tid /= 10)
		digits[n++] = (char)('0' + tid % 10);
	while (n)
		path[i++] = digits[--n];
	path[i++] = '/';
	strcpy(path + i, name);
	fd = syscall(SYS_openat, s->tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = syscall(SYS_read, fd, text, len - 1);
	syscall(SYS_close, fd);
	text[got > 0 ? got : 0] = '\0';
	return got;
}

/*
 * One that cannot be traced and needs not be: it has ended, though it may be listed for as
 * long as the process lives; or is a worker of io_uring's, which has no operation that
 * changes mappings.
 */
static bool does_nothing(const struct stop *s, pid_t tid)
{
	char text[512], *at;
	int i;

	if (read_file(s, tid, "stat", text, sizeof(text)) <= 0)
		return true;
	at = strrchr(text, ')');
	if (!at)
		return false;
	if (at[2] == 'Z' || at[2] == 'X')
		return true;
	/* State, parent, group, session, terminal, its group; then the flags. */
	for (at += 2, i = 0; at && i < 6; i++)
		at = strchr(at + 1, ' ');
	return at && strtoul(at, NULL, 10) & PF_IO_WORKER;
}

static bool waits_for_userfaultfd(const struct stop *s, pid_t tid)
{
	char text[64];

	return read_file(s, tid, "wchan", text, sizeof(text)) > 0 &&
	       (!strncmp(text, "userfaultfd", 11) || !strncmp(text, "handle_userfault", 16));
}

static bool is_futex(long nr)
{
#ifdef SYS_futex_waitv
	if (nr == SYS_futex_waitv)
		return true;
#endif
	return nr == SYS_futex;
}

/* It waits for a futex in the range that other processes could share, or for several, or it
 * runs: then it may be about to. */
static bool may_wait_there(const struct stop *s, pid_t tid)
{
	char text[256], *at;
	unsigned long word, op;
	long nr;

	if (read_file(s, tid, "syscall", text, sizeof(text)) <= 0)
		return true;
	nr = strtol(text, &at, 10);
	if (at == text)
		return true;
	if (nr != SYS_futex)
		return is_futex(nr);
	word = strtoul(at, &at, 16);
	op = strtoul(at, &at, 16);
	return !(op & FUTEX_PRIVATE_FLAG) && word >= s->start && word < s->end;
}

static bool runs(const struct stop *s, pid_t tid)
{
	char text[16];

	return read_file(s, tid, "syscall", text, sizeof(text)) <= 0 ||
	       !strncmp(text, "running", 7);
}

static bool is_left_alone(const struct stop *s, pid_t tid)
{
	return (s->end && !may_wait_there(s, tid)) || (s->running && !runs(s, tid));
}

static int seize(struct stop *s, pid_t tid)
{
	struct other *o = &s->other[s->cnt];

	if (s->cnt == s->max)
		return -EAGAIN;
	*o = (struct other){ .tid = tid, .how = RUNS };
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL)) {
		if (errno != ESRCH && !does_nothing(s, tid))
			return -EPERM;
		o->how = GONE;
	} else if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL)) {
		o->how = GONE;
	}
	s->cnt++;
	return 0;
}

/* A forked child has the parent's number, which may be a thread of its own by then. */
static bool is_spared(const struct stop *s, pid_t tid)
{
	return atomic_load(&spared) == ((uint64_t)s->process << 32 | (uint32_t)tid);
}

static bool is_known(const struct stop *s, pid_t tid)
{
	unsigned int i;

	for (i = 0; i < s->cnt; i++)
		if (s->other[i].tid == tid)
			return true;
	return tid == s->caller || is_spared(s, tid);
}

/* Returns the number of new ones, or a negative errno. */
static int seize_new(struct stop *s)
{
	char list[2048];
	int rc = 0, new = 0;
	long n, at;
	pid_t tid;

	if (lseek(s->tasks, 0, SEEK_SET))
		return -EPERM;
	while (!rc && (n = syscall(SYS_getdents64, s->tasks, list, sizeof(list))) > 0)
		for (at = 0; !rc && at < n; at += ((struct entry *)(void *)(list + at))->len) {
			tid = atoi(((struct entry *)(void *)(list + at))->name);
			if (!tid || is_known(s, tid) || is_left_alone(s, tid))
				continue;
			rc = seize(s, tid);
			new++;
		}
	return rc ? rc : new;
}

static void look_at(const struct stop *s, struct other *o)
{
	int status;
	pid_t got = (pid_t)syscall(SYS_wait4, o->tid, &status, __WALL | WNOHANG, NULL);

	if (got < 0 || (got == o->tid && !WIFSTOPPED(status))) {
		o->how = GONE;
	} else if (got == o->tid) {
		o->how = STOPPED;
		o->signal = status >> 16 ? 0 : WSTOPSIG(status);
	} else if (waits_for_userfaultfd(s, o->tid) || (s->running && !runs(s, o->tid))) {
		o->how = STOPPED;
	}
}

static bool all_stopped(struct stop *s)
{
	bool all = true;
	unsigned int i;

	for (i = 0; i < s->cnt; i++) {
		if (s->other[i].how == RUNS)
			look_at(s, &s->other[i]);
		all = all && s->other[i].how != RUNS;
	}
	return all;
}

static void detach(struct other *o)
{
	if (o->how != GONE)
		ptrace(PTRACE_DETACH, o->tid, NULL, (void *)(uintptr_t)o->signal);
	o->how = GONE;
}

/*
 * One that was seized before it was named, and goes on: it has been named since, so it may have
 * what @fn waits for. One that is named later has stopped before, and holds none of that: it
 * names itself first.
 */
static void let_spared_go(struct stop *s)
{
	unsigned int i;

	for (i = 0; i < s->cnt; i++)
		if (is_spared(s, s->other[i].tid))
			detach(&s->other[i]);
}

static int stop_all(struct stop *s)
{
	const struct timespec nap = { 0, NAP_NS };
	uint64_t deadline = clock_after_ns(WAIT_NS);
	int new;

	do {
		new = seize_new(s);
		if (new < 0)
			return new;
		while (!all_stopped(s)) {
			if (clock_ns() > deadline)
				return -EAGAIN;
			syscall(SYS_nanosleep, &nap, NULL);
		}
	} while (new);
	return 0;
}

/* The end of this process lets them go, too, but not with the signal that one was about
 * to take. */
static void let_go(struct stop *s)
{
	unsigned int i;

	for (i = 0; i < s->cnt; i++)
		detach(&s->other[i]);
}

/* It shares the calling thread's variables, errno too, which waits meanwhile. */
static int run(void *arg)
{
	struct stop *s = arg;

	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	while (!atomic_load(&s->may) && syscall(SYS_getppid) == s->process)
		syscall(SYS_sched_yield);
	if (syscall(SYS_getppid) != s->process)
		return 1;
	s->rc = stop_all(s);
	if (!s->rc) {
		let_spared_go(s);
		s->called = true;
		s->rc = s->fn(s->arg);
	}
	let_go(s);
	return 0;
}

/* ---- in this one ---- */

/* @ask: tell Yama that the other process may trace this one. */
static int once(struct stop *s, char *stack, bool ask)
{
	int flags = CLONE_VM | CLONE_FILES | CLONE_FS;
	pid_t pid;

	s->rc = -EAGAIN;
	s->cnt = 0;
	atomic_store(&s->may, !ask);
	pid = clone(run, stack + STACK_LEN, flags, s);
	if (pid < 0)
		return -EAGAIN;
	if (ask)
		prctl(PR_SET_PTRACER, (unsigned long)pid, 0, 0, 0);
	atomic_store(&s->may, 1);
	child_reap(pid);
	if (ask)
		prctl(PR_SET_PTRACER, 0, 0, 0, 0);
	return s->rc;
}

static int stop_and_call(const struct stop *what, int tasks, unsigned int threads)
{
	unsigned int max = threads + SPARE;
	size_t len = STACK_LEN + sizeof(struct stop) + max * sizeof(struct other);
	char *stack = own_map(len);
	struct stop *s;
	int rc;

	if (!stack)
		return -EAGAIN;
	uses = (uintptr_t)stack;
	uses_len = len;
	s = (struct stop *)(void *)(stack + STACK_LEN);
	s->fn = what->fn;
	s->arg = what->arg;
	s->start = what->start;
	s->end = what->end;
	s->running = what->running;
	s->caller = (pid_t)syscall(SYS_gettid);
	s->process = getpid();
	s->tasks = tasks;
	s->max = max;
	rc = once(s, stack, false);
	/* Asking takes the place of what the program has allowed to another: only if need be. */
	if (rc == -EPERM && !s->called)
		rc = once(s, stack, true);
	uses_len = 0;
	own_unmap(stack, len);
	return rc;
}

bool others_stopped_uses(uintptr_t at, size_t len)
{
	return uses_len && at < uses + uses_len && uses < at + len;
}

static int stopped(const struct stop *what)
{
	int tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	struct stat st;

	/* The first use of a variable in a library that was loaded late allocates memory, and a
	 * stopped thread may have the allocator's lock. */
	error_ready();
#ifdef __SANITIZE_THREAD__
	/* It takes the other process for a fork(), and ends the next one that starts threads. */
	if (tasks >= 0) {
		close(tasks);
		errno = EPERM;
		tasks = -1;
	}
#endif
	if (tasks < 0)
		return errno == EMFILE || errno == ENFILE ? -EAGAIN : -EPERM;
	if (fstat(tasks, &st) || st.st_nlink < 3) {
		rc = -EPERM;
	} else if (st.st_nlink == 3) {
		rc = what->fn(what->arg);
	} else {
		sig_lock(&lock);
		rc = stop_and_call(what, tasks, (unsigned int)st.st_nlink);
		sig_unlock(&lock);
	}
	close(tasks);
	return rc;
}

void others_stopped_spare(pid_t tid)
{
	atomic_store(&spared, tid ? (uint64_t)getpid() << 32 | (uint32_t)tid : 0);
}

int others_stopped(int (*fn)(void *arg), void *arg)
{
	const struct stop what = { .fn = fn, .arg = arg };

	return stopped(&what);
}

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

int others_wait_anew(uintptr_t at, size_t len)
{
	const struct stop what = { .fn = nothing, .start = at, .end = at + len };

	return stopped(&what);
}

int others_out_of_kernel(void)
{
	const struct stop what = { .fn = nothing, .running = true };

	return stopped(&what);
}
