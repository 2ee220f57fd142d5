// SPDX-License-Identifier: BSD-2-Clause
/* Changes of converted memory, as the kernel tells them, are handed on to peers. */
#include <linux/userfaultfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/stop.h"
#include "segment/thread/thread.h"

#define EVENTS_A_ROUND 64
#define LOOKS	       50 /* a millisecond each, where threads cannot be stopped */

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

/*
 * Threads that cannot be stopped (a debugger has them, ptrace() is forbidden, no process is to be
 * had, one is in the kernel for a second): one that is about to sleep again needs the processor
 * for some instructions, and most likely gets it in that time. It is no proof.
 */
static bool look_on(uint32_t extent, bool asleep)
{
	const struct timespec nap = { 0, 1000000 };
	bool changed = false;
	int n;

	for (n = 0; n < LOOKS && !asleep; n++) {
		syscall(SYS_nanosleep, &nap, NULL);
		changed |= drop_look(extent, &asleep);
	}
	return changed;
}

/*
 * @woken: an event was read, and there is another: threads that wait for that to be read may
 * run, and be about to sleep again. drop.c has why.
 */
static bool look(uint32_t extent, bool woken)
{
	bool asleep, changed = drop_look(extent, &asleep);

	if (!woken || asleep)
		return changed;
	if (others_out_of_kernel())
		return look_on(extent, false) | changed;
	return drop_look(extent, &asleep) | changed;
}

void monitor_events(uint32_t extent)
{
	struct extent *e = &seg->extent[extent];
	struct uffd_msg m;
	bool changed = false;
	int n;

	if (e->uffd < 0)
		return;
	sig_lock_blocked(&seg_lock);
	check_begin();
	/* A look before each: the one that is read had been told before. */
	for (n = 0; n < EVENTS_A_ROUND && uffd_readable(e->uffd); n++) {
		changed |= look(extent, e->woken);
		if (uffd_read(e->uffd, &m))
			changed |= event(extent, &m);
		e->woken = true;
	}
	e->woken = e->woken && uffd_readable(e->uffd);
	check_end(changed);
	sig_unlock_blocked(&seg_lock);
}
