/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The segments of this host, for its administrator and for tools: kedge segments is one.
 */
#ifndef KEDGE_SEGMENT_LIST_H
#define KEDGE_SEGMENT_LIST_H

#include <kedge/segment.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_segments;

/**
 * struct kedge_segments_opts - what to list; 0 is the default
 * @size:       sizeof(struct kedge_segments_opts)
 * @flags:      0
 * @pid:        of the only process to list, or 0 for all
 * @timeout_ms: how long owners are waited for, in milliseconds; 0 is ten seconds
 */
struct kedge_segments_opts {
	uint32_t size;
	uint32_t flags;
	int32_t pid;
	uint32_t timeout_ms;
};

/** KEDGE_SEGMENT_UNKNOWN - a count that the backend does not keep */
#define KEDGE_SEGMENT_UNKNOWN UINT32_MAX

/**
 * struct kedge_segment_entry - a segment, or a process that tells nothing of its own
 * @size:     sizeof(struct kedge_segment_entry), set by the caller
 * @status:   0: a segment. Or why @pid tells nothing of its segments, and then only @pid,
 *            @uid and @gid are set: -EACCES it is another user's, -ETIMEDOUT it does not
 *            answer, -EBUSY too many ask it, -EPROTO what it says has no meaning: it is of
 *            another version, or no program of kedge's
 * @pid:      the owner; 0 if it is not in this process's pid namespace, or with -ETIMEDOUT if so
 *            many asked it that no connection came about: it may be the one that was asked for
 * @uid:      its user: with KEDGE_SEGMENT_MODULE as of kedge_segment_make(), else as of
 *            the first one
 * @gid:      its group, likewise
 * @backend:  enum kedge_segment_backend
 * @mode:     permission bits
 * @flags:    KEDGE_SEGMENT_WHOLE, or 0
 * @grants:   that processes have of it
 * @attachments: mappings of it; KEDGE_SEGMENT_UNKNOWN without the module
 * @addr:     where it is in the owner's memory
 * @len:      bytes
 * @reached:  bytes of it that others have at hand: pages that were touched, or are near one
 *            that was, and have not changed since; 0 without the module
 * @changes:  invalidations: changes that others were told of
 * @reason:   why it can only be copied; may be empty. The owner's words
 */
struct kedge_segment_entry {
	uint32_t size;
	int32_t status;
	int32_t pid;
	uint32_t uid;
	uint32_t gid;
	uint32_t backend;
	uint32_t mode;
	uint32_t flags;
	uint32_t grants;
	uint32_t attachments;
	uint64_t addr;
	uint64_t len;
	uint64_t reached;
	uint64_t changes;
	char reason[128];
};

/**
 * kedge_segments_open() - look which segments there are on this host
 * @opts: options with @opts->size set, or NULL for the defaults; copied
 * @list: set on success, left untouched on failure
 *
 * Of segments of the kernel module, those that this user may read. Of others, the processes
 * that have some are asked, in this network namespace: a process tells them to its own user
 * and to root. A process of another user is an entry with the status -EACCES, for whoever is
 * not root; none of these is asked. No entry has an id: those who may see a segment here
 * have no right to it by that.
 *
 * A process that is stopped, or lies, costs no more than the time to wait: it is an entry
 * which says so, and the others are there. 64 are waited for at a time. Processes that end
 * meanwhile are left out. The list does not change after this call.
 *
 * Threads: any; not for signal handlers. Fork: works in the child.
 * Ownership: the caller ends *@list with kedge_segments_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @list is NULL, @opts->size is too small, or a flag is unknown
 *   -E2BIG       @opts is of a newer version and sets a field unknown here
 *   -EOPNOTSUPP  /proc is not there to find the processes by
 *   -ENOMEM, -EMFILE, -ENFILE  no memory or descriptor to be had
 */
KEDGE_API int kedge_segments_open(const struct kedge_segments_opts *opts,
				  struct kedge_segments **list);

/**
 * kedge_segments_next() - the next entry of a list
 * @list:  borrowed
 * @entry: filled if there is one; @entry->size is set by the caller
 *
 * By the owner's pid, then by address.
 *
 * Threads: one at a time. Fork: works in the child.
 *
 * Return: 1; 0 behind the last one; or -EINVAL for a NULL pointer or a size too small.
 */
KEDGE_API int kedge_segments_next(struct kedge_segments *list,
				  struct kedge_segment_entry *entry);

/**
 * kedge_segments_close() - free a list
 * @list: may be NULL
 *
 * Threads: one, the last user. Fork: in a child it frees the child's copy alone.
 */
KEDGE_API void kedge_segments_close(struct kedge_segments *list);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_SEGMENT_LIST_H */
