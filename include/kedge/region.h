/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Committed regions: memory whose pages exist, stay in memory, and are counted, from
 * when a call returns until the program gives them back. The idea, that a buffer which
 * is advertised to a peer need not keep its pages, but must have pages, is of
 * "Demand paging for memory regions". No call here is a cancellation point (pthreads(7)).
 */
#ifndef KEDGE_REGION_H
#define KEDGE_REGION_H

#include <kedge/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_region;
struct kedge_directory;

/* Flags of struct kedge_region_opts. */
#define KEDGE_REGION_NODE 1u /* its pages are on one NUMA node */

/* Flags of struct kedge_region_info. */
#define KEDGE_REGION_WATCHED 1u

/**
 * struct kedge_region_opts - how a region is made; zero is the default in each field
 * @size:      sizeof(struct kedge_region_opts)
 * @flags:     0, or KEDGE_REGION_NODE
 * @max_len:   bytes of addresses that the region keeps for itself, so that it can grow to as much
 *             in its place; they cost no memory, but count for RLIMIT_AS (ulimit -v), here and in
 *             each peer that maps it: name the length there. 0: 64 GiB, or less where the process
 *             has not as many, never less than its length
 * @page_size: 0: pages of the system's size; otherwise bytes of huge TLB pages,
 *             which the administrator has set aside (vm.nr_hugepages)
 * @node:      with KEDGE_REGION_NODE: the number of the node, for what the region grows by
 *             as well; else 0
 * @pad:       not looked at
 */
struct kedge_region_opts {
	uint32_t size;
	uint32_t flags;
	uint64_t max_len;
	uint64_t page_size;
	uint32_t node;
	uint32_t pad;
};

/**
 * struct kedge_region_info - a region as it is
 * @size:      set by the caller: sizeof(struct kedge_region_info)
 * @flags:     KEDGE_REGION_WATCHED: the kernel tells what the program does to its mapping; else
 *             peers of its handles are served, and each access looks at it
 * @addr:      address of its first byte, as long as it lives
 * @len:       bytes that are committed
 * @max_len:   bytes that it can grow to
 * @page_size: bytes of a page; @len is a multiple of it
 * @missing:    bytes that are not there, as the program has unmapped, replaced, moved or dropped
 *              them, as far as that was noticed: kedge_region_recommit()
 * @missing_at: the first of them, from the region's first byte on
 */
struct kedge_region_info {
	uint32_t size;
	uint32_t flags;
	uint64_t addr;
	uint64_t len;
	uint64_t max_len;
	uint64_t page_size;
	uint64_t missing;
	uint64_t missing_at;
};

/** enum kedge_region_bound - what limits the memory that can be committed */
enum kedge_region_bound {
	KEDGE_BOUND_BUDGET = 1, /* kedge_region_budget_set() */
	KEDGE_BOUND_MEMLOCK,	/* RLIMIT_MEMLOCK */
	KEDGE_BOUND_CGROUP,	/* the memory limit of a control group */
	KEDGE_BOUND_SYSTEM,	/* memory of this machine that is free */
};

/**
 * struct kedge_region_budget - what this process has committed, and can commit
 * @size:  set by the caller: sizeof(struct kedge_region_budget)
 * @bound: the limit that @free comes from, enum kedge_region_bound
 * @limit: bytes that the regions of this process may have together
 * @used:  bytes that they have
 * @free:  bytes of pages of the system's size that a region could be given now: an
 *         estimate, as others take memory meanwhile
 */
struct kedge_region_budget {
	uint32_t size;
	uint32_t bound;
	uint64_t limit;
	uint64_t used;
	uint64_t free;
};

