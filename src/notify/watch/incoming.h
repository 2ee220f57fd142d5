/* SPDX-License-Identifier: BSD-2-Clause */
/* Watches that are added without the notifier's lock. */
#ifndef NOTIFY_WATCH_INCOMING_H
#define NOTIFY_WATCH_INCOMING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kedge_notifier;
struct watch;

/*
 * @first:   watches that are not in nf->watches yet, chained by their next
 * @cnt:     about so many of them
 * @version: of the three below, which hold if it is even
 * @start:   first byte of a range that is armed and has no page on its way out
 * @end:     the byte after it
 * @trips:   nf->trips_seen at that time
 */
struct incoming {
	struct watch *_Atomic first;
	_Atomic uint32_t cnt;
	_Atomic uint64_t version;
	_Atomic uint64_t start;
	_Atomic uint64_t end;
	_Atomic uint64_t trips;
};

void incoming_init(struct incoming *in);

/*
 * Add @w, without nf->lock. Whoever takes the lock next sees it. False: the range is not known to
 * be armed, and the caller finds out.
 */
bool incoming_add(struct kedge_notifier *nf, struct watch *w);

/* With nf->lock held: */

/* Watches on the list enter nf->watches. */
void incoming_settle(struct kedge_notifier *nf);
/* [start, end) is armed, and no page there is on its way out. */
void incoming_know(struct kedge_notifier *nf, uint64_t start, uint64_t end);
/* Something changes in [start, end). Before incoming_settle(), if that is to see all watches. */
void incoming_forget(struct kedge_notifier *nf, uint64_t start, uint64_t end);

/* For tests, which have their own; empty. A watch was added, and its range not looked at yet; and
 * what is known of it was read, and the version not for the second time. */
void incoming_pushed(void);
void incoming_read(void);

#endif /* NOTIFY_WATCH_INCOMING_H */
