// SPDX-License-Identifier: BSD-2-Clause
/*
 * Plans the rows of kedge bench cache, lets the sides take turns, takes
 * medians.
 *
 * For each layout and number of entries, one child a side fills its cache.
 * Rows that are to be compared with one another (one thread and two) are
 * measured in one group: a round is a batch of every row on every side, so
 * whatever disturbs the machine meets them all. A pair of batches in which a
 * thread was preempted is set aside on both sides alike.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <kedge/kedge.h>

#include "tools/bench/cache.h"

#define BATCH_NS  1500000.0
#define TRIAL_NS  200000.0
#define TRIAL_OPS 16
/* Medians of fewer clean pairs than that take the others in. */
#define CLEAN_MIN 8
/* Rounds for one clean pair, at most, on the average. */
#define ROUNDS_A_PAIR 4
#define AREA_ALIGN    (2ull << 20)

struct run {
	const struct cache_opts *opt;
	struct cache_result *res;
	struct proc proc[2];
	unsigned int sides;
	struct util_progress progress;
	uint64_t done;
};

/* The samples of a row's batches: clean ones apart. */
struct row_samples {
	struct samples all[2];
	struct samples clean[2];
	uint64_t dropped;
};

/* ---- one batch ---- */

static const char *side_name(const struct run *r, unsigned int side)
{
	return side ? r->opt->peer->name : side_kedge.name;
}

/* 0, or an exit status with a message printed. */
static int receive(struct run *r, unsigned int side, struct cache_rep *rep)
{
	int rc;

	rc = proc_wait(r->proc[side].fd, rep, sizeof(*rep), &r->progress,
			r->done);
	if (rc == -EPIPE) {
		util_error("%s: the process that measures it has died",
			   side_name(r, side));
		return CMD_CANNOT;
	}
	if (rc)
		return util_fail(rc, "%s", side_name(r, side));
	if (!rep->rc)
		return 0;
	util_error("%s: %s", side_name(r, side), rep->why);
	return CMD_CANNOT;
}

static int run_batch(struct run *r, unsigned int side,
		     const struct cache_row *row, struct cache_rep *rep)
{
	const struct cache_req req = {
		.kind = row->kind,
		.threads = (uint32_t)row->threads,
		.own = row->own && row->threads > 1,
		.ops = row->ops,
	};
	int rc;

	rc = proc_send(r->proc[side].fd, &req, sizeof(req));
	if (rc && rc != -EPIPE)
		return util_fail(rc, "%s", side_name(r, side));
	return receive(r, side, rep);
}

/* ---- rows ---- */

static uint64_t max_ops(enum bench_kind kind)
{
	/* With its warm-up a batch fits into the scratch area. */
	switch (kind) {
	case KIND_HIT:
		return 200000;
	case KIND_MISS:
		return (MISS_SLOTS - 2) * 3 / 4;
	case KIND_HINT:
		return (HINT_SLOTS - 2) * 3 / 4;
	default:
		return 2000;
	}
}

/* As many operations as fill a batch on the slower side. */
static int set_ops(struct run *r, struct cache_row *row)
{
	const double want[] = { TRIAL_NS, BATCH_NS };
	struct cache_rep rep;
	unsigned int side;
	double slowest;
	size_t i;
	int rc;

	row->ops = TRIAL_OPS;
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		slowest = 1;
		for (side = 0; side < r->sides; side++) {
			rc = run_batch(r, side, row, &rep);
			if (rc)
				return rc;
			if (rep.ns > slowest)
				slowest = rep.ns;
		}
		row->ops = (uint64_t)(want[i] / slowest);
		if (row->ops > max_ops(row->kind))
			row->ops = max_ops(row->kind);
		if (row->ops < TRIAL_OPS)
			row->ops = TRIAL_OPS;
	}
	return 0;
}

static int add_pair(struct row_samples *s, const struct cache_rep *rep,
		    unsigned int sides)
{
	bool clean = true;
	unsigned int i;
	int rc = 0;

	for (i = 0; i < sides; i++)
		clean = clean && !rep[i].preempted;
	if (!clean)
		s->dropped++;
	for (i = 0; i < sides && !rc; i++) {
		rc = samples_add(&s->all[i], rep[i].ns);
		if (!rc && clean)
			rc = samples_add(&s->clean[i], rep[i].ns);
	}
	return rc ? util_fail(rc, "cannot keep the figures") : 0;
}

/* A batch of the row on every side; who goes first takes turns. */
static int measure_pair(struct run *r, struct cache_row *row,
			struct row_samples *s, uint64_t round)
{
	struct cache_rep rep[2];
	unsigned int i, side;
	int rc;

	for (i = 0; i < r->sides; i++) {
		side = r->sides == 2 ? (unsigned int)(i ^ (round & 1)) : i;
		rc = run_batch(r, side, row, &rep[side]);
		if (rc)
			return rc;
		/* The mean, as it goes. */
		row->regs[side] += (rep[side].regs - row->regs[side]) /
				   (double)(round + 1);
	}
	return add_pair(s, rep, r->sides);
}

