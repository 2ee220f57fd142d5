// SPDX-License-Identifier: BSD-2-Clause
/* The pairs, and the abilities that they must have. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

#define MEMORY_PER_SHARE 2 /* of what is free, no more than half */
/* The heap of kedge_channel_alloc() by default, and the part that copying takes of it. */
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

static struct perf_pair *add_pair(struct perf_result *res,
				  const struct perf_side *side,
				  const char *name)
{
	struct perf_pair *pair = &res->pair[res->pair_cnt++];

	pair->cfg.side = side;
	pair->cfg.place = &res->opt->place;
	snprintf(pair->cfg.name, sizeof(pair->cfg.name), "%s", name);
	return pair;
}

/* "posix:posix,cma" is two pairs. */
static int add_peer(struct perf_result *res, const struct perf_peer *peer)
{
	const char *text = peer->variants;
	char name[sizeof(res->pair[0].cfg.name)];
	struct perf_pair *pair;
	size_t len;

	for (; text; text = text[len] ? text + len + 1 : NULL) {
		len = strcspn(text, ":");
		if (res->pair_cnt == PERF_PAIRS_MAX)
			return util_usage("--peer: more than %u ways and "
					  "peers", PERF_PAIRS_MAX);
		snprintf(name, sizeof(name), "%.*s", (int)len, text);
		pair = add_pair(res, peer->side, name);
		pair->cfg.prefix = res->opt->prefix;
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

static int add_pairs(struct perf_result *res)
{
	const struct perf_opts *opt = res->opt;
	uint32_t way;

	for (way = 0; way < KEDGE_WAY_COUNT; way++) {
		struct perf_pair *pair;

		if (!(opt->ways & (1u << way)))
			continue;
		pair = add_pair(res, &perf_kedge, kedge_way_name(way));
		pair->cfg.way = way;
		if (opt->buffers & (1u << PERF_HEAP))
			pair->cfg.heap_bytes =
				HEAP_BYTES + 2 * buffer_bytes(opt);
	}
	return add_peers(res);
}

/* The ranks of all pairs have their buffers at a time. */
static int check_memory(const struct perf_result *res)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t have = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
	uint64_t want = buffer_bytes(res->opt) * 2 * res->pair_cnt;
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
static int check_way(const struct perf_pair *pair)
{
	const struct perf_facts *f = &pair->facts;

	if (pair->cfg.side != &perf_kedge || pair->cfg.way == KEDGE_WAY_AUTO ||
	    f->ways & (1u << pair->cfg.way))
		return 0;
	util_error("there is no way '%s' on this channel (%s)%s%s",
		   pair->cfg.name, f->transport, f->missing[0] ? ": " : "",
		   f->missing);
	return CMD_CANNOT;
}

static int start(struct perf_result *res)
{
	unsigned int i;
	int rc = 0;

	if (res->opt->connect)
		rc = perf_remote_open(&res->opt->place, &res->remote);
	for (i = 0; i < res->pair_cnt && !rc; i++) {
		rc = res->remote ? perf_remote_start(res->remote, &res->pair[i])
				 : perf_pair_start(&res->pair[i]);
		if (!rc)
			rc = check_way(&res->pair[i]);
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
	rc = add_pairs(res);
	if (!rc && !opt->model)
		rc = check_memory(res);
	if (!rc)
		rc = start(res);
	if (!rc)
		perf_warn_of_builds(res);
	if (!rc)
		rc = opt->model ? perf_model(res) : perf_measure(res);
	for (i = 0; i < res->pair_cnt; i++)
		perf_pair_stop(&res->pair[i], rc);
	perf_remote_close(res->remote);
	return rc;
}

void perf_result_fini(struct perf_result *res)
{
	free(res->rows);
	free(res->points);
	free(res->evens);
}
