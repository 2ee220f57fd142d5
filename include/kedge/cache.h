/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registration cache. The contract: when kedge_cache_get() returns a
 * registration, the pages that the device will touch are the pages that the
 * calling thread sees there, for as long as it holds the registration, unless
 * the application itself changes that mapping meanwhile.
 *
 * No call here is a cancellation point (pthreads(7)), nor is the device in it: a
 * thread that is cancelled in one finishes it first.
 */
#ifndef KEDGE_CACHE_H
#define KEDGE_CACHE_H

#include <kedge/cache_stats.h>
#include <kedge/device.h>
#include <kedge/notifier.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_cache;

/** KEDGE_CACHE_TRUSTED_PEERS - registrations with remote access are kept, as
 *  others are: a peer that knows a key reaches the memory until the
 *  registration is dropped, long after its put. Without this flag remote access
 *  ends before the put returns */
#define KEDGE_CACHE_TRUSTED_PEERS (1u << 0)
/** KEDGE_CACHE_RESYNC - a thread of the cache's own calls
 *  kedge_cache_resync() for all there is whenever something has changed */
#define KEDGE_CACHE_RESYNC (1u << 1)
/** KEDGE_CACHE_SINGLE_THREAD - one thread alone uses the cache: the first that
 *  does, for all but kedge_cache_stats(), and kedge_cache_close() when it has
 *  ended. Its hits cost less. The other threads of the process may do what they
 *  like with the memory; in a call on the cache they get -EPERM, and their puts
 *  are reported and leave the reference. Not with KEDGE_CACHE_RESYNC, which is a
 *  second thread */
#define KEDGE_CACHE_SINGLE_THREAD (1u << 2)

/**
 * struct kedge_cache_opts - limits of a cache; 0 is the default
 * @size:         sizeof(struct kedge_cache_opts)
 * @flags:        KEDGE_CACHE_*
 * @max_bytes:    registered bytes kept at most; 0 is what RLIMIT_MEMLOCK
 *                leaves where the device pins and the process is bound by it,
 *                else no limit
 * @max_regions:  registrations kept at most; 0 is what the device takes, and
 *                1 Mi where it names no limit, or fewer where RLIMIT_AS leaves
 *                no address space for as many. Up to 16 Mi
 * @chunk_bytes:  the piece in which kedge_cache_hint() and
 *                kedge_cache_getv() register; 0 is what the device prefers,
 *                else 16 MiB. Rounded down to a power of two
 * @hint_threads: threads that register one hint's chunks; 0 is as many as the
 *                process may use CPUs, at most 8
 * @merge_bytes:  neighbouring registrations are not merged beyond this size;
 *                0 is 64 KiB. A merged page is registered once more for each
 *                doubling, so more pays where a device is short of registrations
 * @max_freed_bytes: registered bytes of memory that malloc()'s free() has taken
 *                back, kept at most for the next malloc(); 0 is 256 MiB. They are
 *                the first to go where another limit is met, too, and all of them
 *                go in malloc_trim(). Counted by whole registrations, at misses;
 *                not with the notifier "ummunot", which hears of no free()
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
	uint64_t max_freed_bytes;
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
 * struct kedge_piece - a part of a range, and the registration that serves it
 * @addr: its first byte
 * @len:  bytes
 * @mr:   a registration that the caller holds
 */
struct kedge_piece {
	uint64_t addr;
	uint64_t len;
	const struct kedge_mr *mr;
};

/**
 * kedge_cache_open() - create a registration cache on a device
 * @dev:   borrowed, must outlive the cache
 * @nf:    borrowed, must outlive the cache. It may serve any number of caches,
 *         and whoever else adds watches to it. NULL: one with the default
 *         options that all such caches of the process share. Where the kernel
 *         lets one notifier watch a mapping ("uffd"), a cache with another one
 *         keeps nothing there: give the caches of several devices the same, or
 *         all NULL
 * @opts:  options with @opts->size set, or NULL for the defaults; copied
 * @cache: set on success, left untouched on failure
 *
 * Threads: any thread may use the cache; none needs a lock of its own.
 * Fork: a cache belongs to the process that opened it; in a forked child every
 * get fails with -ECHILD and kedge_cache_close() only frees memory.
 * Ownership: the caller ends *@cache with kedge_cache_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL  @dev or @cache is NULL, @opts->size is too small, a flag is
 *            unknown, or two flags exclude each other
 *   -E2BIG   @opts is of a newer version and sets a field unknown here, or
 *            asks for more than 16 Mi regions
 *   -ENOMEM  no memory
 *   -EAGAIN  no room for another thread (KEDGE_CACHE_RESYNC)
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
 * A registration that is held all the same stays with the device, as a transfer may use
 * it, and an error is logged.
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
 * Remote access is a right given to a peer. Unless the cache was opened with
 * KEDGE_CACHE_TRUSTED_PEERS, each get with remote access has a key of its own,
 * which covers what was asked for and not a byte more where the device can
 * tell (KEDGE_DEVICE_EXACT; else the pages that hold it), and which is void
 * when the put returns: a memory window over a kept registration where the
 * device has windows, else a registration for this get alone.
 *
 * Threads: any; not in a signal handler, nor to be left by siglongjmp(3), as with
 *          all calls of a cache: they take its lock.
 * Ownership: the caller ends the reference with kedge_cache_put(), on any
 * thread.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @cache or @mr is NULL, @len is 0, @addr + @len wraps, or an
 *                access flag is unknown
 *   -EFAULT      part of the range is not mapped, or not writable where the
 *                device writes
 *   -EOPNOTSUPP  the device cannot give that access or take that memory
 *   -E2BIG       longer than the device registers at once: use
 *                kedge_cache_getv()
 *   -ENOSPC      the device has no room and everything kept is in use
 *   -ENOMEM      no memory, or RLIMIT_MEMLOCK is used up by what is in use
 *   -EBADF       the device is gone (its ring is closed)
 *   -EBUSY       the device takes no byte twice (KEDGE_DEVICE_EXCLUSIVE), and a part of
 *                the range is registered and held, or the device cannot end that:
 *                kedge_cache_getv() goes around what is held and has lost no page
 *   -EEXIST      the device says so of memory that this cache has not registered
 *   -ECHILD      the cache belongs to the parent process
 *   -EPERM       the cache is another thread's (KEDGE_CACHE_SINGLE_THREAD)
 *   or what else the device's reg returns
 */
