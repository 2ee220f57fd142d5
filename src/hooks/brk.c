// SPDX-License-Identifier: BSD-2-Clause
/* The heap's end, moved down. */
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/hooks.h"

/* From the kernel: libc does not see a system call that moves the end. */
static uintptr_t heap_end(void)
{
	return (uintptr_t)kedge__raw_syscall(SYS_brk, NULL);
}

void kedge__on_brk(struct change *c, void *addr)
{
	size_t page = kedge__hooks_page();
	uintptr_t end = up_to(heap_end(), page);
	uintptr_t keep = up_to((uintptr_t)addr, page);

	/* brk(NULL) asks where the end is. */
	if (addr && keep < end)
		change_add(c, KEDGE_EVENT_UNMAP, (void *)keep, end - keep);
}

KEDGE_API int brk(void *addr)
{
	struct change c;
	int rc;

	change_init(&c);
	kedge__on_brk(&c, addr);
	rc = kedge__real.brk(addr);
	change_end(&c);
	return rc;
}

KEDGE_API void *sbrk(intptr_t by)
{
	struct change c;
	void *was;

	if (by >= 0)
		return kedge__real.sbrk(by);
	change_init(&c);
	kedge__on_brk(&c, (void *)(heap_end() + (uintptr_t)by));
	was = kedge__real.sbrk(by);
	change_end(&c);
	return was;
}
