/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where memory of this process is in its segments: for those parts of kedge that hand
 * buffers of the program's to other processes.
 */
#ifndef SEGMENT_PLACE_H
#define SEGMENT_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include <kedge/segment.h>

#include "base/base.h"

/* A byte of a segment. */
struct segment_place {
	struct kedge_segment_id id;
	uint64_t off;
};

/*
 * Find @len bytes at @at in a segment that others can attach: as they will find them there,
 * which ends with the caller's next change of that memory. With the module the whole
 * address space becomes one at the first call. No thread may be in a lock of kedge's.
 */
bool segment_place(const void *at, size_t len, struct segment_place *place);
/* Only what was converted. */
bool segment_place_converted(const void *at, size_t len, struct segment_place *place);

#endif /* SEGMENT_PLACE_H */
