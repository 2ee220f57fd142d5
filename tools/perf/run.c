// SPDX-License-Identifier: BSD-2-Clause
/*
 * Starts the pairs of kedge perf and measures them. For each size and kind of
 * buffers, a round is a batch of ping-pong and a batch of stream on every pair,
 * in an order that rotates; all pairs do as many messages. A round in which any
 * rank lost its CPU is set aside on all pairs alike.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/perf/perf.h"

#define TRIAL_NS     200000.0
#define PINGPONG_NS  2000000.0
#define STREAM_NS    5000000.0
#define MESSAGES_MAX 100000u
/* A warm-up is this part of a batch. */
#define WARM_PART 4
/* Medians of fewer clean rounds than that take the others in. */
#define CLEAN_MIN 5
/* Rounds for one clean round, at most, on the average. */
#define ROUNDS_A_CLEAN 3

/** struct track - what one pair gives
 * @on:    it takes part
 * @all, @clean: nanoseconds for a message, of each phase
 */
struct track {
	bool on;
	struct samples all[PERF_PHASES];
	struct samples clean[PERF_PHASES];
	struct samples cts;
	struct perf_row row;
};

struct group {
	struct perf_result *res;
	struct track track[PERF_PAIRS_MAX];
	struct perf_req req;
	uint64_t cnt[PERF_PHASES];
	uint64_t dropped;
	struct util_progress *progress;
	uint64_t done;
};

static uint32_t window_of(const struct perf_opts *opt, uint64_t bytes)
{
	uint64_t fit = bytes ? PERF_WINDOW_BYTES / bytes : PERF_WINDOW_MAX;
	uint32_t window = (uint32_t)opt->window;

	if (fit < 2)
		fit = 2;
	return fit < window ? (uint32_t)fit : window;
}

static int run_batch(struct group *g, unsigned int pair, enum perf_phase phase,
		     struct perf_rep rep[2])
{
	struct perf_result *res = g->res;
	struct perf_req req = g->req;
	struct perf_row *row = &g->track[pair].row;
	unsigned int i;
	int rc;

	req.phase = phase;
	req.cnt = g->cnt[phase];
	req.warm = req.cnt / WARM_PART + 1;
	rc = perf_pair_run(&res->pair[pair], &req, rep, g->progress, g->done);
	if (rc)
		return rc;
	for (i = 0; i < 2; i++) {
		if (rep[i].wrong && !res->wrong)
			snprintf(res->why, sizeof(res->why), "%s, %s, %s: %.*s",
				 res->pair[pair].cfg.side->name,
				 res->pair[pair].cfg.name,
				 perf_buffers_names[req.buffers],
				 PERF_WHY_LEN - 80, rep[i].why);
		row->wrong += rep[i].wrong;
		res->wrong += rep[i].wrong;
	}
	return 0;
}

/* Fewer would show how a batch begins, with memory that others had before. */
static uint64_t least(const struct group *g, enum perf_phase phase)
{
	return phase == PERF_STREAM ? 4 * g->req.window : 8;
}

/* As many messages as fill a batch on the slowest pair. */
static int set_count(struct group *g, enum perf_phase phase)
{
	const double full = phase == PERF_STREAM ? STREAM_NS : PINGPONG_NS;
	const double want[] = { TRIAL_NS, full };
	struct perf_rep rep[2];
	double slowest;
	unsigned int pair;
	size_t i;
	int rc;

	g->cnt[phase] = least(g, phase);
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		slowest = 1;
		for (pair = 0; pair < g->res->pair_cnt; pair++) {
			if (!g->track[pair].on)
				continue;
			rc = run_batch(g, pair, phase, rep);
			if (rc)
				return rc;
			if (rep[0].ns > slowest)
				slowest = rep[0].ns;
		}
		g->cnt[phase] = (uint64_t)(want[i] / slowest);
		if (g->cnt[phase] > MESSAGES_MAX)
			g->cnt[phase] = MESSAGES_MAX;
		if (g->cnt[phase] < least(g, phase))
			g->cnt[phase] = least(g, phase);
	}
	return 0;
}

