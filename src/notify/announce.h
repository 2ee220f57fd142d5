/* SPDX-License-Identifier: BSD-2-Clause */
/* What kedge announces of its own changes, beyond <kedge/hooks.h>. */
#ifndef NOTIFY_ANNOUNCE_H
#define NOTIFY_ANNOUNCE_H

#include <stdbool.h>

#include <kedge/hooks.h>

/*
 * As kedge_hook_begin(), but where nobody watches, too: mappings are watched as
 * a whole, so a neighbour's watch is in the way of who wants to register the
 * range itself.
 */
void announce_to_all(struct kedge_hook *hook, int kind, const void *addr,
		     size_t len);

/* hooked.c: an announcement of length 0 has arrived. */
void announce_empty(void);

/* Whether calls arrive there. Tests may have their own. */
bool announce_try_calls(void);

/* For tests, which have their own; empty. Between two steps of each: */
void announce_adopting(void); /* of a process's first notifier */
void announce_told(void);     /* a change was announced; not made yet */

#endif /* NOTIFY_ANNOUNCE_H */