/**
 * kedge_region_create() - commit memory
 * @len:    bytes, at least 1; rounded up to whole pages
 * @opts:   @opts->size set, or NULL for the defaults; copied
 * @region: set on success, left untouched on failure
 *
 * When the call returns all pages exist, zeroed, and are locked in memory: no access by this
 * process faults for lack of memory, waits for swap, or ends it. Where not all of it can be had,
 * nothing is taken, and the reason says what the limit is and how much could be had
 * (kedge_strerror()). Memory is taken by a child process for a moment, which the kernel ends first
 * if there is not enough after all, so that neither this process nor another one of its control
 * group is.
 *
 * The region counts against RLIMIT_MEMLOCK (but for huge TLB pages, which are never swapped), the
 * memory limits of the control group, and kedge_region_budget_set(); its length for RLIMIT_FSIZE.
 *
 * Threads: any. Fork: a child has nothing of the region, neither memory nor
 * addresses; in it kedge_region_close() frees what there is, other calls fail.
 * Ownership: the caller ends *@region with kedge_region_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL  @len is 0 or more than a quarter of all addresses, or so is @max_len;
 *            @region is NULL, @opts->size is too small, a flag is unknown, @max_len
 *            is less than @len, this machine has no pages of @page_size, or no such
 *            node, or none that this process may use (cpuset.mems)
 *   -E2BIG   @opts is of a newer version and sets a field unknown here
 *   -EDQUOT  the regions of this process would have more than
 *            kedge_region_budget_set() allows
 *   -EFBIG   RLIMIT_FSIZE (ulimit -f) is less than the length, as the memory is a file's
 *   -ENOMEM  RLIMIT_MEMLOCK, a control group, the node or this machine has not as much, or there
 *            are not as many addresses (RLIMIT_AS) or mappings (vm.max_map_count)
 *   -EMFILE, -ENFILE  no descriptor is left: a region takes one, in a table of kedge's own
 *   -EAGAIN  no process or thread can be made (RLIMIT_NPROC, pids.max; RLIMIT_AS for its stack)
 *   -EPERM   a filter forbids close_range() and unshare()
 */
KEDGE_API int kedge_region_create(size_t len, const struct kedge_region_opts *opts,
				  struct kedge_region **region);

/**
 * kedge_region_close() - give all of it back
 * @region: ended; may be NULL
 *
 * Its addresses are not the program's any more. Caches are told, as of munmap(). Its handles
 * are revoked.
 *
 * Threads: no other thread uses the region. Fork: in a child it frees a few bytes.
 */
KEDGE_API void kedge_region_close(struct kedge_region *region);

/**
 * kedge_region_grow() - commit more, behind what there is
 * @region: a region
 * @len:    bytes that it has then, rounded up to whole pages; not less than now
 *
 * The region stays where it is, and may be used meanwhile. A call takes time for the
 * pages that it adds, not for those that are there.
 *
 * Threads: any; changes of a region wait for each other.
 *
 * Return: 0, or a negative errno as of kedge_region_create(), and then nothing has
 * changed; and:
 *   -EINVAL @region is NULL, or @len is less than it has (kedge_region_trim())
 *   -ERANGE @len is more than its max_len
 *   -ETIMEDOUT an access from before a trim is not over in a second: the reason names the peer
 *   -EEXIST at the addresses that it would take is other memory; those that are free are taken
 *   -EBUSY, -EREMCHG, -EINPROGRESS  the region migrates, or has migrated, or that is not known:
 *           kedge_region_migrate()
 *   -ECHILD this process is a child of the one that made it
 */
KEDGE_API int kedge_region_grow(struct kedge_region *region, size_t len);

/**
 * kedge_region_trim() - give back what is behind
 * @region: a region
 * @len:    bytes that it has then, rounded up to whole pages; not 0, not more than now
 *
 * The pages are free when the call returns; an access to their addresses ends the
 * program by SIGSEGV, until the region grows again. Caches are told, as of munmap().
 * Accesses of peers beyond @len fail from then on (-EFAULT), each by itself; those that have
 * begun are waited for, a second at most, in which all peers wait. One that is stopped for
 * longer may take pages behind the end again: they are free with the next growth, move or the
 * region's end, and nothing of them is ever in the region, which does not grow before it is out.
 *
 * Threads: as kedge_region_grow().
 *
 * Return: 0, or a negative errno, and then nothing has changed:
 *   -EINVAL @region is NULL, @len is 0 or more than it has
 *   -ENODATA the program has unmapped, replaced or dropped some of that: kedge_region_recommit()
 *   -EMFILE, -ENFILE  no descriptor is left to look at the mappings by
 *   -EBUSY, -EREMCHG, -EINPROGRESS  as of kedge_region_grow()
 *   -ENOMEM the process has as many mappings as it may (vm.max_map_count)
 *   -ECHILD this process is a child of the one that made it
 */
KEDGE_API int kedge_region_trim(struct kedge_region *region, size_t len);

