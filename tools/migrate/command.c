// SPDX-License-Identifier: BSD-2-Clause
/* The command as a whole: moves there and back, or kills, and the report. */
#include <errno.h>
#include <stdlib.h>

#include "tools/migrate/run.h"

static int moves(struct run *r)
{
	const unsigned int cnt = 2 * r->opts->rounds;
	int rc;

	r->moves = calloc(cnt, sizeof(*r->moves));
	if (!r->moves) {
		util_fail(-ENOMEM, "cannot keep the figures");
		return -ENOMEM;
	}
	rc = run_begin(r);
	while (!rc && r->moves_cnt < cnt) {
		bar_begin(&r->bar, r->moves_cnt + 1, cnt, "move");
		rc = move_there(r, &r->moves[r->moves_cnt]);
		r->moves_cnt += !rc;
	}
	bar_wipe(&r->bar);
	run_end(r);
	return rc;
}

static int make_spaces(struct run *r)
{
	unsigned int i;

	for (i = 0; i < SPACES; i++) {
		r->spaces.fd[i] = -1;
		r->spaces.node[i] = r->opts->way == WAY_TCP ? "127.0.0.1" : r->opts->node;
	}
	return r->opts->namespaces ? spaces_make(&r->spaces) : 0;
}

static int go(struct run *r)
{
	int rc;

	r->load = load_new(r->opts->len, r->opts->peers + r->opts->own, r->opts->seed);
	if (!r->load)
		return util_fail(-ENOMEM, "cannot share memory");
	r->start.load = r->load;
	rc = r->opts->victim == VICTIM_NONE ? moves(r) : kill_all(r);
	if (rc < 0)
		return CMD_CANNOT;
	rc = report_print(r);
	return rc || report_is_right(r) ? rc : CMD_FINDING;
}

int migrate_run(const struct migrate_opts *opts)
{
	struct run *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return util_fail(-ENOMEM, "cannot begin");
	r->opts = r->start.opts = opts;
	util_rng_init(&r->rng, opts->seed);
	signals_catch();
	rc = make_spaces(r);
	if (!rc)
		rc = go(r);
	spaces_end(&r->spaces);
	load_free(r->load);
	free(r->moves);
	free(r);
	/* A shell that waits for the command knows by that to end as well. */
	signals_raise();
	return rc;
}
