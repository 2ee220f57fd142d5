/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the io_uring device share. */
#ifndef DEVICE_URING_H
#define DEVICE_URING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MIB (UINT64_C(1) << 20)

struct io_uring;

/*
 * @ring:     the caller's
 * @fd:       our own descriptor of it; -1 where it has none but a registered
 *            index, which only the thread @tid can use
 * @tid:      the thread that opened the device
 * @first:    our first slot in the ring's table
 * @slots:    how many are ours
 * @made:     the table is of our making
 * @unbound:  RLIMIT_MEMLOCK does not bind the ring, unless in a user namespace
 * @here:     points to 1, but to 0 in a forked child
 * @lock:     guards what follows
 * @free_cnt: slots at the bottom of the stack
 * @lost_cnt: slots at its top; read without the lock too, as a hint
 * @stack:    slots, counted from 0
 * @state:    enum slot_state of each slot
 */
struct uring {
	struct io_uring *ring;
	int fd;
	pid_t tid;
	uint32_t first;
	uint32_t slots;
	bool made;
	bool unbound;
	const uint32_t *here;

	pthread_mutex_t lock;
	uint32_t free_cnt;
	uint32_t lost_cnt;
	uint32_t *stack;
	uint8_t *state;
};

enum slot_state {
	SLOT_FREE,
	SLOT_USED,
	SLOT_LOST,
};

/* -ENOSPC: no slot of ours is free. */
int kedge__uring_full(const struct uring *u);

/*
 * Record why the kernel refused, and make of its errno the one that we
 * document: for a registration, and for a table of @nr slots.
 */
int kedge__uring_reg_refused(const struct uring *u, int rc, uint64_t addr,
			     uint64_t len);
int kedge__uring_table_refused(const struct uring *u, int rc, uint32_t nr);

#endif /* DEVICE_URING_H */
