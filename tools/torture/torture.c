// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge torture: tries to make a registration stale, in every known way, and
 * judges by data that the device moves. With --churn its threads allocate and
 * free as applications do; with --channel it tries to make a message wrong, or
 * lose it, and with --segment memory that others have attached.
 */
#include <errno.h>
#include <float.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/torture/case.h"
#include "tools/torture/channel/chan.h"
#include "tools/torture/churn_cmd.h"
#include "tools/torture/region/waves.h"
#include "tools/torture/segment/storm_cmd.h"

#define SECONDS		30
#define SECONDS_OF_ROUNDS 3600
#define THREADS		4
#define CHANNEL_SECONDS 10
#define CHURN_SECONDS	10
#define STORM_SECONDS	10
#define CHURN_TRANSFER	(64 << 10)
#define NOT_GIVEN	(-DBL_MAX) /* for a number of seconds */

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
	"With --churn each thread allocates, gets, reads 64 KiB by a fixed "
	"buffer, compares\n"
	"what the CPU sees, puts and frees, at once with the others, so that "
	"freed\n"
	"addresses go round between them. Whatever is stale counts.\n\n"
	"With --channel two processes send each other random messages, which "
	"are received\n"
	"by every way, cancelled and truncated, while they are stopped, killed "
	"and forked\n"
	"and their memory changes. Each message arrives whole or as an error, "
	"once, and\n"
	"nothing else changes.\n\n"
	"With --segment a process makes segments of memory that its threads "
	"store to, and\n"
	"unmaps, moves, empties and forks it, while others attach and load "
	"it; now and then\n"
	"one of them is killed. No store is lost, none is seen in part, and "
	"nothing that is\n"
	"called valid is old.\n\n"
	"With --region a process suspends, moves, grows and trims a region, and "
	"gives it to\n"
	"another process, which gives it back, while others read and write it by "
	"its handles;\n"
	"now and then one of them is killed. What one was told is done is there, "
	"and none is\n"
	"in a suspended region.\n\n"
	"Exit status:\n"
	"  0  nothing was stale, wrong or lost\n"
	"  1  something was, or a case failed\n"
	"  2  the command line is wrong\n"
	"  3  it cannot run here\n";

/* The command line, as popt fills it in. */
struct options {
	double seconds;
	int threads;
	char *notifier, *seed, *event, *route, *mode, *rounds;
	char *device;
	int naive, libfabric, ucx, strict, ask;
	int channel, segment, region;
	char *messages, *sizes, *transport;
	int churn, defaults, per_thread;
	char *alloc, *bytes, *gets;
};

