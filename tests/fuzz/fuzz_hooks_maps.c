// SPDX-License-Identifier: BSD-2-Clause
/*
 * The hooks' search of /proc/self/maps for the memory that shmdt() will unmap, and
 * for the mapping at an address: hostile text does no harm, and text as the kernel
 * writes it is understood.
 */
#include <stdbool.h>
#include <sys/mman.h>

#include "calls.h"
#include "maps_text.h"

#include "hooks/hooks.h"
#include "hooks/pieces.h"

/* The segment's size; 0 if it can't be asked for. */
static uint64_t segment;

int fuzz_shmctl(int id, int cmd, struct shmid_ds *ds)
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

static void compare_mapping(const struct maps *m, uint64_t addr, int rc,
			    const struct mapping *got)
{
	unsigned int prot;
	int i;

	for (i = 0; i < m->cnt; i++)
		if (m->at[i].start <= addr && addr < m->at[i].end)
			break;
	CHECK(rc == (i < m->cnt ? 0 : -1));
	if (rc)
		return;
	prot = (m->at[i].perm[0] == 'r' ? PROT_READ : 0) |
	       (m->at[i].perm[1] == 'w' ? PROT_WRITE : 0) |
	       (m->at[i].perm[2] == 'x' ? PROT_EXEC : 0);
	CHECK(got->end == m->at[i].end);
	CHECK((unsigned int)got->prot == prot);
	CHECK(got->plain == (m->at[i].perm[3] == 'p' && !m->at[i].inode));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in, control;
	struct mapping mapping;
	struct maps m;
	uint64_t addr;
	size_t got;
	int rc;

	if (!take_control(data, len, &control, &in))
		return 0;
	maps_feed(&m, &in);
	addr = maps_address(&m, &control);
	/* Without a mapping the address alone takes eight bytes. */
	segment = m.cnt > 0 ? take_number(&control, 4) : 0;

	got = kedge__shm_len(addr);
	CHECK(feed_is_closed());
	if (m.cnt >= 0)
		CHECK(got == expected(&m, addr));

	rc = kedge__mapping_at(addr, &mapping);
	CHECK(feed_is_closed());
	if (m.cnt >= 0)
		compare_mapping(&m, addr, rc, &mapping);
	return 0;
}
