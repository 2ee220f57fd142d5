/* SPDX-License-Identifier: BSD-2-Clause */
/* A libkedge that writes down what is announced; stands in for the real one. */
#ifndef TESTS_HOOKS_RECORDER_H
#define TESTS_HOOKS_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#define RECORD_MAX 64

struct record {
	uint32_t kind;
	uint32_t flags; /* KEDGE_HOOK_* */
	bool mapped_at_begin; /* its first page, when it was announced */
	bool mapped_at_end;
	bool ended;
	uint64_t start;
	uint64_t end;
};

/* Announcements of this thread since recorder_start(). */
extern __thread struct record record[RECORD_MAX];
extern __thread int record_cnt;
extern __thread int record_open;

/* Memory that this thread was said to have been given since then. */
struct given {
	bool cut; /* by an allocator, from what it has */
	uint64_t start;
	uint64_t end;
};
extern __thread struct given given[RECORD_MAX];
extern __thread int given_cnt;

/* Announcements of every thread, and the mask given to kedge_hook_attach(). */
extern _Atomic int recorder_total;
extern _Atomic int recorder_blind;
extern _Atomic int recorder_attached;

/* Of kedge_hook_sharing(): 1 after a call with 0, and the argument of the last other one. */
extern _Atomic int recorder_sharing[2];

/* The last number that kedge_hook_number() was told. */
extern _Atomic int recorder_number;

void recorder_start(void);
void recorder_stop(void);

/* Called at each begin, on the announcing thread, while not NULL. */
extern void (*_Atomic recorder_fn)(const struct record *r);

#endif /* TESTS_HOOKS_RECORDER_H */
