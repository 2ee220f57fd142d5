/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Access to a region of another process (kedge/region.h) by its handle: a peer's side. On
 * one host the region is mapped, and an access is a copy by this process's processor with
 * no system call. From another host, or as another user, the owner does it, over a connection.
 * The owner may suspend the region, move it, grow and trim it meanwhile.
 *
 * No call here is a cancellation point (pthreads(7)).
 */
#ifndef KEDGE_REMOTE_H
#define KEDGE_REMOTE_H

#include <kedge/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_remote;
struct kedge_directory;

/* The ways to reach a region. */
#define KEDGE_REMOTE_MAPPED 1u /* this process has the memory */
#define KEDGE_REMOTE_SERVED 2u /* the owner does accesses, which are asked for by a socket */
#define KEDGE_REMOTE_RDMA   3u /* adapters put and get; the owner does the other accesses */

/**
 * struct kedge_remote_info - a region, or a part of it, as a peer has it
 * @size:    set by the caller: sizeof(struct kedge_remote_info)
 * @access:  a sum of KEDGE_HANDLE_*
 * @len:     bytes that may be accessed now
 * @max_len: bytes that it can grow to
 * @pid:     the owner
 * @way:     KEDGE_REMOTE_MAPPED, KEDGE_REMOTE_SERVED or KEDGE_REMOTE_RDMA
 */
struct kedge_remote_info {
	uint32_t size;
	uint32_t access;
	uint64_t len;
	uint64_t max_len;
	uint32_t pid;
	uint32_t way;
};

/**
 * kedge_remote_open() - reach what a handle is of
 * @handle:     a handle from the owner
 * @timeout_ms: milliseconds in which the owner has to answer; -1: no limit
 * @remote:     set on success, left untouched on failure
 *
 * On the owner's host, in its network namespace and as its user the region is mapped: two
 * descriptors, and as many bytes of addresses as the region can grow to. Otherwise, and where the
 * owner keeps its memory to itself (KEDGE_HANDLE_SERVED), one connection is made, a descriptor:
 * over TCP to the address that the handle names, or on the host itself. Descriptors are
 * close-on-exec, and not there in a forked child. The handle's key is sent to no other user, nor
 * over a network; both sides show by a keyed hash of random numbers that they have it. What is put
 * and got afterwards is neither encrypted nor signed: networks that others can write to need IPsec
 * or WireGuard.
 *
 * Threads: any. Fork: a child opens the handle itself; with the parent's every call fails
 * but kedge_remote_close(). Ownership: the caller ends *@remote with kedge_remote_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL        an argument is NULL, or @handle is none
 *   -EHOSTUNREACH  the region is on another host, and the handle names no address, or there is no
 *                  way to that
 *   -ECONNREFUSED  its owner has ended, or has no region any more, or is in another
 *                  network namespace, and does not listen at the handle's address
 *   -EKEYREJECTED  the owner has no such handle
 *   -EKEYREVOKED   the handle was revoked, or its region closed
 *   -EKEYEXPIRED   its time is over
 *   -ETIMEDOUT     the owner does not answer
 *   -EPROTO        the owner is of another version of kedge; or who answers has not the
 *                  handle's key
 *   -ENOMEM        no memory, or not as many addresses (RLIMIT_AS) or mappings (vm.max_map_count),
 *                  here or in the owner, as the reason says
 *   -EMFILE, -ENFILE  no descriptor is left, here or in the owner, as the reason says
 *   -EOPNOTSUPP    /proc is not mounted
 *   -EFBIG         the owner may make no file of a page (its ulimit -f)
 *   another        the system refuses what it takes: a filter of system calls (seccomp) forbids a
 *                  socket
 */
KEDGE_API int kedge_remote_open(const struct kedge_handle *handle, int timeout_ms,
				struct kedge_remote **remote);

/**
 * kedge_remote_open_in() - reach what a handle is of, wherever it is now
 * @handle:     a handle from the owner
 * @directory:  where the region was entered (kedge_region_enter()); it is closed after the remote
 * @timeout_ms: milliseconds for all of it; -1: no limit
 * @remote:     set on success, left untouched on failure
 *
 * As kedge_remote_open(), which asks the owner that made the handle: that tells where the region
 * has migrated to, as long as it lives. The directory knows it after that.
 *
 * Threads: any. Fork: as kedge_remote_open(). Ownership: the caller ends *@remote with
 * kedge_remote_close().
 *
 * Return: 0, or a negative errno as of kedge_remote_open(), or of kedge_directory_find() but
 *         -ENOENT
 */
KEDGE_API int kedge_remote_open_in(const struct kedge_handle *handle,
				   struct kedge_directory *directory, int timeout_ms,
				   struct kedge_remote **remote);

