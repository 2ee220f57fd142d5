// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge doctor: a program with its own registration cache, as it is, and what goes of the memory
 * that it holds registered. Its processes follow their registrations (src/preload/held.c) and their
 * work requests, and say at their exit which named pages that had gone; this process follows their
 * system calls, and knows which call stack each change was made from.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/doctor/doctor.h"
#include "tools/run/elf.h"
#include "tools/run/run.h"

static const char help_text[] =
	"Runs PROGRAM, which uses libibverbs, libfabric, UCX or MPI over them, and says\n"
	"whether it holds registrations whose pages have gone: whoever made them,\n"
	"how many, and the call stack of the change that was missed. An adapter\n"
	"reads and writes pages then that the program has no more.\n\n"
	"Registrations are the program's own, and libraries keep them as they do\n"
	"without kedge; with --with-kedge they come from kedge's cache, as with\n"
	"'kedge run --ucx'.\n\n"
	"All processes of PROGRAM are followed by ptrace() to their end, so a\n"
	"debugger has to wait, and each change of memory takes longer. Stacks need\n"
	"libdw, symbols or debugging information for names.\n\n"
	"A registration that was only held over a change is noted, and no finding: its\n"
	"owner may deregister late what it was told of.\n\n"
	"The exit status is PROGRAM's; 126 if it cannot be run, 127 if it is\n"
	"not found. If PROGRAM's is 0: 1 if a registration was found stale, 3 if\n"
	"that cannot be told, as no process has registered memory, or none can be\n"
	"followed.\n";

/* A program whose memory is watched by hooks would have other code at work than it is examined for;
 * where nothing else can watch, hooks do. */
static bool is_watched_without_hooks(void)
{
	struct kedge_notifier *nf;
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };

	if (kedge_notifier_open(&o, &nf))
		return false;
	kedge_notifier_close(nf);
	return true;
}

/* ---- the files that the processes write ---- */

struct files {
	FILE *check, *held;
	char check_path[CHECKED_PATH], held_path[CHECKED_PATH];
	struct held_table *table;
};

static void files_end(struct files *f)
{
	if (f->table)
		munmap(f->table, sizeof(*f->table));
	if (f->check)
		fclose(f->check);
	if (f->held)
		fclose(f->held);
}

static void files_unlink(const struct files *f)
{
	if (f->check)
		unlink(f->check_path);
	if (f->held)
		unlink(f->held_path);
}

static int files_begin(struct files *f)
{
	int rc;

	memset(f, 0, sizeof(*f));
	f->check = checked_make_file(f->check_path, "check");
	f->held = f->check ? checked_make_file(f->held_path, "doctor") : NULL;
	if (!f->held)
		return util_fail(-errno, "cannot make a file in the folder for temporary files");
	/* Room that is not there would end the program by SIGBUS when it is written. */
	rc = posix_fallocate(fileno(f->held), 0, sizeof(*f->table));
	if (rc)
		return util_fail(-rc, "no room in the folder for temporary files");
	f->table = mmap(NULL, sizeof(*f->table), PROT_READ | PROT_WRITE, MAP_SHARED,
			fileno(f->held), 0);
	if (f->table != MAP_FAILED) {
		atomic_store(&f->table->traced, !trace_try());
		return 0;
	}
	f->table = NULL;
	return util_fail(-errno, "cannot map a file in the folder for temporary files");
}

static int set_environment(const struct files *f, bool with_kedge)
{
	struct run_opts o = { .trusted = with_kedge, .keep_caches = !with_kedge };
	int rc;

	/* Calls that are followed need no notifier. */
	o.no_hooks = !with_kedge && (atomic_load(&f->table->traced) || is_watched_without_hooks());
	rc = run_set_environment(&o);
	if (rc)
		return rc;
	if (setenv("KEDGE_CHECK", f->check_path, 1) || setenv("KEDGE_DOCTOR", f->held_path, 1) ||
	    setenv("KEDGE_SERVE", with_kedge ? "1" : "0", 1))
		return util_fail(-ENOMEM, "cannot set the environment");
	return 0;
}

/* ---- the examination ---- */

static int tell(const struct found *f, int status)
{
	if (f->checked->no_memory)
		return util_fail(-ENOMEM, "doctor");
	if (!util_flags.json)
		doctor_print(f);
	else if (doctor_print_json(f, status))
		return CMD_CANNOT;
	if (status)
		return status;
	return doctor_finds(f->checked) ? CMD_FINDING : doctor_knows(f) ? CMD_OK : CMD_CANNOT;
}

/* The first entry that was used, and how often any was. */
static const struct table_gone *used_of(const struct table_slot *slot, struct checked_stale *s)
{
	const struct table_gone *g, *first = NULL;
	uint64_t used;

	s->requests = 0;
	for (g = slot->gone; g < slot->gone + TABLE_GONE; g++) {
		used = atomic_load(&g->used);
		s->requests += used;
		if (used && !first)
			first = g;
	}
	return first;
}

/* Whatever became of the process, it is in the table. */
static void collect(struct checked *c, const struct held_table *t)
{
	static const char *const words[TABLE_KINDS] = { "unmapped", "dropped", "moved" };
	uint32_t used = atomic_load(&t->used), i;
	struct checked_stale s = { .cnt = 1 };
	const struct table_gone *g;
	const struct table_slot *slot;

	for (i = 0; i < used && i < TABLE_SLOTS; i++) {
		slot = &t->slot[i];
		g = atomic_load(&slot->pid) ? used_of(slot, &s) : NULL;
		if (!g)
			continue;
		s.pid = (int)atomic_load(&slot->pid);
		s.start = atomic_load(&g->start);
		s.end = atomic_load(&g->end);
		s.change = atomic_load(&g->change);
		strcpy(s.kind, words[atomic_load(&g->kind) % TABLE_KINDS]);
		snprintf(s.name, sizeof(s.name), "%.*s", TABLE_NAME, slot->library);
		checked_add_used(c, &s);
	}
}

static int examine(char **argv, struct files *files)
{
	struct recorder r = { .table = files->table };
	struct checked c = { 0 };
	struct found f = { .checked = &c, .recorder = &r };
	const struct trace_fns fns = { &r, record_before, record_undone, record_ended };
	int rc = trace_run(argv, &fns, &f.untraced);

	files_unlink(files);
	checked_read(&c, files->check);
	collect(&c, files->table);
	rc = tell(&f, rc);
	checked_fini(&c);
	free(r.record);
	free(r.by_number);
	return rc;
}

static int doctor(char **argv, bool with_kedge)
{
	const char *why = run_no_preload(argv[0]);
	const struct sigaction ignored = { .sa_handler = SIG_IGN };
	struct sigaction before;
	struct files files;
	int rc;

	if (why) {
		util_error("%s: %s", argv[0], why);
		return CMD_CANNOT;
	}
	if (!stack_can() && !util_flags.quiet)
		util_error("this kedge was built without libdw: no stacks");
	sigaction(SIGXFSZ, &ignored, &before);
	rc = files_begin(&files);
	sigaction(SIGXFSZ, &before, NULL);
	if (!rc)
		rc = set_environment(&files, with_kedge);
	if (!rc)
		rc = examine(argv, &files);
	files_unlink(&files);
	files_end(&files);
	return rc;
}

int cmd_doctor(int argc, char **argv)
{
	int with_kedge = 0, program;
	struct poptOption opts[] = {
		{ "with-kedge", 'k', POPT_ARG_NONE, &with_kedge, 0,
		  "Have kedge's cache serve it, and others' caches off, as "
		  "kedge run --ucx does", NULL },
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
	return doctor(argv + program, with_kedge);
}
