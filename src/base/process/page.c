// SPDX-License-Identifier: BSD-2-Clause
#include "base/process/page.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

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

void *page_once(void *_Atomic *at)
{
	void *page = atomic_load_explicit(at, memory_order_acquire), *found = NULL;

	if (page)
		return page;
	page = page_of_process();
	if (!page || atomic_compare_exchange_strong(at, &found, page))
		return page;
	munmap(page, kedge__page_size());
	return found;
}

/* The number, in such a page: 0 in a child that has not asked yet. */
static void *_Atomic known;

static pid_t ask(_Atomic pid_t *at)
{
	pid_t pid = getpid();

	if (at)
		atomic_store_explicit(at, pid, memory_order_relaxed);
	return pid;
}

pid_t process_pid(void)
{
	_Atomic pid_t *at = atomic_load_explicit(&known, memory_order_acquire);
	pid_t pid;

	if (!at)
		return ask(page_once(&known));
	pid = atomic_load_explicit(at, memory_order_relaxed);
	return pid ? pid : ask(at);
}
