// SPDX-License-Identifier: BSD-2-Clause
/*
 * The number of this process. It is in a page that the kernel wipes in a child, by whatever
 * call that was made; numbers go up from parent to child, so that an object's is that of no
 * process that came later. The GIL guards both.
 */
#include <sys/mman.h>

#include "binding.h"

static uint64_t *page;

int process_init(void)
{
	void *p;

	if (page)
		return 0;
	p = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || madvise(p, sizeof(*page), MADV_WIPEONFORK)) {
		PyErr_SetFromErrno(PyExc_OSError);
		return -1;
	}
	page = p;
	return 0;
}

uint64_t this_process(void)
{
	static uint64_t last;

	if (!*page)
		*page = ++last;
	return *page;
}
