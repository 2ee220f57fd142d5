/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * /dev/kedge-segment: load from and store to another process's memory.
 *
 * The owner makes a range of its address space a segment; an attacher gets the
 * segment by its id and maps a piece of it. The owner's memory stays what it is:
 * private, huge, of a file. Attached pages are found one by one, at the
 * attacher's first touch, and are the owner's at each moment: before the kernel
 * takes a page from the owner's range (munmap, mremap, madvise, copy on write,
 * reclaim, migration, mprotect, exit), it is taken from every attacher, and the
 * next touch finds what the owner has there then. No page is pinned.
 *
 * A touch of an address where the owner has no mapping, or one that does not
 * permit the access, is a SIGBUS; so is every touch once the segment is gone
 * (KEDGE_SEGMENT_REMOVE, the owner's file closed, exec or exit of the owner). A
 * store breaks the owner's copy on write as the owner's own store would.
 * Mappings of devices, secretmem, and attachments are no part of a segment: a
 * touch of them is a SIGBUS. System calls that pin memory (O_DIRECT, RDMA,
 * io_uring's fixed buffers, process_vm_readv, ptrace) refuse attached memory
 * with EFAULT; read() and write() with it are fine.
 *
 * Files. Each open file of the device has one use, given to it by its first
 * request: it owns the segments that were made with it, or it is a grant, the
 * right to attach one segment. Both belong to the address space of the process
 * that made the request: in another one (a forked child, one that got the
 * descriptor from a socket, after exec) requests that change them, and mmap(), fail with
 * ESRCH. Segments end with the last descriptor of their file.
 *
 * mmap() of a grant, MAP_SHARED, attaches. The offset is that within the segment.
 * PROT_WRITE needs a grant with KEDGE_SEGMENT_WRITE, PROT_EXEC is refused.
 * A forked child does not inherit what its parent has attached.
 *   ESRCH   another address space than that of KEDGE_SEGMENT_GET
 *   EINVAL  the file is no grant; not MAP_SHARED; more than the segment has
 *   EACCES  PROT_WRITE without the right to write
 *   EPERM   PROT_EXEC
 *   ENOSPC  the segment has max_attachments_per_segment mappings
 *   EIDRM   the segment is gone
 * munmap() or mprotect() of a part makes two mappings of one: ENOSPC likewise, one
 * over the limit.
 *
 * The offset with KEDGE_SEGMENT_KEEP added makes an attachment whose touches are no
 * SIGBUS where the owner has no mapping (any more), or not for that access: there is one
 * page for all such places, that attachment's own, of zeros until it stores there. The
 * generation moves before that page is there. For readers that look at the generation
 * after they have read.
 *
 * Other causes of SIGBUS at a touch: memory for the module's own records that
 * max_kib_per_user refuses; an owner's userfaultfd that serves user mode alone.
 * The owner's protection keys are not looked at.
 *
 * The generation. mmap() of one page of a grant at KEDGE_SEGMENT_GENERATION_OFFSET,
 * MAP_SHARED, PROT_READ, shows a __u64 at its start.
 *
 *	It becomes odd before a change takes from attachers any page that an
 *	attacher of this segment has touched, and even again, and greater, when
 *	no such change is running any more. Once the segment is gone it is odd
 *	for ever.
 *
 * So where a load of it (acquire) gives the same even number before and after
 * other accesses to attached memory (with a fence in between), every page that
 * they reached was the owner's during all of them. Where it differs, loads are
 * still of pages that were the owner's when they were made, but a store may have
 * gone to a page that the owner was about to lose. A change of pages that no
 * attacher has touched since they last changed does not move it. It does not
 * tell of the owner's stores.
 *
 * Only 64-bit programs: a 32-bit one gets ENOTTY.
 */
#ifndef _UAPI_LINUX_KEDGE_SEGMENT_H
#define _UAPI_LINUX_KEDGE_SEGMENT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KEDGE_SEGMENT_MAGIC 0xEB

/* Each struct begins with its size, so the number does not hold it. */
#define KEDGE_SEGMENT_MAKE _IO(KEDGE_SEGMENT_MAGIC, 1)
#define KEDGE_SEGMENT_REMOVE _IO(KEDGE_SEGMENT_MAGIC, 2)
#define KEDGE_SEGMENT_GET _IO(KEDGE_SEGMENT_MAGIC, 3)
#define KEDGE_SEGMENT_QUERY _IO(KEDGE_SEGMENT_MAGIC, 4)
#define KEDGE_SEGMENT_LIST _IO(KEDGE_SEGMENT_MAGIC, 5)

/*
 * All requests:
 *   EINVAL  size is less than the first version's, a flag is unknown, a field
 *           that must be 0 is not
 *   E2BIG   size is more than this kernel knows, and what is beyond is not 0
 *   EFAULT  a bad pointer
 *   ENOTTY  an unknown request
 */

/* mmap() offset: with that of the pages. */
#define KEDGE_SEGMENT_KEEP (1ULL << 61)
/* mmap() offset of the generation. */
#define KEDGE_SEGMENT_GENERATION_OFFSET (1ULL << 62)

/* MAKE: the whole address space, as it is and will be; @addr and @len are 0. */
#define KEDGE_SEGMENT_WHOLE (1u << 0)

/*
 * struct kedge_segment_make - make a range of one's own memory a segment
 * @size:  of this struct
 * @flags: KEDGE_SEGMENT_WHOLE
 * @addr:  first byte; it need not be mapped. The segment is the whole pages that hold
 *         the range
 * @len:   in bytes; out with KEDGE_SEGMENT_WHOLE
 * @mode:  who may get it, as for a file: some of 0666. The owner and group are
 *         the caller's fsuid and fsgid
 * @pad:   0
 * @id:    out: 127 random bits; id[0] is positive as a signed number, id[1] is not 0
 *
 *   EINVAL  an empty range, it wraps or reaches into the kernel;
 *           @mode has other bits
 *   EBUSY   the file is a grant
 *   ESRCH   the file owns segments of another address space
 *   ENOSPC  the user has max_segments_per_user segments
 *   EDQUOT  the user has max_kib_per_user of the kernel's memory here
 *   EINTR   the caller is being killed
 */
struct kedge_segment_make {
	__u32 size;
	__u32 flags;
	__u64 addr;
	__u64 len;
	__u32 mode;
	__u32 pad;
	__u64 id[2];
};

/*
 * struct kedge_segment_remove - end a segment; flags: 0
 *
 * When it returns, no attacher can reach the owner's memory through it.
 *   ENOENT  no segment has that id
 *   EPERM   neither the caller's fsuid made it, nor has it CAP_IPC_OWNER
 */
struct kedge_segment_remove {
	__u32 size;
	__u32 flags;
	__u64 id[2];
};

/* Of GET. Write includes read. */
#define KEDGE_SEGMENT_READ (1u << 0)
#define KEDGE_SEGMENT_WRITE (1u << 1)

/*
 * struct kedge_segment_get - make this file a grant
 * @size:   of this struct
 * @flags:  0
 * @id:     of the segment; id[1] may be 0 where only 64 bits could be handed on
 * @access: KEDGE_SEGMENT_READ, with KEDGE_SEGMENT_WRITE or without
 * @pid:    out: of the owner in the caller's namespace, 0 if not in it
 * @addr:   out: of the first byte, in the owner's address space. The page that holds it
 *          is at offset 0
 * @len:    out: bytes, as the owner said
 *
 * The right stays when the segment's mode or the caller's credentials would no
 * more permit it, as that of an open file does.
 *   ENOENT  no segment has that id
 *   EACCES  the mode does not permit it; or WRITE, and the file is O_RDONLY
 *   EBUSY   the file has a use already
 *   EDQUOT, EINTR  as for MAKE
 */
struct kedge_segment_get {
	__u32 size;
	__u32 flags;
	__u64 id[2];
	__u32 access;
	__u32 pid;
	__u64 addr;
	__u64 len;
};

/*
 * struct kedge_segment_query - what there is to know of a segment
 * @size:          of this struct
 * @flags:         0
 * @id:            of the segment
 * @addr:          out: its first byte in the owner's address space
 * @len:           out: bytes
 * @generation:    out
 * @pages:         out: those that attachers have touched and may still reach
 * @invalidations: out: changes that took pages from attachers, so far
 * @pid:           out: of the owner in the caller's namespace, 0 if not in it
 * @uid, @gid:     out: as the caller's namespace knows them
 * @mode:          out
 * @attachments:   out: mappings
 * @grants:        out: files
 *
 *   ENOENT  no segment has that id
 *   EACCES  the caller may not read it
 */
struct kedge_segment_query {
	__u32 size;
	__u32 flags;
	__u64 id[2];
	__u64 addr;
	__u64 len;
	__u64 generation;
	__u64 pages;
	__u64 invalidations;
	__u32 pid;
	__u32 uid;
	__u32 gid;
	__u32 mode;
	__u32 attachments;
	__u32 grants;
};

/*
 * struct kedge_segment_list - ids of the segments that the caller may read
 * @size:  of this struct
 * @flags: 0
 * @ids:   pointer to __u64 [2 * @room]
 * @room:  how many fit
 * @cnt:   out: how many there are, which may be more
 */
struct kedge_segment_list {
	__u32 size;
	__u32 flags;
	__u64 ids;
	__u32 room;
	__u32 cnt;
};

#endif /* _UAPI_LINUX_KEDGE_SEGMENT_H */
