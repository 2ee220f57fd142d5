// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * UMMUNOT_SWAP_PAGES. It has nothing to do with a file's watches, but belongs to
 * the same programs: those whose memory is pinned, and who want the data where it
 * is wanted. Watches of either range are told, as of any change.
 */
#include <linux/mm.h>
#include <linux/page_exchange.h>
#include <linux/uaccess.h>

#include "internal.h"

static_assert(sizeof(struct ummunot_swap_ioctl) == 32);

int swap_pages(void __user *arg)
{
	struct ummunot_swap_ioctl r;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	if (r.flags & ~(__u64)UMMUNOT_SWAP_UNPINNED)
		return -EINVAL;
	r.a = untagged_addr(r.a);
	r.b = untagged_addr(r.b);
	return page_exchange(current->mm, r.a, r.b, r.len,
			     r.flags ? PAGE_EXCHANGE_UNPINNED : 0);
}
