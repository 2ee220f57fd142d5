/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XPMEM's calls, for software that was written for it, over kedge's segments: no kernel
 * module of XPMEM's is needed. docs/segments.md says what is the same and what is not.
 *
 * Calls return -1 (xpmem_attach() (void *)-1) and set errno:
 *   EINVAL      an argument is wrong, or a handle is not known (any more)
 *   EACCES      the segment's permit mode does not let this user do that
 *   ENOENT      no process has that segment (any more)
 *   EOPNOTSUPP  that memory cannot be attached on this machine: it takes the module
 *               kedge_segment, or it is neither heap, stack nor anonymous
 *   ESTALE      the owner has ended, or has unmapped that part
 *   ENOMEM, EMFILE, ENFILE, EAGAIN, ENOSPC  something is not to be had: see
 *               kedge_segment_make() and kedge_segment_attach()
 *
 * Threads: any call from any; not from signal handlers. Fork: a child has no attachments,
 * and handles are its parent's: calls with them fail there with EINVAL or ECHILD.
 */
#ifndef XPMEM_H
#define XPMEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of xpmem_version(): 2.7, as major << 16 | minor << 12. */
#define XPMEM_CURRENT_VERSION	    0x00027000
#define XPMEM_CURRENT_VERSION_MAJOR 2
#define XPMEM_CURRENT_VERSION_MINOR 7

/* The access that xpmem_get() asks for. */
#define XPMEM_RDONLY 0x1
#define XPMEM_RDWR   0x2

/* The permit type of xpmem_make(): its value is a file's permission bits. */
#define XPMEM_PERMIT_MODE 0x1

/* A segment of this size at address 0 is the whole address space. */
#define XPMEM_MAXADDR_SIZE ((size_t)-1)

typedef int64_t xpmem_segid_t;
typedef int64_t xpmem_apid_t;

struct xpmem_addr {
	xpmem_apid_t apid;
	off_t offset;
};

int xpmem_version(void);

/*
 * The whole pages from @vaddr on become a segment: its id, which is positive, to be given
 * to others. @permit_value: the mode, as (void *)0600.
 */
xpmem_segid_t xpmem_make(void *vaddr, size_t size, int permit_type, void *permit_value);
/* Attachments that others have fault with SIGBUS from now on. */
int xpmem_remove(xpmem_segid_t segid);

/* The right to attach: a handle of this process. @permit_value is not looked at. */
xpmem_apid_t xpmem_get(xpmem_segid_t segid, int flags, int permit_type, void *permit_value);
/* Its attachments are detached. */
int xpmem_release(xpmem_apid_t apid);

/*
 * Map @size bytes at @addr.offset of the segment, and say where that byte is. @vaddr: NULL;
 * an address of the caller's choice is EINVAL.
 */
void *xpmem_attach(struct xpmem_addr addr, size_t size, void *vaddr);
/* @vaddr: any address of an attachment, all of which is unmapped. */
int xpmem_detach(void *vaddr);

#ifdef __cplusplus
}
#endif

#endif /* XPMEM_H */
