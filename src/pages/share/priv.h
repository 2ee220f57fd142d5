/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that is shared in place: what its files use of each other. */
#ifndef PAGES_SHARE_PRIV_H
#define PAGES_SHARE_PRIV_H

#include "pages/share/hear.h"

/* A call: its work on each chunk, and the place. */
struct share_change {
	int (*fn)(struct swap_context *ctx, const struct share_change *c,
		  uintptr_t at, size_t len);
	uintptr_t at;
	int fd;
	uint64_t off; /* of @at */
	uintptr_t area; /* of new memory for @at */
	size_t area_len;
	/* Other threads, for the work on each chunk, if they can be: they may unmap parts of
	 * it and map there. */
	bool stops;
	bool only_stopped; /* else nothing is done */
	int mark; /* see pages_mark_open(), or -1 */
	int watch; /* the userfaultfd of what is shared then, or was, or -1 */
	bool *unwatched; /* set where it could not be registered */
	struct fd_id file_id; /* of those three, in that order */
	struct fd_id mark_id;
	struct fd_id watch_id;
};

/* lift.c, private.c: the work on a chunk: 0, SWAP_TAKEN or a negative errno. */
int share_lift(struct swap_context *ctx, const struct share_change *c, uintptr_t at,
	       size_t len);
int share_end(struct swap_context *ctx, const struct share_change *c, uintptr_t at, size_t len);
/* mark.c: no hole is in it. */
bool share_is_mapped(uintptr_t at, size_t len);
/* Mark the range, which is this call's; a part that cannot be has none. */
void mark_set(int mark, uintptr_t at, size_t len);
/* True: all of it was marked, and is not any more. */
bool mark_take(int mark, uintptr_t at, size_t len);
/* The work's userfaultfd hears of it, or does not any more. */
void share_watch(const struct share_change *c, uintptr_t at, size_t len);
void share_unwatch(const struct share_change *c, uintptr_t at, size_t len);
/* private.c: the reason with it. */
int share_not_private(int rc);

#endif /* PAGES_SHARE_PRIV_H */
