/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registration cache. The contract: when kedge_cache_get() returns a
 * registration, the pages that the device will touch are the pages that the
 * calling thread sees there, for as long as it holds the registration, unless
 * the application itself changes that mapping meanwhile.
 */
#ifndef KEDGE_CACHE_H
#define KEDGE_CACHE_H

#include <kedge/device.h>
#include <kedge/notifier.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_cache;

/**
 * struct kedge_cache_opts - limits of a cache; 0 is the default
 * @size:         sizeof(struct kedge_cache_opts)
 * @flags:        0
 * @max_bytes:    registered bytes kept at most; 0 is what RLIMIT_MEMLOCK
 *                leaves where the device pins and the process is bound by it,
 *                else no limit
 * @max_regions:  registrations kept at most; 0 is what the device takes, and
 *                1 Mi where it names no limit. Up to 16 Mi
 * @chunk_bytes:  the piece in which kedge_cache_hint() registers; 0 is what
 *                the device prefers, else 16 MiB. Rounded up to pages
 * @hint_threads: threads that register one hint's chunks; 0 is as many as the
 *                process may use CPUs, at most 8
 * @merge_bytes:  neighbouring registrations are not merged beyond this size;
 *                0 is @chunk_bytes
 */
struct kedge_cache_opts {
	uint32_t size;
	uint32_t flags;
	uint64_t max_bytes;
	uint64_t max_regions;
	uint64_t chunk_bytes;
	uint64_t merge_bytes;
	uint32_t hint_threads;
	uint32_t reserved;
};

/**
 * struct kedge_mr - a registration that the caller holds; read only
 * @addr:          first registered byte
 * @len:           registered bytes
 * @device_handle: the device's handle: a buffer index, an lkey and rkey
 * @offset:        the device's position of @addr; that of a byte a within is
 *                 @offset + (a - @addr)
 * @access:        the access it allows; at least what was asked for
 * @reserved:      private
 */
struct kedge_mr {
	uint64_t addr;
	uint64_t len;
	uint64_t device_handle;
	uint64_t offset;
	uint32_t access;
	uint32_t reserved;
};

/**
 * struct kedge_cache_stats - what a cache has done since it was opened
 * @size:            sizeof(struct kedge_cache_stats), set by the caller
 * @regions:         registrations now
 * @gets:            successful kedge_cache_get() calls
 * @hits:            those that found a registration
 * @misses:          those that registered
 * @uncached:        misses whose registration could not be kept (the memory
 *                   cannot be watched, or is being changed)
 * @merges:          registrations that replaced neighbours
 * @invalidations:   registrations that lost all or a part to an event
 * @registrations:   calls of the device's reg that succeeded
 * @deregistrations: calls of its dereg
 * @evictions:       registrations dropped for a limit
 * @resyncs:         times a get found that the generation had moved
 * @bytes:           bytes registered now
 * @bytes_peak:      the most there were
 * @register_ns:     time spent in the device's reg, in nanoseconds
 * @failures:        gets that failed
 */
struct kedge_cache_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t regions;
	uint64_t gets;
	uint64_t hits;
	uint64_t misses;
	uint64_t uncached;
	uint64_t merges;
	uint64_t invalidations;
	uint64_t registrations;
	uint64_t deregistrations;
	uint64_t evictions;
	uint64_t resyncs;
	uint64_t bytes;
	uint64_t bytes_peak;
	uint64_t register_ns;
	uint64_t failures;
};

/**
 * kedge_cache_open() - create a registration cache on a device
 * @dev:   borrowed, must outlive the cache
 * @nf:    borrowed, must outlive the cache and serves it alone: the cache reads
 *         its events. NULL opens one with the default options that the cache
 *         owns. Where the kernel lets one notifier watch a mapping ("uffd"), a
 *         second cache keeps nothing there: share one cache
 * @opts:  options with @opts->size set, or NULL for the defaults; copied
 * @cache: set on success, left untouched on failure
 *
 * Threads: any thread may use the cache; none needs a lock of its own.
 * Fork: a cache belongs to the process that opened it; in a forked child every
 * get fails with -ECHILD and kedge_cache_close() only frees memory.
 * Ownership: the caller ends *@cache with kedge_cache_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL  @dev or @cache is NULL, @opts->size is too small, or a flag is
 *            unknown
 *   -E2BIG   @opts is of a newer version and sets a field unknown here, or
 *            asks for more than 16 Mi regions
 *   -EBUSY   another cache uses @nf
 *   -ENOMEM  no memory
 *   or what kedge_notifier_open() returns, where @nf is NULL
 */
