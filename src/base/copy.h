/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying what other processes share. Two things are not as libc has them:
 *
 * The processor's string instructions write whole lines and so need not fetch what
 * was there, which is in another processor's cache: from half a kilobyte on they are
 * faster by a third to a half than moves, where the processor is quick to begin
 * them (FSRM). libc begins with them at 8 or 16 KiB.
 *
 * On some processors of AMD's they are slow where the target is a little further
 * into its page than the source (glibc's bug 30994): 2.9 GB/s instead of 43 were
 * measured on an EPYC for 32 KiB. That is so for a malloc()ed buffer, which begins
 * 16 bytes into a page, and a buffer that begins with its page. Plain moves do not
 * mind.
 */
#ifndef BASE_COPY_H
#define BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COPY_ALIAS  4096u /* what addresses are compared by */
#define COPY_CLOSE  64u
#define COPY_SHORT  512u   /* no string instructions below */
#define COPY_LONG   131072u /* libc knows better above */

void copy_plain(char *dst, const char *src, size_t len);

/* Sanitizers see no instructions of ours. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && \
	!defined(__SANITIZE_THREAD__)
extern bool copy_has_strings; /* set before main() */

static inline bool copy_strings(void *dst, const void *src, size_t len)
{
	if (len > COPY_LONG || !copy_has_strings)
		return false;
	__asm__ volatile("rep movsb"
			 : "+D"(dst), "+S"(src), "+c"(len)
			 :
			 : "memory");
	return true;
}
#else
static inline bool copy_strings(void *dst, const void *src, size_t len)
{
	(void)dst;
	(void)src;
	(void)len;
	return false;
}
#endif

static inline void copy_bytes(void *dst, const void *src, size_t len)
{
	size_t ahead = ((uintptr_t)dst - (uintptr_t)src) % COPY_ALIAS;

	if (len < COPY_SHORT)
		memcpy(dst, src, len);
	else if (ahead && ahead < COPY_CLOSE)
		copy_plain(dst, src, len);
	else if (!copy_strings(dst, src, len))
		memcpy(dst, src, len);
}

#endif /* BASE_COPY_H */
