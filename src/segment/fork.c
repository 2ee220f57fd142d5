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
#include "pages/share/share.h"
#include "segment/thread/thread.h"

/*
 * ---- for a while ----
 *
 * While it is private nothing watches it, and other threads may unmap it and get other
 * memory at its addresses, which nobody has made a segment: peers would find that, or what
 * the owner does not write to any more. So what was made private is marked, while the other
 * threads are stopped, and only what has the mark still is converted, likewise.
 */

static int mark = NO_MARK; /* the gate's */

static void forget_marks(void)
{
	if (mark >= 0)
		close(mark);
	mark = NO_MARK;
}

/* Nothing of it was unmapped or moved: then it may be converted once more. */
static bool is_whole(int i)
{
	const struct extent *e = &seg->extent[i];
	const struct piece *p;
	bool whole = false;

	sig_lock(&seg_lock);
	for (p = seg->piece; p < seg->piece + seg->piece_max && !whole; p++)
		whole = p->len == e->len && p->at == e->at && p->extent == (uint32_t)i;
	sig_unlock(&seg_lock);
	return whole;
}

/* A part that cannot be made private the child does not have. */
static void suspend(int i)
{
	seg->extent[i].resume = mark >= 0 && is_whole(i);
	/* A part is converted again when a peer asks for it again. */
	if (extent_withdraw(i, mark) && !seg->extent[i].segments)
		extent_forget(i);
}

/* On the peers of its segments; -1: of all. */
static void hang_up(int i)
{
	struct seg_call call = { .op = SEG_OP_HANG_UP };
	struct kedge_segment *s;

	for (s = seg->segments; s; s = s->next)
		if (i < 0 ? s->extent >= 0 : s->extent == i) {
			call.start = (uintptr_t)s;
			call_thread(&call, -1);
		}
}

static void suspend_all(void)
{
	int i, cnt = 0;

	/* First: a peer that got it after the recall would never hear that it is private.
	 * One wait for all, however many there are. */
	for (i = 0; i < (int)EXTENTS; i++)
		if (seg->extent[i].fd >= 0) {
			extent_set_away(i, true);
			extent_recall(i);
			cnt++;
		}
	extent_wait_acks();
	if (cnt)
		mark = pages_mark_open();
	for (i = 0; i < (int)EXTENTS; i++)
		if (seg->extent[i].fd >= 0)
			suspend(i);
	hang_up(-1);
}

/* Its pages stay private: a part is gone, or they are not to be had. */
static void only_copied(int i)
{
	struct kedge_segment *s;

	sig_lock(&seg_lock);
	for (s = seg->segments; s; s = s->next)
		if (s->extent == i) {
			s->backend = KEDGE_SEGMENT_COPY;
			strncpy(s->reason, "after a fork, or as a peer held on to them, its "
				"pages could not be shared again", sizeof(s->reason) - 1);
		}
	sig_unlock(&seg_lock);
}

static void resume(int i)
{
	struct extent *e = &seg->extent[i];

	if (!e->len)
		return;
	if (e->fd < 0 && (!e->resume || extent_share_again(i, mark)))
		only_copied(i);
	e->resume = false;
	extent_set_away(i, false);
}

static void resume_all(void)
{
	int i;

	for (i = 0; i < (int)EXTENTS; i++)
		resume(i);
	forget_marks();
}

/* A peer may go on storing there: nothing is waited for. */
void extent_renew(int i)
{
	extent_set_away(i, true);
	extent_recall(i);
	mark = pages_mark_open();
	suspend(i);
	hang_up(i);
	resume(i);
	forget_marks();
}

/* ---- the handlers ---- */

static _Atomic int handlers;

static void before(void)
{
	gate_lock();
	if (seg)
		suspend_all();
	sig_lock(&seg_lock);
}

static void in_parent(void)
{
	sig_unlock(&seg_lock);
	if (seg)
		resume_all();
	gate_unlock();
}

static void in_child(void)
{
	forget_marks();
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
