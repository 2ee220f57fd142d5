// SPDX-License-Identifier: BSD-2-Clause
/*
 * The application's descriptors are the application's: it closes what it does
 * not know, opens others under the numbers, runs out of them, and goes where
 * there is no /proc. Nothing may be stale or hang for it.
 */
#include <sys/resource.h>

#include <kedge/uring.h>

#include "proc.h"

#define ROUNDS 20
#define BUFS   8

/* Unmap a buffer that is in the cache, map another there, look again. */
static int recycle(struct rig *r, char *at)
{
	int rc = rig_check(r, at, RIG_LEN);

	if (rc)
		return rc;
	if (munmap(at, RIG_LEN) || !map_anon(at, RIG_LEN))
		return -errno;
	return rig_check(r, at, RIG_LEN);
}

static int recycle_all(struct rig *r, const char *when)
{
	int i, rc, stale = 0, cnt = 0;
	char *at;

	for (i = 0; i < BUFS; i++, cnt++) {
		at = map_anon(NULL, RIG_LEN);
		rc = at ? recycle(r, at) : -errno;
		if (rc < 0)
			return proc_fail("%s: %s", when, kedge_strerror(rc));
		stale += rc;
		munmap(at, RIG_LEN);
	}
	return stale ? proc_fail("%s: %d of %d stale", when, stale, cnt) : 0;
}

/* The lowest number that is free. */
static int next_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	close(fd);
	return fd;
}

/*
 * The notifier's descriptors are closed, and a second notifier opened, which has
 * the first one's numbers now. The first one's cache must not take them for its
 * own: neither for watches from now on nor for its end.
 */
static int closed_and_opened(void)
{
	struct rig a, b;
	int round, first, rc;

	for (round = 0; round < ROUNDS; round++) {
		rc = rig_open(&a);
		if (rc)
			return rc;
		rc = recycle_all(&a, "at first");
		/* The ring is closed with the rest, and opened anew. */
		syscall(SYS_close_range, 3, ~0u, 0);
		rc = rc ? rc : rig_open(&b);
		rc = rc ? rc : recycle_all(&b, "a second notifier after "
					       "close_range()");
		rig_close_cache(&a);
		rc = rc ? rc : recycle_all(&b, "a second notifier after the "
					       "first one's end");
		if (rc)
			return rc;
		rig_close(&b);
		first = next_fd();
		syscall(SYS_close_range, first, ~0u, 0);
	}
	return 0;
}

/*
 * The same, but the rings and devices stay open, and the first cache goes on:
 * what the first notifier opened has the same numbers in the second one.
 */
static int first_goes_on(void)
{
	int round, from, to, rc;
	struct rig a, b;

	for (round = 0; round < ROUNDS; round++) {
		rc = rig_open_device(&a);
		rc = rc ? rc : rig_open_device(&b);
		from = next_fd();
		rc = rc ? rc : rig_open_cache(&a);
		to = next_fd();
		rc = rc ? rc : recycle_all(&a, "at first");
		if (to > from)
			syscall(SYS_close_range, from, to - 1, 0);
		rc = rc ? rc : rig_open_cache(&b);
		rc = rc ? rc : recycle_all(&a, "the first notifier, whose "
					       "descriptors are the second's");
		rc = rc ? rc : recycle_all(&b, "the second notifier");
		if (rc)
			return rc;
		rig_close(&a);
		rc = recycle_all(&b, "the second after the first one's end");
		if (rc)
			return rc;
		rig_close(&b);
	}
	return 0;
}

/* ---- the end, with a copy of the descriptors in a child ---- */

static char *bufs[BUFS];

static int fill_bufs(struct rig *r)
{
	int i, rc;

	for (i = 0; i < BUFS; i++) {
		bufs[i] = map_anon(NULL, RIG_LEN);
		/* Another mapping between them, or they are one. */
		mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		rc = bufs[i] ? rig_check(r, bufs[i], RIG_LEN) : -errno;
		if (rc)
			return proc_fail("buffer %d: %s", i,
					 rc > 0 ? "stale" : strerror(-rc));
	}
	return 0;
}

/* Some are left to the end: watched by the program, or dropped and touched. */
static void leave_some(struct rig *r)
{
	int i;

	for (i = 0; i < BUFS; i += 2) {
		kedge_watch_add(r->nf, bufs[i], RIG_LEN, (uint64_t)i + 1);
		raw_madvise(bufs[i + 1], RIG_LEN, MADV_DONTNEED);
		memset(bufs[i + 1], 1, RIG_LEN);
	}
}

static pid_t sleeping_child(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	for (;;)
		pause();
}

static int close_and_unmap(struct rig *r)
{
	int i;

	proc_fail("the end of the cache and its notifier");
	rig_close_cache(r);
	/* A range still registered waits here for a reader that is gone. */
	for (i = 0; i < BUFS; i++) {
		proc_fail("munmap() of buffer %d of %d after the end", i, BUFS);
		munmap(bufs[i], RIG_LEN);
	}
	return 0;
}

static int end_with_child(const void *variant)
{
	int (*const *before)(void) = variant;
	struct rig r;
	pid_t pid;
	int rc = rig_open(&r);

	rc = rc ? rc : fill_bufs(&r);
	if (rc)
		return rc;
	leave_some(&r);
	pid = sleeping_child();
	if (pid < 0)
		return proc_fail("fork: %s", strerror(errno));
	rc = (*before)();
	rc = rc ? rc : close_and_unmap(&r);
	kill(pid, SIGKILL);
	return rc;
}

