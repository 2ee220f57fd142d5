// SPDX-License-Identifier: BSD-2-Clause
/*
 * mremap() of a range that the kernel holds as several mappings. It refuses
 * that (EFAULT); from Linux 6.17 on it moves them, but does not grow them.
 * Mappings that lay side by side while kedge had registered one of them do not
 * melt again once both were written to, so what would be one mapping without
 * kedge may be several for good. Here they are moved one by one.
 *
 * It is done for private anonymous memory without a hole and of one protection
 * alone: other mappings would be several without kedge, too, and the kernel's
 * EFAULT stands. Other threads see parts of the move, which does them no harm:
 * they must not use a range that is being moved anyway.
 */
#include <sys/mman.h>

#include "hooks/hooks.h"
#include "hooks/pieces.h"

/* The start of [start, end)'s last piece; 0: they are not of one kind. */
static uintptr_t last_piece(uintptr_t start, uintptr_t end)
{
	uintptr_t at = start, last = 0;
	unsigned int prot = 0;
	struct mapping m;

	while (at < end) {
		if (kedge__mapping_at(at, &m) || !m.plain ||
		    (last && m.prot != prot))
			return 0;
		prot = m.prot;
		last = at;
		at = m.end;
	}
	return last;
}

/* Piece by piece, [start, end) to @to; and back if one cannot be moved. */
static int move_all(uintptr_t start, uintptr_t end, uintptr_t to, int flags)
{
	uintptr_t at = start, len;
	struct mapping m;

	while (at < end) {
		if (kedge__mapping_at(at, &m))
			break;
		len = (m.end < end ? m.end : end) - at;
		if (kedge__real.mremap((void *)at, len, len, flags,
				       (void *)(to + (at - start))) ==
		    MAP_FAILED)
			break;
		at += len;
	}
	if (at == end)
		return 0;
	if (at > start)
		move_all(to, to + (at - start), start,
			 MREMAP_MAYMOVE | MREMAP_FIXED);
	return -1;
}

/* The last piece first: it is the one that needs memory, if it grows. */
static void *move_to(const struct move *m, uintptr_t last, uintptr_t to)
{
	int flags = m->flags | MREMAP_MAYMOVE | MREMAP_FIXED;
	uintptr_t end = m->old + m->old_len, at = to + (last - m->old);

	if (kedge__real.mremap((void *)last, end - last,
			       m->new_len - (last - m->old), flags,
			       (void *)at) == MAP_FAILED)
		return MAP_FAILED;
	if (!move_all(m->old, last, to, flags))
		return (void *)to;
	kedge__real.mremap((void *)at, m->new_len - (last - m->old),
			   end - last, MREMAP_MAYMOVE | MREMAP_FIXED,
			   (void *)last);
	return MAP_FAILED;
}

static void *find_place(const struct move *m, uintptr_t last)
{
	void *to, *at;

	to = kedge__real.mmap((void *)m->to, m->new_len, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			      0);
	if (to == MAP_FAILED)
		return MAP_FAILED;
	at = move_to(m, last, (uintptr_t)to);
	if (at == MAP_FAILED)
		kedge__real.munmap(to, m->new_len);
	return at;
}

void *kedge__move_pieces(const struct move *m)
{
	uintptr_t end = m->old + m->old_len, last;
	void *at;

	/* A shrinking one is cut by the kernel before it looks. */
	last = m->new_len < m->old_len ? 0 : last_piece(m->old, end);
	if (last <= m->old) {
		errno = EFAULT;
		return MAP_FAILED;
	}
	if (m->flags & MREMAP_FIXED)
		return move_to(m, last, m->to);
	if (!(m->flags & MREMAP_DONTUNMAP) &&
	    kedge__real.mremap((void *)last, end - last,
			       m->new_len - (last - m->old), 0) != MAP_FAILED)
		return (void *)m->old;
	if (!(m->flags & MREMAP_MAYMOVE))
		return MAP_FAILED;
	at = find_place(m, last);
	if (at == MAP_FAILED)
		errno = ENOMEM;
	return at;
}
