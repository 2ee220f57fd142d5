/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file of "kedge run --check" and "kedge doctor". Each process of the program that has used
 * libibverbs appends what it has seen to it at its exit (src/preload/report.c and held.c write it):
 *
 *	began PID NAME				at the first registration
 *	process PID NAME			and the rest at the exit
 *	counts HITS MISSES LENT UNCACHED REFUSED INVALIDATED
 *	held FOLLOWED NOT-FOLLOWED LEFT		to libkedge-fi or libkedge-ucx
 *	posts COUNT				work requests, of kedge doctor
 *	stale COUNT START END KIND CHANGE LIBRARY	for each library; the first one's range
 *
 * A process that is killed, or ends by _exit() or exec, has the first of them alone. The file is
 * the user's own, and what is in it is anybody's: what is no such line is left out.
 */
#ifndef TOOLS_RUN_CHECKED_H
#define TOOLS_RUN_CHECKED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#define CHECKED_NAME 64

struct checked_process {
	char name[CHECKED_NAME];
	int pid;
	unsigned long long hits, misses, lent, uncached, refused, invalidated;
	unsigned long long followed, not_followed, left_to_fi, posts;
	bool silent; /* it began, and told no more */
};

/* A library that held registrations whose pages had gone. */
struct checked_stale {
	char name[CHECKED_NAME];
	char kind[16]; /* unmapped, dropped, moved, changed; of the first one */
	unsigned long long cnt, requests;
	uint64_t start, end;
	uint32_t change; /* kedge doctor's number of it; 0: it saw no call */
	int pid;
	bool blind; /* no work request of the process was seen */
};

/* Each library once. */
struct checked_stales {
	struct checked_stale *all;
	size_t cnt;
	unsigned long long registrations;
};

struct checked {
	struct checked_process *process;
	size_t processes, now;
	struct checked_stales stale; /* held on */
	struct checked_stales used;  /* and used by work requests: kedge doctor's own */
	bool no_memory;
};

/* Things that the verdict does not cover. */
struct checked_unknown {
	unsigned long long registrations, processes, left_to_fi;
};
struct checked_unknown checked_unknown(const struct checked *c);

/* A new file of the user's in the folder for temporary files, or NULL with errno. */
#define CHECKED_PATH 256
FILE *checked_make_file(char path[CHECKED_PATH], const char *what);
void checked_read(struct checked *c, FILE *f);
void checked_add_used(struct checked *c, const struct checked_stale *s);
/* True: a library has some among those that were used. */
bool checked_used(const struct checked *c, const char *name);
void checked_fini(struct checked *c);

/* As text on stderr, and as JSON. */
void checked_print_processes(const struct checked *c, bool watched);
json_t *checked_processes_json(const struct checked *c);

#endif /* TOOLS_RUN_CHECKED_H */
