// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs kedge bench watch. Two processes never lie alike in memory, which is
 * worth a per cent or two by itself: so the processes are started anew several
 * times, and one of them is a control that does what the first one does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/bench/watch.h"

#define GENERATIONS   5
#define BATCH_OPS     32u
#define BATCH_OPS_MIN 8u
#define BATCH_NS      8000000u
/* About what mapping and touching takes, beside the pace. */
#define OP_NS 40000u
/* Longer than a notifier's thread spins for the next event. */
#define SETTLE_NS 300000

const char *const munmap_names[CFG_CNT] = {
	[CFG_NONE] = "none",	   [CFG_CONTROL] = "control",
	[CFG_LINKED] = "linked",   [CFG_UNWATCHED] = "unwatched",
	[CFG_NEAR] = "near",	   [CFG_WATCHED] = "watched",
	[CFG_RAW] = "watched-raw", [CFG_PLAIN] = "plain",
};

const char *const cost_names[COST_CNT] = {
	"generation", "syscall", "add",	 "add-again",
	"remove-one", "event",	 "read", "remove",
};

/** struct figures - samples of a configuration at a pace, a sample a round */
struct figures {
	struct samples ns;
	struct samples best;
	struct samples insn;
};

struct watch_run {
	const struct watch_opts *opt;
	struct watch_result *res;
	struct util_progress progress;
	uint64_t done;
	bool one_cpu;
	struct proc proc[CFG_CNT];
	struct figures fig[LIST_MAX][CFG_CNT];
};

static int died(const char *who, int rc)
{
	if (rc != -EPIPE)
		return util_fail(rc, "%s", who);
	util_error("%s: the process that measures it has died", who);
	return CMD_CANNOT;
}

/* ---- munmap ---- */

static int munmap_reply(struct watch_run *r, int config, struct munmap_rep *rep)
{
	int rc;

	rc = proc_wait(r->proc[config].fd, rep, sizeof(*rep), &r->progress,
			r->done);
	if (rc)
		return died(munmap_names[config], rc);
	if (!rep->rc)
		return 0;
	util_error("munmap, %s: %s", munmap_names[config], rep->why);
	return CMD_CANNOT;
}

static int munmap_batch(struct watch_run *r, int config, size_t pace)
{
	const struct timespec settle = { .tv_nsec = SETTLE_NS };
	struct figures *f = &r->fig[pace][config];
	struct munmap_req req = {
		.count_insn = r->opt->instructions && !r->res->insn_rc,
		.pace_ns = r->opt->pace.v[pace] * 1000,
	};
	struct munmap_rep rep;
	int rc;

	req.ops = (uint32_t)(BATCH_NS / (req.pace_ns + OP_NS));
	if (req.ops > BATCH_OPS)
		req.ops = BATCH_OPS;
	if (req.ops < BATCH_OPS_MIN)
		req.ops = BATCH_OPS_MIN;
	rc = proc_send(r->proc[config].fd, &req, sizeof(req));
	if (rc)
		return died(munmap_names[config], rc);
	rc = munmap_reply(r, config, &rep);
	if (rc)
		return rc;
	nanosleep(&settle, NULL);
	rc = samples_add(&f->ns, rep.ns);
	if (!rc)
		rc = samples_add(&f->best, rep.best_ns);
	if (!rc)
		rc = samples_add(&f->insn, rep.insn);
	return rc ? util_fail(rc, "cannot keep the figures") : 0;
}

/* A batch of each configuration at each pace; the order moves on. */
static int munmap_round(struct watch_run *r, uint64_t round)
{
	size_t pace;
	int i, rc;

	for (pace = 0; pace < r->opt->pace.n; pace++) {
		for (i = 0; i < CFG_CNT; i++) {
			rc = munmap_batch(
				r, (int)((round + (uint64_t)i) % CFG_CNT),
				pace);
			if (rc)
				return rc;
		}
	}
	r->done++;
	return 0;
}

