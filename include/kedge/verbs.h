/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA memory regions as a device: what ibv_reg_mr() makes, behind a coherent
 * cache. In libkedge-verbs.
 */
#ifndef KEDGE_VERBS_H
#define KEDGE_VERBS_H

#include <kedge/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_pd;
struct ibv_qp;

/** KEDGE_VERBS_RELAXED_ORDERING - the writes of one transfer may become visible
 *  in any order (IBV_ACCESS_RELAXED_ORDERING), which is faster on some hosts;
 *  ignored where the device refuses it */
#define KEDGE_VERBS_RELAXED_ORDERING (1u << 0)
/** KEDGE_VERBS_ODP - on-demand paging instead of pinned pages where the device
 *  has it, prefetched by ibv_advise_mr(); ignored where it has not, which
 *  KEDGE_DEVICE_PINS in the answer of kedge_device_query() tells */
#define KEDGE_VERBS_ODP (1u << 1)

/**
 * struct kedge_verbs_opts - how to register; 0 is the default
 * @size:        sizeof(struct kedge_verbs_opts)
 * @flags:       KEDGE_VERBS_*
 * @chunk_len:   the piece in which large areas are registered, in bytes; 0 is
 *               2 MiB. Never above the device's max_mr_size
 * @iova_offset: a byte's address in work requests and for peers (its iova) is
 *               its address plus this, modulo 2^64; a multiple of the page size
 * @window_qp:   NULL: no memory windows. Else the RC or UC queue pair through
 *               which peers reach this process, of the same protection domain.
 *               It is lent to the device, to bind and invalidate type-2
 *               windows: until the close its send queue is the device's own,
 *               and so is its send completion queue, of which its receive
 *               queue has no part. It is in RTS before the first get with
 *               remote access and lives until the device is closed
 */
struct kedge_verbs_opts {
	uint32_t size;
	uint32_t flags;
	uint64_t chunk_len;
	uint64_t iova_offset;
	struct ibv_qp *window_qp;
};

/**
 * kedge_device_open_verbs() - an RDMA protection domain as a device
 * @pd:   borrowed, must outlive the device
 * @opts: options with @opts->size set, or NULL for the defaults; copied
 * @dev:  set on success, left untouched on failure
 *
 * A registration is one memory region. It covers exactly the bytes that were
 * asked for, and its access is exactly what was asked for, but that remote
 * writes and atomics need KEDGE_ACCESS_LOCAL_WRITE, which they bring along;
 * iWARP devices want KEDGE_ACCESS_REMOTE_WRITE for the sink of an RDMA read.
 * kedge_verbs_lkey(), kedge_verbs_rkey() and kedge_verbs_iova() read the keys
 * and the address for a work request out of it.
 *
 * Errors of a get on this device's caches: -ENOMEM where
 * RLIMIT_MEMLOCK does not let this process pin more, or where there is no
 * memory; -ENOSPC where the device has no room for another region; -E2BIG
 * beyond its max_mr_size; -EFAULT for memory that is not mapped, or not
 * writable although the access writes; -EOPNOTSUPP for access that the device
 * lacks and memory that the kernel does not pin for long (DAX, files mapped
 * shared and writable); -ENODEV once the device is gone; -ECHILD in a forked
 * child. kedge_strerror() tells which, and what to do.
 *
 * With @opts->window_qp a peer's access through that queue pair may be a type-2
 * memory window on a region that gives none, which costs two work requests and
 * no system call of ours to grant and to end. Where a window cannot be had (the
 * queue pair is not in RTS, or the device has no more) a region of its own
 * takes its place; so it does on soft-RoCE, whose windows do not keep a peer
 * from the rest of the region, unless the window is all of it. A bind or an
 * invalidation that has not completed after a second counts as failed; the
 * window is then deallocated, which ends its access as well.
 *
 * A registration that cannot be ended (ibv_dereg_mr() and ibv_dealloc_mw() fail) is logged,
 * kept, and tried again by each later registration and by the close. When the
 * device has been removed the kernel has ended everything on it; a few bytes of
 * libibverbs' for each region remain, unless RDMAV_ALLOW_DISASSOCIATE_DESTROY
 * is in the environment.
 *
 * Threads: any, several at once. With @opts->window_qp, binding takes turns.
 * Fork: a device belongs to the process that opened it: in a forked child it
 * refuses with -ECHILD, and kedge_device_close() only frees memory. Kernels
 * before Linux 5.12 leave pinned pages to whichever process writes first after
 * a fork: call ibv_fork_init() before the first ibv_*() call there, which this
 * library never does for you; where it is missing, the open logs a warning.
 * Ownership: kedge_device_close() ends it and deallocates the windows; @pd and
 * the queue pair stay the caller's.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @pd or @dev is NULL, @opts->size is too small, a flag is
 *                unknown, the offset is not a multiple of the page size, or
 *                the queue pair is of another protection domain, neither RC
 *                nor UC, or without a send completion queue of its own
 *   -E2BIG       @opts is of a newer version and sets a field unknown here
 *   -EOPNOTSUPP  a queue pair is lent, but the device has no type-2 memory
 *                windows
 *   -ENODEV      the device is gone
 *   -ENOMEM      no memory, or RLIMIT_MEMLOCK lets this process pin not one
 *                page, which is tried where an option is
 *   or what else the device says to ibv_query_device()
 */
