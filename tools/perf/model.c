// SPDX-License-Identifier: BSD-2-Clause
/*
 * The expectations of kedge_channel_cost(): its curves, and the sizes from which one
 * way is no dearer than another. rank 0 of a pair answers, since the model is
 * of a process that has a channel.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/perf/perf.h"

/* Break-evens are looked for between these, a power of two at a time, and then
 * as close as a page. */
#define EVEN_MIN   1024u
#define EVEN_MAX   (256ull << 20)
#define EVEN_CLOSE 4096u
#define EVENS_MAX  64u

static const uint32_t rivals[][2] = {
	{ KEDGE_WAY_COPY, KEDGE_WAY_SWAP },
	{ KEDGE_WAY_COPY, KEDGE_WAY_REGISTER },
	{ KEDGE_WAY_REGISTER, KEDGE_WAY_SWAP },
	{ KEDGE_WAY_COPY, KEDGE_WAY_DIRECT },
};

/* 0 in *@ns for a way that does not work there. */
static int ask(struct perf_result *res, uint32_t way, uint64_t bytes,
	       uint32_t fresh, uint64_t *ns)
{
	const struct perf_req req = {
		.kind = PERF_COST,
		.way = way,
		.bytes = bytes,
		.flags = fresh ? KEDGE_COST_FRESH : 0,
	};
	struct perf_rep rep;
	int rc;

	*ns = 0;
	rc = perf_pair_ask(&res->pair[0], &req, &rep);
	if (rc == -EOPNOTSUPP)
		return 0;
	if (rc)
		return util_fail(rc, "cannot ask the model");
	*ns = (uint64_t)rep.ns;
	return 0;
}

static int curves(struct perf_result *res)
{
	const struct perf_opts *opt = res->opt;
	struct perf_point *p;
	uint32_t way, fresh;
	size_t i;
	int rc;

	res->points = calloc(opt->size_cnt * KEDGE_WAY_COUNT * 2,
			     sizeof(*res->points));
	if (!res->points)
		return util_fail(-ENOMEM, "cannot keep the curves");
	for (fresh = 0; fresh < 2; fresh++) {
		for (way = 0; way < KEDGE_WAY_COUNT; way++) {
			for (i = 0; i < opt->size_cnt; i++) {
				p = &res->points[res->point_cnt++];
				p->way = way;
				p->fresh = fresh;
				p->bytes = opt->sizes[i];
				rc = ask(res, way, p->bytes, fresh, &p->ns);
				if (rc)
					return rc;
			}
		}
	}
	return 0;
}

/* The cheaper one of the two; one that does not work costs more. -1: neither
 * works. */
static int cheaper(struct perf_result *res, const uint32_t ways[2],
		   uint64_t bytes, uint32_t fresh, int *which)
{
	uint64_t a, b;
	int rc;

	rc = ask(res, ways[0], bytes, fresh, &a);
	if (!rc)
		rc = ask(res, ways[1], bytes, fresh, &b);
	if (rc)
		return rc;
	*which = !a && !b ? -1 : !b ? 0 : !a || b <= a;
	return 0;
}

static int close_in(struct perf_result *res, struct perf_even *e,
		    const uint32_t ways[2], uint64_t low, uint64_t high,
		    int above)
{
	uint64_t mid;
	int rc, which;

	while (high - low > (high > 2 * EVEN_CLOSE ? EVEN_CLOSE : 64)) {
		mid = low + (high - low) / 2;
		rc = cheaper(res, ways, mid, e->fresh, &which);
		if (rc)
			return rc;
		if (which == above)
			high = mid;
		else
			low = mid;
	}
	e->bytes = high;
	return 0;
}

static int break_evens(struct perf_result *res, const uint32_t ways[2],
		       uint32_t fresh)
{
	uint64_t bytes;
	int last = -1, which, rc;

	for (bytes = EVEN_MIN; bytes <= EVEN_MAX; bytes *= 2) {
		rc = cheaper(res, ways, bytes, fresh, &which);
		if (rc)
			return rc;
		if (which >= 0 && last >= 0 && which != last &&
		    res->even_cnt < EVENS_MAX) {
			struct perf_even *e = &res->evens[res->even_cnt++];

			e->below = ways[last];
			e->above = ways[which];
			e->fresh = fresh;
			rc = close_in(res, e, ways, bytes / 2, bytes, which);
			if (!rc)
				rc = ask(res, e->above, e->bytes, fresh,
					 &e->ns);
			if (rc)
				return rc;
		}
		last = which;
	}
	return 0;
}

int perf_model(struct perf_result *res)
{
	uint32_t fresh;
	size_t i;
	int rc;

	res->evens = calloc(EVENS_MAX, sizeof(*res->evens));
	if (!res->evens)
		return util_fail(-ENOMEM, "cannot keep the curves");
	rc = curves(res);
	for (fresh = 0; fresh < 2; fresh++)
		for (i = 0; i < ARRAY_SIZE(rivals) && !rc; i++)
			rc = break_evens(res, rivals[i], fresh);
	return rc;
}
