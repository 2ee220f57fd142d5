/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes of memory that was registered, with the call stack of each: one record for all that a
 * process made from the same stack. */
#ifndef TOOLS_DOCTOR_RECORD_H
#define TOOLS_DOCTOR_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/table.h"
#include "tools/doctor/stack.h"
#include "tools/doctor/trace.h"

#define RECORD_RANGES 32
#define RECORDS_MAX   1024u

struct record {
	struct change first;
	uint64_t cnt;
	struct {
		uint64_t start, end;
	} range[RECORD_RANGES]; /* of the last ones, at cnt modulo RECORD_RANGES */
	size_t frames;
	struct frame frame[STACK_MAX];
};

struct recorder {
	struct held_table *table;
	struct record *record;
	size_t cnt;
	uint64_t total;
	uint64_t left_out; /* no room, or no memory */
};

/* A change_fn of trace.h; @ctx is the recorder. */
void record_change(void *ctx, const struct change *c);
/* What a process did to a range, or NULL. */
const struct record *record_find(const struct recorder *r, pid_t pid, uint64_t start, uint64_t end);

#endif /* TOOLS_DOCTOR_RECORD_H */
