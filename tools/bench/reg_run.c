// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs kedge bench reg. Each round does every step once, so that all of them
 * meet the same noise; a ratio is that of two steps of the same round.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/bench/reg.h"

const char *const reg_step_names[REG_STEPS + 1] = {
	"register", "deregister", "uncached", "miss",	"cached",
	"hint",	    "hinted",	  "anew",     "resync", NULL,
};

/* A round's figures of a step. */
struct figure {
	double ns;
	double calls;
	double hits;
};

struct figures {
	struct samples ns;
	struct samples calls;
	struct samples hits;
	struct samples ratio;
};

/* Steps, and a resync for each distance. */
#define SLOTS (REG_STEPS + LIST_MAX)

struct reg_set {
	const struct reg_opts *opt;
	struct reg_dev *d;
	struct kedge_cache *cache;
	char *mem;
	uint64_t size;
	uint64_t count;
	uint64_t threads;
	uint64_t *handle;
	struct figure now[SLOTS];
	struct figures all[SLOTS];
};

/* ---- threads: each has its share of the buffers ---- */

struct share {
	struct reg_set *s;
	int (*each)(struct reg_set *s, uint64_t i);
	uint64_t from;
	uint64_t to;
	int rc;
	pthread_t thread;
};

static void *work(void *arg)
{
	struct share *sh = arg;
	uint64_t i;

	for (i = sh->from; i < sh->to && !sh->rc; i++)
		sh->rc = sh->each(sh->s, i);
	return NULL;
}

static int for_each(struct reg_set *s, int (*each)(struct reg_set *, uint64_t))
{
	struct share sh[REG_THREADS_MAX] = { { 0 } };
	uint64_t i, started;
	int rc = 0;

	for (i = 0; i < s->threads; i++)
		sh[i] = (struct share){ .s = s, .each = each,
					.from = s->count * i / s->threads,
					.to = s->count * (i + 1) / s->threads };
	for (started = 1; started < s->threads && !rc; started++)
		rc = -pthread_create(&sh[started].thread, NULL, work,
				     &sh[started]);
	if (rc)
		started--;
	work(&sh[0]);
	for (i = 1; i < started; i++)
		pthread_join(sh[i].thread, NULL);
	for (i = 0; i < s->threads && !rc; i++)
		rc = sh[i].rc;
	return rc;
}

/* ---- the steps ---- */

static void *buffer(const struct reg_set *s, uint64_t i)
{
	return s->mem + i * s->size;
}

static int reg_one(struct reg_set *s, uint64_t i)
{
	return s->d->reg(s->d, buffer(s, i), s->size, &s->handle[i]);
}

static int dereg_one(struct reg_set *s, uint64_t i)
{
	s->d->dereg(s->d, s->handle[i]);
	return 0;
}

static int reg_dereg_one(struct reg_set *s, uint64_t i)
{
	int rc = reg_one(s, i);

	return rc ? rc : dereg_one(s, i);
}

static int get_one(struct reg_set *s, uint64_t i)
{
	const struct kedge_mr *mr;
	int rc = kedge_cache_get(s->cache, buffer(s, i), s->size,
				 KEDGE_ACCESS_LOCAL_WRITE, &mr);

	if (!rc)
		kedge_cache_put(s->cache, mr);
	return rc;
}

/* Through a hinted area a buffer may lie in several chunks. */
static int getv_one(struct reg_set *s, uint64_t i)
{
	struct kedge_piece p[1024];
	ssize_t n = kedge_cache_getv(s->cache, buffer(s, i), s->size,
				     KEDGE_ACCESS_LOCAL_WRITE, p, 1024);

	if (n > 0)
		kedge_cache_putv(s->cache, p, (size_t)n);
	return n < 0 ? (int)n : 0;
}

static struct kedge_cache_stats stats(const struct reg_set *s)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	kedge_cache_stats(s->cache, &st);
	return st;
}

static int hint(struct reg_set *s)
{
	uint64_t len = s->size * s->count;
	ssize_t n = kedge_cache_hint(s->cache, s->mem, len,
				     KEDGE_ACCESS_LOCAL_WRITE);

	if (n < 0)
		return (int)n;
	return (uint64_t)n == len
		? 0
		: kedge_reason(-EOPNOTSUPP, "of %llu bytes %llu were kept",
			       (unsigned long long)len, (unsigned long long)n);
}

static int flush_hint(struct reg_set *s)
{
	kedge_cache_flush(s->cache);
	return hint(s);
}