KEDGE_API int kedge_cache_get(struct kedge_cache *cache, const void *addr,
			      size_t len, uint32_t access,
			      const struct kedge_mr **mr);

/**
 * kedge_cache_tryget() - a registration that covers a range, if there is one
 * @cache:  borrowed
 * @addr:   first byte
 * @len:    bytes, at least 1
 * @access: KEDGE_ACCESS_*, or'ed
 * @mr:     set on success, left untouched on failure
 *
 * The hit of kedge_cache_get() alone, at the same cost: it registers nothing, takes
 * no lock and waits for no device. For callers that hold something others wait for,
 * such as the lock of a language's interpreter, which they let go of before they
 * call kedge_cache_get().
 *
 * Threads: and Ownership: as kedge_cache_get().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL  @cache or @mr is NULL
 *   -EAGAIN  it is no hit, or the cache has to catch up with changes first:
 *            kedge_cache_get() registers, or says why it cannot. So it is where
 *            this thread has not called kedge_cache_get() before, and with remote
 *            access that ends with its put
 */
KEDGE_API int kedge_cache_tryget(struct kedge_cache *cache, const void *addr,
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
 * All who hold a registration have the same @mr. A put too many by a thread that holds
 * none is undone, counted (overputs of kedge_cache_stats()) and logged; else it ends
 * another reference, and may be counted when that is put, or not. With KEDGE_VERIFY=1 in
 * the environment each get has an @mr of its own: a put too many has no effect then, is
 * counted, and the first is printed with its callers.
 *
 * Threads: any, not only the one that got it.
 */
KEDGE_API void kedge_cache_put(struct kedge_cache *cache,
			       const struct kedge_mr *mr);

/**
 * kedge_cache_tryput() - end a reference, if that is all there is to do
 * @cache: borrowed
 * @mr:    as kedge_cache_get() gave it
 *
 * The put to kedge_cache_tryget(): no deregistration, no lock, no wait for a device.
 *
 * Threads: any, not only the one that got it.
 *
 * Return: 0, or a negative errno, and the reference is held still:
 *   -EINVAL @cache or @mr is NULL
 *   -EAGAIN kedge_cache_put() may have more to do: @mr was invalidated or ends with its
 *           put, or this thread got none of what it is to put; always with
 *           KEDGE_CACHE_SINGLE_THREAD, whose puts cost as little, and KEDGE_VERIFY
 */
KEDGE_API int kedge_cache_tryput(struct kedge_cache *cache, const struct kedge_mr *mr);

/**
 * kedge_cache_getv() - registrations that together cover a range
 * @cache:  borrowed
 * @addr:   first byte
 * @len:    bytes, at least 1
 * @access: KEDGE_ACCESS_*, or'ed
 * @pieces: filled with adjacent pieces, in the order of their addresses
 * @max:    how many @pieces has room for
 *
 * For ranges that are registered in chunks (kedge_cache_hint(), or this call),
 * and for devices that register no more than so much at once. Allocates
 * nothing on the way of a hit. Where registrations have lost pages, the holes
 * are filled with registrations of their own; if that makes more than @max
 * pieces, the chunks are registered anew.
 *
 * Threads: any.
 * Ownership: the caller ends the references with kedge_cache_putv(), or one by
 * one with kedge_cache_put().
 *
 * Return: the number of pieces, or a negative errno, and nothing is held:
 *   -ENOBUFS  it takes more than @max pieces
 *   else as kedge_cache_get(), but never -E2BIG
 */
KEDGE_API ssize_t kedge_cache_getv(struct kedge_cache *cache, const void *addr,
				   size_t len, uint32_t access,
				   struct kedge_piece *pieces, size_t max);

/**
 * kedge_cache_putv() - end the references of a kedge_cache_getv()
 * @cache:  borrowed
 * @pieces: as kedge_cache_getv() filled them
 * @cnt:    how many
 *
 * Threads: any, not only the one that got them.
 */
KEDGE_API void kedge_cache_putv(struct kedge_cache *cache,
				const struct kedge_piece *pieces, size_t cnt);

/**
 * kedge_cache_resync() - make good what has been invalidated, ahead of use
 * @cache: borrowed
 * @addr:  first byte of the area to look at
 * @len:   bytes; 0 with @addr NULL is everything
 *
 * A registration that lost pages is made again, chunk by chunk:
 * those that changed and no others. A transfer in flight keeps the old pages
 * of its chunk until its put; those on other chunks notice nothing. Where the
 * device can swap pages under one handle and nobody holds the chunk, its handle
 * stays. Memory that is not there any more is forgotten. Gets that come sooner
 * register by themselves what they need.
 *
 * Up to 1,024 losses are remembered, and more cost others their place.
 *
 * Threads: any.
 *
 * Return: the bytes registered anew, 0 if there was nothing to do, or
 *   -EINVAL  @cache is NULL, or the range is empty or wraps
 *   -ECHILD  the cache belongs to the parent process
 *   -EPERM   the cache is another thread's (KEDGE_CACHE_SINGLE_THREAD)
 *   or, where nothing could be registered, what the device's reg returns
 */
KEDGE_API ssize_t kedge_cache_resync(struct kedge_cache *cache,
				     const void *addr, size_t len);

/**
 * kedge_cache_hint() - want a whole area cached in one shot
 * @cache:  borrowed
 * @addr:   first byte
 * @len:    bytes, at least 1
 * @access: KEDGE_ACCESS_*, or'ed
 *
 * Registers in chunks, on several threads where the area is large, what is not
 * registered yet. A get within one chunk is a hit from then on, and so is a
 * kedge_cache_getv(). Remote access that ends with its put cannot be wanted
 * ahead: only the local part of @access counts then.
 *
 * Threads: any.
 *
 * Return: the bytes of the area that are registered now, or a negative errno
 * as kedge_cache_get(), where no chunk could be; -EOPNOTSUPP: such memory is not kept.
 */
KEDGE_API ssize_t kedge_cache_hint(struct kedge_cache *cache, const void *addr,
				   size_t len, uint32_t access);

/**
 * kedge_cache_vouch() - promise that the pages of a range stay
 * @cache: borrowed
 * @addr:  first byte
 * @len:   bytes, at least 1
 *
 * Memory that the notifier cannot watch (files, shared memory without seals, memory that
 * another userfaultfd owns) is registered for each get and not kept. From this call to
 * kedge_cache_unvouch() registrations within the range are kept. The caller promises that
 * no process unmaps, truncates, punches or replaces what is there meanwhile; if one does,
 * transfers go to pages that nobody sees. What libkedge-hooks sees this process unmap is
 * noticed. Memory that can be watched is watched as ever. Of no effect with the notifier
 * "none". A memfd with F_SEAL_SHRINK and F_SEAL_FUTURE_WRITE needs it not.
 *
 * Threads: any. Ranges may overlap, and be vouched for more than once.
 * Return: 0, or a negative errno:
 *   -EINVAL  @cache is NULL, @len is 0, or @addr + @len wraps
 *   -ENOMEM  no memory
 *   -ECHILD  the cache belongs to the parent process
 *   -EPERM   the cache is another thread's (KEDGE_CACHE_SINGLE_THREAD)
 */
KEDGE_API int kedge_cache_vouch(struct kedge_cache *cache, const void *addr, size_t len);

/**
 * kedge_cache_unvouch() - end a promise, before the pages change
 * @cache: borrowed
 * @addr:  as it was vouched for
 * @len:   likewise
 *
 * Registrations kept there on the caller's word are dropped: at once, or by their last put.
 *
 * Threads: any.
 *
 * Return: 0, or a negative errno:
 *   -ENOENT  that range was not vouched for
 *   else as kedge_cache_vouch(), but never -ENOMEM
 */
KEDGE_API int kedge_cache_unvouch(struct kedge_cache *cache, const void *addr,
				  size_t len);

/**
 * kedge_cache_flush() - drop every registration that nobody holds
 * @cache: borrowed
 *
 * A held registration ends by its last put; on an exclusive device it stays.
 *
 * Threads: any.
 *
 * Return: the number of registrations dropped at once, or -EINVAL for a NULL
 * pointer, -ECHILD in a forked child, -EPERM where the cache is another thread's
 * (KEDGE_CACHE_SINGLE_THREAD).
 */
KEDGE_API ssize_t kedge_cache_flush(struct kedge_cache *cache);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_CACHE_H */
