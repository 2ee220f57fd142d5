// SPDX-License-Identifier: BSD-2-Clause
#include "base/process/page.h"

#include <sys/mman.h>

#include "base/base.h"

void *page_of_process(void)
{
	size_t len = kedge__page_size();
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err;

	if (p == MAP_FAILED)
		return NULL;
	if (!madvise(p, len, MADV_WIPEONFORK))
		return p;
	err = errno;
	munmap(p, len);
	errno = err;
	return NULL;
}
