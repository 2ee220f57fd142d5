// SPDX-License-Identifier: BSD-2-Clause
/*
 * The stack of a thread that ends: libc drops its pages or unmaps it within
 * itself, and gives it to a later thread. It is announced when the thread's
 * function is left, by return, pthread_exit or cancellation; what the thread's
 * destructors register on the stack after that stays unseen, as does the drop
 * itself: nothing of ours runs when it is done. A stack that the caller brought
 * is announced too, needlessly.
 */
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

/*
 * Asked for at the start: it allocates, and at its end a thread may be one that
 * an allocator waits for.
 */
static void find_stack(struct stack *s)
{
	pthread_attr_t attr;

	s->addr = NULL;
	s->len = 0;
	if (pthread_getattr_np(pthread_self(), &attr))
		return;
	if (pthread_attr_getstack(&attr, &s->addr, &s->len))
		s->len = 0;
	pthread_attr_destroy(&attr);
}

static void *run(void *arg)
{
	struct start start = *(struct start *)arg;
	struct stack stack;
	void *ret;

	free(arg);
	find_stack(&stack);
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
	find_stack(&stack);
	pthread_cleanup_push(announce_stack, &stack);
	ret = start.c11(start.arg);
	pthread_cleanup_pop(1);
	return ret;
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
	start = real ? start_new(arg) : NULL;
	if (!start)
		return EAGAIN;
	start->fn = fn;
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
	start = real ? start_new(arg) : NULL;
	if (!start)
		return thrd_nomem;
	start->c11 = fn;
	rc = real(thread, run_c11, start);
	if (rc != thrd_success)
		free(start);
	return rc;
}
