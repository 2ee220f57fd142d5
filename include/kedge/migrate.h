/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A committed region (kedge/region.h) goes to another process, on this host or on another one, with
 * its handles. Its peers go on by the same handles: they wait for a moment, and are sent there. The
 * way of it, copying while peers go on and again what they have changed since, is that of "Live
 * Migration of Virtual Machines" (Clark and others, 2005).
 *
 * No call here is a cancellation point (pthreads(7)): a thread that is cancelled in one finishes it
 * first.
 */
#ifndef KEDGE_MIGRATE_H
#define KEDGE_MIGRATE_H

#include <kedge/region.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_invitation;

/**
 * struct kedge_invitation_opts - what a process lets come to it; zero is the default in each field
 * @size:    sizeof(struct kedge_invitation_opts)
 * @flags:   0
 * @node:    an address of this host, or a name of one, that an owner on another host comes to, and
 *           later the region's peers; NULL: all of them are on this host
 * @service: a port or its name; NULL: one that is free
 * @max_len: bytes of the longest region that is taken; 0: any that this process can have
 */
struct kedge_invitation_opts {
	uint32_t size;
	uint32_t flags;
	const char *node;
	const char *service;
	uint64_t max_len;
};

/**
 * kedge_invitation_open() - invite one region
 * @opts:       @opts->size set, or NULL for the defaults; copied
 * @invitation: set on success, left untouched on failure
 * @handle:     set on success: what the region's owner gives to kedge_region_migrate(). It is
 *              passed on as a handle is, and is as secret; it opens nothing
 *
 * Threads: any. Fork: a child has none of it. Ownership: the caller ends *@invitation with
 * kedge_invitation_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL an argument is NULL, @opts->size is too small, or a flag is unknown
 *   -E2BIG  @opts is of a newer version and sets a field unknown here
 *   -ENOMEM no memory
 *   and as of kedge_region_advertise(), for a thread, descriptors, /proc and @opts->node
 */
KEDGE_API int kedge_invitation_open(const struct kedge_invitation_opts *opts,
				    struct kedge_invitation **invitation,
				    struct kedge_handle *handle);

/**
 * kedge_invitation_accept() - wait for the region, and own it
 * @invitation: from kedge_invitation_open()
 * @timeout_ms: milliseconds until it is here; -1: no limit
 * @region:     set on success: the region, which this process owns now, and ends with
 *              kedge_region_close(). It counts as one that was created here
 *
 * When the call returns 0 the former owner does not serve the region any more, and this process
 * does, by all handles that it had. If it fails the former owner keeps the region, and the call may
 * be made again, but for -EALREADY. A former owner that ended at the very end of it, with all of
 * the region here, leaves it to this process.
 *
 * Threads: one at a time.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL    an argument is NULL
 *   -ETIMEDOUT the region was not here in time
 *   -ECANCELED its owner has given up, as the reason says
 *   -ECONNRESET the connection to its owner was lost before all of it was here
 *   -EFBIG     it is longer than @opts->max_len, or than RLIMIT_FSIZE lets a file be
 *   -EPROTO    the owner does not keep to the protocol, or is of another version
 *   -EALREADY  the region has come already
 *   -ECHILD    this process is a child of the one that opened the invitation
 *   and as of kedge_region_create(), for its memory
 */
KEDGE_API int kedge_invitation_accept(struct kedge_invitation *invitation, int timeout_ms,
				      struct kedge_region **region);

/**
 * kedge_invitation_close() - give it up
 * @invitation: ended; may be NULL
 *
 * Threads: no other thread uses it. Fork: in a child it frees a few bytes.
 */
KEDGE_API void kedge_invitation_close(struct kedge_invitation *invitation);

/* Flags of struct kedge_migrate_opts. */
#define KEDGE_MIGRATE_QUIET 1u /* this process does not store in the region from now on */

/* The ways to find stores of the owner itself. */
enum kedge_migrate_track {
	KEDGE_TRACK_ALL = 0,	 /* they are not: all of it is copied while peers wait */
	KEDGE_TRACK_QUIET,	 /* there are none: KEDGE_MIGRATE_QUIET */
	KEDGE_TRACK_USERFAULTFD, /* write-protection by userfaultfd: Linux 6.7 */
	KEDGE_TRACK_SOFT_DIRTY,	 /* soft-dirty bits: all such pages are copied while peers wait */
};

/**
 * struct kedge_migrate_info - how a migration goes, or went
 * @size:     set by the caller of kedge_region_migrate(): sizeof(struct kedge_migrate_info)
 * @rounds:   times that the region was gone through, with the last, for which peers wait
 * @len:      bytes of the region
 * @sent:     bytes of it that were sent; those of pages that have been zero are not
 * @left:     bytes of this round that are not sent yet
 * @last:     bytes of the last round
 * @pause_ns: time for which peers waited
 * @total_ns: time of all
 * @track:    enum kedge_migrate_track
 * @rdma:     1: the bytes went by adapters (kedge_region_use_verbs(),
 *            kedge_region_use_ofi()); 0: by the connection
 */
struct kedge_migrate_info {
	uint32_t size;
	uint32_t rounds;
	uint64_t len;
	uint64_t sent;
	uint64_t left;
	uint64_t last;
	uint64_t pause_ns;
	uint64_t total_ns;
	uint32_t track;
	uint32_t rdma;
};

