// SPDX-License-Identifier: BSD-2-Clause
/*
 * dlclose: ld.so unmaps a library by its own system calls. The library's own
 * range is announced before. Whether it goes, and which of its dependencies go
 * with it, is known only afterwards: if it was more than one, everything is
 * announced then. In between, another thread that gets the range of such a
 * dependency can find an old registration.
 */
#include <dlfcn.h>
#include <link.h>

#include "hooks/hooks.h"

struct span {
	const struct link_map *map;
	uintptr_t start;
	uintptr_t end;
};

static int find_span(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct span *s = arg;
	uintptr_t start, end;
	int i;

	if (info->dlpi_addr != s->map->l_addr ||
	    info->dlpi_name != s->map->l_name)
		return 0;
	for (i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		end = start + info->dlpi_phdr[i].p_memsz;
		s->start = start < s->start ? start : s->start;
		s->end = end > s->end ? end : s->end;
	}
	return 1;
}

static int find_subs(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_subs;
	return 1;
}

/* The number of libraries unloaded so far. */
static unsigned long long unloaded(void)
{
	unsigned long long subs = 0;

	dl_iterate_phdr(find_subs, &subs);
	return subs;
}

KEDGE_API int dlclose(void *handle)
{
	static int (*real)(void *);
	struct span s = { .start = UINTPTR_MAX };
	unsigned long long before;
	struct kedge_hook hook;
	struct link_map *map;
	void *next;
	int rc;

	if (!__atomic_load_n(&real, __ATOMIC_RELAXED)) {
		next = kedge__next("dlclose");
		if (!next)
			return -1;
		__atomic_store_n((void **)(void *)&real, next,
				 __ATOMIC_RELAXED);
	}
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map))
		return real(handle);
	s.map = map;
	dl_iterate_phdr(find_span, &s);
	before = unloaded();
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, (void *)s.start,
			 s.end > s.start ? s.end - s.start : 0);
	rc = real(handle);
	kedge_hook_end(&hook);
	if (unloaded() - before > 1) {
		kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, NULL,
				 EVERYTHING_LEN);
		kedge_hook_end(&hook);
	}
	return rc;
}
