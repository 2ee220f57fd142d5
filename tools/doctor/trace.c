// SPDX-License-Identifier: BSD-2-Clause
/*
 * See trace.h. The child gives itself the filter once it is traced: before, its calls would fail
 * (ENOSYS). So they would behind a tracer that has ended: the processes end with it
 * (PTRACE_O_EXITKILL), and it stays until all have ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>
#include <linux/seccomp.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/doctor/trace.h"
#include "tools/run/patient.h"
#include "tools/run/run.h"

#define OPTIONS                                                                    \
	(PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |        \
	 PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL |            \
	 PTRACE_O_TRACESYSGOOD)

/* A call whose end is to come. */
struct pending {
	struct pending *next;
	struct call call;
	uint32_t number;
};

struct tracer {
	const struct trace_fns *fns;
	struct pending *pending;
	pid_t child;
	int status; /* the child's, as wait() has it */
};

/* ---- the child ---- */

static int set_filter(void)
{
	struct sock_filter filter[FILTER_MAX];
	struct sock_fprog prog = { .len = filter_make(filter), .filter = filter };

	/* With CAP_SYS_ADMIN programs may still gain privileges. */
	if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 0;
	if (errno != EACCES || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return errno;
	return 0;
}

/* A byte to @say tells that it can be traced. Then it reads from @go whether it is, and writes to
 * @say why it has no filter, or 0. Without @argv that is all. Signals wait meanwhile: one would
 * stop it while its tracer waits for its word. */
static void be_child(char **argv, int go, int say)
{
	int err = ECANCELED;
	bool traced = false;
	sigset_t all, before;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	if (write(say, "", 1) != 1)
		_exit(CMD_CANNOT);
	if (read(go, &traced, sizeof(traced)) == sizeof(traced) && traced)
		err = set_filter();
	if (write(say, &err, sizeof(err)) != sizeof(err))
		_exit(CMD_CANNOT);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (!argv)
		_exit(0);
	exit(run_exec(argv));
}

/* 0, or why it is not traced. The child is waited for first: what libraries do in a new process
 * may be a thread (a sanitizer's runtime does so), and a traced process stops there. */
static int seize(pid_t child, int go, int said)
{
	int err, why = 0;
	bool traced;
	char ready;

	if (read(said, &ready, 1) != 1)
		return ECHILD;
	err = ptrace(PTRACE_SEIZE, child, NULL, OPTIONS) ? errno : 0;
	traced = !err;
	if (write(go, &traced, sizeof(traced)) != sizeof(traced) ||
	    read(said, &why, sizeof(why)) != sizeof(why))
		return err;
	return err ? err : why;
}

/* ---- stops ---- */

static struct pending **pending_of(struct tracer *t, pid_t tid)
{
	struct pending **at = &t->pending;

	while (*at && (*at)->call.tid != tid)
		at = &(*at)->next;
	return at;
}

static void forget(struct pending **at)
{
	struct pending *p = *at;

	*at = p->next;
	free(p);
}

/* A thread may be killed at any time: then nothing that is asked of it can be had. One in a call
 * that is followed stops at its end. */
static void go_on(struct tracer *t, pid_t tid, int sig)
{
	ptrace(*pending_of(t, tid) ? PTRACE_SYSCALL : PTRACE_CONT, tid, NULL, (long)sig);
}

static void find_process(struct change *c)
{
	char path[64], line[256];
	const char *last;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)c->tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		last = strrchr(line, '\t');
		if (last && !strncmp(line, "Tgid:", 5))
			c->pid = c->host_pid = atoi(last + 1);
		if (last && !strncmp(line, "NStgid:", 7))
			c->pid = atoi(last + 1);
	}
	if (f)
		fclose(f);
}

static void before_call(struct tracer *t, pid_t tid)
{
	struct ptrace_syscall_info info;
	struct change change[CHANGES_MAX];
	struct pending p = { .call = { .tid = tid } }, *kept;
	int i, cnt;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) <= 0 ||
	    info.op != PTRACE_SYSCALL_INFO_SECCOMP)
		return;
	p.call.nr = info.seccomp.nr;
	memcpy(p.call.args, info.seccomp.args, sizeof(p.call.args));
	cnt = filter_changes(&p.call, change);
	for (i = 0; i < cnt; i++) {
		change[i].tid = change[i].pid = change[i].host_pid = tid;
		find_process(&change[i]);
	}
	p.number = cnt ? t->fns->before(t->fns->ctx, change, cnt) : 0;
	kept = p.number ? malloc(sizeof(*kept)) : NULL;
	if (!kept)
		return;
	*kept = p;
	kept->next = t->pending;
	t->pending = kept;
}

