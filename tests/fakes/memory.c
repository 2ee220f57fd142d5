// SPDX-License-Identifier: BSD-2-Clause
#include <stddef.h>
#include <sys/mman.h>

#include "fakes/memory.h"
#include "fakes/wrapped.h"

bool no_memory;
_Atomic int mapped;

WRAPPED(mmap);
WRAPPED(mmap64);
WRAPPED(munmap);

void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd,
		  off_t off)
{
	if (no_memory)
		return MAP_FAILED;
	mapped++;
	return __real_mmap(addr, len, prot, flags, fd, off);
}

/* The name that _FILE_OFFSET_BITS=64 gives it. */
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd,
		    off_t off)
{
	return __wrap_mmap(addr, len, prot, flags, fd, off);
}

int __wrap_munmap(void *addr, size_t len)
{
	mapped--;
	return __real_munmap(addr, len);
}
