/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters for other programs to read (KEDGE_STATS): a table of the process's caches, notifiers
 * and channels, the text that is made of it (Prometheus' text format), and a thread that keeps a
 * file up to date or answers on a socket.
 *
 * Without KEDGE_STATS an object is not entered, and costs a look at the environment.
 */
#ifndef STATS_STATS_H
#define STATS_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

enum stats_unit {
	STATS_COUNT,   /* a counter */
	STATS_SECONDS, /* a counter of nanoseconds */
	STATS_GAUGE,   /* what is now */
};

struct stats_metric {
	const char *name;  /* as it is printed, but for "kedge_" and "_total" */
	const char *label; /* of this value alone, as way="eager"; or NULL */
	const char *help;  /* of the first with that name; the others follow on it */
	enum stats_unit unit;
	size_t at; /* in the struct of counters that stats_values() reads, if the kind has one */
};

#define STATS_VALUES_MAX 48
#define STATS_LABELS_LEN 128

struct stats_kind {
	const char *name; /* "cache": also the label that numbers its objects */
	const struct stats_metric *metrics;
	unsigned int cnt; /* STATS_VALUES_MAX at most */
	/* Fill @values, and @labels with further ones, as device="uring"; it may stay empty. By
	 * any thread, with the table's lock held: no call of a device, and no lock that is held
	 * while an object is entered or removed. */
	void (*read)(const void *of, uint64_t *values, char *labels);
};

/* All of a kind's values, from a struct of uint64_t in which metric.at are offsets. Its owner may
 * count meanwhile, by relaxed stores. */
static inline void stats_values(const struct stats_metric *m, unsigned int cnt, const void *of,
				uint64_t *values)
{
	unsigned int i;

	for (i = 0; i < cnt; i++)
		values[i] = __atomic_load_n((const uint64_t *)((uintptr_t)of + m[i].at),
					    __ATOMIC_RELAXED);
}

struct stats_object {
	struct list node;
	const struct stats_kind *kind;
	const void *of;
	uint32_t number;
	int owner; /* the process that entered it in its table, or 0 */
};

/* Append a label. Of @value the characters that a text could not have stand as "_". */
void stats_label(char *labels, const char *name, const char *value);

/* Enter an object that is open now. It never fails: where there is no thread or descriptor to be
 * had, that is logged, and counters are not published. */
void stats_add(struct stats_object *o, const struct stats_kind *kind, const void *of);
/* Before it is closed. What it has counted stays in the totals of those that are closed. In a
 * forked child its parent's objects are left alone. */
void stats_remove(struct stats_object *o);

#endif /* STATS_STATS_H */
