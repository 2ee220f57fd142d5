/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device registers memory. It is an ops table that libkedge-uring and the other
 * device libraries fill, or the caller himself.
 */
#ifndef KEDGE_DEVICE_H
#define KEDGE_DEVICE_H

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_device;

/**
 * enum kedge_access - what a registration allows; or'ed
 * @KEDGE_ACCESS_LOCAL_READ:    always allowed
 * @KEDGE_ACCESS_LOCAL_WRITE:   the local device may write
 * @KEDGE_ACCESS_REMOTE_READ:   a peer may read
 * @KEDGE_ACCESS_REMOTE_WRITE:  a peer may write
 * @KEDGE_ACCESS_REMOTE_ATOMIC: a peer may do atomic operations
 */
enum kedge_access {
	KEDGE_ACCESS_LOCAL_READ = 0,
	KEDGE_ACCESS_LOCAL_WRITE = 1 << 0,
	KEDGE_ACCESS_REMOTE_READ = 1 << 1,
	KEDGE_ACCESS_REMOTE_WRITE = 1 << 2,
	KEDGE_ACCESS_REMOTE_ATOMIC = 1 << 3,
};
#define KEDGE_ACCESS_ALL 0xfu

/**
 * struct kedge_device_mr - what a device made of a range
 * @handle: what its user needs: a buffer index, or lkey and rkey
 * @offset: the device's position of the range's first byte
 * @priv:   the device's own
 */
struct kedge_device_mr {
	uint64_t handle;
	uint64_t offset;
	uint64_t priv;
};

/**
 * struct kedge_device_attr - what a device can do; 0 in a field is no limit
 * @size:        sizeof(struct kedge_device_attr), set by the caller
 * @flags:       KEDGE_DEVICE_*
 * @max_len:     longest range it registers at once, in bytes
 * @max_regions: registrations at one time
 * @chunk_len:   the piece in which large areas are best registered, in bytes
 * @access:      the access it can give; more is refused with -EOPNOTSUPP
 */
struct kedge_device_attr {
	uint32_t size;
	uint32_t flags;
	uint64_t max_len;
	uint64_t max_regions;
	uint64_t chunk_len;
	uint32_t access;
	uint32_t reserved;
};

/** KEDGE_DEVICE_WRITES - every registration lets the device write, so memory
 *  must be writable whatever access is asked for */
#define KEDGE_DEVICE_WRITES (1u << 0)
/** KEDGE_DEVICE_PINS - registrations pin pages and count against
 *  RLIMIT_MEMLOCK */
#define KEDGE_DEVICE_PINS (1u << 1)
/** KEDGE_DEVICE_EXACT - reg takes ranges that do not start or end at a page,
 *  and a peer reaches no byte beyond them */
#define KEDGE_DEVICE_EXACT (1u << 2)
/** KEDGE_DEVICE_EXCLUSIVE - no byte may be in two registrations at a time, as with
 *  CUDA's host registrations and VFIO's mappings: reg would answer -EEXIST. The cache
 *  ends what overlaps a new registration and is not held; where it is held, get fails
 *  with -EBUSY, and getv goes around it unless it has lost pages. A cache takes a
 *  device for such a one when its reg has answered -EEXIST */
#define KEDGE_DEVICE_EXCLUSIVE (1u << 3)

/** KEDGE_PRESERVE_UNSURE - something happened to the range: the memory may have
 *  been unmapped or dropped, or other memory may be mapped there now. What is
 *  not present is not to be made so */
#define KEDGE_PRESERVE_UNSURE (1u << 0)
/** KEDGE_PRESERVE_MOVED - the memory may be mapped elsewhere in the process now,
 *  by mremap() */
#define KEDGE_PRESERVE_MOVED (1u << 1)