/**
 * struct kedge_migrate_opts - how a region migrates; zero is the default in each field
 * @size:       sizeof(struct kedge_migrate_opts)
 * @flags:      0, or KEDGE_MIGRATE_QUIET
 * @timeout_ms: milliseconds for which the other process, or a peer with an access under way, may
 *              be waited for; 0: 10,000
 * @pause_ms:   the last round begins once it should take no longer; 0: 20
 * @max_rounds: and in any case when there were as many; 0: 30
 * @pad:        0
 * @forward_ms: milliseconds for which those who come with a handle are told where the region is,
 *              and after which they get -EKEYREVOKED here; 0: an hour
 * @freeze:     called before the last round: when it has returned 0 this process stores in the
 *              region no more. Another value ends the migration, and the region stays. May be NULL
 * @progress:   called between rounds and some ten times a second, with how it goes; a value that is
 *              not 0 ends the migration, and the region stays. May be NULL
 * @arg:        for both of them, which are called in the thread that called kedge_region_migrate()
 */
struct kedge_migrate_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t timeout_ms;
	uint32_t pause_ms;
	uint32_t max_rounds;
	uint32_t pad;
	uint64_t forward_ms;
	int (*freeze)(void *arg);
	int (*progress)(void *arg, const struct kedge_migrate_info *info);
	void *arg;
};

/**
 * kedge_region_migrate() - give a region to another process
 * @region:     a region
 * @invitation: of kedge_invitation_open(), in the process that it goes to
 * @opts:       @opts->size set, or NULL for the defaults; copied
 * @info:       @info->size set; filled on success; may be NULL
 *
 * Peers that have the memory are turned out of it first, and their accesses done by this
 * process's thread meanwhile, which is slower. The region is copied; what has changed since,
 * again, until little is left; peers wait for the last of it. When the call returns 0 the other
 * process owns the region, and its handles are valid there. Here the addresses are not memory any
 * more, an access to them ends the program by SIGSEGV, caches are told as of munmap(), and the
 * region is only to be closed. Peers that are connected have been told where it is, and this
 * process may end; those that come later with a handle are told as long as it lives, for
 * @opts->forward_ms, and get -EKEYREVOKED after that. The threads that tell them, and their
 * descriptors, are there until a region is closed when that time is over, and there is no other.
 *
 * From @opts->freeze on, or with KEDGE_MIGRATE_QUIET from the beginning, the memory can only be
 * read here: a store ends the program by SIGSEGV rather than be lost. Where there is no
 * @opts->freeze, threads that store have to be stopped before. Stores of devices that have been
 * given the memory, and of O_DIRECT reads and io_uring's buffers, are not seen: they have to be
 * over.
 *
 * If this process is killed meanwhile, the region is gone, as with any owner, or the other process
 * owns it, if all of it was there; if the other one is killed, the region stays here. There are
 * never two owners. Where the connection is lost in the moment of the change, this process does
 * not know whether the other one owns the region: it asks, up to @opts->timeout_ms, and then fails
 * with -EINPROGRESS. The region is suspended then; the call is made again, with the same
 * invitation, to ask again. To close it instead tells its peers that it is gone.
 *
 * Threads: any. Meanwhile calls that change the region fail with -EBUSY, and those that advertise
 * or revoke wait at the end of it; kedge_region_close() is not called. Fork: in a child it fails.
 *
 * Return: 0, or a negative errno, and then the region stays here, and peers go on, but for
 * -EINPROGRESS:
 *   -EINVAL    @region or @invitation is NULL, that is no invitation, a size is too small, a flag
 *              is unknown
 *   -E2BIG     @opts is of a newer version and sets a field unknown here
 *   -ENODATA   the program has unmapped, replaced or dropped a part of it: kedge_region_recommit()
 *   -ECANCELED @opts->freeze or @opts->progress said so
 *   -ETIMEDOUT the other process does not answer, or a peer's access was not over in time; or
 *              the region came here by a migration, and its former owner, which may have been
 *              killed in that moment, has not said that it knows: the reason says which
 *   -ECONNREFUSED the other process has ended, or is in another network namespace
 *   -ECONNRESET it has ended since, or given up
 *   -EHOSTUNREACH there is no way to it
 *   -EKEYREJECTED the invitation was closed
 *   -EALREADY  it was used by another region
 *   -EREMOTEIO the other process cannot take it, for the reason that is told
 *   -EPROTO    the other process is of another version, or has not the invitation's key
 *   -EBUSY     the region migrates already; or the program has suspended it, before or meanwhile,
 *              and has not resumed it within @opts->timeout_ms
 *   -EREMCHG   it has migrated
 *   -EINPROGRESS it is not known whether it has; see above
 *   -ENOMEM, -EAGAIN, -EMFILE, -ENFILE  no memory, thread or descriptor
 *   -EOPNOTSUPP /proc is not mounted
 *   -ECHILD    as of kedge_region_advertise()
 */
KEDGE_API int kedge_region_migrate(struct kedge_region *region,
				   const struct kedge_handle *invitation,
				   const struct kedge_migrate_opts *opts,
				   struct kedge_migrate_info *info);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_MIGRATE_H */
