/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles: what a process hands to another one so that it reaches a committed region
 * (kedge/region.h), or a part of it, whatever pages are behind it. A handle is 72 bytes,
 * to be sent as they are or as text, and it cannot be guessed: whoever has it has the
 * access that it gives.
 */
#ifndef KEDGE_HANDLE_H
#define KEDGE_HANDLE_H

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Accesses that a handle gives; a sum of them. */
#define KEDGE_HANDLE_READ   1u /* kedge_remote_get() */
#define KEDGE_HANDLE_WRITE  2u /* kedge_remote_put() */
#define KEDGE_HANDLE_ATOMIC 4u /* kedge_remote_fetch_add(), kedge_remote_compare_swap() */

/* Flags of a handle. */
#define KEDGE_HANDLE_SERVED 1u /* the owner does accesses itself: peers never have the memory */

/* Bytes of a handle as text, with the 0 at its end. */
#define KEDGE_HANDLE_TEXT 104

/** struct kedge_handle - a handle: bytes without a meaning to those who pass it on */
struct kedge_handle {
	uint8_t bytes[72];
};

/**
 * struct kedge_handle_opts - what a handle gives; zero is the default in each field
 * @size:       sizeof(struct kedge_handle_opts)
 * @access:     a sum of KEDGE_HANDLE_*; 0: all of them
 * @offset:     where in the region its first byte is, a multiple of 8
 * @len:        bytes; what the region does not have yet belongs to it once it grows. 0:
 *              all that the region may have from there on
 * @expires_ms: milliseconds from now on in which it may be used; 0: no end
 * @node:       an address of this host, or a name of one, that peers on other hosts reach it
 *              by, over TCP; NULL: peers on this host alone
 * @service:    a port or its name; NULL: one that is free, the same for all handles with this
 *              @node. Looked at with @node alone
 * @flags:      0, or KEDGE_HANDLE_SERVED
 * @pad:        0
 */
struct kedge_handle_opts {
	uint32_t size;
	uint32_t access;
	uint64_t offset;
	uint64_t len;
	uint64_t expires_ms;
	const char *node;
	const char *service;
	uint32_t flags;
	uint32_t pad;
};

/**
 * kedge_handle_print() - a handle as text
 * @handle: a handle
 * @text:   room for it: "kedge1:" and letters, digits, "-" and "_"
 * @len:    bytes of @text, at least KEDGE_HANDLE_TEXT
 *
 * Threads: any. Fork: works in the child.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL  an argument is NULL
 *   -ENOBUFS @len is too small
 */
KEDGE_API int kedge_handle_print(const struct kedge_handle *handle, char *text, size_t len);

/**
 * kedge_handle_parse() - a handle from its text
 * @text:   what kedge_handle_print() gave; spaces around it do not matter
 * @handle: set on success, left untouched on failure
 *
 * The owner alone knows whether there is such a region: kedge_remote_open() asks it.
 *
 * Threads: any. Fork: works in the child.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL an argument is NULL, or @text is no handle, or was cut
 */
KEDGE_API int kedge_handle_parse(const char *text, struct kedge_handle *handle);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_HANDLE_H */