static int munmap_start(struct watch_run *r, struct munmap_cfg *cfg, int config)
{
	struct watch_result *res = r->res;
	struct munmap_rep rep;
	int rc;

	*cfg = (struct munmap_cfg){ .config = (enum munmap_config)config,
				    .one_cpu = r->one_cpu,
				    .notifier = r->opt->notifier };
	rc = proc_start(&r->proc[config], munmap_child, cfg);
	if (rc)
		return util_fail(rc, "cannot start a process");
	rc = munmap_reply(r, config, &rep);
	if (rc || !rep.backend[0])
		return rc;
	snprintf(res->backend, sizeof(res->backend), "%s", rep.backend);
	snprintf(res->level, sizeof(res->level), "%s", rep.level);
	res->hooked = rep.hooked;
	return 0;
}

static int munmap_generation(struct watch_run *r, uint64_t first, uint64_t last)
{
	struct munmap_cfg cfg[CFG_CNT];
	int i, rc = 0;

	for (i = 0; i < CFG_CNT && !rc; i++)
		rc = munmap_start(r, &cfg[i], i);
	for (; first < last && !rc; first++)
		rc = munmap_round(r, first);
	for (i = 0; i < CFG_CNT; i++)
		proc_stop(&r->proc[i]);
	return rc;
}

/* Differences and ratios of batches of the same round, then their medians. */
static int compare(const struct samples *none,
		   const struct samples *v, struct munmap_row *row)
{
	double *tmp = reallocarray(NULL, v->n, sizeof(*tmp));
	size_t i;

	if (!tmp)
		return util_fail(-ENOMEM, "cannot compare");
	for (i = 0; i < v->n; i++)
		tmp[i] = v->v[i] - none->v[i];
	row->over = util_median(tmp, v->n);
	for (i = 0; i < v->n; i++)
		tmp[i] = v->v[i] / none->v[i];
	row->ratio = util_median(tmp, v->n);
	row->lo = util_quantile(tmp, v->n, 0.25);
	row->hi = util_quantile(tmp, v->n, 0.75);
	memcpy(tmp, v->v, v->n * sizeof(*tmp));
	row->ns = util_median(tmp, v->n);
	free(tmp);
	return 0;
}

static int finish_pace(struct watch_run *r, size_t pace)
{
	struct watch_result *res = r->res;
	struct munmap_row *rows = &res->munmap[res->munmap_n];
	struct figures *f = r->fig[pace];
	int i, rc;

	for (i = 0; i < CFG_CNT; i++) {
		rows[i] = (struct munmap_row){
			.config = (enum munmap_config)i,
			.one_cpu = r->one_cpu,
			.pace_us = r->opt->pace.v[pace],
		};
		rc = compare(&f[CFG_NONE].ns, &f[i].ns, &rows[i]);
		if (rc)
			return rc;
		rows[i].best_ns = util_quantile(f[i].best.v, f[i].best.n, 0);
		rows[i].insn = util_median(f[i].insn.v, f[i].insn.n);
		if (rows[CFG_NONE].insn > 0)
			rows[i].insn_ratio = rows[i].insn / rows[CFG_NONE].insn;
	}
	for (i = 0; i < CFG_CNT; i++)
		if (rows[CFG_PLAIN].over > 0)
			rows[i].vs_plain = rows[i].over / rows[CFG_PLAIN].over;
	res->munmap_n += CFG_CNT;
	return 0;
}

static void forget(struct watch_run *r)
{
	size_t pace;
	int i;

	for (pace = 0; pace < LIST_MAX; pace++) {
		for (i = 0; i < CFG_CNT; i++) {
			samples_fini(&r->fig[pace][i].ns);
			samples_fini(&r->fig[pace][i].best);
			samples_fini(&r->fig[pace][i].insn);
		}
	}
}

static int run_munmap(struct watch_run *r, bool one_cpu)
{
	uint64_t rounds = (uint64_t)r->opt->rounds, i;
	size_t pace;
	int rc = 0;

	r->one_cpu = one_cpu;
	for (i = 0; i < GENERATIONS && !rc; i++)
		rc = munmap_generation(r, rounds * i / GENERATIONS,
				       rounds * (i + 1) / GENERATIONS);
	for (pace = 0; pace < r->opt->pace.n && !rc; pace++)
		rc = finish_pace(r, pace);
	forget(r);
	return rc;
}

/* ---- the cost of watching ---- */

static const char *cost_side(const struct cost_cfg *cfg)
{
	return cfg->plain ? "plain" : "kedge";
}

static int cost_reply(struct watch_run *r, const struct cost_cfg *cfg,
		      struct proc *proc, struct cost_rep *rep)
{
	int rc;