KEDGE_API int kedge_device_open_verbs(struct ibv_pd *pd,
				      const struct kedge_verbs_opts *opts,
				      struct kedge_device **dev);

/**
 * kedge_region_use_verbs() - reach regions by RDMA, and have them reached
 *
 * From now on accesses by a handle that names an address of this host (kedge_region_advertise())
 * go by its adapter where the peer has called this as well, and reaches the region by an address
 * that is an adapter's there: puts and gets past the owner's processor, atomics and all else as
 * before, by the owner's thread. Both addresses are RoCE v2's. Nothing else changes: what a
 * suspension, a move, a trim or a revocation promises holds (docs/regions.md), and where an adapter
 * fails the owner does the access. kedge_remote_query() says which way accesses go now.
 *
 * A region that migrates to another process, which has called this, too, and has opened its
 * invitation with an address, is copied by the adapters.
 *
 * Each handle that peers have come with has a registration of what it gives, which they share. It
 * pins those pages once more against RLIMIT_MEMLOCK of the owner's process; without room for that
 * they are served by the owner's thread.
 * A peer registers 1 MiB, and has a thread, "kedge-lease", two descriptors and those of the
 * adapter's library. Handles that end by themselves, that are KEDGE_HANDLE_SERVED, or that let
 * peers write and not read, are served by the owner's thread as before.
 *
 * Adapters neither know nor encrypt anything: a key of 32 bits and numbers of 24 keep others of the
 * network out. It is for networks whose hosts are trusted.
 *
 * Threads: any. It is for remotes that are opened, and peers that come, after it, and for adapters
 * that there are now: where another one is added, call it again. Fork: a child opens its own
 * remotes and regions, which this holds for as well.
 *
 * Return: 0, or a negative errno:
 *   -ENODEV  no RDMA device here, or its kernel modules are not loaded
 *   -EBUSY   kedge_region_use_ofi() was called
 */
KEDGE_API int kedge_region_use_verbs(void);

/**
 * kedge_verbs_lkey() - the key for the local side of a work request
 * @mr: borrowed; held, and of a verbs device's cache
 *
 * Threads: any. Fork: of no use in the child.
 *
 * Return: the lkey, for struct ibv_sge.
 */
static inline uint32_t kedge_verbs_lkey(const struct kedge_mr *mr)
{
	return (uint32_t)mr->device_handle;
}

/**
 * kedge_verbs_rkey() - the key that lets a peer in
 * @mr: borrowed; held, and of a verbs device's cache
 *
 * Threads: any. Fork: of no use in the child.
 *
 * Return: the rkey, which grants the remote rights of @mr and no more.
 */
static inline uint32_t kedge_verbs_rkey(const struct kedge_mr *mr)
{
	return (uint32_t)(mr->device_handle >> 32);
}

/**
 * kedge_verbs_iova() - the address that goes with the keys
 * @mr:   borrowed; held, and of a verbs device's cache
 * @addr: a byte of it
 *
 * Threads: any. Fork: of no use in the child.
 *
 * Return: @addr as work requests and peers name it: plus the device's
 * iova_offset.
 */
static inline uint64_t kedge_verbs_iova(const struct kedge_mr *mr,
					const void *addr)
{
	return mr->offset + ((uint64_t)(uintptr_t)addr - mr->addr);
}

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_VERBS_H */