static int resync(struct reg_set *s)
{
	ssize_t n = kedge_cache_resync(s->cache, NULL, 0);

	return n < 0 ? (int)n : 0;
}

/* A page in every @every gives way to another, as after free and malloc. */
static int change(struct reg_set *s, uint64_t every)
{
	size_t page = bench_page();
	uint64_t pages = s->size * s->count / page, i;

	if (every > pages)
		every = pages;
	for (i = every / 2; i < pages; i += every) {
		char *p = s->mem + i * page;

		if (mmap(p, page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			 0) == MAP_FAILED)
			return -errno;
		*p = 1;
	}
	return 0;
}

static int timed(struct reg_set *s, unsigned int slot,
		 int (*all)(struct reg_set *),
		 int (*each)(struct reg_set *, uint64_t))
{
	struct kedge_cache_stats before = stats(s), after;
	uint64_t t0 = clock_ns();
	int rc = all ? all(s) : for_each(s, each);

	s->now[slot].ns = (double)(clock_ns() - t0);
	after = stats(s);
	s->now[slot].calls = (double)(after.registrations -
				      before.registrations);
	s->now[slot].hits = (double)(after.hits - before.hits);
	return rc;
}

static int raw_steps(struct reg_set *s)
{
	int rc = timed(s, REG_REGISTER, NULL, reg_one);

	if (!rc)
		rc = timed(s, REG_DEREGISTER, NULL, dereg_one);
	if (!rc)
		rc = timed(s, REG_UNCACHED, NULL, reg_dereg_one);
	s->now[REG_REGISTER].calls = s->now[REG_UNCACHED].calls =
		(double)s->count;
	return rc;
}

static int cache_steps(struct reg_set *s)
{
	size_t i;
	int rc;

	kedge_cache_flush(s->cache);
	rc = timed(s, REG_MISS, NULL, get_one);
	if (!rc)
		rc = timed(s, REG_CACHED, NULL, get_one);
	kedge_cache_flush(s->cache);
	if (!rc)
		rc = timed(s, REG_HINT, hint, NULL);
	if (!rc)
		rc = timed(s, REG_HINTED, NULL, getv_one);
	if (!rc)
		rc = timed(s, REG_ANEW, flush_hint, NULL);
	for (i = 0; i < s->opt->every.n && !rc; i++) {
		rc = change(s, s->opt->every.v[i]);
		if (!rc)
			rc = timed(s, REG_RESYNC + (unsigned int)i, resync,
				   NULL);
	}
	return rc;
}

/* ---- rounds ---- */

/* The time of the step that this one stands in for, in this round. */
static double instead_of(const struct reg_set *s, unsigned int slot)
{
	switch (slot) {
	case REG_REGISTER:
	case REG_DEREGISTER:
		return 0;
	case REG_HINT:
	case REG_ANEW:
		return s->now[REG_REGISTER].ns;
	case REG_UNCACHED:
	case REG_MISS:
	case REG_CACHED:
	case REG_HINTED:
		return s->now[REG_REGISTER].ns + s->now[REG_DEREGISTER].ns;
	}
	return s->now[REG_ANEW].ns;
}

static unsigned int slots(const struct reg_set *s)
{
	return REG_RESYNC + (unsigned int)s->opt->every.n;
}

static int keep(struct reg_set *s)
{
	unsigned int i;
	int rc = 0;

	for (i = 0; i < slots(s) && !rc; i++) {
		double base = instead_of(s, i);

		rc = samples_add(&s->all[i].ns, s->now[i].ns);
		if (!rc)
			rc = samples_add(&s->all[i].calls,
					       s->now[i].calls);
		if (!rc)
			rc = samples_add(&s->all[i].hits,
					       s->now[i].hits);
		if (!rc)
			rc = samples_add(
				&s->all[i].ratio,
				base > 0 ? s->now[i].ns / base : 0);
	}
	return rc;
}

static int add_row(const struct reg_set *s, struct reg_result *res,
		   enum reg_device device, unsigned int slot)
{
	const struct figures *all = &s->all[slot];
	double ns = util_median(all->ns.v, all->ns.n); /* sorts them */
	struct reg_row *bigger;

