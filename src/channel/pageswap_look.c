// SPDX-License-Identifier: BSD-2-Clause
/*
 * Whether a range is of huge pages, every one mapped whole.
 */
#include "channel/pageswap_priv.h"

#define PIECES_MAX 64u

bool pages_are_huge(const void *at, size_t len)
{
	size_t unit = pages_huge_len(), cnt = len / unit, i;
	uint8_t kind[PIECES_MAX];
	struct swap_kit *kit;
	bool huge = true;

	if (unit == kedge__page_size() || (uintptr_t)at % unit || len % unit ||
	    cnt > PIECES_MAX || kit_get(unit, &kit))
		return false;
	move_classify(kit, (uintptr_t)at, len, kind);
	kit_put(kit);
	for (i = 0; i < cnt; i++)
		huge = huge && kind[i] == PIECE_HUGE;
	return huge;
}
