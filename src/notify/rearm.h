/* SPDX-License-Identifier: BSD-2-Clause */
/* Letting go of memory for an announced change, and taking it again. */
#ifndef NOTIFY_REARM_H
#define NOTIFY_REARM_H

#include <stdbool.h>
#include <stdint.h>

struct kedge_notifier;

/*
 * Unregister what is registered of [start, end). With nf->lock held. True: there
 * was something, and rearm_again() has to follow.
 */
bool rearm_let_go(struct kedge_notifier *nf, uint64_t start, uint64_t end);

/*
 * The change of [start, end) is over. Without nf->lock, signals blocked.
 * @mapping_stays: the same mapping is there, with its watches.
 */
void rearm_again(struct kedge_notifier *nf, uint64_t start, uint64_t end,
		 bool mapping_stays);

#endif /* NOTIFY_REARM_H */
