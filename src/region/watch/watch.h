/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes of a region's mapping that the program makes itself are noticed: see watch.c. */
#ifndef REGION_WATCH_WATCH_H
#define REGION_WATCH_WATCH_H

#include "region/internal.h"

/*
 * With the region's lock. From now on, with what the program has changed before: 0, also where
 * this process has no userfaultfd of use (look_is_needed()); or a negative errno with its reason,
 * and it is not.
 */
int watch_begin(struct kedge_region *r);
/* With the region's lock, or in its stead while it migrates, before another process gets its memory
 * or a userfaultfd of the region's: notifiers let go of it, and do not watch it any more. */
void watch_let_others(struct kedge_region *r);
/* With the region's lock, or in its stead while it migrates: changes are not noticed meanwhile, and
 * another userfaultfd may have the memory; then what has changed is, as far as it can be seen. */
void watch_pause(struct kedge_region *r);
void watch_go_on(struct kedge_region *r);
/* The region ends. */
void watch_end(struct kedge_region *r);
/* With the region's lock. A change of kedge's own in [@from, @to) begins, or -ENOMEM, and it would
 * be taken for one of the program's; or it is over: what is there then and is the region's is
 * watched again. */
int watch_leave_out(struct kedge_region *r, uint64_t from, uint64_t to);
void watch_again(struct kedge_region *r, uint64_t from, uint64_t to);
/* With the region's lock, before peers are let in again. The change that watch_leave_out() began
 * was not made: all of the region is watched again, and what the program has changed since then is
 * a gap. If that fails, peers are turned out of the memory. */
void watch_as_before(struct kedge_region *r);
/* With the region's lock. Before @len bytes at @at are moved to the region's place: 0 or -ENOMEM.
 * A change of them between the move and a registration would not be told of. */
int watch_move_in(struct kedge_region *r, const void *at, uint64_t len);
/* With the region's lock. Take its pages out of this process's page tables, as far as the system
 * can (Linux 5.18) and no peer has a lease. They stay in its file: an access has them entered
 * again. Pages that the program drops meanwhile are a gap as well, by a look. */
void watch_empty_tables(struct kedge_region *r);
/* With the region's lock. 0, or -ENODATA: the program has changed a part of [@from, @to), by what
 * is known and by a look. */
int watch_is_whole(struct kedge_region *r, uint64_t from, uint64_t to);
/* In a child. */
void watches_forget(void);

/* ---- by a thread with the keeper's table of descriptors ---- */

/* As watch_is_whole(). */
int watch_look(struct kedge_region *r, uint64_t from, uint64_t to);
/* [@from, @to) is the region's own again, if there were @changes when that began: 0 or -EAGAIN. */
int watch_repaired(struct kedge_region *r, uint64_t from, uint64_t to, uint64_t changes);

#endif /* REGION_WATCH_WATCH_H */
