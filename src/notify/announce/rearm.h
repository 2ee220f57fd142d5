/* SPDX-License-Identifier: BSD-2-Clause */
/* Letting go of memory for an announced change, and taking it again. */
#ifndef NOTIFY_ANNOUNCE_REARM_H
#define NOTIFY_ANNOUNCE_REARM_H

#include <stdbool.h>

struct kedge_hook;
struct kedge_notifier;

/*
 * Unregister what is registered of the hook's range. With nf->lock held. If
 * @hook->back_end is set then, rearm_again() has to follow.
 * @mapping_stays: the change leaves the mapping, and its watches.
 */
void rearm_let_go(struct kedge_notifier *nf, struct kedge_hook *hook,
		  bool mapping_stays);

/* The change is over. Without nf->lock, signals blocked. True: watches were told that they see no
 * more changes. */
bool rearm_again(struct kedge_notifier *nf, const struct kedge_hook *hook,
		 bool mapping_stays);

/* For tests, which have their own; empty. What is registered again was found to be of its kind. */
void rearm_looked(void);

#endif /* NOTIFY_ANNOUNCE_REARM_H */
