// SPDX-License-Identifier: BSD-2-Clause
/* Changes of converted memory, as the kernel tells them, are handed on to peers. */
#include <linux/userfaultfd.h>

#include "segment/thread/thread.h"

#define EVENTS_A_ROUND 64

static bool event(uint32_t extent, const struct uffd_msg *m)
{
	switch (m->event) {
	case UFFD_EVENT_REMAP:
		return drop_moved(extent, m->arg.remap.from,
				  m->arg.remap.from + m->arg.remap.len, m->arg.remap.to);
	case UFFD_EVENT_UNMAP:
		return drop_gone(extent, m->arg.remove.start, m->arg.remove.end);
	case UFFD_EVENT_REMOVE:
		return drop_now(extent, m->arg.remove.start, m->arg.remove.end);
	}
	return false;
}

void monitor_events(uint32_t extent)
{
	int fd = seg->extent[extent].uffd, n;
	struct uffd_msg m;
	bool changed = false;

	if (fd < 0 || !uffd_readable(fd))
		return;
	sig_lock_blocked(&seg_lock);
	check_begin();
	/* A look before each: the one that is read had been told before. */
	for (n = 0; n < EVENTS_A_ROUND && uffd_readable(fd); n++) {
		changed |= drop_look(extent);
		if (uffd_read(fd, &m))
			changed |= event(extent, &m);
	}
	check_end(changed);
	sig_unlock_blocked(&seg_lock);
}
