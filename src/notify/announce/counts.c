// SPDX-License-Identifier: BSD-2-Clause
/*
 * Tables of counters, hashed by address: whether there is a watch there, and whether a
 * change is under way there. A collision costs a look at the notifier's tree, or a
 * registration that is not kept. Short watches are counted by 64 KiB, so that they do not
 * slow their neighbours; long ones and changes by 2 MiB.
 */
#include "notify/announce/counts.h"
#include "notify/internal.h"

#define SPAN_MAX      1024u /* granules counted one by one */

#define FINE_SHIFT   16
#define FINE_BITS    16
#define COARSE_SHIFT 21
#define COARSE_BITS  14
#define FINE_MAX     ((uint64_t)16 << 20) /* longer ranges count coarsely */

struct table {
	unsigned int shift;
	unsigned int bits;
	_Atomic uint32_t wide; /* ranges of more than SPAN_MAX granules */
	_Atomic uint32_t *slot;
};

static _Atomic uint32_t fine_slot[1u << FINE_BITS];
static _Atomic uint32_t coarse_slot[1u << COARSE_BITS];
static _Atomic uint32_t changing_slot[1u << COARSE_BITS];
static struct table watched_fine = { FINE_SHIFT, FINE_BITS, 0, fine_slot };
static struct table watched_coarse = { COARSE_SHIFT, COARSE_BITS, 0, coarse_slot };
static struct table changing = { COARSE_SHIFT, COARSE_BITS, 0, changing_slot };

static _Atomic uint32_t *slot_of(const struct table *t, uint64_t granule)
{
	return &t->slot[(granule * 0x9e3779b97f4a7c15ull) >> (64 - t->bits)];
}

static void count(struct table *t, uint64_t start, uint64_t end, uint32_t by)
{
	uint64_t g = start >> t->shift, last = (end - 1) >> t->shift;

	if (last - g >= SPAN_MAX) {
		atomic_fetch_add(&t->wide, by);
		return;
	}
	for (; g <= last; g++)
		atomic_fetch_add(slot_of(t, g), by);
}

/* True if anything may be counted there. */
static bool counted(struct table *t, uint64_t start, uint64_t end)
{
	uint64_t g = start >> t->shift, last = (end - 1) >> t->shift;

	if (atomic_load(&t->wide) || last - g >= SPAN_MAX)
		return true;
	for (; g <= last; g++)
		if (atomic_load(slot_of(t, g)))
			return true;
	return false;
}

static struct table *watched_table(uint64_t start, uint64_t end)
{
	return end - start <= FINE_MAX ? &watched_fine : &watched_coarse;
}

void announce_watch(uint64_t start, uint64_t end)
{
	count(watched_table(start, end), start, end, 1);
}

void announce_unwatch(uint64_t start, uint64_t end)
{
	count(watched_table(start, end), start, end, (uint32_t)-1);
}

bool counts_watched(uint64_t start, uint64_t end)
{
	return counted(&watched_coarse, start, end) ||
	       counted(&watched_fine, start, end);
}

/* A wide question is not answered by "yes" alone: look what is counted. */
bool announce_active(uint64_t start, uint64_t end)
{
	unsigned int i;

	if ((end - 1 - start) >> COARSE_SHIFT < SPAN_MAX - 1)
		return counted(&changing, start, end);
	if (atomic_load(&changing.wide))
		return true;
	for (i = 0; i < 1u << COARSE_BITS; i++)
		if (atomic_load(&changing_slot[i]))
			return true;
	return false;
}

/* A collision, of the caller's with its own even, counts as another's change. */
bool announce_active_beside(uint64_t start, uint64_t end)
{
	uint64_t g = start >> COARSE_SHIFT, last = (end - 1) >> COARSE_SHIFT;

	if (last - g >= SPAN_MAX || atomic_load(&changing.wide))
		return true;
	for (; g <= last; g++)
		if (atomic_load(slot_of(&changing, g)) > 1)
			return true;
	return false;
}

static void reset(struct table *t)
{
	unsigned int i;

	atomic_store(&t->wide, 0);
	for (i = 0; i < 1u << t->bits; i++)
		atomic_store(&t->slot[i], 0);
}

void counts_change(uint64_t start, uint64_t end, uint32_t by)
{
	count(&changing, start, end, by);
}

void counts_reset(void)
{
	reset(&watched_fine);
	reset(&watched_coarse);
	reset(&changing);
}
