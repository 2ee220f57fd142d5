/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes of memory that was registered, each with a number, and the call stack of each: one record
 * for all that a process made from the same stack. */
#ifndef TOOLS_DOCTOR_RECORD_H
#define TOOLS_DOCTOR_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/table.h"
#include "tools/doctor/stack.h"
#include "tools/doctor/trace.h"

#define RECORDS_MAX 1024u
#define RECORD_NONE UINT32_MAX

struct record {
	struct change first;
	uint64_t cnt;
	size_t frames;
	struct frame frame[STACK_MAX];
};

struct recorder {
	struct held_table *table;
	struct record *record;
	size_t cnt;
	uint32_t *by_number; /* the record of each change, from 1 on; RECORD_NONE: no room */
	uint32_t total;
	uint64_t left_out; /* no room, or no memory */
};

/* Those of trace.h; @ctx is the recorder. */
uint32_t record_before(void *ctx, const struct change *change, int cnt);
void record_undone(void *ctx, uint32_t number);
void record_ended(void *ctx, pid_t pid);
/* The record of a change's maker, or NULL. */
const struct record *record_find(const struct recorder *r, uint32_t number);

#endif /* TOOLS_DOCTOR_RECORD_H */