/* popt writes where these point. */
static struct options given = { .seconds = NOT_GIVEN, .threads = THREADS };
static struct poptOption opts[] = {
	{ "seconds", 's', POPT_ARG_DOUBLE, &given.seconds, 0,
	  "How long, in seconds (default 30; with --churn, --channel and "
	  "--segment and --region 10, or as long as --gets or --messages takes)", "N" },
	{ "notifier", 'n', POPT_ARG_STRING, &given.notifier, 0,
	  "The notifier: auto (default), ummunot, uffd, hooks or none",
	  "NAME" },
	{ "rounds", 0, POPT_ARG_STRING, &given.rounds, 0,
	  "So many rounds of each row, at the least, and then end (--seconds: 3600)", "N" },
	{ "seed", 'S', POPT_ARG_STRING, &given.seed, 0,
	  "Draw the same numbers as a run before", "N" },
	{ "threads", 't', POPT_ARG_INT, &given.threads, 0,
	  "Threads of the storm, crowd and race modes, 2 to 8; with "
	  "--churn 1 to 16 (default 4)",
	  "N" },
	{ "event", 'e', POPT_ARG_STRING, &given.event, 0,
	  "Only these events", "GLOB" },
	{ "route", 'r', POPT_ARG_STRING, &given.route, 0,
	  "Only by these routes; with --churn libc (default), syscall "
	  "or raw", "GLOB" },
	{ "mode", 'm', POPT_ARG_STRING, &given.mode, 0,
	  "Only in these modes", "GLOB" },
	{ "device", 'D', POPT_ARG_STRING, &given.device, 0,
	  "What moves the data: io_uring (default), or a peer by RDMA; with "
	  "ofi it is registered by libfabric",
	  "uring|verbs[:NAME]|ofi" },
	{ "naive", 0, POPT_ARG_NONE, &given.naive, 0,
	  "Test a cache that follows nothing, to see that the test "
	  "sees",
	  NULL },
	{ "libfabric", 0, POPT_ARG_NONE, &given.libfabric, 0,
	  "Test the cache of libfabric's domains, by the monitor that "
	  "FI_MR_CACHE_MONITOR names",
	  NULL },
	{ "ucx", 0, POPT_ARG_NONE, &given.ucx, 0,
	  "Test UCX's cache, as it is or with libkedge-ucx preloaded", NULL },
	{ "strict", 0, POPT_ARG_NONE, &given.strict, 0,
	  "Take everything for promised", NULL },
	{ "ask", 0, POPT_ARG_NONE, &given.ask, 0,
	  "Have lookups ask the kernel although libkedge-hooks is "
	  "loaded (KEDGE_NOTIFIER_ASK)", NULL },
	{ "churn", 0, POPT_ARG_NONE, &given.churn, 0,
	  "Threads that allocate, transfer and free", NULL },
	{ "alloc", 0, POPT_ARG_STRING, &given.alloc, 0,
	  "What they allocate: malloc of 40 MB (default), mmap of 256 "
	  "KiB, or mixed (--churn)", "KIND" },
	{ "bytes", 0, POPT_ARG_STRING, &given.bytes, 0,
	  "So much, or for mixed at most so much (--churn)", "SIZE" },
	{ "default", 0, POPT_ARG_NONE, &given.defaults, 0,
	  "Pass NULL for the notifier and all options, and ignore "
	  "KEDGE_* variables (--churn)", NULL },
	{ "gets", 0, POPT_ARG_STRING, &given.gets, 0,
	  "So many gets (--churn)", "N" },
	{ "per-thread", 0, POPT_ARG_NONE, &given.per_thread, 0,
	  "A cache and a notifier for each thread (--churn)", NULL },
	{ "channel", 0, POPT_ARG_NONE, &given.channel, 0,
	  "Messages between processes instead of registrations", NULL },
	{ "messages", 0, POPT_ARG_STRING, &given.messages, 0,
	  "So many messages (--channel)", "N" },
	{ "sizes", 0, POPT_ARG_STRING, &given.sizes, 0,
	  "How long they are: small, mixed (default) or large "
	  "(--channel)", "MIX" },
	{ "transport", 0, POPT_ARG_STRING, &given.transport, 0,
	  "What carries them: shm (default), tcp, or a provider of "
	  "libfabric (--channel)", "NAME" },
	{ "segment", 0, POPT_ARG_NONE, &given.segment, 0,
	  "Memory that others attach instead of registrations", NULL },
	{ "region", 0, POPT_ARG_NONE, &given.region, 0,
	  "A region that others reach by its handle", NULL },
	POPT_TABLEEND
};

static int options_read(int argc, char **argv)
{
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
	static const struct dio_ops *const dio[] = { &dio_uring, &dio_verbs, &dio_ofi };
	static const char *const names[] = { "uring", "verbs", "ofi", NULL };
	int i = text ? util_parse_device(text, names, &t->dio_name) : 0;

	if (i < 0)
		return util_usage("--device: '%s' is neither uring, ofi nor "
				  "verbs[:NAME]", text);
	t->dio = dio[i];
	return UTIL_GO_ON;
}

/* Options that both kinds take. */
static int numbers_check(struct options *o, double def, uint64_t *seed)
{
	if (o->seconds == NOT_GIVEN)
		o->seconds = def;
	else if (!(o->seconds > 0 && o->seconds <= 1e6))
		return util_usage("--seconds takes a number above 0");
	*seed = util_rng_seed() >> 1;
	if (o->seed && util_parse_u64(o->seed, seed))
		return util_usage("--seed takes a number");
	if (*seed > INT64_MAX)
		return util_usage("--seed takes a number below 2^63");
	return UTIL_GO_ON;
}

