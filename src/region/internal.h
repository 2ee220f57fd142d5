/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A region is a memfd, mapped shared into addresses that are kept for it. Up to @len its
 * pages exist and are locked; from there on no page is mapped, and the memfd has no pages.
 * Its size stays what it was at most, as a seal keeps it from shrinking: a page that a
 * mapping has cannot be cut off by whoever else has the descriptor.
 */
#ifndef REGION_INTERNAL_H
#define REGION_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <kedge/region.h>

#include "base/list.h"
#include "base/lock.h"
#include "region/gaps.h"
#include "region/wire.h"

/*
 * The steps of a region on its way to another owner. Its peers have it done here from
 * REGION_SERVED on; their accesses wait from REGION_LEAVING on.
 */
enum region_stage { REGION_HERE, REGION_SERVED, REGION_LEAVING, REGION_LEFT };

/* It is not known whether migration @id, by the invitation @number of the owner @name, is done. */
struct invite;
struct doubt {
	uint64_t id;
	uint64_t name;
	uint32_t number;
};

/* A place in the list of this process's regions: a region's, or, with NULL, where a peer's list of
 * them goes on. */
struct listed {
	struct list node;
	struct kedge_region *region;
};

/* The ways of peers to the region: its memory; or accesses done here, by a local socket or TCP. */
enum peer_way { PEER_MAPPED, PEER_LOCAL, PEER_TCP, PEER_WAYS };

/*
 * Counts tell what has become of a region in this process, for lists.
 * @handles: there are; @revoked: there were, and were revoked
 * @peers:   that have shown one
 * @served:  accesses that were done here, of @served_bytes bytes
 * @migrations: how often it was on its way, from here or to here
 */
struct region_counts {
	uint32_t handles;
	uint32_t peers[PEER_WAYS];
	uint32_t migrations;
	uint64_t revoked;
	uint64_t served;
	uint64_t served_bytes;
	uint64_t suspensions;
};

/*
 * @fd:        of the memfd, in the keeper's table, or -1
 * @at:        @max_len bytes of addresses
 * @len:       bytes that are committed, of whole pages; so is @max_len
 * @file_len:  the size of the memfd
 * @open_len:  bytes that peers may access
 * @node:      the NUMA node of its pages, if it is @on_node
 * @suspended: how often it was
 * @unlent:    as long as it is not 0, no adapter of a peer's is lent its memory
 * @epoch:     how often it was moved
 * @id:        random, and the same wherever the region migrates to; 0: it has had no handle
 * @dirty:     bits of pages of the system's size that peers have stored into, or NULL
 * @from:      the invitation that it came by, if its former owner may not know yet that it is here
 * @comes:     it is on its way here from another owner; @left_to: where it is, if it has left
 * @moving:    kedge_region_move() is at it
 * @refuses:   a negative errno, and no call changes the region: -EBUSY, it migrates; -EREMCHG, it
 *             has migrated; -EINPROGRESS, it is not known whether it has. Lists of regions read
 *             it without the lock, which a change of the length holds for long
 * @overstayed: a peer was still inside when it was trimmed
 * @given:     other processes may have its file, or a userfaultfd of kedge's its memory: since its
 *             first handle, or its migration
 * @uid:       the user that has made it
 * @view:      a mapping of @view_len bytes for accesses that are done here for peers, or NULL;
 *             of the pages that were there at @view_epoch; the @views-th
 * @watched:   changes of its mapping by the program are to be noticed, as it has been advertised;
 *             @uffd, in the keeper's table, tells of them, or is -1
 * @noticed:   it tells of all of them; @changing: it is about to, and no lease is given; @emptied:
 *             pages that are dropped now are so by kedge
 * @changes:   how many it has told of; @gaps: what is not there since
 */
