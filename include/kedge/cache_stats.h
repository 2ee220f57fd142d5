/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters of a registration cache.
 */
#ifndef KEDGE_CACHE_STATS_H
#define KEDGE_CACHE_STATS_H

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_cache;

/** enum kedge_uncached - why a registration could not be kept
 * @KEDGE_UNCACHED_LIMIT:    the cache is full, and all in it is in use
 * @KEDGE_UNCACHED_BUSY:     another userfaultfd or notifier watches that memory
 * @KEDGE_UNCACHED_KIND:     the notifier cannot watch such memory, or watches nothing
 * @KEDGE_UNCACHED_MAPPINGS: watching it takes more mappings than vm.max_map_count leaves
 * @KEDGE_UNCACHED_LEAVING:  its pages were being dropped as it was asked for
 * @KEDGE_UNCACHED_CHANGED:  it changed while it was registered
 * @KEDGE_UNCACHED_UNSURE:   the notifier cannot tell its changes from those of other memory now
 * @KEDGE_UNCACHED_OTHER:    no memory, no descriptor
 * @KEDGE_UNCACHED_COUNT:    how many there are
 */
enum kedge_uncached {
	KEDGE_UNCACHED_LIMIT = 0,
	KEDGE_UNCACHED_BUSY = 1,
	KEDGE_UNCACHED_KIND = 2,
	KEDGE_UNCACHED_MAPPINGS = 3,
	KEDGE_UNCACHED_LEAVING = 4,
	KEDGE_UNCACHED_CHANGED = 5,
	KEDGE_UNCACHED_UNSURE = 6,
	KEDGE_UNCACHED_OTHER = 7,
	KEDGE_UNCACHED_COUNT = 8,
};

/**
 * struct kedge_cache_stats - what a cache has done since it was opened
 * @size:            sizeof(struct kedge_cache_stats), set by the caller
 * @regions:         registrations now
 * @gets:            successful kedge_cache_get() calls, and the pieces of
 *                   kedge_cache_getv()
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
 * @lent:            registrations and windows with remote access that ended
 *                   with their put
 * @resynced:        registrations made good ahead of use
 * @replaced:        those of them that the device did under the same handle
 * @vouched:         registrations that were kept on the word of
 *                   kedge_cache_vouch() alone
 * @overputs:        puts of registrations that their callers did not hold, as far
 *                   as is known: with KEDGE_VERIFY=1 all, else those by a thread
 *                   that holds none while no other does
 * @freed_bytes:     of @bytes, what is kept of memory that free() has taken back
 * @dereg_failures:  calls of the device's try_dereg that failed
 * @stuck:           registrations now that the device has failed to end; they are
 *                   in @regions and @bytes, and tried again
 * @uncached_why:    @uncached by enum kedge_uncached
 * @invalidated:     @invalidations by enum kedge_event_kind
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
	uint64_t lent;
	uint64_t resynced;
	uint64_t replaced;
	uint64_t uncached_why[8];
	uint64_t invalidated[8];
	uint64_t overputs;
	uint64_t freed_bytes;
	uint64_t dereg_failures;
	uint64_t stuck;
	uint64_t vouched;
};

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

#endif /* KEDGE_CACHE_STATS_H */