static bool churn_options(const struct options *o)
{
	return o->alloc || o->bytes || o->defaults || o->gets || o->per_thread;
}

/* Caches that are not kedge's. */
static int others(const struct options *o)
{
	return !!o->naive + !!o->libfabric + !!o->ucx;
}

static int options_check(struct options *o, struct torture *t)
{
	if (o->messages || o->sizes || o->transport)
		return util_usage("--messages, --sizes and --transport belong "
				  "to --channel");
	if (churn_options(o))
		return util_usage("--alloc, --bytes, --default, --gets and "
				  "--per-thread belong to --churn");
	if (o->threads < 2 || o->threads > MAX_LANES)
		return util_usage("--threads takes 2 to %d", MAX_LANES);
	if (others(o) > 1 || (others(o) && o->notifier))
		return util_usage("--naive, --libfabric and --ucx take no notifier, "
				  "nor each other");
	if ((o->libfabric || o->ucx) && o->device)
		return util_usage("--libfabric and --ucx have a device of their own");
	if (o->rounds && (util_parse_u64(o->rounds, &t->rounds) || !t->rounds))
		return util_usage("--rounds takes a number above 0");
	t->seconds = o->seconds;
	t->threads = o->threads;
	t->event = o->event;
	t->route = o->route;
	t->mode = o->mode;
	t->naive = o->naive;
	t->which = o->naive ? RIG_NAIVE : o->libfabric ? RIG_LIBFABRIC : o->ucx ? RIG_UCX :
		   RIG_KEDGE;
	t->strict = o->strict;
	t->rig.flags = o->ask ? KEDGE_NOTIFIER_ASK : 0;
	return device_check(o->device, t);
}

static int channel_check(const struct options *o, struct chan_opts *c)
{
	if (o->notifier || o->event || o->route || o->mode || o->device || o->rounds ||
	    others(o) || o->strict || o->ask || o->churn || churn_options(o) ||
	    o->threads != THREADS)
		return util_usage("--channel takes --seconds, --messages, "
				  "--sizes, --transport and --seed only");
	if (o->messages && (util_parse_u64(o->messages, &c->messages) ||
			    !c->messages || c->messages > INT64_MAX))
		return util_usage("--messages takes a number above 0");
	c->seconds = o->seconds;
	if (o->transport)
		c->transport = o->transport;
	if (!o->sizes)
		return UTIL_GO_ON;
	for (c->mix = 0; c->mix < CHAN_MIXES; c->mix++)
		if (!strcmp(o->sizes, chan_mix_names[c->mix]))
			return UTIL_GO_ON;
	return util_usage("--sizes takes small, mixed or large");
}

static int channel_run(struct options *o)
{
	struct chan_opts c = { .mix = CHAN_MIXED, .transport = "shm" };
	int rc = numbers_check(o, o->messages ? 0 : CHANNEL_SECONDS, &c.seed);

	if (rc == UTIL_GO_ON)
		rc = channel_check(o, &c);
	return rc == UTIL_GO_ON ? chan_torture(&c) : rc;
}

/* Options that neither --segment nor --region takes. */
static bool is_of_others(const struct options *o)
{
	return o->notifier || o->event || o->route || o->mode || o->device || others(o) ||
	       o->strict || o->ask || o->churn || o->rounds || o->channel || o->messages ||
	       o->sizes || o->transport || churn_options(o) || o->threads != THREADS;
}

static int segment_run(struct options *o)
{
	struct storm_opts s = { .rounds = 0 };
	int rc = numbers_check(o, STORM_SECONDS, &s.seed);

	if (rc != UTIL_GO_ON)
		return rc;
	if (is_of_others(o) || o->region)
		return util_usage("--segment takes --seconds and --seed only");
	s.seconds = o->seconds;
	return storm_torture(&s);
}