	if (res->n == res->max) {
		size_t max = res->max ? 2 * res->max : 64;

		bigger = reallocarray(res->row, max, sizeof(*bigger));
		if (!bigger)
			return -ENOMEM;
		res->row = bigger;
		res->max = max;
	}
	res->row[res->n++] = (struct reg_row){
		.device = device,
		.step = slot < REG_RESYNC ? slot : REG_RESYNC,
		.size = s->size,
		.count = s->count,
		.threads = s->threads,
		.every = slot < REG_RESYNC ? 0
					   : s->opt->every.v[slot - REG_RESYNC],
		.ns = ns,
		.best_ns = all->ns.v[0],
		.calls = util_median(all->calls.v, all->calls.n),
		.hits = util_median(all->hits.v, all->hits.n),
		.ratio = util_median(all->ratio.v, all->ratio.n),
	};
	snprintf(res->row[res->n - 1].model, sizeof(res->row->model), "%s",
		 s->d->model);
	return 0;
}

static int open_cache(struct reg_set *s, struct reg_result *res,
		      struct kedge_notifier **nf)
{
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = s->opt->notifier };
	struct kedge_notifier_info info = { .size = sizeof(info) };
	int rc = kedge_notifier_open(&no, nf);

	if (rc)
		return rc;
	kedge_notifier_info(*nf, &info);
	snprintf(res->backend, sizeof(res->backend), "%s", info.backend);
	snprintf(res->level, sizeof(res->level), "%s",
		 util_level_name(info.level));
	rc = kedge_cache_open(s->d->dev, *nf, NULL, &s->cache);
	if (rc)
		kedge_notifier_close(*nf);
	return rc;
}

static int measure(struct reg_set *s, struct reg_result *res,
		   enum reg_device device)
{
	struct kedge_notifier *nf;
	unsigned int i;
	int round, rc = open_cache(s, res, &nf);

	for (round = 0; round < s->opt->rounds && !rc; round++) {
		rc = raw_steps(s);
		if (!rc)
			rc = cache_steps(s);
		if (!rc)
			rc = keep(s);
	}
	for (i = 0; i < slots(s); i++) {
		if (!rc && s->opt->steps & 1u << (i < REG_RESYNC ? i
								 : REG_RESYNC))
			rc = add_row(s, res, device, i);
		samples_fini(&s->all[i].ns);
		samples_fini(&s->all[i].calls);
		samples_fini(&s->all[i].hits);
		samples_fini(&s->all[i].ratio);
	}
	if (s->cache) {
		kedge_cache_close(s->cache);
		kedge_notifier_close(nf);
		s->cache = NULL;
	}
	return rc;
}

static int one_set(const struct reg_opts *opt, struct reg_dev *d,
		   enum reg_device device, struct reg_set *s,
		   struct reg_result *res)
{
	uint64_t len = s->size * s->count;
	int rc;

	s->opt = opt;
	s->d = d;
	s->handle = calloc(s->count, sizeof(*s->handle));
	if (!s->handle)
		return util_fail(-ENOMEM, "cannot keep the handles");
	s->mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	rc = s->mem == MAP_FAILED ? -errno : measure(s, res, device);
	if (s->mem != MAP_FAILED)
		munmap(s->mem, len);
	free(s->handle);
	if (rc)
		return util_fail(rc, "%s, %llu buffers of %llu bytes",
				 d->name, (unsigned long long)s->count,
				 (unsigned long long)s->size);
	return CMD_OK;
}

static int one_device(const struct reg_opts *opt, enum reg_device device,
		      struct reg_result *res)
{
	struct reg_dev d;
	struct reg_set *s;
	size_t i, j, k;
	int rc = reg_dev_open(device, opt->model, &d);

	if (rc)
		return rc;
	for (i = 0; i < opt->sizes.n && !rc; i++)
		for (j = 0; j < opt->counts.n && !rc; j++)
			for (k = 0; k < opt->threads.n && !rc; k++) {
				s = calloc(1, sizeof(*s));
				if (!s) {
					rc = util_fail(-ENOMEM, "no memory");
					break;
				}
				s->size = opt->sizes.v[i];
				s->count = opt->counts.v[j];
				s->threads = opt->threads.v[k];
				rc = one_set(opt, &d, device, s, res);
				free(s);
			}
	d.close(&d);
	return rc;
}

int reg_run(const struct reg_opts *opt, struct reg_result *res)
{
	unsigned int i;
	int rc = CMD_OK;

	for (i = 0; i < REG_DEVICES && !rc; i++)
		if (opt->devices & 1u << i)
			rc = one_device(opt, i, res);
	return rc;
}
