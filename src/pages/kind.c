// SPDX-License-Identifier: BSD-2-Clause
/*
 * The kind of a range's pages: huge ones, every one mapped whole, or an empty
 * range; and whether its mappings may be written.
 */
#include <sys/mman.h>

#include "pages/internal.h"

#define PIECES_MAX 64u

enum pages_kind pages_kind(const void *at, size_t len)
{
	size_t unit = pages_huge_len(), cnt = len / unit, i;
	uint8_t kind[PIECES_MAX];
	struct swap_kit *kit;

	if (unit == kedge__page_size() || (uintptr_t)at % unit || len % unit ||
	    !cnt || cnt > PIECES_MAX || kit_get(unit, &kit))
		return PAGES_OTHER;
	move_classify(kit, (uintptr_t)at, len, kind);
	kit_put(kit);
	for (i = 1; i < cnt; i++)
		if (kind[i] != kind[0])
			return PAGES_OTHER;
	return kind[0] == PIECE_HUGE ? PAGES_HUGE
	       : kind[0] == PIECE_EMPTY ? PAGES_NONE : PAGES_OTHER;
}

int kit_writable(struct swap_kit *kit, uintptr_t at, size_t len)
{
	int fd = fd_same(kit->maps, &kit->maps_id) ? kit->maps : -1;
	uintptr_t end = at + len, from = at;
	struct vma_info v = { .end = at };
	bool plain = true;
	int rc = 0;

	for (; !rc && at < end; at = v.end) {
		rc = vma_at(fd, at, &v);
		if (rc == -ENOENT || (!rc && !(v.prot & PROT_WRITE)))
			return kedge_reason(-EFAULT, "the buffer at 0x%llx + %zu "
					    "may not be written",
					    (unsigned long long)from, len);
		plain = plain && v.plain;
	}
	return rc || !plain ? -EOPNOTSUPP : 0;
}

int pages_writable(const void *at, size_t len)
{
	struct swap_kit *kit;
	sigset_t saved;
	int rc;

	if (swap_begin(&saved))
		return -EOPNOTSUPP;
	rc = kit_get(pages_huge_len(), &kit) ? -EOPNOTSUPP : 0;
	if (!rc) {
		rc = kit_writable(kit, (uintptr_t)at, len);
		kit_put(kit);
	}
	swap_end(&saved);
	return rc;
}
