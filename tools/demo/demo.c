// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge demo. A round copies the file once in each mode, one after the other
 * and in another order every time, so that whatever else the machine does
 * falls on all of them alike. Each mode starts a round from nothing: fresh
 * buffers, an empty table, a new cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/common/sys.h"
#include "tools/demo/demo.h"
#include "tools/demo/mpi/mpi.h"

#define DFLT_BUFFERS 16u
#define DFLT_DEPTH   4u
#define DFLT_ROUNDS  15u
#define MAX_ROUNDS   100000u
#define DFLT_TIMEOUT 600

static const char help_text[] =
	"Copies FILE into memory three times a round, through registered "
	"buffers, as a\nprogram does that keeps a few buffers and now and then "
	"frees one and allocates\nanother:\n"
	"  uncached  registers a buffer for each transfer and deregisters it\n"
	"  naive     caches registrations by pointer and length, as cut-corner\n"
	"            caches do\n"
	"  kedge     caches them with kedge_cache_get() and kedge_cache_put()\n"
	"and compares the copies with FILE. FILE is the largest file up to "
	"256 MiB under\n/usr/lib where none is named. GB/s is the median of "
	"the rounds.\n\n"
	"What moves the data is the DEVICE:\n"
	"  uring     the kernel, with io_uring's fixed buffers\n"
	"  verbs[:NAME]  another process, which writes into the buffers and "
	"reads them\n            through an RDMA device, by address and rkey; "
	"FILE is up to 16 MiB\n"
	"  ofi       as uring, with registrations of libfabric's, over the stand-in for an\n"
	"            adapter (LD_PRELOAD=libkedge-standin-rdma.so)\n\n"
	"With --mpi it shows what is sent wrong by MPI instead: two ranks over libfabric\n"
	"and UCX, as shipped and with kedge, while the sender's buffer changes its pages\n"
	"between messages. That takes an RDMA device, and Open MPI or MPICH with its\n"
	"compiler; without, the libraries' own caches are shown over a stand-in for a\n"
	"device, in a few seconds. What was shown, and why no more, it says.\n\n"
	"Exit status: 0 if the kedge mode's copy is right, or no message was wrong with\n"
	"kedge; 1 if not, 2 for a wrong command line, 3 if the demo cannot run here, or not\n"
	"to the end.\n";

/* The option's word may be missing, and then popt says NULL. */
static char no_mpi[] = "";

/* The command line, as popt and then we understand it. */
struct demo_args {
	char *churn_text;
	char *seed_text;
	char *size_text;
	char *notifier;
	char *device_text;
	const struct demo_device_ops *device;
	const char *device_name; /* in device_text, or NULL */
	int buffers;
	int depth;
	int rounds;
	char *mpi_text; /* no_mpi without --mpi, NULL for one without a word */
	int timeout;
	uint64_t size;
	uint64_t seed;
	struct demo_app app;
};

static void args_fini(struct demo_args *a, struct util_args *files)
{
	free(a->churn_text);
	free(a->seed_text);
	free(a->size_text);
	free(a->notifier);
	free(a->device_text);
	if (a->mpi_text != no_mpi)
		free(a->mpi_text);
	util_args_fini(files);
}

static int parse_churn(const char *text, double *out)
{
	char *end;
	double v;

	if (!text)
		return UTIL_GO_ON;
	v = strtod(text, &end);
	if (end == text || (*end && strcmp(end, "%")) || !(v >= 0 && v <= 100))
		return util_usage("--churn: '%s' is no percentage from 0 to "
				  "100", text);
	*out = v / 100;
	return UTIL_GO_ON;
}

static int parse_device(struct demo_args *a)
{
	static const struct demo_device_ops *const device[] = {
		&demo_device_uring, &demo_device_verbs, &demo_device_ofi,
	};
	static const char *const names[] = { "uring", "verbs", "ofi", NULL };
	int i = 0;

	if (a->device_text)
		i = util_parse_device(a->device_text, names, &a->device_name);
	if (i < 0)
		return util_usage("--device: '%s' is neither uring, ofi nor "
				  "verbs[:NAME]", a->device_text);
	a->device = device[i];
	return UTIL_GO_ON;
}

