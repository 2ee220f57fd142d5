/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel's functions that the tripwire watches, and where they are.
 */
#ifndef NOTIFY_TRIPWIRE_PLACES_H
#define NOTIFY_TRIPWIRE_PLACES_H

#include <stdint.h>

/* A function of the kernel, and which of its calls count. */
struct point {
	const char *func;
	const char *what; /* an argument, or a member of one; NULL: all calls */
	uint8_t test;	  /* BPF_JEQ or BPF_JSET */
	int32_t value;
	uint32_t group; /* one of enum group */
};

/* A group is complete when all of its points are attached. */
enum group {
	SHM,
	SHM_AGAIN,
	GUARD_CALLS,	/* one point that sees all calls, Linux 6.15 */
	GUARD_CALLS_OLD, /* or several that do together */
	GUARD_MARKS,
	GROUPS,
};

#define POINTS 6

/* A point's place in the running kernel. */
struct place {
	uint32_t func;	/* BTF id, or 0: not there */
	int16_t arg;	/* -1: all calls count */
	int16_t member; /* offset in what the argument points to, or -1 */
};

struct places {
	int32_t mm; /* offset of task_struct.mm */
	struct place at[POINTS];
};

extern const struct point tripwire_points[POINTS];

/* 0 or a negative errno with its reason. Any thread. */
int tripwire_places(struct places *out);

#endif /* NOTIFY_TRIPWIRE_PLACES_H */
