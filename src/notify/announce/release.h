/* SPDX-License-Identifier: BSD-2-Clause */
/* The users that keep registrations of memory which an allocator has taken back. */
#ifndef NOTIFY_ANNOUNCE_RELEASE_H
#define NOTIFY_ANNOUNCE_RELEASE_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * A user. The functions are called by the thread that frees, with no lock held, and may be
 * called by several threads at once.
 *
 * released: the bytes [start, end) are a chunk that is about to be freed; origin_known() does not
 * count it any more. From now on lookups of registrations there ask the kernel, unless
 * origin_known() is true of all that a registration covers. No lock is to be waited for: the
 * caller may be anywhere in the program.
 *
 * trimmed: what the allocator has taken back is not wanted any more. May wait for locks.
 */
struct release_user {
	void (*released)(struct release_user *u, uint64_t start, uint64_t end);
	void (*trimmed)(struct release_user *u);
	struct release_user *_Atomic next;
};

void release_attach(struct release_user *u);
/* After it no call is under way. Not from within such a call. */
void release_detach(struct release_user *u);

/* Call them. */
void release_chunk(uint64_t start, uint64_t end);
void release_trim(void);

/* In a forked child: the users and the calls under way are its parent's. */
void release_reset(void);

#endif /* NOTIFY_ANNOUNCE_RELEASE_H */
