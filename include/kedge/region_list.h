/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The regions of this host, for its administrator and for tools: kedge regions is one. No call here
 * is a cancellation point (pthreads(7)).
 */
#ifndef KEDGE_REGION_LIST_H
#define KEDGE_REGION_LIST_H

#include <kedge/region.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_regions;

/**
 * struct kedge_regions_opts - what to list; 0 is the default
 * @size:       sizeof(struct kedge_regions_opts)
 * @flags:      0
 * @pid:        of the only process to list, or 0 for all
 * @timeout_ms: how long owners are waited for, in milliseconds; 0 is ten seconds
 */
struct kedge_regions_opts {
	uint32_t size;
	uint32_t flags;
	int32_t pid;
	uint32_t timeout_ms;
};

/** KEDGE_REGION_UNKNOWN - a number that the owner does not know, as to count takes too long */
#define KEDGE_REGION_UNKNOWN UINT32_MAX

/**
 * enum kedge_region_state - where a region is
 * @KEDGE_REGION_HERE:      it is its process's
 * @KEDGE_REGION_MOVING:    kedge_region_move() is at it
 * @KEDGE_REGION_MIGRATING: it is on its way to another owner
 * @KEDGE_REGION_COMING:    it is on its way from another owner to this process
 * @KEDGE_REGION_IN_DOUBT:  it is not known whether it has migrated; kedge_region_migrate() again
 *                          with the same invitation asks
 * @KEDGE_REGION_LEFT:      it is another owner's, and waits for kedge_region_close()
 */
enum kedge_region_state {
	KEDGE_REGION_HERE,
	KEDGE_REGION_MOVING,
	KEDGE_REGION_MIGRATING,
	KEDGE_REGION_COMING,
	KEDGE_REGION_IN_DOUBT,
	KEDGE_REGION_LEFT,
};

/**
 * struct kedge_region_entry - a region, or a process that tells nothing of its own
 * @size:      sizeof(struct kedge_region_entry), set by the caller
 * @status:    0: a region. Or why @pid tells nothing of its regions, and then only @pid, @uid and
 *             @gid are set: -EACCES it is another user's, -ETIMEDOUT it does not answer, -EBUSY it
 *             has no descriptor or no memory left to answer, or many ask it, -EFBIG it has
 *             more regions than a list takes, which are 65,536 of a process and a million of all,
 *             -EOPNOTSUPP it is of a version that does not know the question, -EPROTO what it
 *             says has no meaning
 * @pid:       the owner; 0 if it is not in this process's pid namespace, or with -ETIMEDOUT if so
 *             many asked it that no connection came about: it may be the one that was asked for
 * @uid:       its user, as of its first handle
 * @gid:       its group, likewise
 * @state:     enum kedge_region_state
 * @suspended: how often it is suspended: peers' accesses wait unless it is 0
 * @handles:   of it, that were not revoked
 * @expired:   of these, whose time is over; KEDGE_REGION_UNKNOWN if @handles are many
 * @mapped:    peers that have its memory
 * @local:     peers of this host for which the owner's thread does accesses
 * @tcp:       the same by TCP
 * @inside:    of @mapped, those that have an access under way, as far as is known;
 *             KEDGE_REGION_UNKNOWN if peers are many
 * @moves:     how often kedge_region_move() has moved it
 * @migrations: how often it was on its way from this process to another owner, or to this one,
 *             also in vain
 * @to_pid:    with KEDGE_REGION_LEFT the process that it has gone to, if that is on this host and
 *             listed as well; or 0
 * @budget_limit: of all regions of the process, as kedge_region_budget_set() says; UINT64_MAX: none
 * @budget_used:  of it
 * @addr:      where it is in the owner's memory
 * @len:       bytes
 * @max_len:   bytes that it may grow to
 * @page_size: of its pages
 * @revoked:   handles that were revoked
 * @served:    accesses that the owner's thread has done for @local and @tcp peers: puts, gets and
 *             atomic ones. Those of @mapped peers make no system call, and are not counted
 * @served_bytes: of them
 * @suspensions: how often kedge_region_suspend() has suspended it
 * @missing:   bytes that its program has unmapped, replaced or dropped, as far as that was noticed:
 *             peers' accesses there fail until kedge_region_recommit()
 * @to:        with KEDGE_REGION_LEFT the address that it has gone to, as "192.0.2.1:4711"; empty
 *             if the new owner is reached on its own host alone. The owner's word
 *
 * Counters are of this process: they begin anew where a region migrates to.
 */
struct kedge_region_entry {
	uint32_t size;
	int32_t status;
	int32_t pid;
	uint32_t uid;
	uint32_t gid;
	uint32_t state;
	uint32_t suspended;
	uint32_t handles;
	uint32_t expired;
	uint32_t mapped;
	uint32_t local;
	uint32_t tcp;
	uint32_t inside;
	uint32_t moves;
	uint32_t migrations;
	int32_t to_pid;
	uint64_t budget_limit;
	uint64_t budget_used;
	uint64_t addr;
	uint64_t len;
	uint64_t max_len;
	uint64_t page_size;
	uint64_t revoked;
	uint64_t served;
	uint64_t served_bytes;
	uint64_t suspensions;
	uint64_t missing;
	char to[64];
};

/**
 * kedge_regions_open() - look which regions there are on this host
 * @opts: options with @opts->size set, or NULL for the defaults; copied
 * @list: set on success, left untouched on failure
 *
 * The processes of this network namespace are asked that have advertised a region, or have an
 * invitation open: a process tells all of its regions to its own user and to root. Regions of
 * programs that have never done either are not in the list. A process of another user is an entry
 * with the status -EACCES, for whoever is not root; none of these is asked. No entry has a word of
 * a handle: those who may see a region here have no right to it by that.
 *
 * A process that is stopped, or lies, costs no more than the time to wait: it is an entry
 * which says so, and the others are there. 64 are waited for at a time. Processes that end
 * meanwhile are left out. The list does not change after this call.
 *
 * Threads: any; not for signal handlers. Fork: works in the child.
 * Ownership: the caller ends *@list with kedge_regions_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @list is NULL, @opts->size is too small, a flag is unknown, or @opts->pid negative
 *   -E2BIG       @opts is of a newer version and sets a field unknown here
 *   -EOPNOTSUPP  /proc is not there to find the processes by
 *   -ENOMEM, -EMFILE, -ENFILE  no memory or descriptor to be had
 */
KEDGE_API int kedge_regions_open(const struct kedge_regions_opts *opts,
				 struct kedge_regions **list);

/**
 * kedge_regions_next() - the next entry of a list
 * @list:  borrowed
 * @entry: filled if there is one; @entry->size is set by the caller
 *
 * By the owner's pid, then by address.
 *
 * Threads: one at a time. Fork: works in the child.
 *
 * Return: 1; 0 behind the last one; or -EINVAL for a NULL pointer or a size too small.
 */
KEDGE_API int kedge_regions_next(struct kedge_regions *list, struct kedge_region_entry *entry);

/**
 * kedge_regions_close() - free a list
 * @list: may be NULL
 *
 * Threads: one, the last user. Fork: in a child it frees the child's copy alone.
 */
KEDGE_API void kedge_regions_close(struct kedge_regions *list);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_REGION_LIST_H */
