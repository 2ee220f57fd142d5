/* SPDX-License-Identifier: BSD-2-Clause */
/* The processors that the monitor runs on. */
#ifndef NOTIFY_BACKEND_UFFD_PLACE_H
#define NOTIFY_BACKEND_UFFD_PLACE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * @may:     it may be where the process's one thread is
 * @is:      it is
 * @next_ns: when to look again
 */
struct uffd_place {
	bool may;
	bool is;
	uint64_t next_ns;
};

/* By the monitor: before its first event, and after each at the time @now. */
void uffd_place_first(struct uffd_place *p);
void uffd_place_again(struct uffd_place *p, uint64_t now);

#endif /* NOTIFY_BACKEND_UFFD_PLACE_H */
