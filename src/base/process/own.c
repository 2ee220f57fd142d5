// SPDX-License-Identifier: BSD-2-Clause
#include "base/process/own.h"

#include <link.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* volatile: the compiler takes mmap() for a function that never comes back here. */
static __thread volatile bool busy;

/* ---- where they are ---- */

#define RANGES 256
#define TAKEN  1u /* in the place of an address: the length is not there yet */

/*
 * No lock, as own_map() is called with any, and by a process that has stopped the threads that
 * might hold one. A slot is a caller's from the exchange of 0 for TAKEN on; the address is
 * stored after the length, so that a reader that finds the address has its length. A slot
 * that was emptied and filled again between a reader's two loads could give it the length of
 * another: the address is loaded once more, and has changed then. A range leaves the table
 * before it is unmapped, so no other memory is taken for it.
 */
static struct {
	_Atomic uintptr_t start; /* 0: free */
	_Atomic size_t len;
} range[RANGES];

static void enter(uintptr_t at, size_t len)
{
	uintptr_t none;
	int i;

	for (i = 0; i < RANGES; i++) {
		none = 0;
		if (!atomic_compare_exchange_strong(&range[i].start, &none, TAKEN))
			continue;
		atomic_store(&range[i].len, len);
		atomic_store(&range[i].start, at);
		return;
	}
}

static void leave(uintptr_t at)
{
	int i;

	for (i = 0; i < RANGES; i++)
		if (atomic_load_explicit(&range[i].start, memory_order_relaxed) == at) {
			atomic_store(&range[i].start, 0);
			return;
		}
}

bool own_around(uintptr_t at, uintptr_t *lo, uintptr_t *hi)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start, end;
	int i;

	for (i = 0; i < RANGES; i++) {
		start = atomic_load(&range[i].start);
		end = (start + atomic_load(&range[i].len) + page - 1) & ~(page - 1);
		if (start <= TAKEN || start != atomic_load(&range[i].start) || start >= *hi ||
		    end <= *lo)
			continue;
		if (start <= at && at < end) {
			*hi = end < *hi ? end : *hi;
			return false;
		}
		if (start > at)
			*hi = start;
		else
			*lo = end;
	}
	return true;
}

/* ---- calls ---- */

void *own_map(size_t len)
{
	void *at;

	busy = true;
	at = mmap(NULL, len, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	busy = false;
	if (at == MAP_FAILED)
		return NULL;
	enter((uintptr_t)at, len);
	return at;
}

void own_unmap(void *at, size_t len)
{
	leave((uintptr_t)at);
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
	if (at != MAP_FAILED)
		leave((uintptr_t)from);
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

long own_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
#ifdef SYS_mmap2
	/* In units of 4096 bytes, whatever the page size. */
	return syscall(SYS_mmap2, at, len, (long)prot, (long)flags, (long)fd, (long)(off >> 12));
#else
	return syscall(SYS_mmap, at, len, (long)prot, (long)flags, (long)fd, (long)off);
#endif
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
