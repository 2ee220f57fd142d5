// SPDX-License-Identifier: BSD-2-Clause
#include "base/process/own.h"

#include <sys/mman.h>

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

bool own_call(void)
{
	return busy;
}
