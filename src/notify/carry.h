/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A watch that goes along with its pages, when the calling thread moves them to other
 * addresses by one mremap(): from the return of that call on the watch is told of
 * every change there, and it is known whether another thread made one before.
 */
#ifndef NOTIFY_CARRY_H
#define NOTIFY_CARRY_H

#include "notify/internal.h"

/* From notify_carry_begin() on it stays where it is until notify_carry_end(). */
struct carry {
	struct kedge_notifier *nf;
	struct watch *watch; /* the pages' */
	struct watch guard;  /* over what they are moved to */
	struct queue told;   /* the guard's */
	struct carry *next;  /* nf->carries */
	uint64_t from, to, len;
	uint64_t old_start, old_end; /* the watch's, before it went along */
	bool began;
	bool carried; /* the watch is over [to, to + len) */
	bool unsure;
};

/*
 * Watch the pages where they are, [@start, @end), which are the caller's own. @w with
 * its queue set, as for notify_watch_add(). 0, or a negative errno.
 */
int notify_carry_watch(struct carry *k, struct kedge_notifier *nf,
		       struct watch *w, uint64_t start, uint64_t end);
/* Right before mremap() moves @len bytes of them from @from to @to, after the change at
 * @to was announced (announce_to_all()) and before that has ended. */
void notify_carry_begin(struct carry *k, uint64_t from, uint64_t to,
			uint64_t len);
/*
 * Right after it. True: @w is a watch of [@to, @to + @len), and since before the move
 * nothing but that has happened there; else @w is no watch any more. Also instead of
 * begin(), where nothing is moved.
 */
bool notify_carry_end(struct carry *k);

/* The kernel says that it has moved this. With nf->lock held. */
void carry_follow(struct kedge_notifier *nf, uint64_t from, uint64_t to,
		  uint64_t len);

#endif /* NOTIFY_CARRY_H */
