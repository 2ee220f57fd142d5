/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of what is open, and copies of it. */
#ifndef STATS_TABLE_H
#define STATS_TABLE_H

#include "stats/stats.h"

/* As stats_add() and stats_remove(), for an object of this process's. */
void table_enter(struct stats_object *o, const struct stats_kind *kind, const void *of);
void table_remove(struct stats_object *o);

/* A copy of one object's values, or of the totals of closed ones (number 0). */
struct stats_row {
	const struct stats_kind *kind;
	uint32_t number;
	char labels[STATS_LABELS_LEN];
	uint64_t values[STATS_VALUES_MAX];
};
/* Rows of one kind follow on each other. To be freed; NULL with *cnt 0 for an empty table,
 * or without memory. */
struct stats_row *table_rows(size_t *cnt);

#endif /* STATS_TABLE_H */