/**
 * kedge_region_query() - where it is, and how large
 * @region: a region
 * @info:   @info->size set; filled
 *
 * Threads: any. Fork: as kedge_region_grow().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @region or @info is NULL, or @info->size is too small
 *   -EREMCHG the region has migrated: kedge_region_migrate()
 *   -ECHILD this process is a child of the one that made it
 */
KEDGE_API int kedge_region_query(struct kedge_region *region,
				 struct kedge_region_info *info);

/**
 * kedge_region_advertise() - give a handle, by which peers reach the region
 * @region: a region
 * @opts:   @opts->size set, or NULL for all of the region and every access; copied
 * @handle: set on success, left untouched on failure
 *
 * Each call gives another handle. It ends with kedge_region_revoke(), its time, or the region;
 * growing, trimming and suspending the region do not end it. With the first one kedge
 * starts a thread that answers peers. An access of one that has the memory mapped, on this host
 * and of this user, does not involve this process; for others the thread does it, and for all
 * with KEDGE_HANDLE_SERVED. With @opts->node the thread listens there, for as long as there is
 * a region: TCP's port is open to whoever can reach it, and answers who has a handle.
 *
 * Threads: any.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL  an argument is NULL, @opts->size is too small, an access or a flag is unknown,
 *            the part is not within what the region can grow to, or not aligned; or @opts->node
 *            is no address to connect to, but one of all, or of a link
 *   -EADDRNOTAVAIL  there is no such address, name or service, or it is not this host's
 *   -EADDRINUSE  the port has another listener
 *   -EACCES  the port takes a privilege
 *   -E2BIG   @opts is of a newer version and sets a field unknown here
 *   -ENOMEM  no memory
 *   -ENOSPC  this process has 1048576 handles that were not revoked, or listens at 16
 *            addresses, which are all that it may
 *   -EAGAIN  no thread can be made (RLIMIT_NPROC, pids.max; RLIMIT_AS for its stack)
 *   -EMFILE, -ENFILE  no descriptor is left
 *   -EOPNOTSUPP  /proc is not mounted, which says which host this is, and if the region is whole
 *   -EREMCHG, -EINPROGRESS  as of kedge_region_grow()
 *   -ECHILD  this process is a child of the one that made the region
 */
KEDGE_API int kedge_region_advertise(struct kedge_region *region,
				     const struct kedge_handle_opts *opts,
				     struct kedge_handle *handle);

/**
 * kedge_region_revoke() - end a handle
 * @region: a region
 * @handle: one of its handles
 *
 * When the call returns, in any case but the first three errors, no access by it begins any
 * more; one that has begun is waited for, a second at most. Other handles go on. A handle whose
 * time is over counts as one until it is revoked.
 *
 * Threads: any.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL an argument is NULL
 *   -ENOENT the region has no such handle (any more)
 *   -EREMCHG, -EINPROGRESS  as of kedge_region_grow(), and the handle is not revoked
 *   -ETIMEDOUT it is revoked, but an access that had begun is not over, and may store still:
 *           the reason names the peer. kedge_region_suspend() waits for it
 *   -ECHILD as of kedge_region_advertise()
 */
KEDGE_API int kedge_region_revoke(struct kedge_region *region,
				  const struct kedge_handle *handle);

/**
 * kedge_region_enter() - let a directory say where a region is
 * @region:     a region
 * @handle:     from kedge_region_advertise() for it, in this process: its address is entered
 * @directory:  from kedge_directory_open(), or of etcd (kedge/etcd.h)
 * @timeout_ms: milliseconds in which the directory has to answer; -1: as long as it takes
 *
 * Peers that open any handle of the region by kedge_remote_open_in() find it there. It is called
 * when the region is made, again by the process that the region has migrated to, and after
 * -EKEYEXPIRED of a directory, which is its word for entries that were lost. What another owner
 * has entered before is replaced.
 *
 * Threads: any.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL an argument is NULL, or @handle is none
 *   -ENOENT the region has no such handle, or it was not made here
 *   -ESTALE others enter the region at the same time
 *   -EBUSY, -EREMCHG, -EINPROGRESS  as of kedge_region_grow()
 *   -ECHILD as of kedge_region_advertise()
 *   another as of kedge_directory_find() and kedge_directory_replace(); of these
 *           -EINPROGRESS: it may have been entered, and the call can be made again
 */
