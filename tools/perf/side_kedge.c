// SPDX-License-Identifier: BSD-2-Clause
/* kedge's side: messages over a channel. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

#define TAG	    1u
#define COMPLETIONS 16

struct kedge_side {
	struct kedge_channel *ch;
};

void perf_kedge_opts(const struct perf_pair_cfg *cfg,
		     struct kedge_channel_opts *opts)
{
	*opts = (struct kedge_channel_opts){
		.size = sizeof(*opts),
		.way = cfg->way,
		.heap_bytes = cfg->heap_bytes,
	};
	/* Auto goes eagerly as far as it does by itself; of what is forced,
	 * eager as far as it can, and the others not at all. */
	if (cfg->way == KEDGE_WAY_EAGER) {
		opts->way = KEDGE_WAY_AUTO;
		opts->eager_max = PERF_EAGER_MAX;
	} else if (cfg->way != KEDGE_WAY_AUTO) {
		opts->eager_max = 1;
	}
}

static void describe(struct kedge_channel *ch, struct perf_facts *facts)
{
	struct kedge_channel_info info = { .size = sizeof(info) };

	snprintf(facts->version, sizeof(facts->version), "%s", kedge_version());
	if (kedge_channel_info(ch, &info))
		return;
	snprintf(facts->transport, sizeof(facts->transport), "%s",
		 info.transport);
	snprintf(facts->missing, sizeof(facts->missing), "%s",
		 info.why ? info.why : "");
	facts->ways = info.ways;
	facts->eager_max = info.eager_max;
}

void *perf_kedge_wrap(struct kedge_channel *ch, struct perf_facts *facts)
{
	struct kedge_side *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->ch = ch;
	describe(ch, facts);
	return s;
}

static int side_open(const struct perf_pair_cfg *cfg, unsigned int rank, int fd,
		     void **ctx, struct perf_facts *facts,
		     char why[PERF_WHY_LEN])
{
	struct kedge_channel_opts opts;
	struct kedge_channel *ch;
	int rc;

	perf_kedge_opts(cfg, &opts);
	rc = perf_open_pair(cfg->place, rank, fd, &opts, &ch);
	if (rc) {
		snprintf(why, PERF_WHY_LEN, "cannot open a channel: %s",
			 kedge_strerror(rc));
		return rc;
	}
	*ctx = perf_kedge_wrap(ch, facts);
	if (*ctx)
		return 0;
	snprintf(why, PERF_WHY_LEN, "no memory");
	kedge_channel_close(ch);
	return -ENOMEM;
}

static void side_close(void *ctx)
{
	struct kedge_side *s = ctx;

	kedge_channel_close(s->ch);
	free(s);
}

static void *side_alloc(void *ctx, size_t len)
{
	return kedge_channel_alloc(((struct kedge_side *)ctx)->ch, len);
}

static void side_free(void *ctx, void *p)
{
	kedge_channel_free(((struct kedge_side *)ctx)->ch, p);
}

static int side_send(void *ctx, const void *buf, size_t len, struct perf_op *op)
{
	return kedge_channel_send(((struct kedge_side *)ctx)->ch, buf, len, TAG,
				  (uintptr_t)op, NULL);
}

static int side_recv(void *ctx, void *buf, size_t len, struct perf_op *op)
{
	return kedge_channel_recv(((struct kedge_side *)ctx)->ch, buf, len, TAG,
				  UINT64_MAX, (uintptr_t)op, NULL);
}

static int side_progress(void *ctx)
{
	struct kedge_completion out[COMPLETIONS];
	struct perf_op *op;
	ssize_t n, i;

	n = kedge_channel_poll(((struct kedge_side *)ctx)->ch, out,
			       COMPLETIONS);
	for (i = 0; i < n; i++) {
		op = (struct perf_op *)(uintptr_t)out[i].user;
		op->len = out[i].len;
		op->status = out[i].status;
		op->done = true;
	}
	return (int)n;
}

static void side_counts(void *ctx, struct perf_counts *counts)
{
	struct kedge_channel_stats st = { .size = sizeof(st) };

	if (kedge_channel_stats(((struct kedge_side *)ctx)->ch, &st))
		return;
	memcpy(counts->ways, st.ways, sizeof(counts->ways));
	counts->cts_ns = st.cts_ns;
	counts->cts_cnt = st.cts_cnt;
}

static int side_cost(void *ctx, uint32_t way, uint64_t len, uint32_t flags,
		     uint64_t *ns)
{
	return kedge_channel_cost(((struct kedge_side *)ctx)->ch, way, len,
				  flags, ns);
}

const struct perf_side perf_kedge = {
	.name = "kedge",
	.segments = true,
	PERF_SIDE_CALLS,
	.counts = side_counts,
	.cost = side_cost,
};
