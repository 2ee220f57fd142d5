// SPDX-License-Identifier: BSD-2-Clause
/*
 * Slots: pages of the receiver's area that messages stream through. The lowest
 * that are free are taken, so few of them are ever touched. Touched pages stay
 * while all channels of the process have few of them: each channel counts what
 * it has from its first slot on, and gives that back when its last slot is free.
 */
#include <stdatomic.h>
#include <sys/mman.h>

#include "channel/shm/internal.h"

#define SLOTS_KEEP (8u << 20)

/* Of all channels. A count only: its order with anything else does not matter. */
static _Atomic uint64_t kept;

int slots_get(struct shm *s, uint64_t len, uint64_t *off)
{
	int rc = s->slots.used ? 0 : pages_init(&s->slots, SLOTS_LEN);

	if (rc)
		return rc;
	*off = pages_get(&s->slots, len);
	if (*off == NO_PAGES)
		return -EAGAIN;
	if (!area_slots(&s->mine, *off, len)) {
		pages_put(&s->slots, *off);
		return -ENOMEM;
	}
	s->slots_out++;
	if (*off + len > s->slots_dirty) {
		atomic_fetch_add_explicit(&kept, *off + len - s->slots_dirty,
					  memory_order_relaxed);
		s->slots_dirty = *off + len;
	}
	return 0;
}

static void forget(struct shm *s)
{
	atomic_fetch_sub_explicit(&kept, s->slots_dirty, memory_order_relaxed);
	s->slots_dirty = 0;
}

void slots_put(struct shm *s, uint64_t off)
{
	pages_put(&s->slots, off);
	if (--s->slots_out ||
	    atomic_load_explicit(&kept, memory_order_relaxed) <= SLOTS_KEEP)
		return;
	/* The peer's mapping loses them, too. */
	madvise(s->mine.slots.at, s->slots_dirty, MADV_REMOVE);
	forget(s);
}

void slots_fini(struct shm *s)
{
	forget(s);
	pages_fini(&s->slots);
}
