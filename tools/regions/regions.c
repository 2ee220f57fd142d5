// SPDX-License-Identifier: BSD-2-Clause
/* kedge regions: the committed regions on this host. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/regions/regions.h"

#define WAIT_S	   3
#define WAIT_MAX_S 3600

static const char help_text[] =
	"Lists the committed regions of processes on this host: what each process has\n"
	"of its budget, and where its regions are, in what state, and who has them.\n\n"
	"MAPPED are peers that have the memory, LOCAL and TCP those for which the owner\n"
	"does accesses, SERVED how many it has done. Accesses of MAPPED peers make no\n"
	"system call, and no one counts them. SUSP, MOVES and MIGR are how often the\n"
	"region was suspended, moved, and on its way to or from another owner. A process\n"
	"tells its regions to its own user and to root. One that has no handle yet\n"
	"cannot be asked: /proc says where its regions are.\n\n"
	"Exit status: 0 if the list is whole, 3 if a process does not answer, /proc is\n"
	"not read in time, or the process of --pid may not be asked.\n";

static int run(int pid, int wait_s)
{
	struct listing l = { NULL };
	int rc = collect(&l, pid, wait_s);

	if (!rc && util_flags.json)
		rc = print_json(&l);
	else if (!rc)
		print_listing(&l, pid);
	if (!rc && (l.silent || l.unsearched || (pid && l.others)))
		rc = CMD_CANNOT;
	collect_end(&l);
	return rc;
}

/* Until it is interrupted, or standard output is gone. */
static int watch(int pid, int wait_s, int every_s)
{
	const bool screen = !util_flags.json && isatty(STDOUT_FILENO);
	int rc;

	for (;;) {
		if (screen)
			printf("\033[H\033[J");
		rc = run(pid, wait_s);
		if (pid && kill(pid, 0) && errno == ESRCH)
			return rc;
		if (!screen && !util_flags.json)
			printf("\n");
		if (fflush(stdout) || ferror(stdout))
			return CMD_CANNOT;
		sleep((unsigned int)every_s);
	}
}

int cmd_regions(int argc, char **argv)
{
	int pid = INT_MIN, wait_s = WAIT_S, every_s = INT_MIN, rc;
	struct poptOption opts[] = {
		{ "pid", 'p', POPT_ARG_INT, &pid, 0, "Only of that process", "PID" },
		{ "wait", 'w', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &wait_s, 0,
		  "How long a process has to answer", "SECONDS" },
		{ "watch", 0, POPT_ARG_INT, &every_s, 0,
		  "List again and again, with so long between", "SECONDS" },
		POPT_TABLEEND
	};
	struct util_cmd cmd = { .synopsis = "[OPTION...]", .help = help_text, .opts = opts };
	struct util_args args;
	bool one, again;

	rc = util_options(&cmd, argc, argv, &args);
	if (rc != UTIL_GO_ON)
		return rc;
	util_args_fini(&args);
	one = pid != INT_MIN; /* 0 is no process, and not all */
	again = every_s != INT_MIN;
	if (one && pid < 1)
		return util_usage("--pid: %d is no process", pid);
	if (wait_s < 1 || wait_s > WAIT_MAX_S)
		return util_usage("--wait: 1 to %d seconds", WAIT_MAX_S);
	if (again && (every_s < 1 || every_s > WAIT_MAX_S))
		return util_usage("--watch: 1 to %d seconds", WAIT_MAX_S);
	if (one && kill(pid, 0) && errno == ESRCH) {
		util_error("there is no process %d", pid);
		return CMD_CANNOT;
	}
	pid = one ? pid : 0;
	return again ? watch(pid, wait_s, every_s) : run(pid, wait_s);
}
