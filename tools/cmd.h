/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The border between kedge.c and its subcommands. Each takes its own argument
 * vector, whose argv[0] is the whole name ("kedge demo"), and returns the exit
 * status of the process.
 */
#ifndef TOOLS_CMD_H
#define TOOLS_CMD_H

/**
 * enum cmd_status - the exit statuses of the kedge command
 * @CMD_OK:      done, and nothing is wrong
 * @CMD_FINDING: done, and a check failed: stale data, a copy that differs
 * @CMD_USAGE:   the command line is wrong
 * @CMD_CANNOT:  it cannot run here: something is missing or not allowed, a file
 *               cannot be read, there is no memory
 */
enum cmd_status {
	CMD_OK = 0,
	CMD_FINDING = 1,
	CMD_USAGE = 2,
	CMD_CANNOT = 3,
};

int cmd_info(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_torture(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_perf(int argc, char **argv);
int cmd_migrate(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_segments(int argc, char **argv);
int cmd_regions(int argc, char **argv);

#endif /* TOOLS_CMD_H */
