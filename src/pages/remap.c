// SPDX-License-Identifier: BSD-2-Clause
/*
 * The swap by mremap(): a's pages to scratch space, b's to a, and those from
 * scratch space to b. MREMAP_DONTUNMAP leaves an empty mapping where the pages
 * were, so at no moment is there a hole that another thread's mmap() could get.
 *
 * mremap() takes the mapping along with the pages. So both must be alike, and
 * each swap may leave mappings that do not melt with their neighbours, as the
 * kernel remembers where their pages came from. What may be left is counted:
 * COST for each swap, from a budget that is measured anew when it is used up.
 * Swapping the same ranges again leaves no more of them, which the measuring sees.
 */
#include <sched.h>
#include <sys/mman.h>

#include "base/process/own.h"
#include "pages/internal.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define VMA_COST  4 /* mappings that a swap leaves behind at the most */
#define VMA_SHARE 8 /* one in so many of vm.max_map_count may be ours */
#define BUDGET_MAX 1024 /* swaps between two looks: others map, too */
#define TRIES	  64

static struct sig_lock lock = SIG_LOCK_INIT; /* guards what follows */
static size_t budget; /* swaps until mappings are counted again */

/*
 * Others map too: only half of what is free is taken before the next look, and
 * no more once seven eighths of the limit are used.
 */
static int pay(void)
{
	size_t have, max;
	int rc = 0;

	sig_lock(&lock);
	if (!budget) {
		rc = swap_vma_count(&have, &max);
		if (!rc && have + 2 * VMA_COST < max - max / VMA_SHARE)
			budget = (max - max / VMA_SHARE - have) / 2 / VMA_COST;
		else if (!rc)
			rc = kedge_reason(-ENOMEM, "%zu of %zu mappings are in "
					  "use: raise vm.max_map_count, or let "
					  "userfaultfd do it, which needs none",
					  have, max);
	}
	if (budget > BUDGET_MAX)
		budget = BUDGET_MAX;
	if (!rc)
		budget--;
	sig_unlock(&lock);
	return rc;
}

/* The kernel has no mapping left: what was counted is out of date. */
static void count_again(void)
{
	sig_lock(&lock);
	budget = 0;
	sig_unlock(&lock);
}

/* The pages of @from, with their mapping, to @to; an empty one stays. */
static int carry(uintptr_t to, uintptr_t from, size_t len)
{
	void *p = own_remap((void *)from, (void *)to, len,
			    MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP);

	return p == MAP_FAILED ? -errno : 0;
}

/*
 * A move that failed after the kernel had unmapped the place that it goes to: memory
 * like it is mapped there, and gets the data. False: there is none to be had.
 */
static bool restore(uintptr_t to, uintptr_t from, size_t len)
{
	unsigned char resident;

	if (!mincore((void *)to, kedge__page_size(), &resident))
		return false;
	if (mmap((void *)to, len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
	    MAP_FAILED)
		return false;
	memcpy((void *)to, (void *)from, len);
	return true;
}

/*
 * From scratch space to where an empty mapping waits: it must not fail. If there
 * is no mapping to be had for a while the data is copied; the pages then are
 * new ones.
 */
static void carry_home(uintptr_t to, uintptr_t from, size_t len)
{
	unsigned int i;

	for (i = 0; i < TRIES; i++) {
		if (!carry(to, from, len))
			return;
		sched_yield();
	}
	memcpy((void *)to, (void *)from, len);
}

static int exchange(uintptr_t a, uintptr_t b, uintptr_t scratch, size_t len)
{
	int rc = carry(scratch, a, len);

	if (rc)
		return rc;
	rc = carry(a, b, len);
	carry_home(rc ? a : b, scratch, len);
	return rc;
}

static int refused(int rc)
{
	if (rc == -ENOMEM)
		return kedge_reason(rc, "no memory, or no mapping left: raise "
				    "vm.max_map_count");
	return kedge_reason(-EOPNOTSUPP, "mremap() does not move that memory "
			    "(%s): Linux 5.7 does, unless it is sealed",
			    strerrordesc_np(-rc));
}

int remap_exchange(uintptr_t a, uintptr_t b, size_t len)
{
	size_t huge = pages_huge_len(), area_len = len + 2 * huge;
	uintptr_t at;
	void *area;
	int rc;

	area = mmap(NULL, area_len, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return refused(-errno);
	at = round_up((uintptr_t)area, huge) + (a & (huge - 1));
	rc = exchange(a, b, at, len);
	munmap(area, area_len);
	return rc ? refused(rc) : 0;
}

int remap_replace(uintptr_t a, uintptr_t b, size_t len)
{
	int rc = pay();

	if (rc)
		return rc;
	rc = carry(a, b, len);
	if (rc == -ENOMEM)
		count_again();
	/* The kernel looks for room before it unmaps anything; what it may lack
	 * after that is a page table. */
	if (rc && restore(a, b, len))
		return 1;
	return rc ? refused(rc) : 0;
}

int swap_by_remap(uintptr_t a, uintptr_t b, size_t len)
{
	int rc = swap_alike(a, b, len);

	if (!rc)
		rc = pay();
	if (rc)
		return rc;
	rc = remap_exchange(a, b, len);
	if (rc == -ENOMEM)
		count_again();
	return rc;
}
