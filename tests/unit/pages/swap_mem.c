// SPDX-License-Identifier: BSD-2-Clause
/* See swap_mem.h. */
#include "swap_mem.h"

uint32_t way;

char *area(size_t len)
{
	size_t h = pages_huge_len(), all = round_up(len, h) + 3 * h;
	char *p = mmap(NULL, all, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	p = (char *)round_up((uintptr_t)p + 1, h);
	assert_ptr_equal(mmap(p, len, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 p);
	return p;
}

void area_free(char *p, size_t len)
{
	size_t h = pages_huge_len();

	munmap(p, round_up(len, h) + h);
}

uint64_t stamp_of(uint64_t stamp, size_t i)
{
	return (stamp << 32) + i + 1;
}

/* A word at both ends of each page. */
void stamp(char *p, size_t len, uint64_t id)
{
	size_t page = page_len(), i;

	for (i = 0; i < len; i += page) {
		*(uint64_t *)(p + i) = stamp_of(id, i / page);
		*(uint64_t *)(p + i + page - 8) = stamp_of(id, i / page);
	}
}

bool stamped(const char *p, size_t len, uint64_t id)
{
	size_t page = page_len(), i;

	for (i = 0; i < len; i += page)
		if (*(const uint64_t *)(p + i) != stamp_of(id, i / page) ||
		    *(const uint64_t *)(p + i + page - 8) != stamp_of(id, i / page))
			return false;
	return true;
}

void expect_stamps(const char *a, uint64_t id_a, const char *b, uint64_t id_b, size_t len)
{
	assert_true(stamped(a, len, id_a));
	assert_true(stamped(b, len, id_b));
}

bool zeros(const char *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i += 8)
		if (*(const uint64_t *)(p + i))
			return false;
	return true;
}

long smaps_of(const void *p, const char *what)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long start, end;
	bool in = false;
	char line[512];
	long v = -1;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			in = addr_of(p) >= start && addr_of(p) < end;
		else if (in && !strncmp(line, what, strlen(what)))
			sscanf(line + strlen(what), ": %ld", &v);
		else if (in && !strncmp(line, "VmFlags:", 8) &&
			 strlen(what) == 2)
			v = strstr(line, what) != NULL;
	}
	fclose(f);
	return v;
}

char *small_area(size_t len, uint64_t id)
{
	char *p = area(len);

	madvise(p, len, MADV_NOHUGEPAGE);
	stamp(p, len, id);
	return p;
}

char *huge_area(size_t len, uint64_t id)
{
	char *p = area(len);

	madvise(p, len, MADV_HUGEPAGE);
	stamp(p, len, id);
	return p;
}

int can(uint32_t flags)
{
	char *p = small_area(2 * page_len(), 1);
	int rc = kedge_page_swap_with(p, p + page_len(), page_len(), flags);

	area_free(p, 2 * page_len());
	return rc;
}

int way_move(void **state)
{
	way = KEDGE_SWAP_MOVE;
	return 0;
}

int way_remap(void **state)
{
	way = KEDGE_SWAP_REMAP;
	return 0;
}

int way_phys(void **state)
{
	way = KEDGE_SWAP_PHYS;
	return 0;
}

void need_way(void)
{
	if (way != KEDGE_SWAP_REMAP && can(way)) {
		print_message("skipped: %s\n", kedge_strerror(can(way)));
		skip();
	}
}