KEDGE_API int kedge_cache_open(struct kedge_device *dev,
			       struct kedge_notifier *nf,
			       const struct kedge_cache_opts *opts,
			       struct kedge_cache **cache);

/**
 * kedge_cache_close() - deregister everything and free the cache
 * @cache: may be NULL; every reference has been put
 *
 * Threads: one, the last user.
 */
KEDGE_API void kedge_cache_close(struct kedge_cache *cache);

/**
 * kedge_cache_get() - a registration that covers a range
 * @cache:  borrowed
 * @addr:   first byte
 * @len:    bytes, at least 1
 * @access: KEDGE_ACCESS_*, or'ed
 * @mr:     set on success, left untouched on failure
 *
 * A hit is a few loads: no lock, no system call. A miss registers the pages
 * that hold the range; where the memory cannot be watched the registration
 * lives until its put.
 *
 * Threads: any.
 * Ownership: the caller ends the reference with kedge_cache_put(), on any
 * thread.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @cache or @mr is NULL, @len is 0, @addr + @len wraps, or an
 *                access flag is unknown
 *   -EFAULT      part of the range is not mapped, or not writable where the
 *                device writes
 *   -EOPNOTSUPP  the device cannot give that access or take that memory
 *   -E2BIG       longer than the device registers at once
 *   -ENOSPC      the device has no room and everything kept is in use
 *   -ENOMEM      no memory, or RLIMIT_MEMLOCK is used up by what is in use
 *   -EBADF       the device is gone (its ring is closed)
 *   -ECHILD      the cache belongs to the parent process
 *   or what else the device's reg returns
 */
KEDGE_API int kedge_cache_get(struct kedge_cache *cache, const void *addr,
			      size_t len, uint32_t access,
			      const struct kedge_mr **mr);

/**
 * kedge_cache_put() - end a reference
 * @cache: borrowed
 * @mr:    as kedge_cache_get() gave it; NULL does nothing
 *
 * The registration is kept for the next get. Where it was invalidated
 * meanwhile, the last put deregisters it.
 *
 * Threads: any, not only the one that got it.
 */
KEDGE_API void kedge_cache_put(struct kedge_cache *cache,
			       const struct kedge_mr *mr);

/**
 * kedge_cache_hint() - want a whole area cached in one shot
 * @cache:  borrowed
 * @addr:   first byte
 * @len:    bytes, at least 1
 * @access: KEDGE_ACCESS_*, or'ed
 *
 * Registers in chunks, on several threads where the area is large, what is not
 * registered yet. A get within one chunk is a hit from then on.
 *
 * Threads: any.
 *
 * Return: the bytes of the area that are registered now, or a negative errno
 * as kedge_cache_get(), where no chunk could be registered.
 */
KEDGE_API ssize_t kedge_cache_hint(struct kedge_cache *cache, const void *addr,
				   size_t len, uint32_t access);

/**
 * kedge_cache_flush() - drop every registration that nobody holds
 * @cache: borrowed
 *
 * What is held leaves the index and is deregistered by its last put.
 *
 * Threads: any.
 *
 * Return: the number of registrations dropped at once, or -EINVAL for a NULL
 * pointer, -ECHILD in a forked child.
 */
KEDGE_API ssize_t kedge_cache_flush(struct kedge_cache *cache);

/**
 * kedge_cache_stats() - what the cache has done
 * @cache: borrowed
 * @stats: filled; @stats->size is set by the caller
 *
 * Threads: any; counters of threads in the middle of a get may lag by one.
 *
 * Return: 0, or -EINVAL for a NULL pointer or a size too small, -ECHILD in a
 * forked child.
 */
KEDGE_API int kedge_cache_stats(struct kedge_cache *cache,
				struct kedge_cache_stats *stats);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_CACHE_H */
