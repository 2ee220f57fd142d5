// SPDX-License-Identifier: BSD-2-Clause
/*
 * The moves of a pair's two ranks in a batch, the same for every side. Rank 0
 * begins and has the clock; whatever is measured is warmed up untimed first,
 * for the other pairs have just had the CPUs and their caches.
 *
 *   ping-pong  each posts a receive; 0 sends, 1 answers with as many bytes
 *   stream     1 keeps a window of receives posted, 0 a window of sends under
 *              way; when 1 has them all it sends one byte
 *
 * Both wait by polling. Messages are numbered in each direction for as long as
 * the pair lives, so that no two have the same contents.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <kedge/kedge.h>

#include "tools/perf/rank.h"

/* Fruitless polls before a rank that shares its CPU gives it away. */
#define SPINS 32

static int wait_op(struct perf_rank *r, const struct perf_op *op)
{
	unsigned int spins = 0;
	int rc;

	while (!op->done) {
		rc = r->side->progress(r->ctx);
		if (rc < 0)
			return rc;
		if (!rc && r->yield && ++spins % SPINS == 0)
			sched_yield();
	}
	return op->status;
}

/* The message of this number, in a slot that is free. */
static int send_message(struct perf_rank *r, uint32_t slot)
{
	const struct perf_req *req = &r->req;
	uint64_t seq = r->seq[0]++;
	int rc;

	if (req->flags & PERF_CHECK)
		perf_fill(r->send[slot].p, req->bytes, req->seed + r->rank, seq);
	r->sent[slot] = (struct perf_op){ 0 };
	rc = r->side->send(r->ctx, r->send[slot].p, req->bytes, &r->sent[slot]);
	r->sent[slot].done = r->sent[slot].done || rc;
	return rc < 0 ? rc : 0;
}

static int post(struct perf_rank *r, uint32_t slot)
{
	const struct perf_req *req = &r->req;

	if (req->buffers == PERF_FRESH) {
		r->recv[slot].p = malloc(req->bytes + PERF_GUARD);
		if (!r->recv[slot].p)
			return -ENOMEM;
		if (req->flags & PERF_CHECK)
			perf_fill_guard(r->recv[slot].p, req->bytes);
	}
	r->got[slot] = (struct perf_op){ 0 };
	return r->side->recv(r->ctx, r->recv[slot].p, req->bytes, &r->got[slot]);
}

/* The first that is wrong is described; how many there are is counted. */
static void verify(struct perf_rank *r, uint32_t slot, uint64_t seq)
{
	const struct perf_req *req = &r->req;
	const uint64_t seed = req->seed + !r->rank;
	int64_t at = -1;

	if (r->got[slot].len == req->bytes)
		at = perf_verify(r->recv[slot].p, req->bytes, seed, seq);
	if (r->got[slot].len == req->bytes && at < 0)
		return;
	if (r->wrong++)
		return;
	if (r->got[slot].len != req->bytes)
		snprintf(r->why, sizeof(r->why),
			 "message %llu has %llu bytes instead of %llu",
			 (unsigned long long)seq,
			 (unsigned long long)r->got[slot].len,
			 (unsigned long long)req->bytes);
	else if ((uint64_t)at < req->bytes)
		snprintf(r->why, sizeof(r->why),
			 "message %llu of %llu bytes is wrong from byte %lld",
			 (unsigned long long)seq,
			 (unsigned long long)req->bytes, (long long)at);
	else
		snprintf(r->why, sizeof(r->why),
			 "message %llu of %llu bytes wrote behind its buffer",
			 (unsigned long long)seq,
			 (unsigned long long)req->bytes);
}

/* Wait for the message of a slot and do with it what a program would. */
static int take(struct perf_rank *r, uint32_t slot)
{
	const struct perf_req *req = &r->req;
	uint64_t seq = r->seq[1]++;
	int rc;

	rc = wait_op(r, &r->got[slot]);
	if (rc)
		return rc;
	/* relaxed: the parent only looks whether it moves */
	if (r->moved)
		atomic_store_explicit(&r->moved->cnt, r->seq[1],
				      memory_order_relaxed);
	if (req->flags & PERF_CHECK)
		verify(r, slot, seq);
	if (req->flags & PERF_USE || req->buffers == PERF_FRESH)
		r->sink += perf_use(r->recv[slot].p, req->bytes);
	if (req->buffers == PERF_FRESH) {
		free(r->recv[slot].p);
		r->recv[slot].p = NULL;
	}
	return 0;
}

static int pingpong(struct perf_rank *r, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc) {
		rc = post(r, 0);
		if (!rc && !r->rank)
			rc = send_message(r, 0);
		if (!rc)
			rc = take(r, 0);
		if (!rc && r->rank)
			rc = send_message(r, 0);
		if (!rc)
			rc = wait_op(r, &r->sent[0]);
	}
	return rc;
}

/* ---- the stream ---- */

