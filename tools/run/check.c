// SPDX-License-Identifier: BSD-2-Clause
/* kedge run --check: runs the program, and prints what its processes have told (checked.h). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/run/checked.h"
#include "tools/run/patient.h"
#include "tools/run/run.h"

/* ---- what is printed ---- */

/* No more is said than what was looked at. */
static void print_none(const struct checked *c)
{
	struct checked_unknown u = checked_unknown(c);

	if (u.left_to_fi)
		util_error("--check: what libfabric or UCX registers, libkedge-fi or libkedge-ucx "
			   "watches for its cache; one that the program keeps by their calls "
			   "itself was not looked at");
	if (!u.registrations && !u.processes)
		util_error("--check: no registration lost its pages while it was held");
	else
		util_error("--check: of what could be followed no registration lost its pages "
			   "while it was held; not known: %llu registrations, and what %llu "
			   "processes did after they began", u.registrations, u.processes);
}

static void print_text(const struct checked *c)
{
	size_t i;

	if (!c->processes) {
		util_error("--check: no process of the program has registered memory by "
			   "ibv_reg_mr() and its kin, or none has come to its exit: kedge has done "
			   "nothing for it");
		return;
	}
	checked_print_processes(c, true);
	for (i = 0; i < c->stale.cnt; i++)
		util_error("--check: %s held %llu registrations whose pages had gone",
			   c->stale.all[i].name, c->stale.all[i].cnt);
	if (!c->stale.cnt)
		print_none(c);
}

static json_t *stale_row(const void *of, size_t i)
{
	const struct checked_stale *s = &((const struct checked *)of)->stale.all[i];

	return json_pack("{so sI}", "library", util_json_text(s->name), "registrations",
			 (json_int_t)s->cnt);
}

static int print(const struct checked *c, int status)
{
	if (c->no_memory)
		return util_fail(-ENOMEM, "--check");
	if (util_flags.json) {
		if (util_json_print(json_pack("{si so so}", "status", status, "processes",
					      checked_processes_json(c), "stale",
					      util_json_rows(c->stale.cnt, stale_row, c))))
			return CMD_CANNOT;
	} else {
		print_text(c);
	}
	return !status && c->stale.registrations ? CMD_FINDING : status;
}

/* ---- the program ---- */

/* With signals blocked, which the program gets as they were. */
static pid_t start(char **argv, const struct patient *before)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	patient_end(before);
	exit(run_exec(argv));
}

static int run_and_wait(char **argv)
{
	struct patient before;
	int status = 0;
	pid_t child;

	patient_block(&before);
	child = start(argv, &before);
	if (child < 0) {
		patient_end(&before);
		return util_fail(-errno, "cannot start the program");
	}
	patient_be(child, &before);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return util_fail(-errno, "cannot wait for the program");
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_checked(char **argv)
{
	struct checked c = { 0 };
	char path[CHECKED_PATH];
	FILE *f = checked_make_file(path, "check");
	int rc;

	if (!f)
		return util_fail(-errno, "cannot make a file in the folder for temporary files");
	if (setenv("KEDGE_CHECK", path, 1))
		rc = util_fail(-ENOMEM, "cannot set the environment");
	else
		rc = run_and_wait(argv);
	unlink(path);
	checked_read(&c, f);
	fclose(f);
	rc = print(&c, rc);
	checked_fini(&c);
	return rc;
}
