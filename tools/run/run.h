/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of kedge run. */
#ifndef TOOLS_RUN_RUN_H
#define TOOLS_RUN_RUN_H

struct run_opts {
	int trusted;
	int keep_caches;
	int no_hooks;
	int stats;
	int check;
};

/* run.c: LD_PRELOAD, and what the variables of kedge and of others have to be. 0, or an exit
 * status, with an error printed. */
int run_set_environment(const struct run_opts *o);
/* run.c: how many of @argv are the command's own; *@program is where the rest begins. */
int run_own_args(int argc, char **argv, int *program);

/* exec.c: does not return but with an exit status, where the program cannot be run. */
int run_exec(char **argv);

/* check.c: run it, wait for it, and print what its processes have told. Its exit status. */
int run_checked(char **argv);

/*
 * others.c: the variables by which libraries that keep registrations by themselves are told not
 * to, or to have kedge watch them. What the user has set stays. @fi: libkedge-fi's path, or "".
 * 0, or -1 with errno.
 */
int run_tell_others(const char *fi);

#endif /* TOOLS_RUN_RUN_H */
