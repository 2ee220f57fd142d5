// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge torture: tries to make a registration stale, in every known way, and
 * judges by data that the device moves.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/torture/case.h"

static const char help[] =
	"Changes what is mapped behind registered memory by every EVENT and "
	"ROUTE, and looks\n"
	"after each whether the device still moves the application's data. "
	"Modes: single (one\n"
	"thread), storm (others look the range up meanwhile), crowd (every "
	"thread makes\n"
	"events of its own), race (a choreography of its own). Globs are "
	"fnmatch(3)'s.\n\n"
	"A row is 'unpromised' where the notifier's level or blind spots say "
	"that it promises\n"
	"nothing there; its stale rounds are shown but do not make the test "
	"fail.\n\n"
	"Exit status:\n"
	"  0  nothing was stale\n"
	"  1  something was stale, or a case failed\n"
	"  2  the command line is wrong\n"
	"  3  it cannot run here\n";

/* The command line, as popt fills it in. */
struct options {
	double seconds;
	int threads;
	char *notifier, *seed, *event, *route, *mode;
	char *device;
	int naive, strict;
};

static void options_free(struct options *o)
{
	free(o->notifier);
	free(o->seed);
	free(o->event);
	free(o->route);
	free(o->mode);
	free(o->device);
}

static int options_read(struct options *o, int argc, char **argv)
{
	struct poptOption opts[] = {
		{ "seconds", 's', POPT_ARG_DOUBLE, &o->seconds, 0,
		  "How long, in seconds (default 30)", "N" },
		{ "notifier", 'n', POPT_ARG_STRING, &o->notifier, 0,
		  "The notifier: auto (default), ummunot, uffd, hooks or none",
		  "NAME" },
		{ "seed", 'S', POPT_ARG_STRING, &o->seed, 0,
		  "Draw the same numbers as a run before", "N" },
		{ "threads", 't', POPT_ARG_INT, &o->threads, 0,
		  "Threads of the storm, crowd and race modes, 2 to 8 "
		  "(default 4)",
		  "N" },
		{ "event", 'e', POPT_ARG_STRING, &o->event, 0,
		  "Only these events", "GLOB" },
		{ "route", 'r', POPT_ARG_STRING, &o->route, 0,
		  "Only by these routes", "GLOB" },
		{ "mode", 'm', POPT_ARG_STRING, &o->mode, 0,
		  "Only in these modes", "GLOB" },
		{ "device", 'D', POPT_ARG_STRING, &o->device, 0,
		  "What moves the data: io_uring (default), or a peer by RDMA",
		  "uring|verbs[:NAME]" },
		{ "naive", 0, POPT_ARG_NONE, &o->naive, 0,
		  "Test a cache that follows nothing, to see that the test "
		  "sees",
		  NULL },
		{ "strict", 0, POPT_ARG_NONE, &o->strict, 0,
		  "Take everything for promised", NULL },
		POPT_TABLEEND
	};
	const struct util_cmd cmd = { .synopsis = "[OPTION...]",
				      .help = help,
				      .opts = opts };
	struct util_args args;
	int rc = util_options(&cmd, argc, argv, &args);

	if (rc == UTIL_GO_ON)
		util_args_fini(&args);
	return rc;
}

static int device_check(const char *text, struct torture *t)
{
	static const struct dio_ops *const dio[] = { &dio_uring, &dio_verbs };
	static const char *const names[] = { "uring", "verbs", NULL };
	int i = text ? util_parse_device(text, names, &t->dio_name) : 0;

	if (i < 0)
		return util_usage("--device: '%s' is neither uring nor "
				  "verbs[:NAME]", text);
	t->dio = dio[i];
	return UTIL_GO_ON;
}

static int options_check(const struct options *o, struct torture *t)
{
	if (!(o->seconds > 0 && o->seconds <= 1e6))
		return util_usage("--seconds takes a number above 0");
	if (o->threads < 2 || o->threads > MAX_LANES)
		return util_usage("--threads takes 2 to %d", MAX_LANES);
	if (o->naive && o->notifier)
		return util_usage("--naive takes no notifier");
	t->seed = util_rng_seed() >> 1;
	if (o->seed && util_parse_u64(o->seed, &t->seed))
		return util_usage("--seed takes a number");
	if (t->seed > INT64_MAX)
		return util_usage("--seed takes a number below 2^63");
	t->seconds = o->seconds;
	t->threads = o->threads;
	t->event = o->event;
	t->route = o->route;
	t->mode = o->mode;
	t->naive = o->naive;
	t->strict = o->strict;
	return device_check(o->device, t);
}

static int run(struct torture *t, const char *notifier)
{
	int rc, status = CMD_CANNOT;

	/* First: a child with nothing of ours but what it is sent. */
	rc = peer_start(&t->peer);
	if (rc)
		return util_fail(rc, "cannot start another process");
	rc = rig_open(&t->rig, t->dio, t->dio_name, notifier, t->naive);
	if (rc) {
		util_fail(rc, "cannot open the notifier, device and cache");
		goto stop_peer;
	}
	rc = lanes_init(t);
	if (rc) {
		util_fail(rc, "cannot start the threads");
		goto close_rig;
	}
	rc = plan_make(t);
	if (!rc && !t->row_cnt) {
		status = util_usage("no case has that event, route and mode");
		goto free_plan;
	}
	if (!rc)
		rc = sched_run(t);
	if (rc)
		util_fail(rc, "cannot run");
	else
		status = report(t);
free_plan:
	plan_free(t);
	lanes_fini(t);
close_rig:
	rig_close(&t->rig);
stop_peer:
	peer_stop(&t->peer);
	return status;
}

int cmd_torture(int argc, char **argv)
{
	struct options o = { .seconds = 30, .threads = 4 };
	struct torture *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return util_fail(-ENOMEM, "cannot start");
	rc = options_read(&o, argc, argv);
	if (rc == UTIL_GO_ON)
		rc = options_check(&o, t);
	if (rc != UTIL_GO_ON)
		goto free_options;
	/* Where malloc turns to mmap shall not move with what is freed. */
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 128 << 10);
	rc = run(t, o.notifier);
free_options:
	options_free(&o);
	free(t);
	return rc;
}