static int region_run(struct options *o)
{
	struct waves_opts w;
	int rc = numbers_check(o, WAVES_SECONDS, &w.seed);

	if (rc != UTIL_GO_ON)
		return rc;
	if (is_of_others(o))
		return util_usage("--region takes --seconds and --seed only");
	w.seconds = o->seconds;
	return waves_torture(&w);
}

/* The place of @text in @names, or -1; 0 for NULL. */
static int choice(const char *text, const char *const *names)
{
	int i;

	for (i = 0; text && names[i] && strcmp(names[i], text); i++)
		;
	return names[i] ? i : -1;
}

static int churn_check(const struct options *o, struct churn_opts *c)
{
	int alloc = choice(o->alloc, churn_alloc_names);
	int route = choice(o->route, churn_route_names);
	uint64_t bytes = 0;

	if (o->event || o->mode || o->device || others(o) || o->strict || o->rounds ||
	    o->messages || o->sizes)
		return util_usage("--churn takes --alloc, --bytes, --default, "
				  "--gets, --notifier, --per-thread, --route, "
				  "--seconds, --seed and --threads only");
	if (o->threads < 1 || o->threads > CHURN_MAX_THREADS)
		return util_usage("--threads takes 1 to %d",
				  CHURN_MAX_THREADS);
	if (alloc < 0)
		return util_usage("--alloc takes malloc, mmap or mixed");
	if (route < 0)
		return util_usage("--route takes libc, syscall or raw");
	if (o->bytes && (util_parse_size(o->bytes, &bytes) ||
			 bytes < CHURN_TRANSFER || bytes > SIZE_MAX / 4))
		return util_usage("--bytes takes a size of 64k or more");
	if (o->gets && (util_parse_u64(o->gets, &c->gets) || !c->gets))
		return util_usage("--gets takes a number above 0");
	if (o->defaults && (o->notifier || o->ask))
		return util_usage("--default takes no notifier");
	c->threads = (unsigned int)o->threads;
	c->alloc = (enum churn_alloc)alloc;
	c->route = (enum churn_route)route;
	c->size = bytes;
	c->notifier = o->notifier;
	c->defaults = o->defaults;
	c->flags = o->ask ? KEDGE_NOTIFIER_ASK : 0;
	c->apart = o->per_thread;
	c->seconds = o->seconds;
	return UTIL_GO_ON;
}

static int churn_start(struct options *o)
{
	struct churn_opts c = { .transfer = CHURN_TRANSFER };
	int rc = numbers_check(o, o->gets ? 0 : CHURN_SECONDS, &c.seed);

	if (rc == UTIL_GO_ON)
		rc = churn_check(o, &c);
	return rc == UTIL_GO_ON ? churn_torture(&c) : rc;
}

static int run(struct torture *t, const char *notifier)
{
	int rc, status = CMD_CANNOT;

	/* First: a child with nothing of ours but what it is sent. */
	rc = peer_start(&t->peer);
	if (rc)
		return util_fail(rc, "cannot start another process");
	rc = rig_open(&t->rig, t->dio, t->dio_name, notifier, t->which);
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

static int cache_run(struct options *o)
{
	struct torture *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return util_fail(-ENOMEM, "cannot start");
	rc = numbers_check(o, o->rounds ? SECONDS_OF_ROUNDS : SECONDS, &t->seed);
	if (rc == UTIL_GO_ON)
		rc = options_check(o, t);
	if (rc != UTIL_GO_ON)
		goto free_torture;
	/* Where malloc turns to mmap shall not move with what is freed. */
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 128 << 10);
	rc = run(t, o->notifier);
free_torture:
	free(t);
	return rc;
}

int cmd_torture(int argc, char **argv)
{
	int rc = options_read(argc, argv);

	if (rc == UTIL_GO_ON && given.segment)
		rc = segment_run(&given);
	else if (rc == UTIL_GO_ON && given.region)
		rc = region_run(&given);
	else if (rc == UTIL_GO_ON && given.channel)
		rc = channel_run(&given);
	else if (rc == UTIL_GO_ON)
		rc = given.churn ? churn_start(&given) : cache_run(&given);
	util_free_texts(opts);
	return rc;
}
