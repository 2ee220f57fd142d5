/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection to an owner that does accesses, which one thread has at a time. */
#ifndef REGION_TURN_H
#define REGION_TURN_H

#include <pthread.h>
#include <stdatomic.h>

#include "region/peer/state.h"
#include "region/stream.h"

#define GRACE_MS 5000
#define SLICE_MS 250
#define TURN_MS	 100 /* a thread waits for others as long, if its own time is shorter */

/*
 * @busy:    a thread has the connection, and what is below but @has; guarded by @lock, and @turn
 *           tells of a change
 * @claimed: a pipeline is next; guarded likewise, and so is @given, how often a thread has had it
 * @waiting: threads that want it; stored with @lock
 * @owed:    answers to questions how much there is, which did not come in time
 */
struct remote_stream {
	pthread_mutex_t lock;
	pthread_cond_t turn;
	bool busy;
	bool claimed;
	uint64_t given;
	_Atomic unsigned int waiting;
	unsigned int owed;
	uint64_t seq;
	_Atomic uint64_t has; /* what the owner has said last */
};

void turn_init(struct remote_stream *s);
void turn_fini(struct remote_stream *s);

/* 0, or -ETIMEDOUT with its reason. */
int turn_take(struct remote_stream *s, uint64_t until);
void turn_end(struct remote_stream *s);

/*
 * For a thread that has the connection as long as it has operations (pipeline.c). A thread that has
 * a turn again and again would keep it from that, and the reverse: so it claims the next turn, and
 * once it has ended its own, another one that waits is before it. False: not up to @until.
 */
bool turn_claim(struct remote_stream *s, uint64_t until);
void turn_pass(struct remote_stream *s, uint64_t until);

static inline uint64_t stream_had(const struct link *l)
{
	return atomic_load_explicit(&l->stream->has, memory_order_relaxed);
}

/* No access by @l works any more, as @rc says: that, or another negative errno, with its reason. */
int stream_give_up(struct link *l, int rc);
/* The owner answers @said to @q, all of an access: the same, with its reason; @gap: of -ENODATA. */
int stream_said(const struct link *l, const struct stream_req *q, int said,
		const struct gap *gap);

#endif /* REGION_TURN_H */
