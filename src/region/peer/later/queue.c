// SPDX-License-Identifier: BSD-2-Clause
/*
 * Queues of completions. A queue has its operations from the beginning: each is free, or taken and
 * under way, or complete and not read yet. So one that was taken always has room for its
 * completion, and a submission takes no memory.
 *
 * No call makes a system call but to sleep, or to wake what sleeps: the lock is held for some
 * instructions, and the bell rings only once a program has asked for its descriptor.
 */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "base/process/page.h"
#include "region/peer/access.h"
#include "region/peer/later/bell.h"

#define OPTS_V1	      STRUCT_END(struct kedge_queue_opts, depth)
#define COMPLETION_V1 STRUCT_END(struct kedge_remote_completion, reason)

/* @told: there is a completion, or, as it is @closed, the last operation is over. */
struct kedge_queue {
	pid_t pid;
	pthread_mutex_t lock; /* guards: */
	pthread_cond_t told;
	struct op *free;
	struct op *done;
	struct op *done_last;
	size_t under_way;
	bool closed;
	bool has_bell;
	struct bell bell;
	uint32_t depth;
	struct op ops[];
};

/* ---- operations ---- */

int queue_take(struct kedge_queue *q, struct op **op)
{
	struct op *o;

	pthread_mutex_lock(&q->lock);
	o = q->free;
	if (o) {
		q->free = o->next;
		q->under_way++;
	}
	pthread_mutex_unlock(&q->lock);
	if (!o)
		return kedge_reason(-EAGAIN, "the queue is full: %u operations are under way, or "
				    "their completions were not read", q->depth);
	memset(o, 0, offsetof(struct op, reason));
	o->reason[0] = '\0';
	o->queue = q;
	*op = o;
	return 0;
}

/* With the lock. */
static void end_one(struct kedge_queue *q)
{
	if (!--q->under_way && q->closed)
		pthread_cond_broadcast(&q->told);
}

void queue_untake(struct op *o)
{
	struct kedge_queue *q = o->queue;

	pthread_mutex_lock(&q->lock);
	o->next = q->free;
	q->free = o;
	end_one(q);
	pthread_mutex_unlock(&q->lock);
}

void op_fail(struct op *o, int rc)
{
	o->status = rc;
	snprintf(o->reason, sizeof(o->reason), "%s", kedge_strerror(rc));
}

static uint64_t bytes_of(const struct op *o)
{
	uint64_t sum = 0;
	size_t i;

	if (o->status)
		return 0;
	if (o->what.op > KEDGE_REMOTE_GET)
		return sizeof(uint64_t);
	for (i = 0; i < o->cnt; i++)
		sum += o->part[i].len;
	return sum;
}

void queue_complete(struct op *o, int rc)
{
	struct kedge_queue *q = o->queue;

	if (rc && !o->status)
		op_fail(o, rc);
	o->bytes = bytes_of(o);
	o->next = NULL;
	pthread_mutex_lock(&q->lock);
	if (q->done)
		q->done_last->next = o;
	else
		q->done = o;
	q->done_last = o;
	if (q->has_bell)
		bell_ring(&q->bell);
	pthread_cond_signal(&q->told);
	end_one(q);
	pthread_mutex_unlock(&q->lock);
}

/* ---- for programs ---- */

int queue_check(const struct kedge_queue *q)
{
	if (!q)
		return kedge_reason(-EINVAL, "the queue is NULL");
	if (q->pid != process_pid())
		return kedge_reason(-ECHILD, "the queue was opened by the process that this one "
				    "was forked from: open one here");
	return 0;
}

static void init(struct kedge_queue *q)
{
	uint32_t i;

	clock_cond_init(&q->told);
	pthread_mutex_init(&q->lock, NULL);
	bell_init(&q->bell);
	q->pid = process_pid();
	for (i = q->depth; i-- > 0;) {
		q->ops[i].next = q->free;
		q->free = &q->ops[i];
	}
}

KEDGE_API int kedge_queue_open(const struct kedge_queue_opts *user, struct kedge_queue **out)
{
	struct kedge_queue_opts o;
	struct kedge_queue *q;
	int rc = kedge__opts_copy(&o, sizeof(o), OPTS_V1, user);

	if (rc)
		return rc;
	if (!out)
		return kedge_reason(-EINVAL, "the queue's pointer is NULL");
	if (o.depth > KEDGE_QUEUE_DEPTH_MAX)
		return kedge_reason(-E2BIG, "a queue of %u operations: %u at most", o.depth,
				    KEDGE_QUEUE_DEPTH_MAX);
	if (!o.depth)
		o.depth = KEDGE_QUEUE_DEPTH;
	q = calloc(1, sizeof(*q) + o.depth * sizeof(q->ops[0]));
	if (!q)
		return kedge_reason(-ENOMEM, "no memory for a queue of %u operations", o.depth);
	q->depth = o.depth;
	init(q);
	*out = q;
	return 0;
}

