/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places of this process's memory in its segments, for those parts of kedge that hand buffers
 * of the program's to other processes.
 */
#ifndef SEGMENT_PLACE_H
#define SEGMENT_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include <kedge/segment.h>

#include "base/base.h"
#include "base/process/clofork.h"

/* A byte of a segment. */
struct segment_place {
	struct kedge_segment_id id;
	uint64_t off;
};

#define MEMOS 16u

/* Memos of places that were looked for of late, found or not; all zeros at first. One thread
 * uses them at a time. */
struct segment_memos {
	struct segment_memo {
		uint64_t epoch; /* as of which it is so */
		uintptr_t at;
		size_t len;
		bool found;
		bool converted;
		struct segment_place place;
		uint64_t inode; /* of converted memory */
		uint64_t dev;
		uint64_t file_off;
	} memo[MEMOS];
	uint32_t next; /* to be replaced */
	bool whole; /* may name that of the address space */
	bool opened;
	struct clofork maps; /* of this process */
};

void segment_memos_fini(struct segment_memos *m);

/*
 * Find @len bytes at @at in a segment that others can attach: as they will find them there,
 * which ends with the caller's next change of that memory. With the module the whole
 * address space is one, from the first call until the last memos that ask end. No thread may
 * be in a lock of kedge's. Of a range that is asked about again a few loads tell, and for
 * converted memory one system call (Linux 6.11; before, it is in no segment).
 */
bool segment_place(struct segment_memos *m, const void *at, size_t len,
		   struct segment_place *place);
/* This process has converted memory, which may be private for a moment. */
bool segment_any(void);
/* It is memory that was converted for a segment. */
bool segment_converted(struct segment_memos *m, const void *at, size_t len);

/*
 * The peer that was told that place can still store there, and must not: it reaches those @len
 * bytes at @at no more when this returns. The segment goes on; its peers get and attach anew.
 */
void segment_revoke(const struct segment_place *place, const void *at, size_t len);

/* As kedge_segment_valid(), but where that would wait for the owner it is not valid. */
bool segment_valid_now(struct kedge_attachment *a);

#endif /* SEGMENT_PLACE_H */