KEDGE_API int kedge_region_enter(struct kedge_region *region, const struct kedge_handle *handle,
				 struct kedge_directory *directory, int timeout_ms);

/**
 * kedge_region_suspend() - keep peers out for a while
 * @region:     a region
 * @timeout_ms: milliseconds to wait for accesses that have begun; -1: no limit
 *
 * When the call returns 0 no peer's access is under way and none begins until
 * kedge_region_resume(): peers wait, each no longer than it said. This process goes on to
 * have the memory. Suspensions nest: as many have to be resumed.
 *
 * A peer that ends in an access, by whatever signal, is not waited for; one that only loses its
 * connection there is.
 *
 * Threads: any.
 *
 * Return: 0, or a negative errno, and then the region is not suspended by this call:
 *   -EINVAL    @region is NULL
 *   -ETIMEDOUT an access was not over in time: the reason names the peer, which may be stopped
 *   -EREMCHG   the region has migrated: kedge_region_migrate()
 *   -ECHILD    as of kedge_region_advertise()
 */
KEDGE_API int kedge_region_suspend(struct kedge_region *region, int timeout_ms);

/**
 * kedge_region_resume() - let peers go on
 * @region: a region that is suspended
 *
 * Threads: any; not only the one that suspended it.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @region is NULL, or is not suspended
 *   -EREMCHG as of kedge_region_suspend()
 *   -ECHILD as of kedge_region_advertise()
 */
KEDGE_API int kedge_region_resume(struct kedge_region *region);

/* Flags of struct kedge_move_opts. */
#define KEDGE_MOVE_HUGE 1u /* to huge pages, as far as the kernel finds some */
#define KEDGE_MOVE_NODE 2u /* to a NUMA node */

/**
 * struct kedge_move_opts - where a region is moved to; zero is the default in each field
 * @size:  sizeof(struct kedge_move_opts)
 * @flags: a sum of KEDGE_MOVE_*; 0: to any other pages
 * @node:  with KEDGE_MOVE_NODE: its number; else 0
 * @pad:   not looked at
 */
struct kedge_move_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t node;
	uint32_t pad;
};

/**
 * kedge_region_move() - put other pages behind a region
 * @region:     a region
 * @opts:       @opts->size set, or NULL for the defaults; copied
 * @timeout_ms: milliseconds to wait for accesses of peers that have begun; -1: no limit
 * @pause_ns:   set to how long peers were kept out, on success; may be NULL
 *
 * Addresses, contents and handles stay. The new pages are had first; peers are kept out
 * while the bytes are copied. So for its time the call takes as much memory, budget and
 * RLIMIT_MEMLOCK once more. Caches are told, as of munmap(); loads meanwhile may have page faults.
 *
 * Threads: any; but this process does not store in the region meanwhile, nor unmap or replace a
 * part of it: what it stores, there or in other memory at these addresses, could be lost.
 *
 * Return: 0, or a negative errno, and then nothing has changed:
 *   as of kedge_region_create() for as much memory, and
 *   -EINVAL    @region is NULL, @opts->size is too small, a flag is unknown, or there is
 *              no such node
 *   -E2BIG     @opts is of a newer version and sets a field unknown here
 *   -ETIMEDOUT as of kedge_region_suspend()
 *   -ENODATA   as of kedge_region_trim()
 *   -EBUSY, -EREMCHG, -EINPROGRESS  as of kedge_region_grow()
 *   -ECHILD    as of kedge_region_advertise()
 */
KEDGE_API int kedge_region_move(struct kedge_region *region, const struct kedge_move_opts *opts,
				int timeout_ms, uint64_t *pause_ns);

/**
 * kedge_region_budget_set() - limit what this process commits
 * @limit: bytes that its regions may have together; UINT64_MAX is no limit, which
 *         is so at first. Regions that have more keep it
 *
 * Threads: any. Fork: a child has the parent's limit and no region.
 */
KEDGE_API void kedge_region_budget_set(uint64_t limit);

/**
 * kedge_region_budget() - what is committed, and what could be
 * @budget: @budget->size set; filled
 *
 * Reads files of /proc and /sys, which takes some hundred microseconds.
 *
 * Threads: any. Fork: works in the child.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @budget is NULL, or @budget->size is too small
 */
KEDGE_API int kedge_region_budget(struct kedge_region_budget *budget);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_REGION_H */
