// SPDX-License-Identifier: BSD-2-Clause
/*
 * munmap, mmap over something, both ends of mremap, remap_file_pages; and
 * another try of those, and of mprotect, that fail near vm.max_map_count.
 */
/* Else <sys/mman.h> renames mmap to mmap64, and both are defined here. */
#undef _FILE_OFFSET_BITS
#include <linux/magic.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "hooks/hooks.h"
#include "hooks/pieces.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#define HUGE_SHIFT_AT	26 /* MAP_HUGE_SHIFT */
#define HUGE_SHIFT_MASK 0x3f
#define HUGE_UNKNOWN	((size_t)1 << 30)

KEDGE_API int munmap(void *addr, size_t len)
{
	struct kedge_hook hook;
	int rc;

	if (unlikely(!len)) {
		if (addr == &kedge__reached)
			__atomic_store_n(&kedge__reached, 1, __ATOMIC_RELAXED);
		/* No change: libkedge asks in this way whether calls come here. */
		kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, addr, 0);
		return kedge__real.munmap(addr, len);
	}
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, addr, len);
	rc = kedge__real.munmap(addr, len);
	if (relieved(rc))
		rc = kedge__real.munmap(addr, len);
	if (likely(!rc))
		kedge_hook_done(&hook);
	else
		kedge_hook_end(&hook);
	return rc;
}

/* The kernel rounds a mapping of huge TLB pages up to whole ones. */
static size_t huge_size(int flags, int fd)
{
	unsigned int shift = ((unsigned int)flags >> HUGE_SHIFT_AT) &
			     HUGE_SHIFT_MASK;
	struct statfs fs;
	int saved = errno;
	size_t size = 0;

	if (flags & MAP_HUGETLB)
		return shift ? (size_t)1 << shift : HUGE_UNKNOWN;
	if (flags & MAP_ANONYMOUS)
		return 0;
	if (!fstatfs(fd, &fs) && fs.f_type == HUGETLBFS_MAGIC)
		size = (size_t)fs.f_bsize;
	errno = saved;
	return size;
}

void kedge__on_mmap(struct change *c, void *addr, size_t len, int flags, int fd)
{
	size_t huge;

	if (!(flags & MAP_FIXED) || (flags & MAP_FIXED_NOREPLACE))
		return;
	huge = huge_size(flags, fd);
	change_add(c, KEDGE_EVENT_UNMAP, addr, huge ? up_to(len, huge) : len);
}

KEDGE_API void *mmap(void *addr, size_t len, int prot, int flags, int fd,
		     off_t off)
{
	struct change c;
	void *at;

	change_init(&c);
	kedge__on_mmap(&c, addr, len, flags, fd);
	at = kedge__real.mmap(addr, len, prot, flags, fd, off);
	if (relieved(at == MAP_FAILED))
		at = kedge__real.mmap(addr, len, prot, flags, fd, off);
	change_end(&c);
	return handed_out(at, len);
}

KEDGE_API void *mmap64(void *addr, size_t len, int prot, int flags, int fd,
		       off64_t off)
{
	struct change c;
	void *at;

	change_init(&c);
	kedge__on_mmap(&c, addr, len, flags, fd);
	at = kedge__real.mmap64(addr, len, prot, flags, fd, off);
	if (relieved(at == MAP_FAILED))
		at = kedge__real.mmap64(addr, len, prot, flags, fd, off);
	change_end(&c);
	return handed_out(at, len);
}

/*
 * A mapping that grows may move or grow in place, which only the kernel knows;
 * one that shrinks without MREMAP_FIXED stays. An old length of 0 maps the same
 * shared pages a second time and takes no page away, as a range of 0 says.
 */
void kedge__on_mremap(struct change *c, void *old, size_t old_len,
		      size_t new_len, int flags, void *to)
{
	size_t page = kedge__hooks_page();
	size_t keep = up_to(new_len, page), had = up_to(old_len, page);

	if (flags & MREMAP_FIXED)
		change_add(c, KEDGE_EVENT_UNMAP, to, new_len);
	if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) ||
	    (had < keep && (flags & MREMAP_MAYMOVE)))
		change_add(c, KEDGE_EVENT_REMAP | KEDGE_HOOK_ONE_MAPPING, old,
			   old_len);
	else if (had < keep)
		change_add(c, KEDGE_EVENT_OTHER | KEDGE_HOOK_ONE_MAPPING, old,
			   old_len);
	else if (keep < had)
		change_add(c, KEDGE_EVENT_UNMAP, (char *)old + keep,
			   had - keep);
}

/* A range that stayed where it was keeps its registrations. */
void *kedge__remapped(void *at, void *old, size_t old_len, size_t new_len,
		      int flags)
{
	size_t had = up_to(old_len, kedge__hooks_page());

	if (at == MAP_FAILED || (at == old && new_len <= old_len))
		return at;
	if (at == old && !(flags & MREMAP_MAYMOVE))
		kedge_hook_mapped((char *)at + had, new_len - had);
	else
		kedge_hook_mapped(at, new_len);
	return at;
}

/* The kernel wants one mapping; several that should be one are moved here. */
static void *mremap_real(void *old, size_t old_len, size_t new_len, int flags,
			 void *to)
{
	size_t page = kedge__hooks_page();
	struct move m = { (uintptr_t)old, up_to(old_len, page),
			  up_to(new_len, page), (uintptr_t)to, flags };
	int saved = errno;
	void *at = kedge__real.mremap(old, old_len, new_len, flags, to);

	if (relieved(at == MAP_FAILED))
		at = kedge__real.mremap(old, old_len, new_len, flags, to);
	if (likely(at != MAP_FAILED) || errno != EFAULT)
		return at;
	at = kedge__move_pieces(&m);
	if (at != MAP_FAILED)
		errno = saved;
	return at;
}

KEDGE_API void *mremap(void *old, size_t old_len, size_t new_len, int flags,
		       ...)
{
	struct change c;
	va_list ap;
	void *to = NULL, *at;

	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
		va_start(ap, flags);
		to = va_arg(ap, void *);
		va_end(ap);
	}
	change_init(&c);
	kedge__on_mremap(&c, old, old_len, new_len, flags, to);
	at = mremap_real(old, old_len, new_len, flags, to);
	change_end(&c);
	return kedge__remapped(at, old, old_len, new_len, flags);
}

/* The kernel rounds both down, then maps the range anew. */
void kedge__on_remap_file_pages(struct change *c, void *addr, size_t len)
{
	size_t mask = kedge__hooks_page() - 1;

	change_add(c, KEDGE_EVENT_UNMAP,
		   (void *)((uintptr_t)addr & ~(uintptr_t)mask), len & ~mask);
}

KEDGE_API int remap_file_pages(void *addr, size_t len, int prot, size_t off,
			       int flags)
{
	struct change c;
	int rc;

	change_init(&c);
	kedge__on_remap_file_pages(&c, addr, len);
	rc = kedge__real.remap_file_pages(addr, len, prot, off, flags);
	change_end(&c);
	return rc;
}

/* It changes no pages, but splits mappings. */
KEDGE_API int mprotect(void *addr, size_t len, int prot)
{
	int rc = kedge__real.mprotect(addr, len, prot);

	return relieved(rc) ? kedge__real.mprotect(addr, len, prot) : rc;
}
