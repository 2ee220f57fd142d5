// SPDX-License-Identifier: BSD-2-Clause
/*
 * Whether a range is of huge pages, every one mapped whole, or of none.
 */
#include "channel/pageswap_priv.h"

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
