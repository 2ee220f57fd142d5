// SPDX-License-Identifier: BSD-2-Clause
/* The ways on which a system call reaches the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/torture/case.h"
#include "tools/common/raw.h"

#define VSTACK_LEN (64u << 10)

const char *const route_name[ROUTE_CNT] = {
	[ROUTE_LIBC] = "libc",	   [ROUTE_SYSCALL] = "syscall",
	[ROUTE_RAW] = "raw",	   [ROUTE_URING] = "uring",
	[ROUTE_THREAD] = "thread", [ROUTE_THREAD_RAW] = "thread-raw",
	[ROUTE_VFORK] = "vfork",   [ROUTE_CLONE] = "clone",
	[ROUTE_PROCESS] = "process",
};

static long of_errno(long ret)
{
	return ret == -1 ? -errno : ret;
}

static long of_pointer(void *p)
{
	return p == (void *)-1 ? -errno : (long)(uintptr_t)p;
}

/* brk(2) answers with the break that holds, brk(3) with 0 or -1. */
static long libc_brk(long to)
{
	return brk((void *)(uintptr_t)to) ? -errno : to;
}

static long libc_file(long nr, const long a[6])
{
	switch (nr) {
	case SYS_ftruncate:
		return of_errno(ftruncate((int)a[0], a[1]));
	case SYS_fallocate:
		return of_errno(fallocate((int)a[0], (int)a[1], a[2], a[3]));
	case SYS_shmat:
		return of_pointer(shmat((int)a[0], (void *)a[1], (int)a[2]));
	case SYS_shmdt:
		return of_errno(shmdt((void *)a[0]));
	}
	return of_errno(syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]));
}

static long libc_call(long nr, const long a[6])
{
	void *p = (void *)a[0];
	size_t len = (size_t)a[1];

	switch (nr) {
	case SYS_mmap:
		return of_pointer(
			mmap(p, len, (int)a[2], (int)a[3], (int)a[4], a[5]));
	case SYS_munmap:
		return of_errno(munmap(p, len));
	case SYS_mremap:
		return of_pointer(
			mremap(p, len, (size_t)a[2], (int)a[3], (void *)a[4]));
	case SYS_madvise:
		return of_errno(madvise(p, len, (int)a[2]));
	case SYS_mprotect:
		return of_errno(mprotect(p, len, (int)a[2]));
	case SYS_remap_file_pages:
		return of_errno(remap_file_pages(p, len, (int)a[2],
						 (size_t)a[3], (int)a[4]));
	case SYS_process_madvise:
		return of_errno(process_madvise((int)a[0], (void *)a[1],
						(size_t)a[2], (int)a[3],
						(unsigned int)a[4]));
	case SYS_brk:
		return libc_brk(a[0]);
	}
	return libc_file(nr, a);
}

static long syscall_call(long nr, const long a[6])
{
	return of_errno(syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]));
}

