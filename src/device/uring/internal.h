/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the io_uring device. */
#ifndef DEVICE_URING_INTERNAL_H
#define DEVICE_URING_INTERNAL_H

#include "base/fd.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MIB (UINT64_C(1) << 20)

struct io_uring;

/* See mark.c. */
enum mark_when {
	MARK_NEVER,
	MARK_AT_REG,
	MARK_AT_END,
};

/* Empty where start is end. */
struct range {
	uint64_t start;
	uint64_t end;
};

/*
 * @pinned: what the ring may write to; empty once the registration has ended
 * @owed:   holds what has to be marked before it may be unpinned
 */
struct slot_mem {
	struct range pinned;
	struct range owed;
};

/*
 * @ring:     the caller's
 * @fd:       our own descriptor of it; -1 where it has only a registered index,
 *            which only the thread @tid can use
 * @tid:      the thread that opened the device
 * @id:       what @fd is, as the application may close it
 * @first:    our first slot in the ring's table
 * @slots:    how many are ours
 * @made:     the table is of our making
 * @marks:    when pages are marked dirty
 * @unbound:  RLIMIT_MEMLOCK does not bind the ring, unless in a user namespace
 * @here:     points to 1, but to 0 in a forked child
 * @looks:    how often emptying a slot did not lower VmPin, or UNPIN_PROMPT
 * @emptied_ns: when a slot was last emptied, unless UNPIN_PROMPT
 * @lock:     guards what follows
 * @free_cnt: slots at the bottom of the stack
 * @lost_cnt: slots at its top; read without the lock too, as a hint
 * @lost_turns: how many were taken from there
 * @stack:    slots, counted from 0
 * @state:    enum slot_state of each slot
 * @mem:      what is in them; an entry is its slot's owner's
 * @owed_ns:  when slots that are owed marks were last looked at
 */
struct uring {
	struct io_uring *ring;
	int fd;
	struct fd_id id;
	pid_t tid;
	uint32_t first;
	uint32_t slots;
	bool made;
	enum mark_when marks;
	bool unbound;
	const uint32_t *here;
	uint32_t looks;
	uint64_t emptied_ns;

	pthread_mutex_t lock;
	uint32_t free_cnt;
	uint32_t lost_cnt;
	uint32_t lost_turns;
	uint32_t *stack;
	uint8_t *state;
	struct slot_mem *mem;
	uint64_t owed_ns;
};

/* An emptied slot's pages are unpinned when the call returns. */
#define UNPIN_PROMPT UINT32_MAX

enum slot_state {
	SLOT_FREE,
	SLOT_USED,
	SLOT_LOST,
};

/* table.c */

/* @u->ring, @u->fd and what goes with them. 0 or a negative errno. */
int kedge__uring_ring_open(struct uring *u, struct io_uring *ring);
void kedge__uring_ring_close(struct uring *u);
/* Make a table of @slots, 0 for as many as there can be; 0 or an errno. */
int kedge__uring_table_new(struct uring *u, uint32_t slots);
void kedge__uring_table_drop(const struct uring *u);
/* Use @slots, 0 for all, from @first on of the caller's table. */
int kedge__uring_table_use(struct uring *u, uint32_t first, uint32_t slots);
/*
 * Put [addr, addr + len) into a slot; 0, 0 empties it. 1 or an error; -EBADF: the
 * ring is closed.
 */
int kedge__uring_update(const struct uring *u, uint32_t slot, void *addr,
			size_t len);
/* -EFAULT if the ring's table has a slot @index; the table stays as it is. */
int kedge__uring_probe(const struct uring *u, uint32_t index);

/* slots.c */

int kedge__uring_slots_init(struct uring *u);
void kedge__uring_slots_fini(struct uring *u);
/* A free slot, which is used from now on; lost ones are tried again. */
bool kedge__uring_take(struct uring *u, uint32_t *slot);
bool kedge__uring_is_used(struct uring *u, uint64_t slot);
/* The device is closed: mark what is still registered, or owed. */
void kedge__uring_pay_all(struct uring *u);
/* Used to lost, so that of two deregs of one registration one is refused. */
bool kedge__uring_take_used(struct uring *u, uint64_t slot);
/* Give a slot back that is in no list, as free or as lost. */
void kedge__uring_give(struct uring *u, uint32_t slot, uint8_t state);
/* Empty what is left of ours in a table that stays. */
void kedge__uring_empty_all(struct uring *u);

/* pages.c */

/*
 * Pin [addr, addr + len) in a slot; @writes: the ring may write to it. 1, or
 * what the kernel said, and @left is what the slot is then.
 */
int kedge__uring_pin(struct uring *u, uint32_t slot, void *addr, size_t len,
		     bool writes, enum slot_state *left);
/* True if the slot has no buffer of ours any more; @rc: the kernel's word. */
bool kedge__uring_unpin(struct uring *u, uint32_t slot, int *rc);

/* mark.c */

enum mark_when kedge__uring_mark_when(void);
/* False, and errno, if some of it cannot be written to. */
bool kedge__uring_mark(uint64_t start, uint64_t end);
/*
 * As the device's preserve. *owed holds what could not be marked and is lazily
 * freed: its data would be lost.
 */
void kedge__uring_preserve(struct range r, uint32_t flags, struct range *owed);
/* Mark what is lazily freed in *owed; true if no page is owed any more. */
bool kedge__uring_pay(struct range *owed);

/* explain.c */

/* -ENOSPC: no slot of ours is free. */
int kedge__uring_full(const struct uring *u);

/*
 * Record why the kernel refused, and make of its errno the one that we
 * document: for a registration, and for a table of @nr slots.
 */
int kedge__uring_reg_refused(const struct uring *u, int rc, uint64_t addr,
			     uint64_t len);
int kedge__uring_table_refused(const struct uring *u, int rc, uint32_t nr);

#endif /* DEVICE_URING_INTERNAL_H */
