// SPDX-License-Identifier: BSD-2-Clause
/*
 * Thread stacks. At a thread's end libc drops the pages of its stack, or unmaps
 * it, within itself, and gives it to a later thread. Three announcements stand
 * for that one that cannot be made around the drop:
 * - when the thread's function is left, by return, pthread_exit or cancellation;
 * - when a join has returned, the drop being over then;
 * - when a thread starts, on a stack that may have been another's.
 * Unseen stays what others register on the stack of a dying detached thread,
 * if its stack is unmapped and the range used for something else. A stack that
 * the caller brought is announced too, needlessly.
 *
 * The guard pages are part of it. glibc 2.42 makes them by MADV_GUARD_INSTALL,
 * which drops what was there, and moves them where a stack that a thread has left
 * is given to one that wants a larger guard; it is pages of that stack that go,
 * and the kernel tells no userfaultfd of it.
 *
 * And processes that share the memory of this one and are no threads of it. A vfork()ed child is
 * left out: its parent waits until it has run another program.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>

#include "hooks/hooks.h"

struct start {
	void *(*fn)(void *);
	thrd_start_t c11;
	void *arg;
};

struct stack {
	void *addr;
	size_t len;
};

static void announce_stack(void *arg)
{
	struct stack *s = arg;
	struct kedge_hook hook;

	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, s->addr, s->len);
	kedge_hook_end(&hook);
}

/* It allocates: not for the end of a thread, which an allocator may await. */
static void find_stack(struct stack *s, pthread_t thread)
{
	pthread_attr_t attr;
	size_t guard;

	s->addr = NULL;
	s->len = 0;
	if (pthread_getattr_np(thread, &attr))
		return;
	if (pthread_attr_getstack(&attr, &s->addr, &s->len))
		s->len = 0;
	/* Below it, where the stack is libc's. */
	if (s->len && !pthread_attr_getguardsize(&attr, &guard) &&
	    guard < (uintptr_t)s->addr) {
		s->addr = (char *)s->addr - guard;
		s->len += guard;
	}
	pthread_attr_destroy(&attr);
}

static void *run(void *arg)
{
	struct start start = *(struct start *)arg;
	struct stack stack;
	void *ret;

	free(arg);
	find_stack(&stack, pthread_self());
	announce_stack(&stack);
	pthread_cleanup_push(announce_stack, &stack);
	ret = start.fn(start.arg);
	pthread_cleanup_pop(1);
	return ret;
}

static int run_c11(void *arg)
{
	struct start start = *(struct start *)arg;
	struct stack stack;
	int ret;

	free(arg);
	find_stack(&stack, pthread_self());
	announce_stack(&stack);
	pthread_cleanup_push(announce_stack, &stack);
	ret = start.c11(start.arg);
	pthread_cleanup_pop(1);
	return ret;
}

/*
 * ThreadSanitizer's pthread_create() calls this one, so what runs here would run
 * before it knows the thread, and allocating then ends in a crash.
 */
extern void __tsan_init(void) __attribute__((weak));
/* AddressSanitizer's knows no stack of a forked child's thread yet. */
extern void __asan_init(void) __attribute__((weak));

static int sanitized(void)
{
	return __tsan_init || __asan_init;
}

static struct start *start_new(void *arg)
{
	struct start *s = calloc(1, sizeof(*s));

	if (s)
		s->arg = arg;
	return s;
}

KEDGE_API int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			     void *(*fn)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
		    void *);
	struct start *start;
	int rc;

	*(void **)(void *)&real = kedge__next("pthread_create");
	if (real && sanitized())
		return real(thread, attr, fn, arg);
	start = real ? start_new(arg) : NULL;
	if (!start)
		return EAGAIN;
	start->fn = fn;
	rc = real(thread, attr, run, start);
	/* Its stack is a mapping or two. */
	if (rc == EAGAIN && kedge_hook_relieve())
		rc = real(thread, attr, run, start);
	if (rc)
		free(start);
	return rc;
}

KEDGE_API int thrd_create(thrd_t *thread, thrd_start_t fn, void *arg)
{
	int (*real)(thrd_t *, thrd_start_t, void *);
	struct start *start;
	int rc;

	*(void **)(void *)&real = kedge__next("thrd_create");
	if (real && sanitized())
		return real(thread, fn, arg);
	start = real ? start_new(arg) : NULL;
	if (!start)
		return thrd_nomem;
	start->c11 = fn;
	rc = real(thread, run_c11, start);
	if (rc == thrd_nomem && kedge_hook_relieve())
		rc = real(thread, run_c11, start);
	if (rc != thrd_success)
		free(start);
	return rc;
}

/* 0: it has been joined. */
static int joined(int rc, struct stack *stack)
{
	if (!rc)
		announce_stack(stack);
	return rc;
}

static int join_by(const char *name, pthread_t thread, void **ret)
{
	int (*real)(pthread_t, void **);
	struct stack stack;

	*(void **)(void *)&real = kedge__next(name);
	if (!real)
		return ENOSYS;
	find_stack(&stack, thread);
	return joined(real(thread, ret), &stack);
}

KEDGE_API int pthread_join(pthread_t thread, void **ret)
{
	return join_by("pthread_join", thread, ret);
}

KEDGE_API int pthread_tryjoin_np(pthread_t thread, void **ret)
{
	return join_by("pthread_tryjoin_np", thread, ret);
}

KEDGE_API int pthread_timedjoin_np(pthread_t thread, void **ret,
				   const struct timespec *until)
{
	int (*real)(pthread_t, void **, const struct timespec *);
	struct stack stack;

	*(void **)(void *)&real = kedge__next("pthread_timedjoin_np");
	if (!real)
		return ENOSYS;
	find_stack(&stack, thread);
	return joined(real(thread, ret, until), &stack);
}

KEDGE_API int pthread_clockjoin_np(pthread_t thread, void **ret, clockid_t clock,
				   const struct timespec *until)
{
	int (*real)(pthread_t, void **, clockid_t, const struct timespec *);
	struct stack stack;

	*(void **)(void *)&real = kedge__next("pthread_clockjoin_np");
	if (!real)
		return ENOSYS;
	find_stack(&stack, thread);
	return joined(real(thread, ret, clock, until), &stack);
}

KEDGE_API int thrd_join(thrd_t thread, int *ret)
{
	int (*real)(thrd_t, int *);
	struct stack stack;

	*(void **)(void *)&real = kedge__next("thrd_join");
	if (!real)
		return thrd_error;
	find_stack(&stack, (pthread_t)thread);
	return joined(real(thread, ret), &stack);
}

/* ---- processes ---- */

#define SHARES(flags) \
	(((flags) & (CLONE_VM | CLONE_VFORK | CLONE_THREAD)) == CLONE_VM)

KEDGE_API int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	typeof(&clone) real = (typeof(&clone))kedge__next("clone");
	pid_t *parent_tid, *child_tid;
	void *tls;
	va_list ap;
	int pid;

	va_start(ap, arg);
	parent_tid = va_arg(ap, pid_t *);
	tls = va_arg(ap, void *);
	child_tid = va_arg(ap, pid_t *);
	va_end(ap);
	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	if (SHARES(flags))
		kedge_hook_sharing(0);
	pid = real(fn, stack, flags, arg, parent_tid, tls, child_tid);
	if (SHARES(flags))
		kedge_hook_sharing(pid);
	return pid;
}
