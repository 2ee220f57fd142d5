/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program, and all processes and threads that it makes, stopped by ptrace() at each system call
 * that may take pages away, before the kernel carries it out. A seccomp filter chooses the calls;
 * others go on as they do without.
 */
#ifndef TOOLS_DOCTOR_TRACE_H
#define TOOLS_DOCTOR_TRACE_H

#include <stdint.h>
#include <sys/types.h>

#include <linux/filter.h>

#include "preload/table.h"

struct change {
	pid_t pid; /* of the process, as it sees itself: in its own namespace */
	pid_t host_pid; /* as we see it */
	pid_t tid;
	enum table_kind kind;
	uint64_t start;
	uint64_t end;
};

/* A system call that a thread is stopped before. */
struct call {
	pid_t tid;
	uint64_t nr;
	uint64_t args[6];
};

/* filter.c: the calls that stop, and what they change: up to CHANGES_MAX, and how many. */
#define FILTER_MAX  128
#define CHANGES_MAX 8
unsigned short filter_make(struct sock_filter to[FILTER_MAX]);
int filter_changes(const struct call *call, struct change to[CHANGES_MAX]);
/* True: the call has changed what filter_changes() says. */
bool filter_did(const struct call *call, int64_t result);

/* maps.c: a mapping of a process's. False: it has none there, or none with @name (or NULL). */
struct mapping {
	uint64_t start, end;
	bool shared;
};
bool maps_find(pid_t pid, uint64_t at, const char *name, struct mapping *m);

struct trace_fns {
	void *ctx;
	/* The thread is stopped before a call, and goes on when it returns. A number for the call
	 * if its end is to be told, or 0. */
	uint32_t (*before)(void *ctx, const struct change *change, int cnt);
	/* It came to nothing. */
	void (*undone)(void *ctx, uint32_t number);
	/* The process has ended, or begun another program. */
	void (*ended)(void *ctx, pid_t pid);
};

/*
 * Run a program to the end of all its processes. *@untraced is 0, or the errno for which it ran
 * without stops. The program's exit status as a shell has it, or CMD_CANNOT with an error printed.
 */
int trace_run(char **argv, const struct trace_fns *fns, int *untraced);
/* Tries if a process can be followed at all, by a child that does nothing else: 0, or an errno. */
int trace_try(void);

#endif /* TOOLS_DOCTOR_TRACE_H */