/* ---- rounds ---- */

/** struct turn - one pair's part of a round */
struct turn {
	double ns[PERF_PHASES];
	double cts_us;
	bool preempted;
};

static int run_turn(struct group *g, unsigned int pair, struct turn *t)
{
	struct perf_row *row = &g->track[pair].row;
	struct perf_rep rep[2];
	uint64_t cts = 0;
	unsigned int phase, i, w;
	int rc;

	*t = (struct turn){ 0 };
	for (phase = 0; phase < PERF_PHASES; phase++) {
		rc = run_batch(g, pair, (enum perf_phase)phase, rep);
		if (rc)
			return rc;
		t->ns[phase] = rep[0].ns;
		for (i = 0; i < 2; i++) {
			t->preempted = t->preempted || rep[i].preempted;
			/* The end of a stream is the one message that rank 0 receives. */
			for (w = 0; w < ARRAY_SIZE(row->ways) &&
				    (i || phase == PERF_PINGPONG);
			     w++)
				row->ways[w] += rep[i].counts.ways[w];
			if (phase == PERF_PINGPONG) {
				t->cts_us += (double)rep[i].counts.cts_ns / 1e3;
				cts += rep[i].counts.cts_cnt;
			}
		}
		if (phase == PERF_STREAM)
			row->faults = rep[1].faults;
	}
	t->cts_us = cts ? t->cts_us / (double)cts : 0;
	return 0;
}

static int keep(struct group *g, const struct turn *turns)
{
	const unsigned int cnt = g->res->pair_cnt;
	bool clean = true;
	unsigned int i, phase;
	int rc = 0;

	for (i = 0; i < cnt; i++)
		clean = clean && !(g->track[i].on && turns[i].preempted);
	g->dropped += !clean;
	for (i = 0; i < cnt; i++) {
		struct track *t = &g->track[i];

		if (!t->on)
			continue;
		for (phase = 0; phase < PERF_PHASES && !rc; phase++) {
			rc = samples_add(&t->all[phase],
					       turns[i].ns[phase]);
			if (!rc && clean)
				rc = samples_add(&t->clean[phase],
						       turns[i].ns[phase]);
		}
		if (!rc)
			rc = samples_add(&t->cts, turns[i].cts_us);
	}
	return rc ? util_fail(rc, "cannot keep the figures") : 0;
}

static uint64_t clean_rounds(const struct group *g)
{
	unsigned int i;

	for (i = 0; i < g->res->pair_cnt; i++)
		if (g->track[i].on)
			return g->track[i].clean[0].n;
	return 0;
}

static int run_rounds(struct group *g)
{
	const uint64_t want = (uint64_t)g->res->opt->rounds;
	const unsigned int cnt = g->res->pair_cnt;
	struct turn turns[PERF_PAIRS_MAX];
	unsigned int i, pair;
	uint64_t round;
	int rc;

	rc = set_count(g, PERF_PINGPONG);
	if (!rc)
		rc = set_count(g, PERF_STREAM);
	for (round = 0; !rc && clean_rounds(g) < want &&
			round < want * ROUNDS_A_CLEAN;
	     round++) {
		for (i = 0; i < cnt && !rc; i++) {
			pair = (unsigned int)((i + round) % cnt);
			if (g->track[pair].on)
				rc = run_turn(g, pair, &turns[pair]);
		}
		if (!rc)
			rc = keep(g, turns);
	}
	return rc;
}

/* ---- rows ---- */

static int add_row(struct perf_result *res, const struct perf_row *row)
{
	size_t max = res->max ? 2 * res->max : 64;
	struct perf_row *rows;

	if (res->n == res->max) {
		rows = reallocarray(res->rows, max, sizeof(*rows));
		if (!rows)
			return -ENOMEM;
		res->rows = rows;
		res->max = max;
	}
	res->rows[res->n++] = *row;
	return 0;
}