/**
 * struct kedge_device_ops - a device, as its author writes it
 * @size:  sizeof(struct kedge_device_ops)
 * @name:  "uring"; static
 * @reg:   register [addr, addr + len) for @access and fill @mr; both ends are
 *         page-aligned, but for KEDGE_DEVICE_EXACT and remote access that ends
 *         with its put. 0 or a negative errno, and nothing left behind on
 *         failure. -ENOSPC: the device has no room, the cache evicts and tries
 *         again; so it does for -ENOMEM and -EAGAIN. -EEXIST: a part of the
 *         range is registered, see KEDGE_DEVICE_EXCLUSIVE
 * @dereg: end a registration; transfers in flight are the caller's affair: the
 *         program holds a reference through them. May be NULL if @try_dereg is not
 * @query: fill @attr, whose size is set; may be NULL
 * @close: free @ctx; every registration is gone by then; may be NULL
 * @replace: the pages of @mr, a registration of [addr, addr + len), have
 *         changed in [changed, changed + changed_len): let it name those that
 *         are mapped there now, under the same handle, and let go of the old
 *         ones. Nobody holds @mr. 0 or a negative errno; then the cache
 *         registers anew and deregisters @mr. NULL: it always does
 * @bind:  let a peer reach exactly [addr, addr + len), a part of the
 *         registration @mr, for the remote rights in @access, by
 *         @window->handle: a memory window. Cheaper than reg; NULL where there
 *         is no such thing. 0 or a negative errno; -EOPNOTSUPP: the cache
 *         registers the part by itself
 * @unbind: end a window: when this returns no peer reaches the memory by it.
 *         Set if @bind is
 * @preserve: what the device wrote to [addr, addr + len), a part of the
 *         registration @mr, has to outlive it; @flags are KEDGE_PRESERVE_*. The
 *         cache calls it for registrations with a right to write: before dereg,
 *         or right after reg where nothing tells it what becomes of the memory.
 *         It leaves out what the program dropped, what is within another
 *         registration with the same rights, and what nobody got. NULL: nothing
 *         has to be done
 * @try_dereg: dereg, where that can fail: 0, or a negative errno, and the
 *         registration has not ended. Its bytes stay accounted, and the cache tries
 *         again: at later misses, a flush and the close. kedge_cache_stats() counts
 *         it, the first failure is logged. NULL: dereg is called
 *
 * A device that writes to memory marks the pages dirty by the time it lets go
 * of them, as ib_umem_release() does for RDMA: data in a page that
 * madvise(MADV_FREE) took are lost under memory pressure otherwise. Where its
 * kernel part does not, as io_uring's does not, preserve does it, with
 * madvise(MADV_POPULATE_WRITE) for example. Reclaim leaves pages alone that are
 * pinned, so that the end of the registration is early enough.
 *
 * Threads: every op may run on any thread, several at once. None may call
 * kedge with the same device's cache. dereg and try_dereg also run within the
 * program's malloc_trim(), and may not close any cache there.
 */
struct kedge_device_ops {
	uint32_t size;
	uint32_t reserved;
	const char *name;
	int (*reg)(void *ctx, void *addr, size_t len, uint32_t access,
		   struct kedge_device_mr *mr);
	void (*dereg)(void *ctx, const struct kedge_device_mr *mr);
	int (*query)(void *ctx, struct kedge_device_attr *attr);
	void (*close)(void *ctx);
	int (*replace)(void *ctx, struct kedge_device_mr *mr, void *addr,
		       size_t len, void *changed, size_t changed_len);
	int (*bind)(void *ctx, const struct kedge_device_mr *mr, void *addr,
		    size_t len, uint32_t access,
		    struct kedge_device_mr *window);
	void (*unbind)(void *ctx, const struct kedge_device_mr *window);
	void (*preserve)(void *ctx, const struct kedge_device_mr *mr,
			 void *addr, size_t len, uint32_t flags);
	int (*try_dereg)(void *ctx, const struct kedge_device_mr *mr);
};

/**
 * kedge_device_open() - make a device of an ops table
 * @ops: copied; the name is borrowed
 * @ctx: handed to every op; the device ends it through ops->close
 * @dev: set on success, left untouched on failure
 *
 * Threads: any. Fork: a device is of the process that opened it, as what it
 * stands for is.
 * Ownership: the caller ends *@dev with kedge_device_close(); on failure @ctx
 * stays the caller's.
 *
 * Return: 0, or -EINVAL if @ops or @dev is NULL, reg, dereg or name is
 * missing, bind comes without unbind or @ops->size is too small,
 * -E2BIG if @ops is of a newer version and sets a field unknown here, -ENOMEM.
 */
KEDGE_API int kedge_device_open(const struct kedge_device_ops *ops, void *ctx,
				struct kedge_device **dev);

/**
 * kedge_device_close() - end a device; its caches are closed before
 * @dev: may be NULL
 *
 * Threads: one, the last user.
 */
KEDGE_API void kedge_device_close(struct kedge_device *dev);

/**
 * kedge_device_query() - what a device can do
 * @dev:  borrowed
 * @attr: filled; @attr->size is set by the caller
 *
 * Threads: any.
 *
 * Return: 0, -EINVAL for a NULL pointer or a size too small, or what the
 * device's own query returns.
 */
KEDGE_API int kedge_device_query(struct kedge_device *dev,
				 struct kedge_device_attr *attr);

/**
 * kedge_device_name() - the device's name, as its ops table has it
 * @dev: borrowed
 *
 * Threads: any.
 *
 * Return: a string that lives as long as the ops table's author promised.
 */
KEDGE_API const char *kedge_device_name(const struct kedge_device *dev);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_DEVICE_H */
