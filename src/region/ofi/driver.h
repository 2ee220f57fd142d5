/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread "kedge-ofi", which alone calls libfabric for regions, with a table of descriptors of
 * its own. See driver.c.
 */
#ifndef REGION_OFI_DRIVER_H
#define REGION_OFI_DRIVER_H

#include "base/base.h"

#include <rdma/fi_domain.h>

#include "base/list.h"

/* For the thread to do; one at a time, in their order. Not in two lists at once. */
struct work {
	struct work *next;
	void (*fn)(struct work *w);
};

/*
 * Queues of completions that the thread looks at.
 *
 * @fd:   it becomes readable when there is something to be done; or -1: see @tick
 * @tick: it is to be looked at again soon; as @turn leaves it
 * @turn: do what there is to be done; true: there was something
 * @end:  the thread ends: close what is libfabric's
 */
struct polled {
	struct list node;
	struct fid_fabric *fabric;
	struct fid *cq;
	int fd;
	bool tick;
	uint64_t until;
	bool (*turn)(struct polled *p);
	void (*end)(struct polled *p);
};

/* ---- from any thread ---- */

/* The thread is there, in this process: 0 or a negative errno with its reason. @ours: by a thread
 * of the library's. */
int driver_use(bool ours);
/* Before libfabric's own functions for that run; to be called when it has been loaded. */
void driver_ends_at_exit(void);
/* Have it run @fn, and wait: what that returns, and its reason; -ESHUTDOWN: it has ended. */
int driver_call(int (*fn)(void *arg), void *arg);
/* False: it has ended, and ended all that it polled. */
bool driver_push(struct work *w);

/* ---- by the thread ---- */

/* 0 or a negative errno with its reason. */
int polled_add(struct polled *p);
void polled_remove(struct polled *p);
/* Something is to be done there. */
void polled_heat(struct polled *p);

#endif /* REGION_OFI_DRIVER_H */
