/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that processes hold, in a file that they share with "kedge doctor". The doctor
 * follows their system calls, and notes in a slot what pages of the range have gone; the processes
 * look there, before they post a work request, whether it names such pages: by the key of a range
 * of their own, or by that of another process on this host.
 *
 * A slot is claimed by its pid. What else it says is stored before the pid is (release), so that a
 * reader of the pid (acquire) sees the whole. A slot that is given away meanwhile shows another
 * range: that registration has ended, and no more is missed than what was over.
 */
#ifndef PRELOAD_TABLE_H
#define PRELOAD_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_SLOTS   65536u
#define TABLE_CLAIMED UINT32_MAX
#define TABLE_NAME    40

/* How pages go. */
enum table_kind { TABLE_UNMAP, TABLE_DROP, TABLE_MOVE, TABLE_KINDS };

struct table_slot {
	_Atomic uint32_t pid; /* 0: free; TABLE_CLAIMED: not yet what it says */
	_Atomic uint32_t lkey, rkey;
	_Atomic uint32_t kind;
	_Atomic uint64_t start, end;
	_Atomic uint64_t gone_start, gone_end; /* gone_end is 0 as long as nothing is gone */
	_Atomic uint64_t used; /* work requests that named what had gone */
	char library[TABLE_NAME];  /* that registered it; may be cut */
};

struct held_table {
	_Atomic uint32_t used; /* no slot at or above it was ever taken */
	_Atomic uint32_t lost; /* registrations that found no slot */
	struct table_slot slot[TABLE_SLOTS];
};

struct table_range {
	uintptr_t at;
	size_t len;
	uint32_t lkey, rkey;
	const char *library;
};

/* Whether kedge doctor looks at this process. */
bool table_asked(void);
/* The slot of a range of this process's, or NULL: no table is asked for, or it has no room. By one
 * thread of a process at a time. */
struct table_slot *table_add(const struct table_range *r);
/* NULL does nothing. */
void table_remove(struct table_slot *slot);
/* Pages that have gone without a call of the process's. */
void table_gone(struct table_slot *slot, enum table_kind kind, uint64_t start, uint64_t end);
/* A work request is about to name memory: of this process's by an lkey, or of any by an rkey. */
void table_use(uint32_t key, bool remote, uint64_t at, uint64_t len);

/* Both sides: note that pages of a slot's range go. False: it has none of them. */
static inline bool table_note(struct table_slot *s, enum table_kind kind, uint64_t start,
			      uint64_t end)
{
	uint64_t from = atomic_load_explicit(&s->start, memory_order_relaxed);
	uint64_t to = atomic_load_explicit(&s->end, memory_order_relaxed);

	if (start >= to || end <= from)
		return false;
	/* The first change is what a stale registration is told by. */
	if (atomic_load_explicit(&s->gone_end, memory_order_relaxed))
		return true;
	atomic_store_explicit(&s->kind, kind, memory_order_relaxed);
	atomic_store_explicit(&s->gone_start, start > from ? start : from, memory_order_relaxed);
	/* release: partner of the acquire in uses(). */
	atomic_store_explicit(&s->gone_end, end < to ? end : to, memory_order_release);
	return true;
}

#endif /* PRELOAD_TABLE_H */
