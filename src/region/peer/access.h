/* SPDX-License-Identifier: BSD-2-Clause */
/* An access of a peer, and the operations that are submitted as such. */
#ifndef REGION_ACCESS_H
#define REGION_ACCESS_H

#include <stdatomic.h>

#include <kedge/completion.h>

#include "region/peer/pieces.h"
#include "region/peer/state.h"

/*
 * @l:     by which it is made
 * @begun: from when on its time counts; 0: from its first wait on
 * @tries: it does not wait
 * @stop:  it waits in short steps as long as that is false; or NULL
 * @part:  of several ranges, which end at @len, or NULL
 */
struct access {
	struct kedge_remote *r;
	struct link *l;
	uint64_t offset;
	uint64_t len;
	uint64_t begun;
	int timeout_ms;
	bool tries;
	const _Atomic bool *stop;
	const struct kedge_remote_part *part;
	size_t cnt;
};

/* It was not done: it would have to wait; or the owner is to do it, by @l's connection. */
#define ACCESS_WAITS	1
#define ACCESS_STREAMED 2

/*
 * An operation that is submitted.
 *
 * @next:   in its queue, or in its remote's line (later.h)
 * @part:   @cnt ranges, of which @one is that of an operation without parts
 * @end:    where the last of them ends
 * @bytes:  that were put or got
 * @status: how it ended; with its @reason
 * Of a connection (pipeline.c):
 * @first:  the number of its first request, or 0; @made: there are no more of them to be made
 * @at:     from where on requests are to be made, and @got from where on they are answered
 * @flying: requests without an answer
 * @sent_ms: the time that the owner was given
 */
struct op {
	struct op *next;
	struct kedge_queue *queue;
	struct kedge_remote_op what;
	struct kedge_remote_part one;
	const struct kedge_remote_part *part;
	size_t cnt;
	uint64_t end;
	uint64_t begun;
	uint64_t old;
	uint64_t bytes;
	uint64_t first;
	struct place_in at;
	struct place_in got;
	uint32_t flying;
	int sent_ms;
	bool checked;
	bool made;
	int status;
	char reason[KEDGE_REMOTE_REASON];
};

/* ---- access.c ---- */

/* 0, or a negative errno with its reason: this process may not do that. */
int access_check(const struct kedge_remote *r, uint32_t access);
/* The steps of an access that the owner does: 0 or a negative errno. */
typedef int by_owner(struct access *a, void *arg);

/*
 * 0: the access is done by the owner; or it is inside, and then *@go is true. With another owner it
 * is begun from its beginning: the former one has done all of it, or has said that it has not.
 */
int access_begin(struct access *a, by_owner *fn, void *arg, bool *go);
/* Of the whole time, what is left. */
int access_left_ms(struct access *a);
/* @q->op, a put or a get of the parts, which end at @q->offset + @q->len, by an adapter or by the
 * owner: a step as above. */
int access_served(struct access *a, const struct stream_req *q,
		  const struct kedge_remote_part *part, size_t cnt);

/* ---- parts.c ---- */

/* The parts have memory, and *@end is the end of the last; UINT64_MAX: beyond all that is. */
int access_check_parts(const struct kedge_remote_part *part, size_t cnt, uint64_t *end);

/* ---- perform.c ---- */

/* Checks it, whatever the region is: 0, or a negative errno with its reason. */
int op_check(const struct kedge_remote *r, struct op *o);
/* Do it: 0, or a negative errno with its reason, or ACCESS_*, and then @a->l is set. */
int op_perform(struct access *a, struct op *o);
struct access op_access(struct kedge_remote *r, const struct op *o);

/* ---- queue.c ---- */

/* 0, or a negative errno with its reason: this process may not use it. */
int queue_check(const struct kedge_queue *q);
/* Room for one: 0, or a negative errno with its reason. */
int queue_take(struct kedge_queue *q, struct op **op);
/* It was not begun. */
void queue_untake(struct op *o);
/* It is over with @rc, which has its reason. */
void queue_complete(struct op *o, int rc);
/* Its status is @rc from now on, with the reason that this thread has. */
void op_fail(struct op *o, int rc);

#endif /* REGION_ACCESS_H */
