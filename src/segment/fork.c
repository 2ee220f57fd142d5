// SPDX-License-Identifier: BSD-2-Clause
/*
 * fork(). A child would share the memfd: what the parent writes later would show in it. So
 * before a fork peers let go, the memory becomes private again, with all that was stored,
 * and the kernel gives the child its copy as of any memory. In the parent it is converted
 * once more. Peers have to get and attach anew.
 *
 * Ruled out: to hold the parent's writers back while the child copies from the memfd. One
 * of them may have the allocator's lock, which fork() takes after our handler: nobody
 * would go on.
 *
 * A child that is made by clone() around libc does not have the memory: it faults there.
 *
 * The gate is held meanwhile. These handlers are registered after those of the parts that
 * they use, so they run before them, and find their locks free.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "pages/internal.h"
#include "segment/thread/thread.h"

static _Atomic int handlers;

static void before(void)
{
	gate_lock();
	if (seg)
		extent_suspend_all();
	sig_lock(&seg_lock);
}

static void in_parent(void)
{
	sig_unlock(&seg_lock);
	if (seg)
		extent_resume_all();
	gate_unlock();
}

static void in_child(void)
{
	extent_forget_marks();
	if (seg)
		recall_forget();
	sig_unlock(&seg_lock);
	service_forget();
	signals_restore();
}

int fork_ready(void)
{
	sigset_t saved;
	int rc = clofork_ready();

	if (rc)
		return rc;
	rc = swap_begin(&saved);
	if (rc)
		return rc;
	swap_end(&saved);
	return fork_handlers(&handlers, before, in_parent, in_child);
}
