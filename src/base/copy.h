/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying what other processes share. libc copies from some kilobytes on by the
 * processor's string instructions. On some processors of AMD's those are slow
 * where the target is a little further into its page than the source (glibc's
 * bug 30994): 2.9 GB/s instead of 43 were measured on an EPYC for 32 KiB. That is
 * so for a malloc()ed buffer, which begins 16 bytes into a page, and a buffer
 * that begins with its page. Plain moves do not mind.
 */
#ifndef BASE_COPY_H
#define BASE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COPY_ALIAS 4096u /* what addresses are compared by */
#define COPY_CLOSE 64u
#define COPY_SHORT 2048u /* libc does not use them below */

void copy_plain(char *dst, const char *src, size_t len);

static inline void copy_bytes(void *dst, const void *src, size_t len)
{
	size_t ahead = ((uintptr_t)dst - (uintptr_t)src) % COPY_ALIAS;

	if (len >= COPY_SHORT && ahead && ahead < COPY_CLOSE)
		copy_plain(dst, src, len);
	else
		memcpy(dst, src, len);
}

#endif /* BASE_COPY_H */
