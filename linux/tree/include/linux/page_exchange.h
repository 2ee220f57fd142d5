/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef _LINUX_PAGE_EXCHANGE_H
#define _LINUX_PAGE_EXCHANGE_H

#include <linux/bits.h>
#include <linux/sizes.h>

struct mm_struct;

/* Bytes that one call exchanges at the most. */
#define PAGE_EXCHANGE_MAX SZ_1G

/* -EBUSY where a page is pinned, so that no device reaches it at another address. */
#define PAGE_EXCHANGE_UNPINNED BIT(0)

/*
 * Exchange the pages under [a, a + len) and [b, b + len) of the caller's address
 * space @mm, at once for all observers. mm/page_exchange.c has the errors.
 */
int page_exchange(struct mm_struct *mm, unsigned long a, unsigned long b,
		  unsigned long len, unsigned int flags);

#endif /* _LINUX_PAGE_EXCHANGE_H */
