/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of an extent made shared in place, and private again: for extent.c, with the gate. */
#ifndef SEGMENT_EXTENT_CHANGE_H
#define SEGMENT_EXTENT_CHANGE_H

#include "base/fd.h"
#include "segment/internal.h"

/* A conversion: of extent @index, which has its memfd already. */
struct change {
	int index;
	uintptr_t at;
	size_t len;
	int fd;
	int uffd;
	int mark; /* other than NO_MARK: of marked memory alone, which stays marked */
	struct fd_id fd_id;
	struct fd_id uffd_id;
};

/* All of it is shared, or nothing but what could not be undone, which no segment has then.
 * While other threads are stopped, and watched from then on: 0 or a negative errno, without a
 * reason. */
int change_stopped(const struct change *c);
/* The same, or as they run where they cannot be stopped: *@watched says which. With a reason;
 * -ESTALE: other threads have changed it. */
int change_share(const struct change *c, bool *watched);
/* That part of extent @i is private, with marks, as of pages_unshare_marked(). */
int change_private(int i, const struct piece *part, int mark);
/* So are its first @done bytes, or they are noted as shared still. */
void change_undo(const struct change *c, size_t done);

#endif /* SEGMENT_EXTENT_CHANGE_H */
