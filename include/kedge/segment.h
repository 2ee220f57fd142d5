/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments: memory of one process that others load and store directly, with no system
 * call for an access. It stays its owner's, who may unmap and remap it; those who have
 * attached it learn of that.
 *
 * The idea is SGI's XPMEM: a process exposes its memory, another one attaches a piece of it.
 * A kernel module maps the owner's pages; without it, they become shareable in place.
 *
 *	owner                                another process
 *	kedge_segment_make(), _id()   ---->  kedge_segment_get(), _attach()
 *	loads and stores                     loads, stores, kedge_segment_valid()
 *	kedge_segment_remove()               kedge_segment_detach(), _release()
 */
#ifndef KEDGE_SEGMENT_H
#define KEDGE_SEGMENT_H

#include <stdbool.h>

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_segment;
struct kedge_grant;
struct kedge_attachment;

/** KEDGE_SEGMENT_READ - loads from a segment, or copies out of it */
#define KEDGE_SEGMENT_READ (1u << 0)
/** KEDGE_SEGMENT_WRITE - stores to a segment, or copies into it; implies reading */
#define KEDGE_SEGMENT_WRITE (1u << 1)

/** KEDGE_SEGMENT_ID_TEXT - bytes of an id in text, with the final zero */
#define KEDGE_SEGMENT_ID_TEXT 34

/**
 * struct kedge_segment_id - what names a segment on this host
 * @word: 63 random bits, and 64 more by which the owner proves that it is the one; the
 *        second may be 0 where only 64 bits could be handed on, and nothing is proved
 *
 * It cannot be guessed, and is no secret from those who may attach the segment.
 */
struct kedge_segment_id {
	uint64_t word[2];
};

/**
 * enum kedge_segment_backend - how others reach the memory of a segment
 * @KEDGE_SEGMENT_ANY:     in options: the first to be had of MODULE, CONVERT, COPY
 * @KEDGE_SEGMENT_COPY:    by kedge_segment_copy() alone
 * @KEDGE_SEGMENT_CONVERT: its pages were made a shared mapping of a memfd in place;
 *                         private anonymous memory, Linux 6.8 and later
 * @KEDGE_SEGMENT_MODULE:  the module kedge_segment maps the pages that the owner has at
 *                         each moment: memory of any kind but devices', left as it is
 */
enum kedge_segment_backend {
	KEDGE_SEGMENT_ANY = 0,
	KEDGE_SEGMENT_COPY = 1,
	KEDGE_SEGMENT_CONVERT = 2,
	KEDGE_SEGMENT_MODULE = 3,
};

/** KEDGE_SEGMENT_WHOLE - the address space, as it is and will be; offsets are its addresses */
#define KEDGE_SEGMENT_WHOLE (1u << 0)
/** KEDGE_SEGMENT_ON_ATTACH - without the module: what is attached is converted, when it is */
#define KEDGE_SEGMENT_ON_ATTACH (1u << 1)

/**
 * struct kedge_segment_opts - how to make a segment; 0 is the default
 * @size:    sizeof(struct kedge_segment_opts)
 * @backend: enum kedge_segment_backend; KEDGE_SEGMENT_ANY alone takes another one instead
 * @mode:    who may get it, as a file's permission bits: 0400 and 0200 for processes of
 *           this effective user id, 0040 and 0020 for its group, 0004 and 0002 for
 *           others. 0 is 0600. Root has no right by itself; to the module CAP_IPC_OWNER has
 * @flags:   KEDGE_SEGMENT_WHOLE, KEDGE_SEGMENT_ON_ATTACH, or 0
 */
struct kedge_segment_opts {
	uint32_t size;
	uint32_t backend;
	uint32_t mode;
	uint32_t flags;
};

/**
 * struct kedge_segment_info - what a segment is, for its owner and for its peers
 * @size:    sizeof(struct kedge_segment_info), set by the caller
 * @backend: enum kedge_segment_backend
 * @mode:    permission bits of the segment; 0 for a peer
 * @access:  KEDGE_SEGMENT_*: what a grant is for; both for the owner
 * @len:     bytes
 * @addr:    where it is in the owner's memory
 * @pid:     the owner
 * @grants:  that processes have of it; 0 for a peer, or if @mode keeps the owner from it
 * @reason:  why it can only be copied; may be empty
 */
struct kedge_segment_info {
	uint32_t size;
	uint32_t backend;
	uint32_t mode;
	uint32_t access;
	uint64_t len;
	uint64_t addr;
	int32_t pid;
	uint32_t grants;
	char reason[128];
};