static int check_numbers(struct demo_args *a)
{
	if (a->buffers < 2 || a->buffers > DEMO_MAX_BUFFERS)
		return util_usage("--buffers: %d is not from 2 to %d",
				  a->buffers, DEMO_MAX_BUFFERS);
	if (a->depth < 1 || a->depth > DEMO_MAX_DEPTH ||
	    a->depth >= a->buffers)
		return util_usage("--depth: %d is not from 1 to %d and below "
				  "--buffers (%d)",
				  a->depth, DEMO_MAX_DEPTH, a->buffers);
	if (a->rounds < 1 || a->rounds > (int)MAX_ROUNDS)
		return util_usage("--rounds: %d is not from 1 to %u",
				  a->rounds, MAX_ROUNDS);
	a->app.buffers = (uint32_t)a->buffers;
	a->app.depth = (uint32_t)a->depth;
	return UTIL_GO_ON;
}

static int check_mpi(const struct demo_args *a, const struct util_args *files)
{
	static const char *const words[] = { "openmpi", "mpich", "standin" };
	size_t i;

	if (a->timeout < 1)
		return util_usage("--timeout: %d is no number of seconds", a->timeout);
	if (a->mpi_text == no_mpi || !a->mpi_text)
		i = 0;
	else
		for (i = 0; i < ARRAY_SIZE(words) && strcmp(a->mpi_text, words[i]); i++)
			;
	if (i == ARRAY_SIZE(words))
		return util_usage("--mpi: '%s' is neither openmpi, mpich nor standin", a->mpi_text);
	if (a->mpi_text != no_mpi && (files->cnt || a->device_text))
		return util_usage("--mpi takes no FILE, and finds its device itself");
	if (a->mpi_text != no_mpi && (a->churn_text || a->seed_text || a->size_text ||
				      a->notifier || a->buffers != DFLT_BUFFERS ||
				      a->depth != DFLT_DEPTH || a->rounds != DFLT_ROUNDS))
		return util_usage("--mpi takes --timeout, --json and --quiet only; "
				  "KEDGE_NOTIFIER names the notifier");
	return UTIL_GO_ON;
}

static int parse(struct demo_args *a, int argc, char **argv,
		 struct util_args *files)
{
	struct poptOption opts[] = {
		{ "churn", 'c', POPT_ARG_STRING, &a->churn_text, 0,
		  "Free a buffer before this part of the chunks (2)", "PCT" },
		{ "seed", 's', POPT_ARG_STRING, &a->seed_text, 0,
		  "Which chunks those are (1)", "N" },
		{ "size", 0, POPT_ARG_STRING, &a->size_text, 0,
		  "Copy no more of FILE; a file up to this size is taken "
		  "where none is named (256M; verbs: 16M)", "BYTES" },
		{ "buffers", 'b', POPT_ARG_INT, &a->buffers, 0,
		  "Buffers in the working set (16)", "N" },
		{ "depth", 'd', POPT_ARG_INT, &a->depth, 0,
		  "Chunks under way (4)", "N" },
		{ "rounds", 'r', POPT_ARG_INT, &a->rounds, 0,
		  "Rounds (15)", "N" },
		{ "notifier", 'n', POPT_ARG_STRING, &a->notifier, 0,
		  "What the kedge mode uses (KEDGE_NOTIFIER, else auto)",
		  "auto|ummunot|uffd|hooks|none" },
		{ "device", 'D', POPT_ARG_STRING, &a->device_text, 0,
		  "What moves the data (uring)", "uring|verbs[:NAME]|ofi" },
		{ "mpi", 0, POPT_ARG_STRING | POPT_ARGFLAG_OPTIONAL, &a->mpi_text, 0,
		  "Show messages that MPI sends wrong, by the first of these that can be had",
		  "openmpi|mpich|standin" },
		{ "timeout", 0, POPT_ARG_INT, &a->timeout, 0,
		  "With --mpi: end a row of the table that takes longer (600)", "SECONDS" },
		POPT_TABLEEND
	};
	struct util_cmd cmd = {
		.synopsis = "[OPTION...] [FILE]",
		.help = help_text,
		.opts = opts,
		.max_args = 1,
	};
	int rc;

