// SPDX-License-Identifier: BSD-2-Clause
/* Which lanes there are, and what they must be able to do. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

#define MEMORY_PER_SHARE 2 /* of what is free, no more than half */
/* What kedge_channel_alloc() has by default, and what copying takes of it. */
#define HEAP_BYTES (128ull << 20)

static uint64_t largest(const struct perf_opts *opt)
{
	uint64_t max = 0;
	size_t i;

	for (i = 0; i < opt->size_cnt; i++)
		if (opt->sizes[i] > max)
			max = opt->sizes[i];
	return max;
}

/* Bytes of a rank's buffers: a window for one direction, one for the other. */
static uint64_t buffer_bytes(const struct perf_opts *opt)
{
	uint64_t max = largest(opt);

	return (max > PERF_WINDOW_BYTES / 2 ? 2 * max : PERF_WINDOW_BYTES) +
	       max;
}

static struct perf_lane *add_lane(struct perf_result *res,
				  const struct perf_side *side,
				  const char *name)
{
	struct perf_lane *l = &res->lane[res->lane_cnt++];

	l->cfg.side = side;
	l->cfg.place = &res->opt->place;
	snprintf(l->cfg.name, sizeof(l->cfg.name), "%s", name);
	return l;
}

/* "posix:posix,cma" is two lanes. */
static int add_peer(struct perf_result *res, const struct perf_peer *peer)
{
	const char *text = peer->variants;
	char name[sizeof(res->lane[0].cfg.name)];
	struct perf_lane *l;
	size_t len;

	for (; text; text = text[len] ? text + len + 1 : NULL) {
		len = strcspn(text, ":");
		if (res->lane_cnt == PERF_LANES_MAX)
			return util_usage("--peer: more than %u ways and "
					  "peers", PERF_LANES_MAX);
		snprintf(name, sizeof(name), "%.*s", (int)len, text);
		l = add_lane(res, peer->side, name);
		l->cfg.prefix = res->opt->prefix;
	}
	return 0;
}

static int add_peers(struct perf_result *res)
{
	const struct perf_opts *opt = res->opt;
	unsigned int i;
	int rc = 0;

	for (i = 0; i < opt->peer_cnt && !opt->model && !rc; i++)
		rc = add_peer(res, &opt->peer[i]);
	return rc;
}

static int add_lanes(struct perf_result *res)
{
	const struct perf_opts *opt = res->opt;
	uint32_t way;

	for (way = 0; way < KEDGE_WAY_COUNT; way++) {
		struct perf_lane *l;

		if (!(opt->ways & (1u << way)))
			continue;
		l = add_lane(res, &perf_kedge, kedge_way_name(way));
		l->cfg.way = way;
		if (opt->buffers & (1u << PERF_HEAP))
			l->cfg.heap_bytes = HEAP_BYTES + 2 * buffer_bytes(opt);
	}
	return add_peers(res);
}

/* The ranks of all lanes have their buffers at a time. */
static int check_memory(const struct perf_result *res)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t have = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
	uint64_t want = buffer_bytes(res->opt) * 2 * res->lane_cnt;
	char a[UTIL_HUMAN], b[UTIL_HUMAN];

	if (want <= have / MEMORY_PER_SHARE)
		return 0;
	util_error("messages of that size take %s of buffers, and of %s free "
		   "memory no more than half is taken: lower --sizes, or "
		   "measure fewer ways",
		   util_human_bytes(a, want), util_human_bytes(b, have));
	return CMD_CANNOT;
}

/* A way that the command line names must work. */
static int check_way(const struct perf_lane *l)
{
	const struct perf_facts *f = &l->facts;

	if (l->cfg.side != &perf_kedge || l->cfg.way == KEDGE_WAY_AUTO ||
	    f->ways & (1u << l->cfg.way))
		return 0;
	util_error("there is no way '%s' on this channel (%s)%s%s", l->cfg.name,
		   f->transport, f->missing[0] ? ": " : "", f->missing);
	return CMD_CANNOT;
}

static int start(struct perf_result *res)
{
	unsigned int i;
	int rc = 0;

	if (res->opt->connect)
		rc = perf_remote_open(&res->opt->place, &res->remote);
	for (i = 0; i < res->lane_cnt && !rc; i++) {
		rc = res->remote ? perf_remote_start(res->remote, &res->lane[i])
				 : perf_lane_start(&res->lane[i]);
		if (!rc)
			rc = check_way(&res->lane[i]);
	}
	return rc;
}

int perf_run(const struct perf_opts *opt, struct perf_result *res)
{
	unsigned int i;
	int rc;

	res->opt = opt;
	/* Before anything is bound to one of them. */
	res->cpus = proc_cpus();
	rc = add_lanes(res);
	if (!rc && !opt->model)
		rc = check_memory(res);
	if (!rc)
		rc = start(res);
	if (!rc)
		perf_warn_of_builds(res);
	if (!rc)
		rc = opt->model ? perf_model(res) : perf_measure(res);
	for (i = 0; i < res->lane_cnt; i++)
		perf_lane_stop(&res->lane[i], rc);
	perf_remote_close(res->remote);
	return rc;
}

void perf_result_fini(struct perf_result *res)
{
	free(res->rows);
	free(res->points);
	free(res->evens);
}