static void finish_row(struct cache_row *row, struct row_samples *s,
		       unsigned int sides)
{
	bool clean = s->clean[0].n >= CLEAN_MIN;
	struct samples *v = clean ? s->clean : s->all;
	unsigned int i;

	for (i = 0; i < sides; i++) {
		row->ns[i] = util_median(v[i].v, v[i].n);
		/* Sorted now. */
		row->best_ns[i] = v[i].v[0];
	}
	row->pairs = v[0].n;
	row->dropped = clean ? s->dropped : 0;
}

static bool enough(const struct run *r, const struct row_samples *s, size_t n,
		   uint64_t round, uint64_t start)
{
	uint64_t want = (uint64_t)r->opt->batches;
	size_t i;

	if ((double)(clock_ns() - start) < r->opt->seconds * 1e9 * (double)n)
		return false;
	if (round >= want * ROUNDS_A_PAIR)
		return true;
	for (i = 0; i < n; i++)
		if (s[i].clean[0].n < want)
			return false;
	return true;
}

static int run_rounds(struct run *r, struct cache_row *rows, size_t n,
		      struct row_samples *s)
{
	uint64_t start = clock_ns(), round;
	size_t i;
	int rc;

	for (i = 0; i < n; i++) {
		rc = set_ops(r, &rows[i]);
		if (rc)
			return rc;
	}
	for (round = 0; !enough(r, s, n, round, start); round++) {
		for (i = 0; i < n; i++) {
			rc = measure_pair(r, &rows[i], &s[i], round);
			if (rc)
				return rc;
		}
	}
	for (i = 0; i < n; i++) {
		finish_row(&rows[i], &s[i], r->sides);
		rows[i].single_ns = rows[0].ns[0];
	}
	for (i = 0; i < n && rows[n - 1].kind == KIND_CALL; i++)
		rows[i].call_ns = rows[n - 1].ns[0];
	return 0;
}

/* Measure @n rows in turns; the first is one thread's. */
static int run_group(struct run *r, struct cache_row *rows, size_t n)
{
	struct row_samples *s = calloc(n, sizeof(*s));
	size_t i;
	int rc;

	if (!s)
		return util_fail(-ENOMEM, "cannot keep the figures");
	rc = run_rounds(r, rows, n, s);
	for (i = 0; i < n; i++) {
		samples_fini(&s[i].all[0]);
		samples_fini(&s[i].all[1]);
		samples_fini(&s[i].clean[0]);
		samples_fini(&s[i].clean[1]);
	}
	free(s);
	r->done += n;
	return rc;
}

static struct cache_row *add_row(struct cache_result *res)
{
	size_t max = res->max ? 2 * res->max : 32;
	struct cache_row *rows;

	if (res->n == res->max) {
		rows = reallocarray(res->rows, max, sizeof(*rows));
		if (!rows)
			return NULL;
		res->rows = rows;
		res->max = max;
	}
	res->rows[res->n] = (struct cache_row){ .threads = 1, .own = true };
	return &res->rows[res->n++];
}

/* ---- one size and layout ---- */

/** struct config - what one pair of children serves
 * @own_only: only the rows of threads on entries of their own, which need an
 *            entry a thread
 */
struct config {
	uint64_t offset;
	uint64_t entries;
	uint64_t threads;
	bool own_only;
};

static int plan_hits(const struct run *r, const struct config *c)
{
	const struct number_list *threads = &r->opt->threads;
	struct cache_row *row;
	bool hidden = true;
	uint64_t t;
	size_t i;
	int own;

	for (i = 0; i < threads->n; i++)
		hidden = hidden && threads->v[i] != 1;
	row = add_row(r->res);
	if (!row)
		return -ENOMEM;
	row->hidden = hidden || c->own_only;
	for (i = 0; i < threads->n; i++) {
		t = threads->v[i];
		for (own = 1; own >= 0; own--) {
			if (t == 1 || (own && t > c->entries) ||
			    (c->own_only && (!own || t != c->entries)))
				continue;
			row = add_row(r->res);
			if (!row)
				return -ENOMEM;
			row->threads = t;
			row->own = own;
		}
	}
	if (r->opt->kinds & (1u << KIND_CALL) && !c->own_only) {
		row = add_row(r->res);
		if (!row)
			return -ENOMEM;
		row->kind = KIND_CALL;
	}
	return 0;
}

/* The rows of a kind are a group, at the end of the result. */
static int run_kind(struct run *r, const struct config *c, enum bench_kind kind)
{
	struct cache_result *res = r->res;
	size_t first = res->n, i;
	int rc = 0;

	if (kind == KIND_HIT)
		rc = plan_hits(r, c);
	else if (!add_row(res))
		rc = -ENOMEM;
	if (rc)
		return util_fail(rc, "cannot plan the rows");
	for (i = first; i < res->n; i++) {
		/* KIND_HIT is 0: a row of calls is among the hits. */
		if (res->rows[i].kind != KIND_CALL)
			res->rows[i].kind = kind;
		res->rows[i].offset = c->offset;
		res->rows[i].entries = c->entries;
	}
	return run_group(r, &res->rows[first], res->n - first);
}