static long raw_call(long nr, const long a[6])
{
	return raw_syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

struct job {
	bool raw;
	long nr;
	const long *arg;
	long ret;
};

static void thread_main(void *p)
{
	struct job *j = p;

	j->ret = j->raw ? raw_call(j->nr, j->arg) : libc_call(j->nr, j->arg);
}

static long thread_call(struct lane *l, bool raw, long nr, const long a[6])
{
	struct job j = { raw, nr, a, 0 };
	int rc;

	if (!l->helper.started) {
		rc = worker_start(&l->helper);
		if (rc)
			return rc;
	}
	worker_post(&l->helper, thread_main, &j);
	worker_wait(&l->helper);
	return j.ret;
}

int route_run(struct run *x, void (*fn)(void *), void *arg)
{
	struct worker *w = &x->lane->helper;
	int rc;

	if (x->row->route != ROUTE_THREAD) {
		fn(arg);
		return 0;
	}
	if (!w->started) {
		rc = worker_start(w);
		if (rc)
			return why(x, rc, "pthread_create: %s", strerror(-rc));
	}
	worker_post(w, fn, arg);
	worker_wait(w);
	return 0;
}

RAW_CODE static void child_main(void *p)
{
	struct job *j = p;

	j->ret = raw_syscall6(j->nr, j->arg[0], j->arg[1], j->arg[2], j->arg[3],
			      j->arg[4], j->arg[5]);
	raw_syscall6(SYS_exit, 0, 0, 0, 0, 0, 0);
}

static int clone_main(void *p)
{
	child_main(p);
	return 0;
}

/* By libc's clone(), which libkedge-hooks sees: the process shares the memory. */
static long make_child(void *stack, enum route_id route, struct job *j)
{
	if (route == ROUTE_VFORK)
		return raw_clone(CLONE_VM | CLONE_VFORK | SIGCHLD, stack, child_main, j);
	return of_errno(clone(clone_main, stack, CLONE_VM | SIGCHLD, j));
}

/* The call of vfork() or clone(), but on a stack that a sanitizer doesn't know. */
static long child_call(struct lane *l, enum route_id route, long nr, const long a[6])
{
	struct job j = { true, nr, a, -EINTR };
	void *p;
	long pid;

	if (!l->vstack) {
		p = mmap(NULL, VSTACK_LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return -errno;
		l->vstack = p;
	}
	pid = make_child((char *)l->vstack + VSTACK_LEN, route, &j);
	if (pid < 0)
		return pid;
	while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
		;
	return j.ret;
}

static int own_ring(struct lane *l)
{
	int rc;

	if (l->ring)
		return 0;
	l->ring = malloc(sizeof(*l->ring));
	if (!l->ring)
		return -ENOMEM;
	rc = io_uring_queue_init(4, l->ring, 0);
	if (rc) {
		free(l->ring);
		l->ring = NULL;
	}
	return rc;
}

/* IORING_OP_FTRUNCATE, which liburing learned late. */
#define OP_FTRUNCATE 55

static int uring_prep(struct io_uring_sqe *sqe, long nr, const long a[6])
{
	switch (nr) {
	case SYS_madvise:
		io_uring_prep_madvise(sqe, (void *)a[0], a[1], (int)a[2]);
		return 0;
	case SYS_fallocate:
		io_uring_prep_fallocate(sqe, (int)a[0], (int)a[1], a[2], a[3]);
		return 0;
	case SYS_ftruncate:
		io_uring_prep_rw(OP_FTRUNCATE, sqe, (int)a[0], NULL, 0,
				 (__u64)a[1]);
		return 0;
	}
	return -EOPNOTSUPP;
}

/* A call that a signal broke off: the kernel's own words for "again", too. */
static bool broken_off(long ret)
{
	return ret == -EINTR || ret == -512 || ret == -513;
}

static long uring_once(struct lane *l, long nr, const long a[6])
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(l->ring);
	int rc = uring_prep(sqe, nr, a);
	struct io_uring_cqe *cqe;
	long ret;

	if (rc)
		io_uring_prep_nop(sqe);
	while (io_uring_submit(l->ring) == -EINTR)
		;
	while (io_uring_wait_cqe(l->ring, &cqe))
		;
	ret = cqe->res;
	io_uring_cqe_seen(l->ring, cqe);
	return rc ? rc : ret;
}

static long uring_call(struct lane *l, long nr, const long a[6])
{
	long ret = own_ring(l);

	if (ret)
		return ret;
	do
		ret = uring_once(l, nr, a);
	while (broken_off(ret));
	return ret;
}

static long route_once(struct lane *l, enum route_id route, long nr,
		       const long arg[6])
{
	switch (route) {
	case ROUTE_SYSCALL:
		return syscall_call(nr, arg);
	case ROUTE_RAW:
		return raw_call(nr, arg);
	case ROUTE_URING:
		return uring_call(l, nr, arg);
	case ROUTE_THREAD:
		return thread_call(l, false, nr, arg);
	case ROUTE_THREAD_RAW:
		return thread_call(l, true, nr, arg);
	case ROUTE_VFORK:
	case ROUTE_CLONE:
		return child_call(l, route, nr, arg);
	case ROUTE_PROCESS:
		return peer_call(&l->t->peer, (int)arg[0], nr, arg);
	default:
		return libc_call(nr, arg);
	}
}

long route_call(struct lane *l, enum route_id route, long nr, const long arg[6])
{
	long ret;

	do
		ret = route_once(l, route, nr, arg);
	while (ret == -EINTR);
	return ret;
}

void route_fini(struct lane *l)
{
	worker_stop(&l->helper);
	if (l->ring) {
		io_uring_queue_exit(l->ring);
		free(l->ring);
		l->ring = NULL;
	}
	if (l->vstack)
		munmap(l->vstack, VSTACK_LEN);
	l->vstack = NULL;
}