	rc = util_options(&cmd, argc, argv, files);
	if (rc == UTIL_GO_ON)
		rc = parse_churn(a->churn_text, &a->app.churn);
	if (rc == UTIL_GO_ON && a->seed_text &&
	    util_parse_u64(a->seed_text, &a->seed))
		rc = util_usage("--seed: '%s' is no number", a->seed_text);
	if (rc == UTIL_GO_ON && a->size_text &&
	    (util_parse_size(a->size_text, &a->size) || !a->size))
		rc = util_usage("--size: '%s' is no size such as 64M",
				a->size_text);
	if (rc == UTIL_GO_ON)
		rc = parse_device(a);
	if (rc == UTIL_GO_ON)
		rc = check_numbers(a);
	if (rc == UTIL_GO_ON)
		rc = check_mpi(a, files);
	return rc;
}

/* RLIMIT_MEMLOCK may leave less than the working set asks for. What was freed
 * but is still registered or in flight needs some of it. */
#define MEMLOCK_SPARE 2

static int fit_memlock(struct demo_app *app)
{
	struct sys_memlock lock;
	char buf[UTIL_HUMAN];
	uint64_t fits;

	sys_memlock(&lock);
	if (!lock.bound || lock.soft == UINT64_MAX)
		return 0;
	fits = lock.soft / DEMO_CHUNK;
	if (fits >= app->buffers + MEMLOCK_SPARE)
		return 0;
	util_human_bytes(buf, lock.soft);
	if (fits < 2 + MEMLOCK_SPARE) {
		util_error("RLIMIT_MEMLOCK is %s, and 4 MiB are the least: "
			   "raise it with ulimit -l or LimitMEMLOCK=", buf);
		return CMD_CANNOT;
	}
	fits -= MEMLOCK_SPARE;
	util_error("note: RLIMIT_MEMLOCK is %s, so the working set is %u "
		   "buffers instead of %u", buf, (unsigned int)fits,
		   app->buffers);
	app->buffers = (uint32_t)fits;
	if (app->depth >= app->buffers)
		app->depth = app->buffers - 1;
	return 0;
}

/* All that run_round() works with. */
struct demo_run {
	struct demo_file *file;
	struct demo_report *report;
	struct demo_device device;
	const char *backend;
	struct util_progress progress;
	uint64_t moved;
};

static const struct demo_mode_ops *const modes[DEMO_MODES] = {
	[DEMO_UNCACHED] = &demo_uncached,
	[DEMO_NAIVE] = &demo_naive,
	[DEMO_KEDGE] = &demo_kedge,
};

static int run_mode(struct demo_run *run, uint32_t which, uint32_t round)
{
	struct demo_report *r = run->report;
	struct demo_result *res = &r->result[which];
	uint64_t bytes = demo_file_round_bytes(run->file), ns = 1;
	struct demo_mode *m;
	int rc;

	m = malloc(sizeof(*m));
	if (!m)
		return util_fail(-ENOMEM, "cannot run the %s mode", res->name);
	rc = demo_mode_open(m, modes[which], &run->device, run->backend);
	if (rc) {
		rc = util_fail(rc, "cannot open the %s mode", res->name);
		goto free_mode;
	}
	rc = demo_copy(r->app, run->file, m, r->seed + round, &ns);
	if (rc)
		rc = util_fail(rc, "cannot copy in the %s mode", res->name);
	demo_mode_close(m);
	if (rc)
		goto free_mode;

	res->gbps[round] = (double)bytes / (double)ns;
	res->registrations += m->registrations;
	res->hits += m->hits;
	res->chunks += demo_file_round_chunks(run->file);
	res->stale += demo_file_wrong(run->file);
	if (which == DEMO_KEDGE) {
		r->notifier = m->notifier.backend;
		r->level = m->notifier.level;
	}
	run->moved += bytes;
	util_progress_at(&run->progress, run->moved);
free_mode:
	free(m);
	return rc;
}

static int run_rounds(struct demo_run *run)
{
	static const uint8_t order[6][DEMO_MODES] = {
		{ 0, 1, 2 }, { 2, 1, 0 }, { 1, 2, 0 },
		{ 0, 2, 1 }, { 2, 0, 1 }, { 1, 0, 2 },
	};
	struct demo_report *r = run->report;
	uint64_t total = run->file->bytes * run->file->passes * DEMO_MODES *
			 (r->rounds / run->file->windows);
	uint32_t round, i;
	int rc = 0;

	util_progress_start(&run->progress, "copying", total, true);
	for (round = 0; round < r->rounds && !rc; round++) {
		/* A single window's checksums do not change. */
		if (!round || run->file->windows > 1)
			rc = demo_file_window(run->file,
					      round % run->file->windows);
		for (i = 0; i < DEMO_MODES && !rc; i++)
			rc = run_mode(run, order[round % 6][i], round);
	}
	util_progress_stop(&run->progress);
	if (!rc && demo_file_changed(run->file)) {
		util_error("%s changed while it was copied: name another file",
			   run->file->path);
		rc = CMD_CANNOT;
	}
	return rc;
}

