/* SPDX-License-Identifier: BSD-2-Clause */
/* The ways by which the kernel tells what was stored into: what track.c calls. */
#ifndef REGION_MIGRATE_WAYS_H
#define REGION_MIGRATE_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "region/migrate/track.h"

/*
 * @forgets: a take does not tell what the one before told, if it was not stored into since
 * @begin:   0 and its state, or a negative errno with a reason; the way is tried first on
 *           memory of its own
 * @take:    as track_take(), but ranges may touch each other, and what was stored before the
 *           first take need not be told
 * @end:     give back all that @begin took
 */
struct track_ops {
	const char *name;
	bool forgets;
	int (*begin)(char *at, uint64_t len, uint64_t page_size, void **state);
	int (*take)(void *state, track_fn fn, void *arg);
	void (*end)(void *state);
};

extern const struct track_ops track_uffd;
extern const struct track_ops track_soft;

#endif /* REGION_MIGRATE_WAYS_H */
