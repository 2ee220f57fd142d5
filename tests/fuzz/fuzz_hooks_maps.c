// SPDX-License-Identifier: BSD-2-Clause
/*
 * How the hooks find in /proc/self/maps what shmdt() will unmap: hostile text
 * does no harm, and what the kernel would write is understood.
 */
#include <sys/shm.h>

#include "maps_text.h"

static int fuzz_shmctl(int id, int cmd, struct shmid_ds *ds);

#define shmctl fuzz_shmctl
#include "hooks/maps.c"

/* The segment's size; 0 if it can't be asked for. */
static uint64_t segment;

static int fuzz_shmctl(int id, int cmd, struct shmid_ds *ds)
{
	CHECK(cmd == IPC_STAT);
	if (!segment)
		return -1;
	ds->shm_segsz = segment;
	return 0;
}

size_t kedge__hooks_page(void)
{
	return PAGE;
}

static size_t expected(const struct maps *m, uint64_t addr)
{
	size_t len, pages;
	int i;

	for (i = 0; i < m->cnt; i++) {
		const struct map_line *v = &m->at[i];

		if (!has_prefix(v, "/SYSV") || v->start < addr ||
		    v->start - v->offset != addr)
			continue;
		if (!segment)
			return EVERYTHING_LEN - addr;
		len = v->end - addr;
		pages = (segment + PAGE - 1) / PAGE;
		return pages * PAGE > len ? pages * PAGE : len;
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in = { data, len }, control = { data, len < 8 ? len : 8 };
	struct maps m;
	uint64_t addr;
	size_t got;

	if (len < 8)
		return 0;
	in.at += 8;
	in.left -= 8;
	maps_feed(&m, &in);
	addr = maps_address(&m, &control);
	/* Without a mapping the address alone takes eight bytes. */
	segment = m.cnt > 0 ? take_number(&control, 4) : 0;

	got = kedge__shm_len(addr);
	CHECK(feed_is_closed());
	if (m.cnt >= 0)
		CHECK(got == expected(&m, addr));
	return 0;
}
