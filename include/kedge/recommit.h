/* SPDX-License-Identifier: BSD-2-Clause */
/* A region (kedge/region.h) that its program has unmapped or emptied a part of is repaired. The
 * call is no cancellation point (pthreads(7)). */
#ifndef KEDGE_RECOMMIT_H
#define KEDGE_RECOMMIT_H

#include <kedge/region.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct kedge_recommit_info - what was repaired
 * @size:   set by the caller: sizeof(struct kedge_recommit_info)
 * @flags:  0
 * @mapped: bytes that were not mapped, and are again, with what peers have stored
 * @lost:   bytes that had no page any more: they are zero
 */
struct kedge_recommit_info {
	uint32_t size;
	uint32_t flags;
	uint64_t mapped;
	uint64_t lost;
};

/**
 * kedge_region_recommit() - repair a region that the program has unmapped a part of
 * @region: a region
 * @offset: of the first byte
 * @len:    bytes; 0: up to the end. Whole pages that have one of them are repaired
 * @info:   @info->size set; filled on success; may be NULL
 *
 * The region's memory is its own as long as it lives. A program that unmaps a part of it, maps
 * other memory over it, moves it away, or drops its pages, breaks that. From the first
 * kedge_region_advertise() on it is noticed (KEDGE_REGION_WATCHED in kedge_region_query()):
 * accesses of peers to that range which begin after the program's call has returned fail
 * with -ENODATA, and others go on. Calls that would touch the range, as kedge_region_trim(), fail
 * as well. It takes userfaultfd (Linux 5.19, without privilege); where a process has none its peers
 * are served, and each access looks at the mapping. What is not told, as a hole that is punched by
 * another descriptor of the file, shmat(SHM_REMAP), remap_file_pages() and MADV_GUARD_INSTALL, is
 * repaired all the same, or -EEXIST, as is a changed protection.
 *
 * The region's pages are put back where nothing is mapped, those that were dropped are had anew
 * and are zero, all are readable, writable and locked, and peers go on. Other memory that is
 * there is not touched: unmap it first.
 *
 * Threads: any, but none that changes the mapping of that range meanwhile. Fork: as
 * kedge_region_grow().
 *
 * Return: 0, or a negative errno, and then peers' accesses to the range fail still:
 *   -EINVAL @region is NULL, the range is not within its length, or @info->size is too small
 *   -EEXIST other memory is there: the reason names its range
 *   -EAGAIN the program has changed the region's mapping meanwhile, be it elsewhere: call it
 *           again; or pages are missing, for which no process can be made (RLIMIT_NPROC, pids.max)
 *           that may write /proc/self/oom_score_adj, as in a daemon that has changed its user: see
 *           PR_SET_DUMPABLE
 *   -ENOMEM there is not as much memory, or too many mappings, or RLIMIT_MEMLOCK is used up
 *   -EMFILE, -ENFILE  no descriptor is left
 *   -EOPNOTSUPP there is no /proc, by which the mappings are looked at
 *   -EBUSY, -EREMCHG, -EINPROGRESS  as of kedge_region_grow()
 *   -ECHILD this process is a child of the one that made it
 */
KEDGE_API int kedge_region_recommit(struct kedge_region *region, size_t offset, size_t len,
				    struct kedge_recommit_info *info);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_RECOMMIT_H */
