// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pairs whose rank 1 is another process, on this host or another one, which was
 * started with --listen. Requests and replies go over a channel of their own,
 * on which that process sleeps between batches:
 *
 *   HELLO              both are the same program
 *   OPEN  pair, way    it listens again, at the same place, for that pair's
 *                      channel: reply. We connect; it accepts: reply
 *   RUN   pair, batch  both do it: reply
 *   BYE
 *
 * They are structs of this program in this machine's byte order: the first word
 * tells a program that has others.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"
#include "tools/perf/remote.h"

#define CONNECT_MS 10000

struct perf_remote {
	const struct perf_place *at;
	struct kedge_channel *ch;
	uint32_t pairs;
	bool pinned;
};

/* ---- messages ---- */

static int wait_done(struct kedge_channel *ch, struct kedge_completion *c)
{
	ssize_t n;
	int rc;

	for (;;) {
		n = kedge_channel_poll(ch, c, 1);
		if (n < 0)
			return (int)n;
		if (n)
			return c->status;
		rc = kedge_channel_wait(ch, -1);
		if (rc < 0 && rc != -EINTR)
			return rc;
	}
}

int perf_ctl_send(struct kedge_channel *ch, const void *msg, size_t len)
{
	struct kedge_completion c;
	int rc;

	rc = kedge_channel_send(ch, msg, len, CTL_TAG, 0, NULL);
	if (rc)
		return rc < 0 ? rc : 0;
	return wait_done(ch, &c);
}

int perf_ctl_recv(struct kedge_channel *ch, void *msg, size_t len)
{
	struct kedge_completion c;
	int rc;

	rc = kedge_channel_recv(ch, msg, len, CTL_TAG, UINT64_MAX, 0, NULL);
	if (!rc)
		rc = wait_done(ch, &c);
	if (!rc && c.len != len)
		rc = -EPROTO;
	return rc;
}

static void perf_ctl_init(struct perf_ctl *ctl, uint32_t what)
{
	*ctl = (struct perf_ctl){ .magic = CTL_MAGIC, .what = what };
	snprintf(ctl->version, sizeof(ctl->version), "%s", kedge_version());
}

bool perf_ctl_ours(const struct perf_ctl *ctl)
{
	return ctl->magic == CTL_MAGIC &&
	       !strncmp(ctl->version, kedge_version(), sizeof(ctl->version));
}

/* ---- the end that connects ---- */

static int gone(const struct perf_remote *r, int rc)
{
	return util_fail(rc, "%s", r->at->node ? r->at->node : "the other end");
}

static int reply(struct perf_remote *r, struct perf_rep *rep)
{
	int rc = perf_ctl_recv(r->ch, rep, sizeof(*rep));

	if (rc)
		return gone(r, rc);
	rep->why[sizeof(rep->why) - 1] = '\0';
	if (!rep->rc)
		return 0;
	util_error("the other end: %s", rep->why);
	return CMD_CANNOT;
}

static int request(struct perf_remote *r, const struct perf_ctl *ctl,
		   struct perf_rep *rep)
{
	int rc = perf_ctl_send(r->ch, ctl, sizeof(*ctl));

	return rc ? gone(r, rc) : reply(r, rep);
}

int perf_remote_open(const struct perf_place *at, struct perf_remote **remote)
{
	struct perf_remote *r = calloc(1, sizeof(*r));
	struct perf_ctl ctl;
	struct perf_rep rep;
	int rc;

	if (!r)
		return util_fail(-ENOMEM, "cannot connect");
	r->at = at;
	rc = perf_connect(at, NULL, CONNECT_MS, &r->ch);
	if (rc) {
		rc = util_fail(rc, "cannot connect");
		goto free_remote;
	}
	perf_ctl_init(&ctl, CTL_HELLO);
	rc = request(r, &ctl, &rep);
	if (rc)
		goto close_channel;
	perf_rank_prepare();
	*remote = r;
	return 0;

close_channel:
	kedge_channel_close(r->ch);
free_remote:
	free(r);
	return rc;
}

void perf_remote_close(struct perf_remote *r)
{
	struct perf_ctl ctl;

	if (!r)
		return;
	perf_ctl_init(&ctl, CTL_BYE);
	/* That it is gone already is no concern of ours any more. */
	perf_ctl_send(r->ch, &ctl, sizeof(ctl));
	kedge_channel_close(r->ch);
	free(r);
}

static int open_pair(struct perf_remote *r, struct perf_pair *pair)
{
	struct kedge_channel_opts opts;
	struct kedge_channel *ch;
	int rc;

	perf_kedge_opts(&pair->cfg, &opts);
	opts.timeout_ms = CTL_STUCK_MS;
	rc = perf_connect(r->at, &opts, CONNECT_MS, &ch);
	if (rc)
		return util_fail(rc, "cannot connect");
	pair->local->ctx = perf_kedge_wrap(ch, &pair->facts);
	if (pair->local->ctx)
		return 0;
	kedge_channel_close(ch);
	return util_fail(-ENOMEM, "cannot connect");
}

int perf_remote_start(struct perf_remote *r, struct perf_pair *pair)
{
	struct perf_ctl ctl;
	struct perf_rep rep;
	int rc;

	pair->local = calloc(1, sizeof(*pair->local));
	if (!pair->local)
		return util_fail(-ENOMEM, "cannot connect");
	pair->remote = r;
	pair->index = r->pairs++;
	pair->local->side = pair->cfg.side;
	pair->local->yield = proc_cpus() < 2;
	perf_ctl_init(&ctl, CTL_OPEN);
	ctl.way = pair->cfg.way;
	ctl.heap_bytes = pair->cfg.heap_bytes;
	rc = request(r, &ctl, &rep);
	if (!rc)
		rc = open_pair(r, pair);
	return rc ? rc : reply(r, &rep);
}

int perf_remote_run(struct perf_pair *pair, const struct perf_req *req,
		    struct perf_rep rep[2], struct util_progress *progress,
		    uint64_t done)
{
	struct perf_remote *r = pair->remote;
	struct perf_ctl ctl;
	int rc;

	/* After all pairs are open, so that no thread inherits it. */
	if (!r->pinned)
		proc_pin(0);
	r->pinned = true;
	perf_ctl_init(&ctl, CTL_RUN);
	ctl.pair = pair->index;
	ctl.req = *req;
	rc = perf_ctl_send(r->ch, &ctl, sizeof(ctl));
	if (rc)
		return gone(r, rc);
	perf_rank_run(pair->local, req, &rep[0]);
	util_progress_at(progress, done);
	/* If the other end knows why, that is the better reason. */
	rc = reply(r, &rep[1]);
	if (!rc && rep[0].rc) {
		util_error("%s: %s", pair->cfg.name, rep[0].why);
		rc = CMD_CANNOT;
	}
	return rc;
}

void perf_remote_stop(struct perf_pair *pair)
{
	if (!pair->local)
		return;
	perf_rank_fini(pair->local);
	free(pair->local);
	pair->local = NULL;
}
