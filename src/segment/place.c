// SPDX-License-Identifier: BSD-2-Clause
/*
 * A range is found in a segment only where its pages are those that the segment's memfd has
 * at that place: not where a part was unmapped, emptied or moved, nor while it is private
 * because the process forks. The tables say so as of now: a change that has returned to the
 * program is in them, as the thread enters it before the system call goes on.
 */
#include <unistd.h>

#include "segment/internal.h"
#include "segment/place.h"

/* ---- converted memory ---- */

/* With lock. The end of what is there without a hole from @at on, where it was converted. */
static uintptr_t there_until(uint32_t index, uintptr_t at, uintptr_t end)
{
	const struct extent *e = &seg->extent[index];
	struct piece *p = NULL;

	while (at < end && (p = piece_next(p, index, at, at + 1))) {
		if (p->at - p->off != e->at)
			continue;
		at = p->at + p->len;
		p = NULL;
	}
	return at;
}

static bool is_in(const struct kedge_segment *s, uintptr_t at, size_t len)
{
	return s->backend == KEDGE_SEGMENT_CONVERT && !seg->extent[s->extent].away &&
	       at >= s->addr && at - s->addr < s->len && len <= s->len - (at - s->addr) &&
	       there_until((uint32_t)s->extent, at, at + len) >= at + len;
}

bool segment_place_converted(const void *p, size_t len, struct segment_place *place)
{
	const struct kedge_segment *s = NULL;
	uintptr_t at = (uintptr_t)p;

	if (!__atomic_load_n(&seg, __ATOMIC_RELAXED))
		return false;
	sig_lock(&seg_lock);
	if (seg)
		for (s = seg->segments; s && !is_in(s, at, len); s = s->next)
			;
	if (s)
		*place = (struct segment_place){ s->id, at - s->addr };
	sig_unlock(&seg_lock);
	return s != NULL;
}

/* ---- the address space, by the module ---- */

static struct {
	struct sig_lock lock;
	pid_t pid; /* of which process that is known */
	struct kedge_segment *segment; /* NULL: there is no module */
} whole = { .lock = SIG_LOCK_INIT };

static _Atomic int handlers;

static void before_fork(void)
{
	sig_lock(&whole.lock);
}

static void after_fork(void)
{
	sig_unlock(&whole.lock);
}

/* With its lock. A child's address space is another one. */
static void make_whole(void)
{
	const struct kedge_segment_opts o = { .size = sizeof(o), .flags = KEDGE_SEGMENT_WHOLE,
					      .backend = KEDGE_SEGMENT_MODULE };
	pid_t pid = getpid();

	if (whole.pid == pid)
		return;
	kedge_segment_remove(whole.segment);
	whole.segment = NULL;
	whole.pid = pid;
	kedge_segment_make(NULL, 0, &o, &whole.segment);
}

static bool place_whole(uintptr_t at, struct segment_place *place)
{
	bool has;

	/* The lock that is taken within this one is registered before it. */
	if (clofork_ready() || fork_handlers(&handlers, before_fork, after_fork, after_fork))
		return false;
	sig_lock(&whole.lock);
	make_whole();
	has = whole.segment && clofork_ours(&whole.segment->dev);
	if (has)
		*place = (struct segment_place){ whole.segment->id, at };
	sig_unlock(&whole.lock);
	return has;
}

bool segment_place(const void *at, size_t len, struct segment_place *place)
{
	return segment_place_converted(at, len, place) || place_whole((uintptr_t)at, place);
}