/* The thread that ends the last operation has let the lock go before this one has it. */
KEDGE_API void kedge_queue_close(struct kedge_queue *q)
{
	NO_CANCEL();
	if (!q)
		return;
	/* In a child another thread of the parent's may have had the lock. */
	if (q->pid == process_pid()) {
		pthread_mutex_lock(&q->lock);
		q->closed = true;
		while (q->under_way)
			pthread_cond_wait(&q->told, &q->lock);
		pthread_mutex_unlock(&q->lock);
		bell_close(&q->bell);
		pthread_cond_destroy(&q->told);
		pthread_mutex_destroy(&q->lock);
	}
	free(q);
}

/* With the lock. */
static int get_bell(struct kedge_queue *q)
{
	int rc = q->has_bell ? 0 : bell_open(&q->bell);

	if (rc)
		return rc;
	q->has_bell = true;
	if (!bell_works(&q->bell))
		return kedge_reason(-EBADF, "the program has closed the queue's descriptor");
	if (q->done)
		bell_ring(&q->bell);
	return q->bell.in.fd;
}

KEDGE_API int kedge_queue_fd(struct kedge_queue *q)
{
	int rc = queue_check(q);

	NO_CANCEL();
	if (rc)
		return rc;
	pthread_mutex_lock(&q->lock);
	rc = get_bell(q);
	pthread_mutex_unlock(&q->lock);
	return rc;
}

/* With the lock: there is one, or its time is over. */
static void wait_for_one(struct kedge_queue *q, int timeout_ms)
{
	uint64_t until;
	int rc = 0;

	if (q->done || !timeout_ms)
		return;
	until = clock_deadline(timeout_ms);
	while (!q->done && !rc)
		rc = clock_cond_wait(&q->told, &q->lock, until);
}

static void fill(const struct op *o, struct kedge_remote_completion *c)
{
	c->size = sizeof(*c);
	c->status = o->status;
	c->user = o->what.user;
	c->old = o->status ? 0 : o->old;
	c->len = o->bytes;
	c->op = o->what.op;
	c->reserved = 0;
	c->reason[0] = '\0';
	if (o->status)
		memcpy(c->reason, o->reason, sizeof(c->reason));
}

/* That of a program of this version is filled in its place. */
static void copy_out(const struct op *o, void *to, uint32_t size)
{
	struct kedge_remote_completion c;

	if (size == sizeof(c)) {
		fill(o, to);
		return;
	}
	memset(&c, 0, sizeof(c));
	fill(o, &c);
	memcpy(to, &size, sizeof(size));
	kedge__info_copy(to, COMPLETION_V1, &c, sizeof(c));
}

/* With the lock. */
static void read_one(struct kedge_queue *q, void *to, uint32_t size)
{
	struct op *o = q->done;

	copy_out(o, to, size);
	q->done = o->next;
	o->next = q->free;
	q->free = o;
}

KEDGE_API int kedge_queue_read(struct kedge_queue *q, struct kedge_remote_completion *out,
			       size_t cnt, int timeout_ms)
{
	int n = 0, rc = queue_check(q);

	NO_CANCEL();
	if (!rc && (!out || cnt > INT_MAX))
		rc = kedge_reason(-EINVAL, "no memory for completions, or too many");
	if (!rc && out->size < COMPLETION_V1)
		rc = kedge_reason(-EINVAL, "completions of %u bytes: set .size to sizeof",
				  out->size);
	if (rc || !cnt)
		return rc;
	pthread_mutex_lock(&q->lock);
	wait_for_one(q, timeout_ms);
	for (; q->done && n < (int)cnt; n++)
		read_one(q, (char *)out + (size_t)n * out->size, out->size);
	if (!q->done)
		bell_quiet(&q->bell);
	pthread_mutex_unlock(&q->lock);
	return n;
}

KEDGE_API const char *kedge_remote_strerror(const struct kedge_remote_completion *c)
{
	if (!c)
		return kedge_strerror(-EINVAL);
	if (c->status && c->reason[0])
		kedge_reason(c->status, "%.*s", (int)sizeof(c->reason), c->reason);
	return kedge_strerror(c->status);
}
