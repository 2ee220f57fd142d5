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

#define MEMOS 16u

/* What was found of late, and not found: of one thread at a time. Zeros: nothing was. */
struct segment_memos {
	struct segment_memo {
		uint64_t epoch; /* as of which it is so */
		uintptr_t at;
		size_t len;
		bool found;
		bool converted;
		struct segment_place place;
	} memo[MEMOS];
	uint32_t next; /* to be replaced */
};

/*
 * Find @len bytes at @at in a segment that others can attach: as they will find them there,
 * which ends with the caller's next change of that memory. With the module the whole
 * address space becomes one at the first call. No thread may be in a lock of kedge's.
 * Of a range that is asked about again a few loads tell.
 */
bool segment_place(struct segment_memos *m, const void *at, size_t len,
		   struct segment_place *place);
/* It is memory that was converted for a segment. */
bool segment_converted(struct segment_memos *m, const void *at, size_t len);

#endif /* SEGMENT_PLACE_H */
