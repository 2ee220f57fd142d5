// SPDX-License-Identifier: BSD-2-Clause

#include "swap_memory.h"

int node = -1;

bool mem_node(void)
{
	node = open("/dev/ummunot", O_RDONLY | O_CLOEXEC);
	if (node >= 0 && um_swap(node, NULL, NULL, 0) == -EINVAL)
		return true;
	printf("SKIP: %s\n", node < 0 ? "no /dev/ummunot"
				      : "this kernel does not swap pages");
	return false;
}

char *mem_map(size_t len, int advice)
{
	/* A huge page's room on both sides: no two melt into one mapping. */
	char *room = mmap(NULL, len + 3 * HUGE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;

	if (room == MAP_FAILED)
		err(1, "mmap");
	at = (char *)(((uintptr_t)room + 2 * HUGE - 1) & ~(HUGE - 1));
	munmap(room, (size_t)(at - room));
	munmap(at + len, (size_t)(room + 3 * HUGE - at));
	at = mmap(at, len, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (at == MAP_FAILED)
		err(1, "mmap");
	if (advice)
		madvise(at, len, advice);
	return at;
}

void mem_fill(char *at, size_t len, char mark)
{
	size_t i;

	for (i = 0; i < len / PAGE; i++) {
		char *page = at + i * PAGE;

		memcpy(page, &i, sizeof(i));
		memset(page + sizeof(i), mark, 8);
		page[PAGE - 1] = mark;
	}
}

bool mem_has_at(const char *at, size_t off, size_t len, char mark)
{
	size_t i, place;

	for (i = off / PAGE; i < (off + len) / PAGE; i++) {
		const char *page = at + i * PAGE;

		memcpy(&place, page, sizeof(place));
		if (place != i || page[8] != mark || page[15] != mark ||
		    page[PAGE - 1] != mark) {
			printf("page %zu of %p: %zu '%c' '%c', not '%c'\n", i,
			       (const void *)at, place, page[8],
			       page[PAGE - 1], mark);
			return false;
		}
	}
	return true;
}

bool mem_has(const char *at, size_t len, char mark)
{
	return mem_has_at(at, 0, len, mark);
}

void mem_expect(const char *at, size_t len, char mark)
{
	assert_true(mem_has(at, len, mark));
}

static void pagemap(const char *at, uint64_t *entries, size_t cnt)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	size_t len = cnt * sizeof(*entries);

	if (fd < 0 || pread(fd, entries, len, (off_t)((uintptr_t)at / PAGE *
						      sizeof(*entries))) !=
			      (ssize_t)len)
		err(1, "pagemap");
	close(fd);
}

uint64_t mem_pagemap(const char *at)
{
	uint64_t entry;

	pagemap(at, &entry, 1);
	return entry;
}

uint64_t *frames(const char *at, size_t len)
{
	size_t cnt = len / PAGE, i;
	uint64_t *f = calloc(cnt, sizeof(*f));

	if (!f)
		err(1, "calloc");
	pagemap(at, f, cnt);
	for (i = 0; i < cnt; i++)
		f[i] = f[i] >> 63 ? f[i] & ((1ull << 55) - 1) : 0;
	return f;
}

size_t mem_swapped(const char *at, size_t len)
{
	size_t i, cnt = 0;

	for (i = 0; i < len; i += PAGE)
		cnt += mem_pagemap(at + i) >> 62 & 1;
	return cnt;
}

size_t mem_huge_kib(const char *at)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long start, end;
	size_t kib = 0;
	char line[256];
	bool in = false;

	if (!f)
		err(1, "smaps");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			in = (uintptr_t)at >= start && (uintptr_t)at < end;
		else if (in && sscanf(line, "AnonHugePages: %zu", &kib) == 1)
			break;
	}
	fclose(f);
	return kib;
}

bool mem_swap_on(void)
{
	static int on = -1;

	if (on < 0)
		on = !vm_write("/sys/block/zram0/disksize", "268435456") &&
		     !system("mkswap /dev/zram0 >/dev/null && swapon /dev/zram0");
	return on;
}