	rc = proc_wait(proc->fd, rep, sizeof(*rep), &r->progress, r->done);
	if (rc)
		return died(cost_side(cfg), rc);
	if (!rep->rc)
		return 0;
	util_error("%s, %llu watches: %s", cost_side(cfg),
		   (unsigned long long)cfg->watches, rep->why);
	return CMD_CANNOT;
}

static int cost_round(struct watch_run *r, const struct cost_cfg *cfg,
		      struct proc *proc, struct samples v[COST_CNT])
{
	const uint32_t go = 1;
	struct cost_rep rep;
	int rc, i;

	rc = proc_send(proc->fd, &go, sizeof(go));
	if (rc)
		return died(cost_side(cfg), rc);
	rc = cost_reply(r, cfg, proc, &rep);
	if (rc)
		return rc;
	for (i = 0; i < COST_CNT && !rc; i++)
		rc = samples_add(&v[i], rep.ns[i]);
	return rc ? util_fail(rc, "cannot keep the figures") : 0;
}

static int cost_rounds(struct watch_run *r, const struct cost_cfg *cfg,
		       struct proc *proc, size_t sides,
		       struct samples v[2][COST_CNT])
{
	struct cost_rep rep;
	size_t side;
	int round, rc = 0;

	for (side = 0; side < sides && !rc; side++)
		rc = cost_reply(r, &cfg[side], &proc[side], &rep);
	for (round = 0; round < r->opt->rounds && !rc; round++) {
		for (side = 0; side < sides && !rc; side++)
			rc = cost_round(r, &cfg[side], &proc[side], v[side]);
		r->done++;
	}
	return rc;
}

static void finish_cost(struct watch_result *res, uint64_t watches,
			struct samples v[2][COST_CNT])
{
	struct cost_row *row;
	int step, side;

	for (step = 0; step < COST_CNT; step++) {
		row = &res->cost[res->cost_n++];
		*row = (struct cost_row){ .step = (enum cost_step)step,
					  .watches = watches };
		for (side = 0; side < 2; side++) {
			struct samples *s = &v[side][step];

			row->ns[side] = util_median(s->v, s->n);
			row->best_ns[side] = util_quantile(s->v, s->n, 0);
		}
	}
}

static int run_cost(struct watch_run *r, uint64_t watches)
{
	const struct cost_cfg cfg[2] = {
		{ .watches = watches, .notifier = r->opt->notifier },
		{ .watches = watches, .plain = true },
	};
	size_t sides = watches <= COST_PLAIN_MAX ? 2 : 1, started, i;
	struct samples v[2][COST_CNT] = { 0 };
	struct proc proc[2];
	int rc = 0;

	for (started = 0; started < sides; started++) {
		rc = proc_start(&proc[started], cost_child,
				      (void *)&cfg[started]);
		if (rc) {
			rc = util_fail(rc, "cannot start a process");
			break;
		}
	}
	if (!rc)
		rc = cost_rounds(r, cfg, proc, sides, v);
	if (!rc)
		finish_cost(r->res, watches, v);
	while (started)
		proc_stop(&proc[--started]);
	for (i = 0; i < COST_CNT; i++) {
		samples_fini(&v[0][i]);
		samples_fini(&v[1][i]);
	}
	return rc;
}

static void try_insn(struct watch_result *res)
{
	int fd = bench_insn_open();

	res->insn_rc = fd < 0 ? fd : 0;
	if (fd >= 0)
		close(fd);
}

int watch_run(const struct watch_opts *opt, struct watch_result *res)
{
	struct watch_run *r = calloc(1, sizeof(*r));
	uint64_t groups =
		opt->watches.n + (uint64_t)__builtin_popcount(opt->cpus);
	int rc = 0;
	size_t i;

	if (!r)
		return util_fail(-ENOMEM, "cannot start");
	r->opt = opt;
	r->res = res;
	try_insn(res);
	util_progress_start(&r->progress, "rounds",
			    groups * (uint64_t)opt->rounds, false);
	for (i = 0; i < 2 && !rc; i++)
		if (opt->cpus & (1u << i))
			rc = run_munmap(r, i == 1);
	for (i = 0; i < opt->watches.n && !rc; i++)
		rc = run_cost(r, opt->watches.v[i]);
	util_progress_stop(&r->progress);
	free(r);
	return rc;
}
