// SPDX-License-Identifier: BSD-2-Clause
#include "steps.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#include "cases.h"

#define LOOK_MS 5

#ifndef SECCOMP_FILTER_FLAG_TSYNC_ESRCH
#define SECCOMP_FILTER_FLAG_TSYNC_ESRCH (1ul << 4)
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS /* Linux 6.6 */
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS	   SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1ul << 0)
#endif
#define FLAGS                                                            \
	(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC | \
	 SECCOMP_FILTER_FLAG_TSYNC_ESRCH)

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LOW 0
#else
#define LOW 4
#endif

/* ---- in the process ---- */

#define LOAD(field)   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (field))
#define ALLOW	      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define ALLOW_IF(x)   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)(x), 0, 1), ALLOW

/* A call that is no step leaves all as it was, so that the next one finds the same; or it waits,
 * as often as others let it. */
int steps_begin(int but)
{
	struct sock_filter code[] = {
		LOAD(offsetof(struct seccomp_data, args[0]) + LOW),
		ALLOW_IF(but),
		LOAD(offsetof(struct seccomp_data, nr)),
		ALLOW_IF(SYS_sched_yield),
		ALLOW_IF(SYS_nanosleep),
		ALLOW_IF(SYS_clock_nanosleep),
		ALLOW_IF(SYS_clock_gettime),
		ALLOW_IF(SYS_futex),
		ALLOW_IF(SYS_wait4),
		ALLOW_IF(SYS_getpid),
		ALLOW_IF(SYS_getppid),
		ALLOW_IF(SYS_gettid),
		ALLOW_IF(SYS_rt_sigprocmask),
		ALLOW_IF(SYS_fstat),
		ALLOW_IF(SYS_newfstatat),
		ALLOW_IF(SYS_getdents64),
		ALLOW_IF(SYS_getsockopt),
		ALLOW_IF(SYS_mincore),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };
	long fd;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, FLAGS, &prog);
	return fd < 0 ? -errno : (int)fd;
}

/* ---- in the test ---- */

void steps_listen(struct steps *s, int listener)
{
	s->listener = listener;
	/* The two take turns: so they go faster. */
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
}

void steps_count(struct steps *s, enum steps_of of, unsigned int at)
{
	s->of = of;
	s->cnt = 0;
	s->kill_at = at;
}

static enum steps_of step_of(const struct steps *s, pid_t tid)
{
	char path[64];

	if (tid == s->pid)
		return CALLER;
	snprintf(path, sizeof(path), "/proc/%d/task/%d", s->pid, tid);
	return access(path, F_OK) ? HELPERS : THREADS;
}

static void kill_now(struct steps *s)
{
	kill(s->pid, SIGKILL);
	s->killed = true;
	s->kill_at = 0;
}

void steps_one(struct steps *s)
{
	struct seccomp_notif n = { 0 };
	struct seccomp_notif_resp go = { .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
	enum steps_of of;

	/* It fails if that thread was killed before. */
	if (ioctl(s->listener, SECCOMP_IOCTL_NOTIF_RECV, &n))
		return;
	of = step_of(s, (pid_t)n.pid);
	if (s->kill_at && of == s->of && ++s->cnt == s->kill_at)
		kill_now(s);
	/* One that is killed waits for its end: told to go on, it could do the call first. */
	if (s->killed && of != HELPERS)
		return;
	go.id = n.id;
	ioctl(s->listener, SECCOMP_IOCTL_NOTIF_SEND, &go);
}

/*
 * The listener hangs up with the last task that has the filter. Orphans are this process's
 * children: main() has made it a reaper.
 */
void steps_end(struct steps *s)
{
	struct pollfd p = { s->listener, POLLIN, 0 };
	uint64_t end = now_ns() + HANG_S * 1000000000ull;

	if (!s->killed)
		kill_now(s);
	while (!(p.revents & POLLHUP)) {
		if (now_ns() > end)
			fail_msg("what was killed has not ended, or left a process");
		if (poll(&p, 1, LOOK_MS) > 0 && p.revents & POLLIN) {
			steps_one(s);
			end = now_ns() + HANG_S * 1000000000ull;
		}
		while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
			;
	}
	/* A leader that was reaped late is no child any more. */
	waitpid(s->pid, NULL, __WALL);
	close(s->listener);
	s->listener = -1;
}
