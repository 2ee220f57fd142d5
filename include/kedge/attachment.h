/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attachments: another process's memory, of a segment, mapped here. A part of kedge/segment.h.
 */
#ifndef KEDGE_ATTACHMENT_H
#define KEDGE_ATTACHMENT_H

#include <kedge/segment.h>

#ifdef __cplusplus
extern "C" {
#endif

/** KEDGE_ATTACH_KEEP - pages that the owner takes back stay mapped: what is read there
 *  from then on is old, or zeros, and what is written there goes nowhere. For readers that
 *  ask kedge_segment_valid() after they have read */
#define KEDGE_ATTACH_KEEP (1u << 0)

/* The head of every attachment: private, here for the inline load below. */
struct kedge_attachment_head {
	const uint64_t *generation;
	uint64_t seen;
	void *addr;
	size_t len;
};

/**
 * kedge_segment_attach() - map a part of a segment into this process
 * @grant:      borrowed; outlives the attachment
 * @offset:     of the first byte, within the segment
 * @len:        bytes, at least 1
 * @flags:      KEDGE_ATTACH_KEEP, or 0
 * @attachment: set on success, left untouched on failure
 *
 * Pages are mapped, nothing is copied. What the grant is not for cannot be done with the
 * mapping either: a grant to read gives one that mprotect() does not make writable.
 *
 * Touching what the owner has taken away since (kedge_segment_valid() tells) is a SIGBUS,
 * once this process's thread has heard of it; with KEDGE_ATTACH_KEEP it is not. So is
 * touching a hole, until it is attached anew.
 *
 * Threads: any; not for signal handlers. Fork: a forked child does not have the mapping.
 * Ownership: the caller ends *@attachment with kedge_segment_detach(). The addresses are
 * kedge's until then: do not unmap or map over them.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      a pointer is NULL, a flag is unknown, or the range is not within the
 *                segment
 *   -EOPNOTSUPP  the segment, or that part, can only be copied: kedge_segment_copy()
 *   -ESTALE      the owner has ended, has removed the segment, or has unmapped a part
 *                of that range
 *   -EFAULT      the owner has nothing mapped there; with KEDGE_ATTACH_KEEP: in a part of it
 *   -EBUSY, -ENOSPC, -ETIMEDOUT  as kedge_segment_make() has them; the owner is stopped
 *   -ENOMEM      no memory, or no mapping left (vm.max_map_count)
 *   -ECHILD      the grant belongs to the parent process
 */
KEDGE_API int kedge_segment_attach(struct kedge_grant *grant, uint64_t offset, size_t len,
				   uint32_t flags, struct kedge_attachment **attachment);

/**
 * kedge_segment_reattach() - map the owner's present memory at the same addresses
 * @attachment: *@attachment is the one; set to what replaces it, or NULL on failure
 *
 * The owner has changed that memory (kedge_segment_valid() is false), or maps something now
 * where a hole was: the addresses stay, and show what it has there. Without the
 * module that is for segments whose parts are converted when they are attached; of others it
 * serves where another part of the segment has changed.
 *
 * Threads: one, the last user: nobody touches the memory meanwhile. Fork: not in a child.
 * Ownership: on failure nothing is attached, as after kedge_segment_detach(); in a child nothing
 * changes.
 *
 * Return: 0, or a negative errno of kedge_segment_attach(); -EINVAL for NULL.
 */
KEDGE_API int kedge_segment_reattach(struct kedge_attachment **attachment);

/**
 * kedge_segment_detach() - unmap an attachment
 * @attachment: may be NULL; nobody uses its memory any more
 *
 * Threads: one, the last user. Fork: in a child it frees the child's copy alone.
 */
KEDGE_API void kedge_segment_detach(struct kedge_attachment *attachment);

/**
 * kedge_segment_addr() - where an attachment is
 * @attachment: borrowed
 *
 * Threads: any.
 *
 * Return: the address of the first byte that was asked for.
 */
static inline void *kedge_segment_addr(const struct kedge_attachment *attachment)
{
	return ((const struct kedge_attachment_head *)(const void *)attachment)->addr;
}

/**
 * kedge_segment_valid_slow() - kedge_segment_valid() where its load does not tell
 * @attachment: borrowed
 *
 * Threads: any.
 *
 * Return: 1 or 0.
 */
KEDGE_API int kedge_segment_valid_slow(struct kedge_attachment *attachment);

/**
 * kedge_segment_valid() - whether an attachment still is the owner's memory
 * @attachment: borrowed
 *
 * Data loaded before it says yes were the owner's memory when they were loaded: load
 * first, then ask. It becomes false before the owner's munmap(), mremap() or MADV_DONTNEED
 * of a part of the attached range (with the module: of pages that were touched) returns
 * there, and stays false. It may be false for other reasons, too: attach anew then.
 *
 * Threads: any: one load of the owner's counter, and a look at this process's tables when
 * that has moved. Fork: false in a forked child.
 *
 * Return: true or false.
 */
static inline bool kedge_segment_valid(struct kedge_attachment *attachment)
{
	const struct kedge_attachment_head *h =
		(const struct kedge_attachment_head *)(const void *)attachment;

	/* ThreadSanitizer knows no fences. */
#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
	return __atomic_load_n(h->generation, __ATOMIC_ACQUIRE) ==
		       __atomic_load_n(&h->seen, __ATOMIC_RELAXED) ||
	       kedge_segment_valid_slow(attachment);
}

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_ATTACHMENT_H */
