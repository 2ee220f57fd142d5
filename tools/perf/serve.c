// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge perf --listen: rank 1 of every pair, for one peer. What the peer asks
 * for is checked: it may come from anywhere.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"
#include "tools/perf/remote.h"

#define ACCEPT_MS    10000
#define HEAP_MAX     (8ull << 30)
#define MESSAGES_MAX 1000000000ull

struct server {
	const struct perf_place *at;
	struct kedge_channel *ch;
	struct perf_rank *rank[PERF_PAIRS_MAX];
	uint32_t pairs;
	bool yield;
	bool pinned;
	uint64_t wrong;
	char why[PERF_WHY_LEN];
};

static bool valid(const struct perf_req *req)
{
	return req->kind == PERF_RUN && req->phase < PERF_PHASES &&
	       req->buffers < PERF_BUFFERS &&
	       !(req->flags & ~(PERF_CHECK | PERF_USE)) && req->window &&
	       req->window <= PERF_WINDOW_MAX && req->bytes &&
	       req->bytes <= PERF_BYTES_MAX &&
	       (req->window <= 2 ||
		req->window * req->bytes <= PERF_WINDOW_BYTES) &&
	       req->warm <= MESSAGES_MAX && req->cnt &&
	       req->cnt <= MESSAGES_MAX;
}

static int take_peer(const struct perf_place *at,
		     const struct kedge_channel_opts *opts, int timeout_ms,
		     struct kedge_channel **ch)
{
	struct kedge_listener *l;
	int rc;

	rc = perf_listen(at, opts, &l);
	if (rc)
		return rc;
	if (timeout_ms < 0 && !util_flags.quiet)
		util_error("listening");
	rc = kedge_listener_accept(l, timeout_ms, ch);
	kedge_listener_close(l);
	return rc;
}

static int answer(struct server *s, int rc, const char *why)
{
	struct perf_rep rep = { .rc = rc };

	snprintf(rep.why, sizeof(rep.why), "%s", why);
	return perf_ctl_send(s->ch, &rep, sizeof(rep));
}

/* ---- pairs ---- */

static int accept_pair(struct server *s, struct perf_rank *r,
		       const struct kedge_channel_opts *opts)
{
	struct kedge_listener *l;
	struct kedge_channel *ch;
	struct perf_facts facts;
	int rc;

	rc = perf_listen(s->at, opts, &l);
	if (rc)
		return rc;
	rc = answer(s, 0, "");
	if (!rc)
		rc = kedge_listener_accept(l, ACCEPT_MS, &ch);
	kedge_listener_close(l);
	if (rc)
		return rc;
	r->ctx = perf_kedge_wrap(ch, &facts);
	if (r->ctx)
		return 0;
	kedge_channel_close(ch);
	return -ENOMEM;
}

static int open_pair(struct server *s, const struct perf_ctl *ctl)
{
	struct perf_pair_cfg cfg = { .side = &perf_kedge,
				     .way = ctl->way,
				     .heap_bytes = ctl->heap_bytes,
				     .place = s->at };
	struct kedge_channel_opts opts;
	struct perf_rank *r;
	int rc;

	if (s->pairs == PERF_PAIRS_MAX || ctl->way >= KEDGE_WAY_COUNT ||
	    ctl->heap_bytes > HEAP_MAX)
		return answer(s, -EINVAL, "no such pair");
	r = calloc(1, sizeof(*r));
	if (!r)
		return answer(s, -ENOMEM, "no memory");
	r->side = &perf_kedge;
	r->rank = 1;
	r->yield = s->yield;
	perf_kedge_opts(&cfg, &opts);
	opts.timeout_ms = CTL_STUCK_MS;
	rc = accept_pair(s, r, &opts);
	if (rc) {
		free(r);
		/* Both replies are due, or one: either is read as a failure. */
		return answer(s, rc, kedge_strerror(rc));
	}
	s->rank[s->pairs++] = r;
	return answer(s, 0, "");
}

static int run_pair(struct server *s, const struct perf_ctl *ctl)
{
	struct perf_rank *r;
	struct perf_rep rep;
	int rc;

	if (ctl->pair >= s->pairs || !valid(&ctl->req))
		return answer(s, -EINVAL, "no such batch");
	if (!s->pinned)
		proc_pin(1);
	s->pinned = true;
	r = s->rank[ctl->pair];
	perf_rank_run(r, &ctl->req, &rep);
	if (rep.wrong && !s->wrong)
		memcpy(s->why, rep.why, sizeof(s->why));
	s->wrong += rep.wrong;
	rc = perf_ctl_send(s->ch, &rep, sizeof(rep));
	if (!rc && rep.rc)
		rc = rep.rc;
	return rc;
}

/* 1: that was the end; 0: go on; or a negative errno. */
static int serve_one(struct server *s)
{
	struct perf_ctl ctl;
	int rc;

	rc = perf_ctl_recv(s->ch, &ctl, sizeof(ctl));
	if (rc)
		return rc;
	if (!perf_ctl_ours(&ctl)) {
		answer(s, -EPROTO, "this is kedge perf of another version");
		return kedge_reason(-EPROTO, "the peer is no kedge perf of "
					     "this version");
	}
	switch (ctl.what) {
	case CTL_HELLO:
		return answer(s, 0, "");
	case CTL_OPEN:
		return open_pair(s, &ctl);
	case CTL_RUN:
		return run_pair(s, &ctl);
	case CTL_BYE:
		return 1;
	default:
		return answer(s, -EINVAL, "no such request");
	}
}

static int finish(struct server *s, int rc)
{
	if (rc < 0)
		return util_fail(rc, "the measurement has ended");
	if (!s->wrong)
		return CMD_OK;
	util_error("%llu messages came out wrong; the first: %s",
		   (unsigned long long)s->wrong, s->why);
	return CMD_FINDING;
}

int perf_serve(const struct perf_place *at)
{
	struct server s = { .at = at, .yield = proc_cpus() < 2 };
	int rc;

	perf_rank_prepare();
	rc = take_peer(at, NULL, -1, &s.ch);
	if (rc)
		return util_fail(rc, "cannot listen");
	while (!(rc = serve_one(&s)))
		;
	rc = finish(&s, rc);
	while (s.pairs) {
		perf_rank_fini(s.rank[--s.pairs]);
		free(s.rank[s.pairs]);
	}
	kedge_channel_close(s.ch);
	return rc;
}
