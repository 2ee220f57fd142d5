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

/* The number, in such a page: 0 in a child that has not asked yet. */
static _Atomic pid_t *_Atomic known;

static pid_t ask(_Atomic pid_t *at)
{
	pid_t pid = getpid();

	if (at)
		atomic_store_explicit(at, pid, memory_order_relaxed);
	return pid;
}

static pid_t ask_first(void)
{
	_Atomic pid_t *none = NULL, *at = page_of_process();

	/* Another thread was faster. */
	if (at && !atomic_compare_exchange_strong(&known, &none, at)) {
		munmap((void *)at, kedge__page_size());
		at = none;
	}
	return ask(at);
}

pid_t process_pid(void)
{
	_Atomic pid_t *at = atomic_load_explicit(&known, memory_order_acquire);
	pid_t pid;

	if (!at)
		return ask_first();
	pid = atomic_load_explicit(at, memory_order_relaxed);
	return pid ? pid : ask(at);
}