static int nothing(void)
{
	return 0;
}

/* The directory is removed before it is the root: the root cannot be. */
static int without_proc(void)
{
	char dir[] = "/tmp/kedge-process-XXXXXX";

	if (!mkdtemp(dir))
		return proc_fail("mkdtemp: %s", strerror(errno));
	if (chdir(dir) || rmdir(dir))
		return proc_fail("%s: %s", dir, strerror(errno));
	if (chroot("."))
		return proc_skip("chroot: %s", strerror(errno));
	return access("/proc", F_OK) ? 0
		: proc_fail("there is a /proc after all");
}

static int without_descriptors(void)
{
	rlim_t used = (rlim_t)next_fd();
	const struct rlimit none = { used, used };

	if (setrlimit(RLIMIT_NOFILE, &none))
		return proc_fail("setrlimit: %s", strerror(errno));
	return open("/dev/null", O_RDONLY | O_CLOEXEC) < 0 ? 0
		: proc_fail("there is a descriptor after all");
}

/* As sandboxes do. poll() of one descriptor fails with EINVAL then. */
static int limit_of_none(void)
{
	const struct rlimit none = { 0, 0 };

	return setrlimit(RLIMIT_NOFILE, &none)
		       ? proc_fail("setrlimit: %s", strerror(errno)) : 0;
}

static int life_with_limit_of_none(void)
{
	struct rig r;
	int rc = rig_open(&r);

	rc = rc ? rc : limit_of_none();
	proc_fail("a get or munmap() with RLIMIT_NOFILE 0");
	return rc ? rc : recycle_all(&r, "with RLIMIT_NOFILE 0");
}

/* ---- others unmap during the end ---- */

struct unmapper {
	pthread_t thread;
	struct rig *rig;
	atomic_bool *stop;
	atomic_uint rounds;
};

/* Gets fail once the end has begun: until then they are the application's. */
static void *unmap_always(void *arg)
{
	struct unmapper *u = arg;
	char *at[BUFS];
	int i;

	while (!atomic_load(u->stop)) {
		for (i = 0; i < BUFS; i++) {
			at[i] = map_anon(NULL, RIG_LEN);
			if (at[i])
				kedge_watch_add(u->rig->nf, at[i], RIG_LEN,
						(uintptr_t)at[i]);
		}
		atomic_fetch_add(&u->rounds, 1);
		for (i = 0; i < BUFS; i++)
			if (at[i])
				munmap(at[i], RIG_LEN);
	}
	return NULL;
}

/* Watched memory, unmapped by one thread while another ends the notifier. */
static void *unmap_bufs(void *arg)
{
	atomic_uint *turn = arg;
	int i;

	for (i = 0; i < BUFS; i++) {
		munmap(bufs[i], RIG_LEN);
		atomic_fetch_add(turn, 1);
	}
	return NULL;
}

static int unmapped_during_end(void)
{
	atomic_uint turn;
	pthread_t thread;
	struct rig r;
	int round, rc;
	pid_t pid;

	for (round = 0; round < 5 * ROUNDS; round++) {
		rc = rig_open(&r);
		rc = rc ? rc : fill_bufs(&r);
		if (rc)
			return rc;
		pid = sleeping_child();
		atomic_init(&turn, 0);
		proc_fail("round %d: munmap() while the notifier is closed, "
			  "and a child has its descriptor", round);
		if (pthread_create(&thread, NULL, unmap_bufs, &turn))
			return proc_fail("pthread_create");
		/* Another moment of its work in each round. */
		while (atomic_load(&turn) < (unsigned int)round % (BUFS + 1))
			;
		rig_close(&r);
		pthread_join(thread, NULL);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	return 0;
}

/* The same with ranges that come and go up to the moment of the end. */
static int unmapped_before_end(void)
{
	atomic_bool stop;
	struct unmapper u = { .stop = &stop };
	struct rig r;
	int round, rc;
	pid_t pid;

	for (round = 0; round < ROUNDS; round++) {
		rc = rig_open(&r);
		rc = rc ? rc : fill_bufs(&r);
		if (rc)
			return rc;
		atomic_init(&stop, false);
		atomic_init(&u.rounds, 0);
		u.rig = &r;
		if (pthread_create(&u.thread, NULL, unmap_always, &u))
			return proc_fail("pthread_create");
		pid = sleeping_child();
		while (atomic_load(&u.rounds) < 20)
			sched_yield();
		atomic_store(&stop, true);
		pthread_join(u.thread, NULL);
		rc = close_and_unmap(&r);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		if (rc)
			return rc;
		kedge_device_close(r.dev);
		io_uring_queue_exit(&r.ring);
	}
	return 0;
}

#define CHILD(name, before) \
	{ name, NULL, 30, end_with_child, &(int (*const)(void)){ before } }

static const struct proc_case cases[] = {
	{ "close_range() and a second notifier", closed_and_opened, 0 },
	{ "a second notifier under the first one's descriptors",
	  first_goes_on, 0 },
	CHILD("the end with a child alive", nothing),
	CHILD("the end after chroot() with a child alive", without_proc),
	CHILD("the end without descriptors with a child alive", without_descriptors),
	CHILD("the end with RLIMIT_NOFILE 0 and a child alive", limit_of_none),
	{ "gets and munmap with RLIMIT_NOFILE 0",
	  life_with_limit_of_none, 30 },
	{ "munmap during the end with a child alive",
	  unmapped_during_end, 0 },
	{ "munmap before the end with a child alive",
	  unmapped_before_end, 0 },
};

int main(int argc, char **argv)
{
	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