/**
 * kedge_remote_close() - give it up
 * @remote: ended; may be NULL
 *
 * Operations that were submitted (kedge_remote_submit()) and are under way end with -ECANCELED
 * before it returns, and their completions stay in the queue.
 *
 * Threads: no other thread uses it. Fork: works in the child.
 */
KEDGE_API void kedge_remote_close(struct kedge_remote *remote);

/**
 * kedge_remote_put() - store bytes in the region
 * @remote:     from kedge_remote_open()
 * @offset:     where, from the first byte that the handle gives
 * @data:       @len bytes
 * @len:        bytes; 0 does nothing
 * @timeout_ms: milliseconds to wait while the region is suspended; -1: no limit
 *
 * The bytes are in the region when the call returns 0: the owner and all peers find them.
 * An access is whole with regard to a suspension: it is before or after it. With regard to
 * other accesses to the same bytes at the same time it is not: each byte is of one of them.
 * Accesses of one thread happen in their order.
 *
 * If the owner ends meanwhile it may return 0: the region is gone then in any case. The first
 * access after a move waits for the owner's thread, the others involve it in nothing. A range
 * beyond the end is told once the region is not suspended.
 *
 * Over a connection (KEDGE_REMOTE_SERVED) an access of more than 256 KiB is made in pieces of
 * that, each of them whole. The owner does them one after the other, and none after one that
 * fails; threads that share @remote take turns, for which one waits as long as @timeout_ms, and
 * 100 ms at least. An owner that does not answer for five seconds beyond @timeout_ms is given up,
 * and so is, without a limit, a host that does not answer for ten.
 *
 * A region that has migrated (kedge_region_migrate()) is looked for where its owner says that it
 * is, and the access done there: that takes @timeout_ms, and five seconds at least. For each owner
 * that it was mapped from a page stays mapped until kedge_remote_close().
 *
 * Threads: any, at the same time. Not in a signal handler.
 *
 * Return: 0, or a negative errno, and then no byte was stored but where it says so:
 *   -EINVAL       @remote is NULL, or @data is and @len is not 0
 *   -EACCES       the handle does not give that access
 *   -EFAULT       the range is beyond what the region has: the reason says how much that
 *                 is. Other accesses go on
 *   -ENODATA      the owner has unmapped, replaced or dropped bytes of the range, which the
 *                 reason names. Other accesses go on, and this one after
 *                 kedge_region_recommit() there
 *   -ETIMEDOUT    the region was suspended for so long; or it was moved, and the owner has
 *                 not said where yet: ask again. With any error but -EINVAL, -EACCES and
 *                 -ECHILD, over a connection, pieces before the one that failed are stored, if
 *                 @len is more than 256 KiB
 *   -EKEYREVOKED  the handle was revoked, or the region closed
 *   -EKEYEXPIRED  the handle's time is over
 *   -ECONNRESET   the owner has ended; or this process has closed the connection, as
 *                 programs do that close what they do not know; or the owner was given up, as it
 *                 does not answer. Over a connection the access may have been done, as a
 *                 whole or in part, or be done still if the owner is only stopped. No access by
 *                 @remote works any more: open the handle again. So it is over a connection
 *                 if @data is not all memory of this process, which is a signal where the
 *                 region is mapped, or adapters put and get
 *   -EPROTO       the owner does not keep to the protocol; as -ECONNRESET
 *   -EMFILE, -ENFILE, -ENOMEM  the region was moved, and to map it anew a descriptor
 *                 is missing, here or in the owner, or memory: the next access tries again.
 *                 -ENOMEM also: the owner has no addresses to do it by (RLIMIT_AS)
 *   -EHOSTUNREACH, -ELOOP  the region has migrated, and there is no way to its owner, or owners
 *                 name each other: the next access looks for it again
 *   -ECHILD       this process is a child of the one that opened it
 */
KEDGE_API int kedge_remote_put(struct kedge_remote *remote, uint64_t offset, const void *data,
			       size_t len, int timeout_ms);

/**
 * kedge_remote_get() - load bytes of the region
 * @remote:     from kedge_remote_open()
 * @offset:     where, from the first byte that the handle gives
 * @data:       @len bytes, filled
 * @len:        bytes; 0 does nothing
 * @timeout_ms: milliseconds to wait while the region is suspended; -1: no limit
 *
 * Threads: as kedge_remote_put().
 *
 * Return: 0, or a negative errno as of kedge_remote_put(), and then @data is untouched, but for
 *         an access in pieces over a connection
 */
KEDGE_API int kedge_remote_get(struct kedge_remote *remote, uint64_t offset, void *data,
			       size_t len, int timeout_ms);

/**
 * struct kedge_remote_part - one of several ranges of an access
 * @offset: where, from the first byte that the handle gives
 * @data:   the caller's memory for it
 * @len:    bytes; 0: it is passed over
 */