static int run_kinds(struct run *r, const struct config *c)
{
	struct cache_rep rep;
	unsigned int side;
	int rc = 0, kind;

	for (side = 0; side < r->sides && !rc; side++) {
		rc = receive(r, side, &rep);
		r->res->info[side] = rep.info;
	}
	/* Hits first: misses leave an entry behind. */
	for (kind = 0; kind < KIND_CNT && !rc; kind++)
		if (r->opt->kinds & (1u << kind) && kind != KIND_CALL &&
		    !(c->own_only && kind != KIND_HIT))
			rc = run_kind(r, c, (enum bench_kind)kind);
	return rc;
}

/* Address space that both children map their entries into. */
static int reserve(struct cache_cfg *cfg, void **mem, size_t *len)
{
	cfg->area_len = cfg->entries * ENTRY_STRIDE + SCRATCH_LEN;
	*len = cfg->area_len + AREA_ALIGN;
	*mem = mmap(NULL, *len, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (*mem == MAP_FAILED)
		return -errno;
	cfg->area =
		(char *)*mem + (-(uintptr_t)*mem & (uintptr_t)(AREA_ALIGN - 1));
	return 0;
}

static int run_config(struct run *r, const struct config *c)
{
	struct cache_cfg cfg[2];
	unsigned int started = 0;
	size_t len;
	void *mem;
	int rc;

	cfg[0] = (struct cache_cfg){ .entries = c->entries,
				     .offset = c->offset,
				     .threads = c->threads,
				     .seed = 1,
				     .single = r->opt->single,
				     .ask = r->opt->ask,
				     .notifier = r->opt->notifier,
				     .side = &side_kedge };
	if (reserve(&cfg[0], &mem, &len)) {
		util_error("cannot reserve %zu GiB of address space: raise "
			   "RLIMIT_AS (ulimit -v)",
			   (len >> 30) + 1);
		return CMD_CANNOT;
	}
	cfg[1] = cfg[0];
	cfg[1].side = r->opt->peer;

	for (; started < r->sides; started++) {
		rc = proc_start(&r->proc[started], cache_child,
				      &cfg[started]);
		if (rc) {
			rc = util_fail(rc, "cannot start a process");
			goto stop;
		}
	}
	rc = run_kinds(r, c);
stop:
	while (started)
		proc_stop(&r->proc[--started]);
	munmap(mem, len);
	return rc;
}

/* Sizes with fewer entries than threads: those get the entries they need. */
static int run_own(struct run *r, struct config c)
{
	const struct number_list *threads = &r->opt->threads;
	const uint64_t entries = c.entries;
	size_t i;
	int rc;

	if (!(r->opt->kinds & (1u << KIND_HIT)))
		return 0;
	c.own_only = true;
	for (i = 0; i < threads->n; i++) {
		if (threads->v[i] <= entries)
			continue;
		c.entries = threads->v[i];
		rc = run_config(r, &c);
		if (rc)
			return rc;
	}
	return 0;
}

static int run_all(struct run *r)
{
	const struct cache_opts *opt = r->opt;
	struct config c = { .threads = 1 };
	int layout, rc;
	size_t i;

	for (i = 0; i < opt->threads.n; i++)
		if (opt->threads.v[i] > c.threads)
			c.threads = opt->threads.v[i];
	for (layout = 0; layout < 2; layout++) {
		if (!(opt->layouts & (1u << layout)))
			continue;
		c.offset = layout ? OFFSET_LAYOUT : 0;
		for (i = 0; i < opt->entries.n; i++) {
			c.entries = opt->entries.v[i];
			rc = run_config(r, &c);
			if (!rc)
				rc = run_own(r, c);
			if (rc)
				return rc;
		}
	}
	return 0;
}

static uint64_t planned_rows(const struct cache_opts *opt)
{
	uint64_t kinds = (uint64_t)__builtin_popcount(opt->kinds);
	uint64_t hits = opt->kinds & (1u << KIND_HIT) ? 2 * opt->threads.n : 0;

	return (uint64_t)__builtin_popcount(opt->layouts) * opt->entries.n *
	       (kinds + hits);
}

int cache_run(const struct cache_opts *opt, struct cache_result *res)
{
	struct run r = { .opt = opt, .res = res, .sides = opt->peer ? 2 : 1 };
	int rc;

	res->peer = opt->peer ? opt->peer->name : NULL;
	util_progress_start(&r.progress, "rows", planned_rows(opt), false);
	rc = run_all(&r);
	util_progress_stop(&r.progress);
	return rc;
}
