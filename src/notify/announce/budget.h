/* SPDX-License-Identifier: BSD-2-Clause */
/* The number of the process's mappings that watching may cost. */
#ifndef NOTIFY_ANNOUNCE_BUDGET_H
#define NOTIFY_ANNOUNCE_BUDGET_H

#include <stdint.h>

struct kedge_notifier;
struct vma_span;

/*
 * Before *whole is registered: 0, or -ENOSPC. *whole may grow by neighbours with
 * which it would melt. Without nf->lock.
 */
int budget_admit(struct kedge_notifier *nf, struct vma_span *whole);

/* vm.max_map_count. Tests have their own. */
uint32_t budget_max_map_count(void);

#endif /* NOTIFY_ANNOUNCE_BUDGET_H */