struct kedge_remote_part {
	uint64_t offset;
	void *data;
	size_t len;
};

/**
 * kedge_remote_put_parts() - store bytes at several places of the region
 * @remote:     from kedge_remote_open()
 * @parts:      @cnt ranges, in any order; where they overlap the last one stays. Their data is
 *              read only
 * @cnt:        how many; 0 does nothing
 * @timeout_ms: milliseconds to wait while the region is suspended, for all of them; -1: no limit
 *
 * All ranges are there, or none is stored, and all are stored before a suspension, a trim or
 * another change of the region, or after it: they are one access. So it is where the region is
 * mapped, where adapters put, and where the owner does it if their data and 16 bytes for each range
 * are 256 KiB at most, or there is but one range of 256 KiB at most; empty ranges do not count.
 *
 * More than that goes to the owner as several requests, in the order of the ranges: each is of as
 * many whole ranges as fit, and one access; a range of more than 256 KiB has requests of its own,
 * of 256 KiB and the rest. None is done after one that fails, and the first says whether the ends
 * of all ranges are there. An adapter that fails in the middle, also as the owner has waited for it
 * in vain, leaves all of it to the owner, and some ranges may be stored already.
 *
 * Threads: as kedge_remote_put().
 *
 * Return: as kedge_remote_put(), and with -EFAULT, -EACCES, -ENODATA, -ETIMEDOUT and -ENOMEM no
 *         range is stored where they are one access. Of several requests those before the one that
 *         failed are, with -EFAULT only if the region was trimmed meanwhile; so may be some ranges
 *         if an adapter has failed before
 */
KEDGE_API int kedge_remote_put_parts(struct kedge_remote *remote,
				     const struct kedge_remote_part *parts, size_t cnt,
				     int timeout_ms);

/**
 * kedge_remote_get_parts() - load bytes of several places of the region
 * @remote:     from kedge_remote_open()
 * @parts:      @cnt ranges; their data is filled
 * @cnt:        how many; 0 does nothing
 * @timeout_ms: milliseconds to wait while the region is suspended, for all of them; -1: no limit
 *
 * As kedge_remote_put_parts() the other way, with the same limit of one access.
 *
 * Threads: as kedge_remote_put().
 *
 * Return: as kedge_remote_put_parts(), and the data of ranges is untouched where that has none
 *         stored
 */
KEDGE_API int kedge_remote_get_parts(struct kedge_remote *remote,
				     const struct kedge_remote_part *parts, size_t cnt,
				     int timeout_ms);

/**
 * kedge_remote_fetch_add() - add to a number in the region
 * @remote:     from kedge_remote_open()
 * @offset:     of 8 bytes, a multiple of 8; a number in the owner's byte order
 * @add:        what is added, modulo 2^64
 * @old:        set to what was there before; may be NULL
 * @timeout_ms: milliseconds to wait while the region is suspended; -1: no limit
 *
 * Atomic with regard to other atomic accesses, of peers and by the owner's processor
 * (C11 atomics of 8 bytes), and sequentially consistent with them.
 *
 * Threads: as kedge_remote_put().
 *
 * Return: as kedge_remote_put(); also -EINVAL: @offset is not a multiple of 8
 */
KEDGE_API int kedge_remote_fetch_add(struct kedge_remote *remote, uint64_t offset,
				     uint64_t add, uint64_t *old, int timeout_ms);

/**
 * kedge_remote_compare_swap() - replace a number in the region if it is what is expected
 * @remote:     from kedge_remote_open()
 * @offset:     of 8 bytes, a multiple of 8; a number in the owner's byte order
 * @expected:   the number that is replaced
 * @desired:    by that
 * @old:        set to what was there: @expected if it was replaced; may be NULL
 * @timeout_ms: milliseconds to wait while the region is suspended; -1: no limit
 *
 * Threads: as kedge_remote_put().
 *
 * Return: as kedge_remote_fetch_add(); 0 also if it was another number
 */
KEDGE_API int kedge_remote_compare_swap(struct kedge_remote *remote, uint64_t offset,
					uint64_t expected, uint64_t desired, uint64_t *old,
					int timeout_ms);

/**
 * kedge_remote_query() - how much there is, and what may be done
 * @remote: from kedge_remote_open()
 * @info:   @info->size set; filled
 *
 * Over a connection the owner is asked, a second at most; one that does not answer in that time has
 * what it said last, and the connection goes on. A region that has migrated is looked for, five
 * seconds at most.
 *
 * Threads: any.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL an argument is NULL, or @info->size is too small
 *   -ECHILD this process is a child of the one that opened it
 */
KEDGE_API int kedge_remote_query(struct kedge_remote *remote, struct kedge_remote_info *info);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_REMOTE_H */