static int finish(struct group *g)
{
	const uint64_t rounds = (uint64_t)g->res->opt->rounds;
	const bool clean = clean_rounds(g) >=
			   (rounds < CLEAN_MIN ? rounds : CLEAN_MIN);
	double ns[PERF_PHASES];
	unsigned int i, phase;
	int rc = 0;

	for (i = 0; i < g->res->pair_cnt && !rc; i++) {
		struct track *t = &g->track[i];
		struct samples *v = clean ? t->clean : t->all;

		if (!t->on)
			continue;
		for (phase = 0; phase < PERF_PHASES; phase++)
			ns[phase] = util_median(v[phase].v, v[phase].n);
		t->row.latency_us = ns[PERF_PINGPONG] / 1e3;
		t->row.gbps = ns[PERF_STREAM] > 0
				      ? (double)t->row.bytes / ns[PERF_STREAM]
				      : 0;
		t->row.cts_us = util_median(t->cts.v, t->cts.n);
		t->row.rounds = v[0].n;
		t->row.dropped = clean ? g->dropped : 0;
		rc = add_row(g->res, &t->row);
	}
	return rc ? util_fail(rc, "cannot keep the figures") : 0;
}

static bool takes_part(const struct perf_pair *pair, uint64_t bytes)
{
	return pair->cfg.side != &perf_kedge ||
	       pair->cfg.way != KEDGE_WAY_EAGER ||
	       bytes <= pair->facts.eager_max;
}

static void free_group(struct group *g)
{
	unsigned int i, phase;

	for (i = 0; i < PERF_PAIRS_MAX; i++) {
		for (phase = 0; phase < PERF_PHASES; phase++) {
			samples_fini(&g->track[i].all[phase]);
			samples_fini(&g->track[i].clean[phase]);
		}
		samples_fini(&g->track[i].cts);
	}
	free(g);
}

/* One size and kind of buffers, on all pairs. */
static int run_group(struct perf_result *res, uint64_t bytes,
		     enum perf_buffers buffers, struct util_progress *progress,
		     uint64_t done)
{
	const struct perf_opts *opt = res->opt;
	struct group *g = calloc(1, sizeof(*g));
	unsigned int i, cnt = 0;
	int rc = 0;

	if (!g)
		return util_fail(-ENOMEM, "cannot keep the figures");
	g->res = res;
	g->progress = progress;
	g->done = done;
	g->req = (struct perf_req){
		.kind = PERF_RUN,
		.buffers = buffers,
		.flags = (opt->check ? PERF_CHECK : 0) |
			 (opt->use ? PERF_USE : 0),
		.window = window_of(opt, bytes),
		.bytes = bytes,
		.seed = opt->seed,
	};
	for (i = 0; i < res->pair_cnt; i++) {
		g->track[i].on = takes_part(&res->pair[i], bytes);
		g->track[i].row = (struct perf_row){ .pair = i,
						     .bytes = bytes,
						     .buffers = buffers,
						     .window = g->req.window };
		cnt += g->track[i].on;
	}
	if (cnt)
		rc = run_rounds(g);
	if (cnt && !rc)
		rc = finish(g);
	free_group(g);
	return rc;
}

int perf_measure(struct perf_result *res)
{
	const struct perf_opts *opt = res->opt;
	struct util_progress progress;
	unsigned int buffers;
	uint64_t done = 0;
	int rc = 0;
	size_t i;

	util_progress_start(&progress, "sizes",
			    opt->size_cnt * (uint64_t)__builtin_popcount(
						    opt->buffers),
			    false);
	for (buffers = 0; buffers < PERF_BUFFERS; buffers++) {
		if (!(opt->buffers & (1u << buffers)))
			continue;
		for (i = 0; i < opt->size_cnt && !rc; i++)
			rc = run_group(res, opt->sizes[i],
				       (enum perf_buffers)buffers, &progress,
				       done++);
	}
	util_progress_stop(&progress);
	return rc;
}
