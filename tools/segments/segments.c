// SPDX-License-Identifier: BSD-2-Clause
/* kedge segments: the memory on this host that others can load and store. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/who.h"
#include "tools/segments/segments.h"

#define WAIT_S	   3
#define WAIT_MAX_S 3600

static const char help_text[] =
	"Lists the memory of processes on this host that others can load and store:\n"
	"whose it is, where it is in that process, who may have it, and who has.\n\n"
	"ATTACHED are mappings by the kernel module, and what pages they have at hand;\n"
	"without it, owners know their grants alone. CHANGES counts what owners have\n"
	"taken back. A process tells its segments to its own user and to root; of\n"
	"segments of the kernel module, those that one may read are listed.\n\n"
	"Exit status: 0 if the list is whole, 3 if a process does not answer, or\n"
	"that of --pid may not be asked.\n";

/* ---- the list ---- */

static void count(struct all_listed *all, const struct listed *l, bool is_next)
{
	const struct kedge_segment_entry *e = &l->entry;

	if (e->status == -EACCES) {
		all->others++;
	} else if (e->status) {
		all->silent++;
	} else {
		all->segments++;
		all->processes += is_next;
		all->grants += e->grants;
		all->bytes += e->flags & KEDGE_SEGMENT_WHOLE ? 0 : e->len;
	}
}

static struct listed *grow(struct all_listed *all)
{
	const size_t room = 2 * all->room + 16;
	struct listed *more;

	if (all->cnt < all->room)
		return all->of;
	more = realloc(all->of, room * sizeof(*more));
	if (more) {
		all->of = more;
		all->room = room;
	}
	return more;
}

static int add(struct all_listed *all, const struct kedge_segment_entry *e)
{
	struct listed *l;

	if (!grow(all))
		return -ENOMEM;
	l = &all->of[all->cnt];
	l->entry = *e;
	who_command(e->pid, l->command, sizeof(l->command));
	who_user(e->uid, l->user, sizeof(l->user));
	count(all, l, !all->cnt || l[-1].entry.pid != e->pid || l[-1].entry.status);
	all->cnt++;
	return 0;
}

static int list(struct all_listed *all, int pid, int wait_s)
{
	const struct kedge_segments_opts o = { .size = sizeof(o), .pid = pid,
					       .timeout_ms = (uint32_t)wait_s * 1000u };
	struct kedge_segment_entry e = { .size = sizeof(e) };
	struct kedge_segments *found;
	int rc = kedge_segments_open(&o, &found);

	if (rc)
		return rc;
	while (!rc && kedge_segments_next(found, &e) > 0)
		rc = add(all, &e);
	kedge_segments_close(found);
	return rc;
}

static int run(int pid, int wait_s)
{
	struct all_listed all = { 0 };
	int rc = list(&all, pid, wait_s);

	if (rc)
		rc = util_fail(rc, "cannot list the segments");
	else
		rc = segments_print(&all, pid);
	if (!rc && (all.silent || (pid && all.others)))
		rc = CMD_CANNOT;
	free(all.of);
	return rc;
}

int cmd_segments(int argc, char **argv)
{
	int pid = INT_MIN, wait_s = WAIT_S, rc;
	struct poptOption opts[] = {
		{ "pid", 'p', POPT_ARG_INT, &pid, 0, "Only of that process", "PID" },
		{ "wait", 'w', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &wait_s, 0,
		  "How long a process has to answer", "SECONDS" },
		POPT_TABLEEND
	};
	struct util_cmd cmd = { .synopsis = "[OPTION...]", .help = help_text, .opts = opts };
	struct util_args args;
	bool one;

	rc = util_options(&cmd, argc, argv, &args);
	if (rc != UTIL_GO_ON)
		return rc;
	util_args_fini(&args);
	one = pid != INT_MIN; /* 0 is no process, and not all */
	if (one && pid < 1)
		return util_usage("--pid: %d is no process", pid);
	if (wait_s < 1 || wait_s > WAIT_MAX_S)
		return util_usage("--wait: 1 to %d seconds", WAIT_MAX_S);
	if (one && kill(pid, 0) && errno == ESRCH) {
		util_error("there is no process %d", pid);
		return CMD_CANNOT;
	}
	return run(one ? pid : 0, wait_s);
}
