// SPDX-License-Identifier: BSD-2-Clause
#include "base/process/own.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

/* volatile: the compiler takes mmap() for a function that never comes back here. */
static __thread volatile bool busy;

void *own_map(size_t len)
{
	void *at;

	busy = true;
	at = mmap(NULL, len, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	busy = false;
	return at == MAP_FAILED ? NULL : at;
}

void own_unmap(void *at, size_t len)
{
	busy = true;
	munmap(at, len);
	busy = false;
}

void *own_remap(void *from, void *to, size_t len, int flags)
{
	void *at;

	busy = true;
	at = mremap(from, len, len, flags, to);
	busy = false;
	return at;
}

void *own_map_file(size_t len, int fd, off_t off)
{
	void *at;

	busy = true;
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off);
	busy = false;
	return at == MAP_FAILED ? NULL : at;
}

bool own_call(void)
{
	return busy;
}

struct object {
	uintptr_t start;
	uintptr_t end;
	bool ours;  /* it has this library */
	bool there; /* and variables in the range */
};

/* Whole pages, as they are mapped. */
static int look_at(struct dl_phdr_info *i, size_t size, void *arg)
{
	static char ours;
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct object *o = arg;
	bool overlaps = false;
	uintptr_t at, end;
	int n;

	(void)size;
	for (n = 0; n < i->dlpi_phnum; n++) {
		if (i->dlpi_phdr[n].p_type != PT_LOAD || !(i->dlpi_phdr[n].p_flags & PF_W))
			continue;
		at = i->dlpi_addr + i->dlpi_phdr[n].p_vaddr;
		end = (at + i->dlpi_phdr[n].p_memsz + page - 1) & ~(page - 1);
		at &= ~(page - 1);
		o->ours |= at <= (uintptr_t)&ours && (uintptr_t)&ours < end;
		overlaps |= o->start < end && at < o->end;
	}
	o->there = o->ours && overlaps;
	return o->ours;
}

bool own_data_in(uintptr_t start, uintptr_t end)
{
	struct object o = { .start = start, .end = end };

	dl_iterate_phdr(look_at, &o);
	return o.there;
}