/**
 * kedge_segment_make() - let other processes reach a range of this one's memory
 * @addr:    first byte. Others see the whole pages. NULL with KEDGE_SEGMENT_WHOLE
 * @len:     bytes, at least 1; 0 with KEDGE_SEGMENT_WHOLE
 * @opts:    options with @opts->size set, or NULL for the defaults; copied
 * @segment: set on success, left untouched on failure
 *
 * With KEDGE_SEGMENT_MODULE the memory does not change, and may have holes. Without it,
 * private anonymous memory (a heap, a stack, a mapping, what a program has as bss) is made
 * shareable in place: same addresses, same contents. Other threads are stopped for each
 * 4 MiB, as by a debugger, so no store is lost: calls that wait may fail with EINTR
 * (signal(7)). Where they cannot be (a debugger, a seccomp filter, kernel.yama.ptrace_scope
 * above 1), they read and write it meanwhile; then a system call that is given an address
 * there fails with EFAULT, unless the process may have userfaultfd handle the kernel's
 * faults, and no other thread may end, or unmap or move a part of it, before the call
 * returns. It costs about what a copy of its pages costs. Other memory, and what a device or
 * a transfer has pinned, can be copied only.
 *
 * With KEDGE_SEGMENT_ON_ATTACH or KEDGE_SEGMENT_WHOLE, and of a range with holes, it is done
 * when a peer attaches, of what it attaches, for as long as peers have that.
 *
 * From then on kedge's caches keep no registration of the pages, and huge pages are not used
 * there. What the owner does keeps its meaning: munmap() and mremap() take memory from those
 * who have attached it, and MADV_DONTNEED empties it, which makes that part private again.
 * A range that was a segment's already is not converted twice. Threads of kedge's answer those
 * who ask, as long as a segment is there.
 *
 * Threads: any; not for signal handlers, nor two calls about overlapping ranges at once.
 * Fork: see docs/segments.md. The child has the memory as it was at the fork, private, and
 * no segments: its kedge_segment_remove() frees what it has inherited.
 * Ownership: the caller ends *@segment with kedge_segment_remove().
 *
 * Return: 0, or a negative errno, and the memory is as it was:
 *   -EINVAL      a pointer is NULL, @len is 0 or wraps, @opts is too small, or a flag,
 *                backend or mode is unknown
 *   -E2BIG       @opts is of a newer version and sets a field unknown here
 *   -EFAULT      KEDGE_SEGMENT_CONVERT: a part is not mapped; or one is unmapped meanwhile
 *   -EOPNOTSUPP  the backend is not to be had: not that memory, not on this kernel, no module
 *   -EBUSY       KEDGE_SEGMENT_CONVERT: a page is pinned, or may be, or is shared with a child
 *   -ENOSPC      the process has as many segments as it may (1024, in 500 ranges), or the user
 *   -ENOMEM, -EMFILE, -ENFILE, -EAGAIN  no memory, descriptor or thread to be had
 *   -EFBIG       RLIMIT_FSIZE is less than the memory
 *   -EBADF       the program closes descriptors of kedge's all the time
 */
KEDGE_API int kedge_segment_make(void *addr, size_t len,
				 const struct kedge_segment_opts *opts,
				 struct kedge_segment **segment);

/**
 * kedge_segment_remove() - end a segment
 * @segment: may be NULL; nobody else may use it any more
 *
 * Nobody gets it any more. Where it was the last segment of its memory, the pages are
 * taken from those who have attached them (SIGBUS for whoever touches them still; one that
 * does not answer is waited for one second, and what it writes later is not seen), and are
 * private again. What was unmapped meanwhile is left alone. If that fails (no memory) the
 * pages stay as they are, the owner's alone.
 *
 * Threads: one, the last user. Fork: in a child it frees the child's copy alone.
 */
KEDGE_API void kedge_segment_remove(struct kedge_segment *segment);

/**
 * kedge_segment_id() - the id by which others get a segment
 * @segment: borrowed
 * @id:      filled
 *
 * Threads: any. Fork: works in the child; the id is the parent's segment.
 *
 * Return: 0, or -EINVAL for a NULL pointer.
 */
KEDGE_API int kedge_segment_id(const struct kedge_segment *segment,
			       struct kedge_segment_id *id);

/**
 * kedge_segment_id_format() - an id in text
 * @id:   borrowed
 * @text: filled: 33 characters of [0-9a-f-], and a zero
 *
 * Threads: any. Fork: works in the child.
 */
KEDGE_API void kedge_segment_id_format(const struct kedge_segment_id *id,
				       char text[KEDGE_SEGMENT_ID_TEXT]);

