/* SPDX-License-Identifier: BSD-2-Clause */
/* Announcements of kedge's own changes, beyond <kedge/hooks.h>. */
#ifndef NOTIFY_ANNOUNCE_ANNOUNCE_H
#define NOTIFY_ANNOUNCE_ANNOUNCE_H

#include <stdbool.h>

#include <kedge/hooks.h>

/*
 * As kedge_hook_begin(), but told even without a watch there: mappings are
 * watched as a whole, so a neighbour's watch is in the way of registering the
 * range itself.
 */
void announce_to_all(struct kedge_hook *hook, int kind, const void *addr,
		     size_t len);

/* hooked.c: an announcement of length 0 has arrived. */
void announce_empty(void);

/*
 * Memory that libc handed out went unannounced: from now on announcements are
 * not relied upon in this process, by no notifier.
 */
void announce_passed_by(void);
bool announce_was_passed_by(void);

/* A watch is added (1) or removed (-1), of a user that looks at the generation alone. */
void announce_by_generation(int by);

/*
 * A monitor is about to read events (1), or has handled what it read (-1). The
 * call that an event is of may return in between; its announcement does not end
 * before.
 */
void announce_reading(int by);

/* True if calls arrive there. Tests may have their own. */
bool announce_try_calls(void);

/* For tests, which have their own; empty. Between two steps of each: */
void announce_adopting(void); /* of a process's first notifier */
void announce_told(void);     /* a change was announced; not made yet */
void announce_awaited(void);  /* an end waited for a monitor that was reading */

#endif /* NOTIFY_ANNOUNCE_ANNOUNCE_H */
