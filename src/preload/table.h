/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that processes hold, in a file that they share with "kedge doctor". The doctor
 * follows their system calls, and notes in a slot what pages of the range have gone; the processes
 * look there, before they post a work request, whether it names such pages: by the key of a range
 * of their own, or by that of another process on this host.
 *
 * A slot is claimed by its pid. What else it says is stored before the pid is (release), so that a
 * reader of the pid (acquire) sees the whole. A slot that is given away meanwhile shows another
 * range: that registration has ended, and no more is missed than what was over. A note that the
 * doctor was just making is taken back then (table_note()).
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

/* The ways in which pages go. */
enum table_kind { TABLE_UNMAP, TABLE_DROP, TABLE_MOVE, TABLE_KINDS };

/* Pages that have gone. Both sides add some: an entry is taken, filled, and there once it has an
 * end (release). */
#define TABLE_GONE 8u
struct table_gone {
	_Atomic uint64_t start, end; /* end is 0 until all else is there */
	_Atomic uint32_t kind;
	_Atomic uint32_t change; /* a number of the doctor's; 0: it did not see the call */
	_Atomic uint64_t used;	 /* work requests that named them */
};

struct table_slot {
	_Atomic uint32_t pid; /* 0: free; TABLE_CLAIMED: not yet what it says */
	_Atomic uint32_t serial; /* another one for each registration */
	_Atomic uint32_t ended; /* deregistered: its keys are another's, what was used stays */
	_Atomic uint32_t lkey, rkey;
	_Atomic uint64_t start, end;
	_Atomic uint64_t iova;	  /* of the first byte, in work requests */
	_Atomic uint64_t context; /* the device's, in its process */
	_Atomic uint32_t taken;	  /* entries of @gone */
	char library[TABLE_NAME]; /* that registered it; may be cut */
	struct table_gone gone[TABLE_GONE];
};

struct held_table {
	_Atomic uint32_t traced; /* calls are followed, so no notifier is needed */
	_Atomic uint32_t used;	 /* no slot at or above it was ever taken */
	_Atomic uint32_t lost;	 /* registrations that found no slot */
	struct table_slot slot[TABLE_SLOTS];
};

struct table_range {
	uintptr_t at;
	size_t len;
	uint64_t iova;
	const void *context;
	uint32_t lkey, rkey;
	const char *library;
};

/* True: kedge doctor looks at this process, and it sees the process's calls. */
bool table_asked(void);
bool table_traced(void);
/* The slot of a range of this process's, or NULL: no table is asked for, or it has no room. By one
 * thread of a process at a time. */
struct table_slot *table_add(const struct table_range *r);
/* NULL does nothing. */
void table_remove(struct table_slot *slot);
/* Pages that have gone, where calls are not seen. */
void table_gone(struct table_slot *slot, enum table_kind kind, uint64_t start, uint64_t end);
/* A work request is about to name memory: of a device's by an lkey of this process's, or (@context
 * is NULL) of any process's by an rkey. */
void table_use(const void *context, uint32_t key, uint64_t at, uint64_t len);

/* Both sides: the registration has ended. One that was used when its pages had gone stays for the
 * doctor. */
static inline void table_end(struct table_slot *s)
{
	uint32_t i;

	atomic_store(&s->ended, 1);
	for (i = 0; i < TABLE_GONE; i++)
		if (atomic_load(&s->gone[i].used))
			return;
	atomic_store_explicit(&s->pid, 0, memory_order_release);
}

/*
 * Both sides: note that pages of a slot's range go. False: it has none of them.
 *
 * The serial is loaded before the range, and again behind the note. Another registration moves it
 * first, then clears the notes, then stores its range; all of these are seq_cst, so they have one
 * order. Where the second load finds the first one's value, the range was the old one's, and the
 * note comes before the clearing. Where it does not, the note is taken back: without that a
 * registration would be accused which was made just then.
 */
static inline bool table_note(struct table_slot *s, enum table_kind kind, uint32_t change,
			      uint64_t start, uint64_t end)
{
	const uint32_t serial = atomic_load(&s->serial);
	uint64_t from = atomic_load(&s->start);
	uint64_t to = atomic_load(&s->end);
	struct table_gone *g;
	uint32_t i;

	if (start >= to || end <= from || atomic_load_explicit(&s->ended, memory_order_relaxed))
		return false;
	i = atomic_fetch_add_explicit(&s->taken, 1, memory_order_relaxed);
	/* A change beyond the room is left out, as docs/doctor.md says. */
	if (i >= TABLE_GONE)
		return true;
	g = &s->gone[i];
	atomic_store_explicit(&g->kind, kind, memory_order_relaxed);
	atomic_store_explicit(&g->change, change, memory_order_relaxed);
	atomic_store_explicit(&g->start, start > from ? start : from, memory_order_relaxed);
	/* Release, at least: partner of the acquire in use(). */
	atomic_store(&g->end, end < to ? end : to);
	if (atomic_load(&s->serial) == serial)
		return true;
	atomic_store(&g->end, 0);
	return false;
}

#endif /* PRELOAD_TABLE_H */