/**
 * kedge_segment_id_parse() - read what kedge_segment_id_format() wrote
 * @text: borrowed
 * @id:   filled on success
 *
 * Threads: any. Fork: works in the child.
 *
 * Return: 0, or -EINVAL for a NULL pointer or text that is no id.
 */
KEDGE_API int kedge_segment_id_parse(const char *text, struct kedge_segment_id *id);

/**
 * kedge_segment_info() - what a segment of this process is
 * @segment: borrowed
 * @info:    filled; @info->size is set by the caller
 *
 * Threads: any.
 *
 * Return: 0, or -EINVAL for a NULL pointer or a size too small, -ECHILD in a child.
 */
KEDGE_API int kedge_segment_info(const struct kedge_segment *segment,
				 struct kedge_segment_info *info);

/**
 * kedge_segment_get() - get the right to attach or copy a segment
 * @id:     names it
 * @access: KEDGE_SEGMENT_READ, or with KEDGE_SEGMENT_WRITE
 * @grant:  set on success, left untouched on failure
 *
 * The owner's process decides by this process's user and groups, which the kernel tells
 * it, and by the mode of the segment. The owner is found by an abstract socket, so it is
 * in the same network namespace; it may be this process itself. Waits at most ten seconds
 * for an answer.
 *
 * Threads: any; not for signal handlers.
 * Fork: a grant belongs to the process that got it; in a forked child every call about it
 * but kedge_segment_release() fails with -ECHILD.
 * Ownership: the caller ends *@grant with kedge_segment_release().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      a pointer is NULL, @access is 0 or unknown
 *   -ENOENT      no process on this host has that segment (any more)
 *   -EACCES      the segment's mode does not let this user do that
 *   -ETIMEDOUT   the owner does not answer: it is stopped
 *   -EPROTO      whoever answers is not the owner, or of another version
 *   -EBUSY       the owner has as many grants as it may: 1024
 *   -ENOSPC      this process has as many grants as it may: 1024
 *   -ENOMEM, -EMFILE, -ENFILE, -EAGAIN  no memory, descriptor or thread to be had
 *   -EFBIG       RLIMIT_FSIZE is less than the memory
 *   -EBADF       the program closes descriptors of kedge's all the time
 */
KEDGE_API int kedge_segment_get(const struct kedge_segment_id *id, uint32_t access,
				struct kedge_grant **grant);

/**
 * kedge_segment_release() - give a grant back
 * @grant: may be NULL; its attachments have been detached
 *
 * Threads: one, the last user. Fork: in a child it frees the child's copy alone.
 */
KEDGE_API void kedge_segment_release(struct kedge_grant *grant);

/**
 * kedge_grant_info() - what was granted
 * @grant: borrowed
 * @info:  filled; @info->size is set by the caller
 *
 * Threads: any.
 *
 * Return: 0, or -EINVAL for a NULL pointer or a size too small, -ECHILD in a child.
 */
KEDGE_API int kedge_grant_info(const struct kedge_grant *grant,
			       struct kedge_segment_info *info);

/**
 * kedge_segment_copy() - copy out of a segment, or into it
 * @grant:  borrowed
 * @offset: of the first byte, within the segment
 * @buf:    memory of this process, @len bytes
 * @len:    bytes, at least 1
 * @access: KEDGE_SEGMENT_READ copies to @buf; KEDGE_SEGMENT_WRITE from @buf
 *
 * One system call (process_vm_readv() or process_vm_writev()), for what cannot be attached.
 * The kernel asks that this process may trace the owner (kernel.yama.ptrace_scope).
 *
 * Threads: any.
 *
 * Return: the bytes that were copied: fewer than @len where the owner has nothing mapped
 * behind, or may not write itself. Or a negative errno:
 *   -EINVAL   a pointer is NULL, the range is not within the segment, or @access is not
 *             one of the two
 *   -EACCES   the grant is not for that
 *   -EFAULT   the owner has nothing mapped there (any more), or may not write it
 *   -EPERM    this process may not trace the owner
 *   -ESTALE   the owner has ended or removed the segment
 *   -EBADF    Linux before 6.9: the program has closed a descriptor of kedge's
 *   -ECHILD   the grant belongs to the parent process
 */
KEDGE_API ssize_t kedge_segment_copy(struct kedge_grant *grant, uint64_t offset, void *buf,
				     size_t len, uint32_t access);

#ifdef __cplusplus
}
#endif

#include <kedge/attachment.h>

#endif /* KEDGE_SEGMENT_H */