static int stream_send(struct perf_rank *r, uint64_t cnt)
{
	const uint32_t window = r->req.window;
	uint64_t i;
	int rc;

	r->end = (struct perf_op){ 0 };
	rc = r->side->recv(r->ctx, &r->end_byte, sizeof(r->end_byte), &r->end);
	for (i = 0; i < cnt && !rc; i++) {
		rc = i < window ? 0 : wait_op(r, &r->sent[i % window]);
		if (!rc)
			rc = send_message(r, (uint32_t)(i % window));
	}
	for (i = cnt > window ? cnt - window : 0; i < cnt && !rc; i++)
		rc = wait_op(r, &r->sent[i % window]);
	return rc ? rc : wait_op(r, &r->end);
}

static int stream_open(struct perf_rank *r, uint64_t cnt)
{
	uint64_t i;
	int rc = 0;

	for (i = 0; i < r->req.window && i < cnt && !rc; i++)
		rc = post(r, (uint32_t)i);
	return rc;
}

static int stream_recv(struct perf_rank *r, uint64_t cnt)
{
	const uint32_t window = r->req.window;
	uint64_t i;
	int rc = 0;

	for (i = 0; i < cnt && !rc; i++) {
		rc = take(r, (uint32_t)(i % window));
		if (!rc && i + window < cnt)
			rc = post(r, (uint32_t)(i % window));
	}
	return rc;
}

static int stream_end(struct perf_rank *r)
{
	int rc;

	r->end = (struct perf_op){ 0 };
	rc = r->side->send(r->ctx, &r->end_byte, sizeof(r->end_byte), &r->end);
	if (rc < 0)
		return rc;
	return rc ? 0 : wait_op(r, &r->end);
}

/* ---- a batch ---- */

struct usage {
	long preempted;
	long faults;
	uint64_t ns;
};

static void look(struct usage *u)
{
	struct rusage ru;

	*u = (struct usage){ 0 };
	if (!getrusage(RUSAGE_THREAD, &ru)) {
		u->preempted = ru.ru_nivcsw;
		u->faults = ru.ru_minflt;
	}
	u->ns = clock_ns();
}

/* The warm-up, then the batch between two looks. */
static int run_batch(struct perf_rank *r, struct usage u[2])
{
	const struct perf_req *req = &r->req;
	int rc;

	if (req->phase == PERF_PINGPONG || !r->rank) {
		int (*const part)(struct perf_rank *, uint64_t) =
			req->phase == PERF_PINGPONG ? pingpong : stream_send;

		rc = part(r, req->warm);
		look(&u[0]);
		if (!rc)
			rc = part(r, req->cnt);
		look(&u[1]);
		return rc;
	}
	rc = stream_open(r, req->warm);
	if (!rc)
		rc = stream_recv(r, req->warm);
	/* Before the sender may begin. */
	if (!rc)
		rc = stream_open(r, req->cnt);
	look(&u[0]);
	if (!rc)
		rc = stream_end(r);
	if (!rc)
		rc = stream_recv(r, req->cnt);
	look(&u[1]);
	return rc ? rc : stream_end(r);
}

static void explain(struct perf_rep *rep)
{
	/* First: whatever runs in between may end the text's life. */
	const char *why = kedge_strerror(rep->rc);

	if (!rep->why[0])
		snprintf(rep->why, sizeof(rep->why), "%s", why);
}

static void subtract(struct perf_counts *a, const struct perf_counts *b)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(a->ways); i++)
		a->ways[i] -= b->ways[i];
	a->cts_ns -= b->cts_ns;
	a->cts_cnt -= b->cts_cnt;
}

static void batch(struct perf_rank *r, const struct perf_req *req,
		  struct perf_rep *rep)
{
	struct perf_counts before = { 0 };
	struct usage u[2] = { 0 };
	double cnt;

	rep->rc = perf_buffers_make(r, req);
	if (rep->rc) {
		snprintf(rep->why, sizeof(rep->why),
			 "no memory for buffers of %llu bytes",
			 (unsigned long long)req->bytes);
		return;
	}
	r->req = *req;
	r->wrong = 0;
	r->why[0] = '\0';
	if (r->side->counts)
		r->side->counts(r->ctx, &before);
	rep->rc = run_batch(r, u);
	if (rep->rc) {
		r->broken = true;
		explain(rep);
		return;
	}
	if (r->side->counts) {
		r->side->counts(r->ctx, &rep->counts);
		subtract(&rep->counts, &before);
	}
	cnt = (double)req->cnt * (req->phase == PERF_PINGPONG ? 2 : 1);
	rep->ns = (double)(u[1].ns - u[0].ns) / cnt;
	rep->faults = (double)(u[1].faults - u[0].faults) / (double)req->cnt;
	rep->preempted = u[1].preempted != u[0].preempted;
	rep->wrong = r->wrong;
	snprintf(rep->why, sizeof(rep->why), "%s", r->why);
}

static void answer(struct perf_rank *r, const struct perf_req *req,
		   struct perf_rep *rep)
{
	uint64_t ns = 0;

	rep->rc = r->side->cost ? r->side->cost(r->ctx, req->way, req->bytes,
						req->flags, &ns)
				: -EOPNOTSUPP;
	rep->ns = (double)ns;
	if (rep->rc)
		explain(rep);
}

void perf_rank_run(struct perf_rank *r, const struct perf_req *req,
		   struct perf_rep *rep)
{
	*rep = (struct perf_rep){ 0 };
	if (req->kind == PERF_COST)
		answer(r, req, rep);
	else
		batch(r, req, rep);
}
