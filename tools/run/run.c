// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge run: a program with libkedge-preload-verbs loaded, and libkedge-hooks,
 * which closes the window in which a second thread may be handed a range that
 * the first is just unmapping. Both lie where libkedge does. Libraries above that
 * keep registrations by themselves are told not to (others.c).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/beside.h"
#include "tools/common/util.h"
#include "tools/run/elf.h"
#include "tools/run/run.h"

static const char help_text[] =
	"Runs PROGRAM with ibv_reg_mr(), ibv_reg_mr_iova(), ibv_reg_mr_iova2()\n"
	"and ibv_dereg_mr() on a coherent registration cache. What a program\n"
	"sees of a region is what it asked for; on-demand paging, memory\n"
	"windows, dma-buf and null regions stay libibverbs'.\n\n"
	"Regions with local access alone are kept after ibv_dereg_mr(). Those\n"
	"with remote access end with it, as the program expects, unless\n"
	"--trusted-peers says that whoever knows an rkey may go on using it.\n\n"
	"UCX and Open MPI keep registrations by themselves, in which no cache\n"
	"below can find what has gone; so they are told not to, by variables of\n"
	"theirs that are not set yet, and libfabric is given libkedge-fi. What\n"
	"still holds a registration whose pages have gone is named on stderr.\n\n"
	"The exit status is PROGRAM's; 126 if it cannot be run, 127 if it is\n"
	"not found. With --check, 1 if PROGRAM's is 0 and a registration that was\n"
	"held has lost its pages.\n";

/* Where each may lie, from libkedge's folder: installed, and built in place. */
static const char *const preload_at[] = {
	"kedge/preload/libkedge-preload-verbs.so",
	"preload/libkedge-preload-verbs.so",
};
static const char *const hooks_at[] = {
	"libkedge-hooks.so.0",
	"hooks/libkedge-hooks.so.0",
};

static const char *const fi_at[] = {
	"libfabric/libkedge-fi.so",
	"adapter/libfabric/libkedge-fi.so",
};

static int set_preload(const char *folder, bool hooks)
{
	char preload[PATH_MAX], hook[PATH_MAX] = "", *all = NULL;
	const char *old = getenv("LD_PRELOAD");
	int rc;

	if (!beside_find(folder, preload_at, ARRAY_SIZE(preload_at), preload) ||
	    (hooks && !beside_find(folder, hooks_at, ARRAY_SIZE(hooks_at), hook))) {
		util_error("there is no %s beside libkedge in %s: was kedge built with "
			   "libibverbs, and installed as a whole?",
			   *preload ? hooks_at[0] : preload_at[0], folder);
		return CMD_CANNOT;
	}
	if (!beside_can_preload(preload)) {
		util_error("LD_PRELOAD cannot name a folder with a blank or "
			   "colon in it: %s", preload);
		return CMD_CANNOT;
	}
	if (asprintf(&all, "%s%s%s%s%s", hook, *hook ? ":" : "", preload,
		     old && *old ? ":" : "", old ? old : "") < 0)
		all = NULL;
	rc = all && !setenv("LD_PRELOAD", all, 1)
		? 0
		: util_fail(-ENOMEM, "cannot set LD_PRELOAD");
	free(all);
	return rc;
}

int run_set_environment(const struct run_opts *o)
{
	char folder[PATH_MAX], fi[PATH_MAX];
	int rc;

	if (!beside_folder(folder))
		return CMD_CANNOT;
	rc = set_preload(folder, !o->no_hooks);
	if (rc)
		return rc;
	/* It is missing where kedge was built without libfabric. */
	beside_find(folder, fi_at, ARRAY_SIZE(fi_at), fi);
	if ((!o->keep_caches && run_tell_others(fi)) ||
	    (o->trusted && setenv("KEDGE_PEERS", "trusted", 1)) ||
	    (o->stats && setenv("KEDGE_STATS", "1", 1)))
		return util_fail(-ENOMEM, "cannot set the environment");
	return 0;
}

static int run(char **argv, const struct run_opts *o)
{
	const char *why = run_no_preload(argv[0]);
	int rc;

	if (why) {
		util_error("%s: %s", argv[0], why);
		return CMD_CANNOT;
	}
	rc = run_set_environment(o);
	if (rc)
		return rc;
	return o->check ? run_checked(argv) : run_exec(argv);
}

int run_own_args(int argc, char **argv, int *program)
{
	int i = 1;

	while (i < argc && argv[i][0] == '-' && strcmp(argv[i], "--"))
		i++;
	*program = i < argc && !strcmp(argv[i], "--") ? i + 1 : i;
	return i;
}

int cmd_run(int argc, char **argv)
{
	struct run_opts o = { 0 };
	int ucx = 0, program;
	struct poptOption opts[] = {
		{ "trusted-peers", 't', POPT_ARG_NONE, &o.trusted, 0,
		  "Keep regions with remote access, too (KEDGE_PEERS)", NULL },
		{ "ucx", 0, POPT_ARG_NONE, &ucx, 0,
		  "For UCX, which registers everything with remote access: "
		  "--trusted-peers, and its own cache is off in any case", NULL },
		{ "keep-caches", 0, POPT_ARG_NONE, &o.keep_caches, 0,
		  "Leave the caches of UCX, libfabric and Open MPI as they are", NULL },
		{ "no-hooks", 0, POPT_ARG_NONE, &o.no_hooks, 0,
		  "Do not load libkedge-hooks", NULL },
		{ "stats", 's', POPT_ARG_NONE, &o.stats, 0,
		  "Print at PROGRAM's exit what the cache has done "
		  "(KEDGE_STATS)", NULL },
		{ "check", 0, POPT_ARG_NONE, &o.check, 0,
		  "Print after PROGRAM's end what each of its processes was served, "
		  "and which registrations lost their pages (KEDGE_CHECK)", NULL },
		POPT_TABLEEND
	};
	struct util_cmd cmd = {
		.synopsis = "[OPTION...] [--] PROGRAM [ARGUMENT...]",
		.help = help_text,
		.opts = opts,
	};
	struct util_args args;
	int rc, own = run_own_args(argc, argv, &program);

	rc = util_options(&cmd, own, argv, &args);
	if (rc != UTIL_GO_ON)
		return rc;
	util_args_fini(&args);
	if (program >= argc)
		return util_usage("which program?");
	if (ucx && o.keep_caches)
		return util_usage("--ucx is not with --keep-caches");
	o.trusted |= ucx;
	return run(argv + program, &o);
}