static void after_call(struct tracer *t, pid_t tid)
{
	struct pending **at = pending_of(t, tid);
	struct ptrace_syscall_info info;

	if (!*at || ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) <= 0 ||
	    info.op != PTRACE_SYSCALL_INFO_EXIT)
		return;
	if (!filter_did(&(*at)->call, info.exit.rval))
		t->fns->undone(t->fns->ctx, (*at)->number);
	forget(at);
}

static bool stops_group(int sig)
{
	return sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU;
}

static void stopped(struct tracer *t, pid_t tid, int status)
{
	int sig = WSTOPSIG(status), event = status >> 16;
	struct change it;

	switch (event) {
	case 0:
		if (sig == (SIGTRAP | 0x80)) {
			after_call(t, tid);
			sig = 0;
		}
		go_on(t, tid, sig);
		return;
	case PTRACE_EVENT_STOP:
		/* A new one begins with it; one that is stopped by a signal stays so. */
		if (stops_group(sig))
			ptrace(PTRACE_LISTEN, tid, NULL, NULL);
		else
			go_on(t, tid, 0);
		return;
	case PTRACE_EVENT_SECCOMP:
		before_call(t, tid);
		break;
	case PTRACE_EVENT_EXEC:
		it.tid = it.pid = it.host_pid = tid;
		find_process(&it);
		t->fns->ended(t->fns->ctx, it.pid);
		break;
	}
	go_on(t, tid, 0);
}

static void ended(struct tracer *t, pid_t tid, int status)
{
	struct pending **at = pending_of(t, tid);

	if (*at)
		forget(at);
	if (tid == t->child)
		t->status = status;
	/* Of a process in another namespace the number is not known any more. */
	t->fns->ended(t->fns->ctx, tid);
}

/* Until none is left. */
static void follow(struct tracer *t)
{
	int status;
	pid_t tid;

	for (;;) {
		tid = waitpid(-1, &status, __WALL);
		if (tid < 0 && errno != EINTR)
			return;
		if (tid < 0)
			continue;
		if (WIFSTOPPED(status))
			stopped(t, tid, status);
		else
			ended(t, tid, status);
	}
}

/* ---- the whole ---- */

struct ends {
	int go[2], say[2];
};

static int open_ends(struct ends *e)
{
	if (pipe2(e->go, O_CLOEXEC))
		return -errno;
	if (!pipe2(e->say, O_CLOEXEC))
		return 0;
	close(e->go[0]);
	close(e->go[1]);
	return -errno;
}

static void close_ends(const struct ends *e)
{
	int i;

	for (i = 0; i < 2; i++) {
		close(e->go[i]);
		if (e->say[i] >= 0)
			close(e->say[i]);
	}
}

/* In the child ends that are ours are closed: the other would not end otherwise. */
static pid_t start(char **argv, const struct ends *e, const struct patient *before)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	if (before)
		patient_end(before);
	close(e->go[1]);
	close(e->say[0]);
	be_child(argv, e->go[0], e->say[1]);
	return 0;
}

static int seize_by(pid_t child, struct ends *e)
{
	int why;

	close(e->say[1]);
	e->say[1] = -1;
	why = seize(child, e->go[1], e->say[0]);
	close_ends(e);
	return why;
}

int trace_run(char **argv, const struct trace_fns *fns, int *untraced)
{
	struct tracer t = { .fns = fns };
	struct patient before;
	struct ends e;
	int rc = open_ends(&e);

	if (rc)
		return util_fail(rc, "cannot make a pipe");
	patient_block(&before);
	t.child = start(argv, &e, &before);
	if (t.child < 0) {
		rc = -errno;
		patient_end(&before);
		close_ends(&e);
		return util_fail(rc, "cannot start the program");
	}
	patient_be(t.child, &before);
	*untraced = seize_by(t.child, &e);
	follow(&t);
	return WIFSIGNALED(t.status) ? 128 + WTERMSIG(t.status) : WEXITSTATUS(t.status);
}

/* Its end. It goes on where it stops before. */
static void wait_out(pid_t child)
{
	int status = 0;

	for (;;) {
		if (waitpid(child, &status, __WALL) < 0) {
			if (errno != EINTR)
				return;
			continue;
		}
		if (!WIFSTOPPED(status))
			return;
		ptrace(PTRACE_CONT, child, NULL, 0L);
	}
}

int trace_try(void)
{
	struct ends e;
	int why = -open_ends(&e);
	pid_t child;

	if (why)
		return why;
	child = start(NULL, &e, NULL);
	if (child < 0) {
		why = errno;
		close_ends(&e);
		return why;
	}
	why = seize_by(child, &e);
	wait_out(child);
	return why;
}