/* Ratios of the medians that are printed. Rounds are interleaved, so what slows
 * the machine slows each mode alike. The rounds stay in their order. */
static void summarise(struct demo_report *r, double *tmp)
{
	uint32_t i;

	for (i = 0; i < DEMO_MODES; i++) {
		memcpy(tmp, r->result[i].gbps, r->rounds * sizeof(*tmp));
		r->result[i].median = util_median(tmp, r->rounds);
	}
	r->vs_naive = r->result[DEMO_KEDGE].median /
		      r->result[DEMO_NAIVE].median;
	r->vs_uncached = r->result[DEMO_KEDGE].median /
			 r->result[DEMO_UNCACHED].median;
}

static int report(struct demo_report *r)
{
	if (!util_flags.json)
		demo_print_text(r);
	else if (demo_print_json(r))
		return CMD_CANNOT;
	return r->result[DEMO_KEDGE].stale ? CMD_FINDING : CMD_OK;
}

/* Every window is copied as often as the others, and --rounds times in all or
 * a little more. */
static uint32_t round_up_to(uint32_t rounds, uint32_t windows)
{
	return (rounds + windows - 1) / windows * windows;
}

static int run_demo(struct demo_args *a, struct demo_file *file)
{
	struct demo_report r = {
		.file = file,
		.app = &a->app,
		.seed = a->seed,
		.rounds = round_up_to((uint32_t)a->rounds, file->windows),
		.notifier = "none",
	};
	struct demo_run run = { .file = file, .report = &r,
				.device = { .ops = a->device, .file = file },
				.backend = a->notifier };
	double *figures;
	uint32_t i;
	int rc;

	r.device = &run.device;
	/* A part for each mode, and one to work in. */
	figures = calloc((size_t)r.rounds * (DEMO_MODES + 1),
			 sizeof(*figures));
	if (!figures)
		return util_fail(-ENOMEM, "cannot keep the figures");
	for (i = 0; i < DEMO_MODES; i++) {
		r.result[i].name = modes[i]->name;
		r.result[i].gbps = figures + (size_t)i * r.rounds;
	}
	rc = a->device->open(&run.device, file, a->device_name);
	if (rc) {
		rc = util_fail(rc, "cannot open the %s device",
			       a->device->name);
		goto free_figures;
	}
	rc = run_rounds(&run);
	if (!rc) {
		summarise(&r, figures + (size_t)DEMO_MODES * r.rounds);
		rc = report(&r);
	}
	a->device->close(&run.device);
free_figures:
	free(figures);
	return rc;
}

int cmd_demo(int argc, char **argv)
{
	struct demo_args a = {
		.buffers = DFLT_BUFFERS,
		.depth = DFLT_DEPTH,
		.rounds = DFLT_ROUNDS,
		.seed = 1,
		.app.churn = 0.02,
		.mpi_text = no_mpi,
		.timeout = DFLT_TIMEOUT,
	};
	struct mpi_opts mpi;
	struct util_args files = { .cnt = 0 };
	struct demo_file file;
	int rc;

	rc = parse(&a, argc, argv, &files);
	if (rc != UTIL_GO_ON)
		goto free_args;
	if (a.mpi_text != no_mpi) {
		mpi.which = a.mpi_text ? a.mpi_text : "";
		mpi.timeout = a.timeout;
		rc = demo_mpi(&mpi);
		goto free_args;
	}
	rc = fit_memlock(&a.app);
	if (rc)
		goto free_args;
	rc = demo_file_open(&file, files.cnt ? files.arg[0] : NULL, a.size,
			    a.device->max_bytes, a.device->chunks);
	if (rc)
		goto free_args;
	rc = run_demo(&a, &file);
	demo_file_close(&file);

free_args:
	args_fini(&a, &files);
	return rc;
}
