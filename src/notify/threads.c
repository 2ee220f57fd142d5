// SPDX-License-Identifier: BSD-2-Clause
/*
 * When is a call over that was announced before it did its work? A thread makes
 * one system call at a time, so: when the thread that made it has been seen
 * outside of it. Which thread that is, the event does not say, so all are looked
 * at, and what is found out about each is kept:
 *
 *  - It is stopped in another system call, or outside of any:
 *    /proc/self/task/<tid>/syscall. It is out of every call announced until
 *    now.
 *  - It runs; then that file says no more. But the time it spent in user mode
 *    (its clock CPUCLOCK_VIRT) is counted by ticks that find it there. If it has
 *    grown since the last look, the thread was in user mode after that look, and
 *    out of every call announced until then. A thread that computes gets such a
 *    tick every few milliseconds. Where the kernel counts exactly instead, user
 *    time grows as well only by being in user mode.
 *
 * seen->out is the number of the latest announcement that a thread is known to
 * have left; the answer is the least of them over all threads. Time alone, or
 * the address space's lock, would be no proof: the thread may have been stopped
 * before it took the lock again.
 *
 * Threads that are not told of in /proc as ours are:
 *  - io_uring's workers make such calls for us. They are in the list; their
 *    syscall file is a copy of their creator's registers without stack pointer
 *    and program counter. One is out while it sleeps in the function where
 *    workers wait for work (wchan).
 *  - a child that shares the address space (vfork) is another process. While its
 *    parent waits in vfork(), clone() or clone3() the parent counts as "may be
 *    in". A process made by clone(CLONE_VM) without CLONE_VFORK and without
 *    CLONE_THREAD that drops watched pages goes unseen here: sharing.c.
 *
 * The list of threads may be cut short when one ends while it is read. So the
 * process' number of threads is read after the list, and then all listed are
 * asked whether they are still there. If as many as that number are, they are
 * all that there were when it was read: those that answer after it existed then,
 * and there were no more. A thread that started later is in no call that was
 * announced before the list was begun.
 *
 * Where the number says that there is no thread but the caller and the monitor,
 * no list is read: whoever made the call has ended, or is the caller.
 *
 * Before Linux 5.12 io_uring's workers were kernel threads outside of the list;
 * there (t->usable) no call is ever known to be over.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/own.h"
#include "notify/threads.h"

#define FIRST_ROOM 64u
#define REST	   4 /* times the duration of a look, before the next */
#define TRIES	   3

struct thread_seen {
	int tid;
	bool alive;
	uint64_t user_ns; /* its time in user mode at the last look, */
	uint64_t sampled; /* and the latest announcement before that look */
	uint64_t out;
};

struct dirent64 {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

int threads_init(struct threads *t)
{
	int rc;

	memset(t, 0, sizeof(*t));
	t->fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->fd < 0)
		return kedge_reason(-errno, "/proc/self/task can't be opened "
				    "(%s): %s", strerrordesc_np(errno),
				    errno == EMFILE || errno == ENFILE
					    ? "raise ulimit -n"
					    : "mount /proc");
	fd_note(t->fd, &t->id);
	rc = sig_lock_init(&t->lock);
	if (rc)
		close(t->fd);
	return rc;
}

void threads_abandon(struct threads *t)
{
	fd_close(t->fd, &t->id);
	if (t->seen)
		own_unmap(t->seen, t->room * sizeof(*t->seen));
}

void threads_fini(struct threads *t)
{
	threads_abandon(t);
	sig_lock_fini(&t->lock);
}

/*
 * The number of threads that the process has; 0 if that can't be told, or the descriptor
 * is not ours any more.
 */
static unsigned int count_same(const struct threads *t)
{
	struct stat st;

	/* Two links are the folder's own. */
	return fstat(t->fd, &st) || st.st_nlink < 3 || st.st_dev != t->id.dev ||
			       st.st_ino != t->id.ino
		       ? 0
		       : (unsigned int)st.st_nlink - 2;
}

static bool room_for(struct threads *t, unsigned int cnt)
{
	unsigned int room = t->room ? t->room : FIRST_ROOM;
	struct thread_seen *fresh;

	if (cnt <= t->room)
		return true;
	while (room < cnt)
		room *= 2;
	fresh = own_map(room * sizeof(*fresh));
	if (!fresh)
		return false;
	if (t->seen) {
		memcpy(fresh, t->seen, t->cnt * sizeof(*fresh));
		own_unmap(t->seen, t->room * sizeof(*t->seen));
	}
	t->seen = fresh;
	t->room = room;
	return true;
}

/* The thread's record; a new one is empty. Lists come in one order. */
static struct thread_seen *record(struct threads *t, int tid,
				  unsigned int *hint)
{
	unsigned int i, at;

	for (i = 0; i < t->cnt; i++) {
		at = (*hint + i) % t->cnt;
		if (t->seen[at].tid == tid) {
			*hint = at + 1;
			return &t->seen[at];
		}
	}
	if (!room_for(t, t->cnt + 1))
		return NULL;
	t->seen[t->cnt] = (struct thread_seen){ .tid = tid };
	return &t->seen[t->cnt++];
}

