// SPDX-License-Identifier: BSD-2-Clause
/*
 * The page swap's calls. Around the change every notifier is told: a lookup that
 * begins after the announcement finds no registration of either range, and what
 * is registered before its end is not kept. The announcement also takes the
 * ranges out of the hands of kedge's own userfaultfds: a mapping can be watched
 * by one only.
 */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "notify/announce/announce.h"
#include "notify/inflight.h"
#include "pages/internal.h"

#define TAKEN_TRIES  1000 /* somebody keeps watching what we want to swap */
#define TAKEN_NAP_NS 50000
#define FLAGS_ALL    (KEDGE_SWAP_MOVE | KEDGE_SWAP_REMAP | KEDGE_SWAP_PHYS)
/* KEDGE_SWAP_PHYS that refuses what KEDGE_SWAP_MOVE does: pages that are pinned. */
#define PHYS_UNPINNED (1u << 31)

/* 0, or -EINVAL with a reason. */
static int swap_check(uintptr_t a, uintptr_t b, size_t len, uint32_t flags)
{
	size_t mask = kedge__page_size() - 1;
	uintptr_t end_a, end_b;

	if (flags & ~FLAGS_ALL)
		return kedge_reason(-EINVAL, "unknown flag: 0x%x", flags);
	if (!len || (a | b | len) & mask)
		return kedge_reason(-EINVAL, "not whole pages: 0x%llx and "
				    "0x%llx + %zu", (unsigned long long)a,
				    (unsigned long long)b, len);
	if (__builtin_add_overflow(a, len, &end_a) ||
	    __builtin_add_overflow(b, len, &end_b) || end_a > UINTPTR_MAX / 2 ||
	    end_b > UINTPTR_MAX / 2)
		return kedge_reason(-EINVAL, "a range wraps");
	if (a < end_b && b < end_a)
		return kedge_reason(-EINVAL, "the ranges overlap");
	return 0;
}

static int by_way(uintptr_t a, uintptr_t b, size_t len, uint32_t way,
		  bool taken)
{
	if (way == KEDGE_SWAP_MOVE)
		return swap_by_move(a, b, len);
	if (way == KEDGE_SWAP_REMAP)
		return swap_by_remap(a, b, len);
	return swap_by_phys(a, b, len, way == KEDGE_SWAP_PHYS, taken);
}

/* @taken: a watch was in the way, if only of a neighbour's. mremap() looks at
 * the mapping, so to it each would be. */
static int announced(uintptr_t a, uintptr_t b, size_t len, uint32_t way,
		     bool taken)
{
	void (*begin)(struct kedge_hook *hook, int kind, const void *addr,
		      size_t len) =
			taken || way == KEDGE_SWAP_REMAP ? announce_to_all
							 : kedge_hook_begin;
	struct kedge_hook ha, hb;
	int rc;

	begin(&ha, KEDGE_EVENT_REMOVE, (void *)a, len);
	begin(&hb, KEDGE_EVENT_REMOVE, (void *)b, len);
	inflight_begin(&kedge__swaps);
	rc = by_way(a, b, len, way, taken);
	inflight_end(&kedge__swaps);
	kedge_hook_end(&hb);
	kedge_hook_end(&ha);
	return rc;
}

/* At first only a watch of the range itself has been told. */
bool swap_try_again(uint32_t ended, unsigned int tries)
{
	const struct timespec nap = { 0, TAKEN_NAP_NS };

	if (tries == 1)
		return true;
	if (!inflight_since(&kedge__watches, ended) || tries == TAKEN_TRIES)
		return false;
	/* No library's: those are cancellation points. */
	if (tries % 8 == 0)
		syscall(SYS_nanosleep, &nap, NULL);
	return true;
}

/*
 * With signals held back: a handler that touched a range would wait for the
 * thread that it interrupts.
 */
static int one_way(uintptr_t a, uintptr_t b, size_t len, uint32_t way)
{
	unsigned int tries = 0;
	uint32_t ended;
	sigset_t saved;
	int rc = swap_begin(&saved);

	if (rc)
		return rc;
	do {
		ended = inflight_ended(&kedge__watches);
		rc = announced(a, b, len, way, tries);
	} while (rc == SWAP_TAKEN && swap_try_again(ended, ++tries));
	swap_end(&saved);
	if (rc == SWAP_TAKEN)
		rc = kedge_reason(-EOPNOTSUPP, "another userfaultfd watches "
				  "that memory: copy instead");
	return rc;
}

/* A way that is not to be had here, or not for that memory: others may be. */
static bool not_that_way(int rc)
{
	return rc == -EOPNOTSUPP || rc == -E2BIG;
}

static int any_way(uintptr_t a, uintptr_t b, size_t len, uint32_t ways)
{
	uint32_t way;
	int rc;

	do {
		way = ways & (ways - 1) ? swap_fastest(a, b, len, ways) : ways;
		rc = one_way(a, b, len, way);
		ways &= ~way;
	} while (not_that_way(rc) && ways);
	return rc;
}

int kedge_page_swap_with(void *a, void *b, size_t len, uint32_t flags)
{
	int rc = swap_check((uintptr_t)a, (uintptr_t)b, len, flags);

	if (rc)
		return rc;
	if (flags)
		return any_way((uintptr_t)a, (uintptr_t)b, len, flags);
	rc = one_way((uintptr_t)a, (uintptr_t)b, len, PHYS_UNPINNED);
	if (not_that_way(rc))
		rc = one_way((uintptr_t)a, (uintptr_t)b, len, KEDGE_SWAP_MOVE);
	return rc;
}

int kedge_page_swap(void *a, void *b, size_t len)
{
	return kedge_page_swap_with(a, b, len, 0);
}

size_t kedge__pages_huge_len(void)
{
	return pages_huge_len();
}

/* Announced: kedge's own watch would be a difference. */
int kedge__pages_alike(const void *dst, const void *src, size_t len)
{
	struct kedge_hook hook;
	int rc;

	announce_to_all(&hook, KEDGE_EVENT_REMOVE, dst, len);
	rc = swap_alike((uintptr_t)dst, (uintptr_t)src, len);
	kedge_hook_end(&hook);
	return rc;
}

int kedge__pages_replace(void *dst, void *src, size_t len,
			 const struct kedge__move_calls *calls)
{
	struct kedge_hook hook;
	sigset_t saved;
	int rc = swap_begin(&saved);

	if (rc)
		return rc;
	announce_to_all(&hook, KEDGE_EVENT_REMOVE, dst, len);
	inflight_begin(&kedge__swaps);
	if (calls)
		calls->moving(calls->ctx, dst, src, len);
	rc = remap_replace((uintptr_t)dst, (uintptr_t)src, len);
	if (calls)
		calls->moved(calls->ctx, rc > 0 ? -ENOMEM : rc);
	inflight_end(&kedge__swaps);
	kedge_hook_end(&hook);
	swap_end(&saved);
	return rc < 0 ? rc : 0;
}

int pages_land(void *dst, void *landing, size_t len, uint32_t flags)
{
	return kedge_page_swap_with(dst, landing, len, flags);
}
