// SPDX-License-Identifier: BSD-2-Clause
/*
 * A thread with a large stack exits, and the next one gets that stack: from
 * libc's cache, whose pages were dropped at the exit, or from the kernel.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/torture/case.h"

#define BUF_LEN ((size_t)64 << 10)
/* libc keeps up to 40 MiB of stacks. */
#define STACK_KEPT  ((long)1 << 20)
#define STACK_GIVEN ((long)64 << 20)

struct stack {
	pthread_t thread;
	pthread_mutex_t lock; /* guards buf and quit */
	pthread_cond_t moved;
	uint8_t *buf;
	bool up, quit;
};

/* Lends its stack until it is told to go. */
__attribute__((noinline)) static void *stack_main(void *p)
{
	uint8_t buf[BUF_LEN + 4096];
	struct stack *s = p;

	pthread_mutex_lock(&s->lock);
	s->buf = (uint8_t *)round_up((uintptr_t)buf, 4096);
	pthread_cond_signal(&s->moved);
	while (!s->quit)
		pthread_cond_wait(&s->moved, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int stack_up(struct run *x, struct stack *s)
{
	pthread_attr_t attr;
	int err = pthread_attr_init(&attr);

	if (err)
		return why(x, -err, "pthread_attr: %s", strerror(err));
	s->buf = NULL;
	s->quit = false;
	err = pthread_attr_setstacksize(&attr, (size_t)x->ev->arg);
	if (!err)
		err = pthread_create(&s->thread, &attr, stack_main, s);
	pthread_attr_destroy(&attr);
	if (err)
		return why(x, -err, "pthread_create: %s", strerror(err));
	s->up = true;
	pthread_mutex_lock(&s->lock);
	while (!s->buf)
		pthread_cond_wait(&s->moved, &s->lock);
	x->addr = s->buf;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static void stack_down(struct stack *s)
{
	pthread_mutex_lock(&s->lock);
	s->quit = true;
	pthread_cond_signal(&s->moved);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	s->up = false;
}

static int setup_stack(struct run *x)
{
	struct stack *s = calloc(1, sizeof(*s));

	if (!s)
		return why(x, -ENOMEM, "no memory");
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->moved, NULL);
	x->ptr = s;
	x->len = BUF_LEN;
	return stack_up(x, s);
}

static void fini_stack(struct run *x)
{
	struct stack *s = x->ptr;

	if (!s)
		return;
	if (s->up)
		stack_down(s);
	pthread_cond_destroy(&s->moved);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int fire_stack(struct run *x)
{
	stack_down(x->ptr);
	return stack_up(x, x->ptr);
}

const struct event ev_thread[] = {
	{ .name = "thread-exit",
	  .routes = R(LIBC),
	  .pages = P(4K),
	  .flags = EV_STALE | EV_RECYCLE,
	  .arg = STACK_KEPT,
	  .setup = setup_stack,
	  .fire = fire_stack,
	  .fini = fini_stack },
	{ .name = "thread-exit-unmap",
	  .routes = R(LIBC),
	  .pages = P(4K),
	  .flags = EV_STALE | EV_RECYCLE,
	  .arg = STACK_GIVEN,
	  .setup = setup_stack,
	  .fire = fire_stack,
	  .fini = fini_stack },
	{ .name = NULL },
};