/* One thread's time in user mode; UINT64_MAX if there is no such thread. */
static uint64_t user_time(int tid)
{
	const unsigned int per_thread = 4, virt = 1;
	struct timespec ts;

	if (syscall(SYS_clock_gettime,
		    (clockid_t)(~(unsigned int)tid << 3 | per_thread | virt),
		    &ts))
		return UINT64_MAX;
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool thread_file(int dir, int tid, const char *name, char *text, size_t size)
{
	char path[48];
	long fd, n;

	snprintf(path, sizeof(path), "%d/%s", tid, name);
	fd = syscall(SYS_openat, dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = syscall(SYS_read, fd, text, size - 1);
	syscall(SYS_close, fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	return true;
}

/* Calls that drop pages, or wait for a child that may. */
static bool may_drop(long nr)
{
	static const long calls[] = {
		SYS_madvise, SYS_process_madvise, SYS_clone, SYS_clone3,
#ifdef SYS_vfork
		SYS_vfork,
#endif
#ifdef __x86_64__
		/* By int $0x80: madvise, clone, vfork of 32 bits. */
		219, 120, 190,
#endif
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		if (nr == calls[i])
			return true;
	return false;
}

/* "running", "-1 sp pc", or "number, six arguments, sp pc". */
enum thread_where thread_where(const char *line)
{
	unsigned long value = 0, sp = 0;
	unsigned int fields = 0;
	char *end;
	long nr = strtol(line, &end, 10);

	if (end == line)
		return THREAD_RUNS;
	for (line = end;; line = end, fields++) {
		sp = value;
		value = strtoul(line, &end, 16);
		if (end == line)
			break;
	}
	if (nr < 0)
		return fields == 2 ? THREAD_OUT : THREAD_RUNS;
	if (fields != 8)
		return THREAD_RUNS;
	if (!sp && !value)
		return THREAD_KERNELS;
	return may_drop(nr) ? THREAD_MAYBE_IN : THREAD_OUT;
}

/* A thread that io_uring made: out while it waits for work. */
static bool worker_is_out(int dir, int tid)
{
	char text[64];

	if (thread_file(dir, tid, "wchan", text, sizeof(text)) &&
	    (!strcmp(text, "io_wq_worker") || !strcmp(text, "io_wqe_worker")))
		return true;
	/* Those that only look for submissions hand such calls on. */
	return thread_file(dir, tid, "comm", text, sizeof(text)) &&
	       !strncmp(text, "iou-sqp-", 8);
}

/* Look at a thread that may be in a call up to @need. */
static void look(struct threads *t, struct thread_seen *s, uint64_t now)
{
	uint64_t user_ns = user_time(s->tid);
	char line[256];

	if (user_ns == UINT64_MAX)
		return;
	if (user_ns > s->user_ns && s->sampled > s->out)
		s->out = s->sampled;
	s->user_ns = user_ns;
	s->sampled = now;
	if (!thread_file(t->fd, s->tid, "syscall", line, sizeof(line)))
		return;
	switch (thread_where(line)) {
	case THREAD_OUT:
		s->out = now;
		break;
	case THREAD_KERNELS:
		if (worker_is_out(t->fd, s->tid))
			s->out = now;
		break;
	default:
		break;
	}
}

static void listed(struct threads *t, int tid, int self, uint64_t need,
		   uint64_t now, unsigned int *hint)
{
	struct thread_seen *s = record(t, tid, hint);

	if (!s)
		return; /* the count will not be right */
	s->alive = true;
	if (tid == self || tid == t->monitor)
		s->out = now;
	else if (s->out < need)
		look(t, s, now);
}

/* Look at all that are listed. */
static bool walk(struct threads *t, uint64_t need, uint64_t now)
{
	char buf[4096] __attribute__((aligned(8)));
	int self = (int)syscall(SYS_gettid);
	unsigned int hint = 0;
	long n, at;

	if (syscall(SYS_lseek, t->fd, 0L, SEEK_SET))
		return false;
	while ((n = syscall(SYS_getdents64, t->fd, buf, sizeof(buf))) > 0)
		for (at = 0; at < n;) {
			struct dirent64 *d = (struct dirent64 *)(void *)(buf + at);
			int tid = atoi(d->name);

			if (tid > 0)
				listed(t, tid, self, need, now, &hint);
			at += d->len;
		}
	return !n;
}

/* Forget those that are not there any more; how many are. */
static unsigned int drop_dead(struct threads *t)
{
	unsigned int i = 0;

	while (i < t->cnt)
		if (t->seen[i].alive &&
		    user_time(t->seen[i].tid) != UINT64_MAX)
			i++;
		else
			t->seen[i] = t->seen[--t->cnt];
	return t->cnt;
}

/* Look once at every thread. False: not all were seen. */
static bool look_at_all(struct threads *t, uint64_t need, uint64_t now)
{
	unsigned int i, cnt;

	for (i = 0; i < t->cnt; i++)
		t->seen[i].alive = false;
	if (!walk(t, need, now))
		return false;
	cnt = count_same(t);
	return cnt && drop_dead(t) == cnt;
}

static void find_least(struct threads *t, uint64_t now)
{
	unsigned int i;
	uint64_t least = now;

	for (i = 0; i < t->cnt; i++)
		if (t->seen[i].out < least)
			least = t->seen[i].out;
	if (least > t->out)
		t->out = least;
}

/* With the lock. Not at once again after a look: it takes time. */
static void look_now_and_then(struct threads *t, uint64_t need, uint64_t now)
{
	uint64_t begun = clock_ns();
	int tries;

	if (begun < t->next_ns)
		return;
	for (tries = 0; tries < TRIES; tries++)
		if (look_at_all(t, need, now)) {
			find_least(t, now);
			t->next_ns = begun + (1 + REST) * (clock_ns() - begun);
			return;
		}
}

uint64_t threads_out(struct threads *t, uint64_t need, uint64_t now)
{
	unsigned int cnt;
	int saved = errno;
	uint64_t out;

	if (!t->usable)
		return 0;
	cnt = count_same(t);
	sig_lock_blocked(&t->lock);
	if (t->out < need && cnt == 1u + !!t->monitor)
		t->out = now; /* there is only the caller */
	else if (t->out < need && cnt)
		look_now_and_then(t, need, now);
	out = t->out;
	sig_unlock_blocked(&t->lock);
	errno = saved;
	return out;
}