struct kedge_region {
	pid_t pid;
	int fd;
	char *at;
	uint64_t max_len;
	uint64_t page_size;
	bool on_node;
	uint32_t node;
	_Atomic bool moving;
	struct sig_lock lock; /* guards: */
	uint64_t len;
	uint64_t file_len;
	_Atomic int refuses;
	bool overstayed;
	bool given;
	struct doubt doubt;
	struct invite *from;
	/* Handles of it, and peers; guarded by shares_lock (share/share.h). */
	struct list slots;
	struct list conns;
	uint64_t open_len;
	uint32_t suspended;
	uint32_t unlent;
	uint32_t epoch;
	enum region_stage stage;
	uint64_t id;
	uint64_t *dirty;
	char *view;
	uint64_t view_len;
	uint32_t view_epoch;
	uint64_t views;
	struct listed listed;
	uint64_t serial;
	uid_t uid;
	bool comes;
	struct owner_place left_to;
	struct region_counts counts;
	/* Guarded by gaps_lock. */
	struct list of_watched;
	bool watched;
	bool noticed;
	bool changing;
	bool emptied;
	int uffd;
	uint64_t changes;
	struct gaps gaps;
};

/* ---- region.c ---- */

/* 0, or a negative errno with its reason: a call may not have it. */
int region_check(const struct kedge_region *r);
/* The same, and its lock is held; or it is in no state to be changed. */
int region_lock(struct kedge_region *r);
/* @r->refuses, with its reason. */
int region_refused(int rc);
/* It has migrated: its memory is given back, and its addresses are still its own. */
void region_leave(struct kedge_region *r);
/* With its lock. It has @len bytes, more than before: 0, or a negative errno with a reason. */
int region_grow_to(struct kedge_region *r, uint64_t len);

/* ---- process.c ---- */

/* Begin the state of this process's regions anew in a forked child; first in each call. */
void region_adopt(void);

/* ---- fill.c ---- */

/*
 * Give [@off, @off + @len) of the memfd its pages. 0, or a negative errno and *@had bytes
 * could be had; some of them may be there. With signals blocked, by the keeper.
 */
int region_fill(int fd, uint64_t off, uint64_t len, bool careful, uint64_t *had);
/* @rc, of it and not for want of pages, with its reason. */
int region_not_filled(int rc);

/* ---- pages.c: addresses and pages, without the budget; with the region's lock ---- */

/* Keep @max_len bytes of addresses, or as many as there are, but @len; sets them. */
int region_reserve(struct kedge_region *r, uint64_t len);
/* Give up pages, addresses and the descriptor. */
void region_end(struct kedge_region *r);
/*
 * Commit [@r->len, @len): 0, or a negative errno and all is as it was; then *@had is how much
 * could be had, or UINT64_MAX where it is not the pages that are missing, and the reason is
 * set.
 */
int region_commit(struct kedge_region *r, uint64_t len, bool careful, uint64_t *had);
/* Give [@len, @r->len) back: the same. */
int region_release(struct kedge_region *r, uint64_t len);

/* By a thread with the keeper's table. Enter pages of [@from, @to), and lock them; or map the file
 * there, where there is no mapping: 0 or a negative errno, with a reason but for -EEXIST. */
int region_lock_in(struct kedge_region *r, uint64_t from, uint64_t to);
int region_map_gap(struct kedge_region *r, uint64_t from, uint64_t to);

/* ---- node.c ---- */

#define REGION_NODES 1024u

/* With the region's lock. Move [@from, @to) to @r->node: 0 or a negative errno with its reason. */
int region_to_node(const struct kedge_region *r, uint64_t from, uint64_t to);

/* ---- budget.c ---- */

void budget_forget(void);
uint64_t budget_used(void);
uint64_t budget_limit(void);
/* False: the budget has no such room. */
bool budget_take(uint64_t len);
void budget_give(uint64_t len);
/* -EDQUOT with its reason: @len bytes more were asked for. */
int budget_refuses(uint64_t len);

#endif /* REGION_INTERNAL_H */
