// SPDX-License-Identifier: BSD-2-Clause
/* The kedge command: finds the subcommand and hands it the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/util.h"

static const struct subcommand {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
} subs[] = {
	{ "info", cmd_info,
	  "what kedge finds on this machine, and what to do about the rest" },
	{ "demo", cmd_demo,
	  "copy a file through registered buffers, with and without kedge" },
	{ "torture", cmd_torture,
	  "try to make a registration stale, in every known way" },
	{ "bench", cmd_bench, "measure the cache and the notifier" },
	{ "perf", cmd_perf,
	  "measure messages between two processes, by every way" },
	{ "migrate", cmd_migrate,
	  "move a region between two processes under load, and measure it" },
	{ "top", cmd_top,
	  "show what caches, notifiers and channels of running programs do" },
	{ "segments", cmd_segments,
	  "list the memory on this host that others can load and store" },
	{ "regions", cmd_regions,
	  "list the committed regions on this host, and what becomes of them" },
	{ "run", cmd_run,
	  "run an RDMA program, unmodified, on a coherent registration cache" },
	{ "doctor", cmd_doctor,
	  "say whether an RDMA program's own registration cache goes stale, and by "
	  "which call" },
};

static void print_help(void)
{
	size_t i;

	printf("Usage: kedge [--version] [--help] SUBCOMMAND [OPTION...]\n\n"
	       "Coherent memory registration: a registration cache that is "
	       "always right.\n\nSubcommands:\n");
	for (i = 0; i < ARRAY_SIZE(subs); i++)
		printf("  %-9s %s\n", subs[i].name, subs[i].what);
	printf("\n'kedge SUBCOMMAND --help' tells more, and so does kedge(1)."
	       "\n\nExit status:\n"
	       "  0  done, and nothing is wrong\n"
	       "  1  done, and a check failed: stale data, a copy that "
	       "differs\n"
	       "  2  the command line is wrong\n"
	       "  3  it cannot run here, or not to the end\n");
}

static int no_such(const char *word)
{
	const char *names[ARRAY_SIZE(subs) + 1];
	const char *near;
	size_t i;

	if (*word == '-')
		return util_usage("%s: unknown option", word);
	for (i = 0; i < ARRAY_SIZE(subs); i++)
		names[i] = subs[i].name;
	names[i] = NULL;
	near = util_did_you_mean(word, names);
	if (near)
		return util_usage("there is no subcommand '%s': did you mean "
				  "'%s'?",
				  word, near);
	return util_usage("there is no subcommand '%s'", word);
}

static int run(const struct subcommand *sub, int argc, char **argv)
{
	char name[32];
	int status;

	snprintf(name, sizeof(name), "kedge %s", sub->name);
	argv[0] = name;
	util_name = name;
	status = sub->run(argc, argv);
	util_name = "kedge";
	return status;
}

static int dispatch(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;
	size_t i;

	if (!word)
		return util_usage("which subcommand?");
	if (!strcmp(word, "--help") || !strcmp(word, "-h") ||
	    (!strcmp(word, "help") && argc == 2)) {
		print_help();
		return CMD_OK;
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		printf("kedge %s\n", kedge_version());
		return CMD_OK;
	}
	for (i = 0; i < ARRAY_SIZE(subs); i++)
		if (!strcmp(word, subs[i].name))
			return run(&subs[i], argc - 1, argv + 1);
	return no_such(word);
}

int main(int argc, char **argv)
{
	int status = dispatch(argc, argv);

	/* A full disk behind standard output must not look like success. */
	if (fflush(stdout) || ferror(stdout)) {
		util_error("cannot write to standard output");
		if (status == CMD_OK)
			status = CMD_CANNOT;
	}
	return status;
}
