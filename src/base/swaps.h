/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many page swaps of this process have begun, and have ended. While one is
 * under way its userfaultfd has the two mappings, and no other may register
 * them: who is refused by a swap tries again.
 *
 * A swap counts itself in before it registers and out after it has let go. So
 * if what had ended before an attempt is all that had begun after it, no swap
 * was in its way. (The counters and the kernel's lock of the address space are
 * totally ordered: relaxed accesses could let the attempt see a registration
 * whose count it does not see.)
 */
#ifndef KEDGE_BASE_SWAPS_H
#define KEDGE_BASE_SWAPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern _Atomic uint32_t kedge__swaps_begun, kedge__swaps_ended;

static inline void swap_counts_in(void)
{
	atomic_fetch_add(&kedge__swaps_begun, 1);
}

static inline void swap_counts_out(void)
{
	atomic_fetch_add(&kedge__swaps_ended, 1);
}

/* Before an attempt. */
static inline uint32_t swaps_ended(void)
{
	return atomic_load(&kedge__swaps_ended);
}

/* Whether a swap may have been under way since @ended was read. */
static inline bool swaps_since(uint32_t ended)
{
	return atomic_load(&kedge__swaps_begun) != ended;
}

#endif
