// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The changes of an address space, and the watches that they concern.
 *
 * A change reaches us twice: invalidate_range_start() before the first page is
 * taken away, invalidate_range_end() when the last is gone. In between a page
 * that is pinned may be an old one or, where another thread has touched it, a
 * new one. So each of the two tells the watches that it concerns and moves the
 * counter, and in between the space is unsettled: no file says that all has
 * been told. c->running remembers what is between its start and its end, for a
 * watch that is added then.
 *
 * A callback does bounded work, whatever the number of watches: it tells the
 * first DIRECT_MAX that the change concerns. Where there are more, it writes the
 * change to the log, and readers tell the rest, in their own time. A log
 * that is full grows its last entry instead, so that more is told than has
 * changed.
 *
 * Two running changes of the same range and kind are the same to us: whichever
 * of them ends, the ends pair up. Of those that came while all slots were taken
 * only a range around all of them is known.
 *
 * No function here sleeps or puts off the counter: a change that is made for
 * another process, or from reclaim, is told in its own context, blockable or not.
 * `current` is looked at for watches that are quiet alone: what their thread does
 * itself is not told to them. Where a callback writes a change to the log because
 * it concerns too many, they are told of it all the same, which only costs.
 *
 * Why the counter is never late. It is stored by the thread that makes the
 * change, before that goes on to the page tables. A thread that sees a new page
 * at an address has either put it there, which takes the lock of the page table
 * after the old one was cleared under it by the changing thread: that unlock
 * and this lock order the store before all that follows. Or it walked to an
 * entry that another thread stored after that: smp_wmb() below orders the
 * counter before every later store of the changing thread (the cleared entry,
 * and the new one where the same thread puts it), and that other thread, having
 * taken the page table's lock, orders it before its own. A thread that reads
 * the new page and then the counter (an acquire, or the address dependency and
 * x86) sees it moved. Between the counter and the log no order is needed: a
 * reader takes c->lock, under which both changed.
 *
 * A processor may use the old page from its TLB until the change flushes that,
 * which may be after its end. A page pinned meanwhile is found by the page
 * tables and is the new one; a store to the old one is lost, as it would be
 * had it come just before.
 */
#include <linux/highmem.h> /* flush_dcache_page() */
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/sched.h>

#include "internal.h"

void changes_init(struct changes *c)
{
	spin_lock_init(&c->lock);
	c->plain = RB_ROOT_CACHED;
	c->strict = RB_ROOT_CACHED;
	c->counter = 1;
}

static struct rb_root_cached *tree_of(struct changes *c, bool strict)
{
	return strict ? &c->strict : &c->plain;
}

/* ---- the counter ---- */

void changes_move(struct changes *c)
{
	c->counter++;
	WRITE_ONCE(*c->shown, c->counter);
	/* A processor's cache may hold a page under two addresses. */
	flush_dcache_page(virt_to_page(c->shown));
	smp_wmb(); /* before the page tables change; see the top */
}

/* ---- the log ---- */

static struct change *log_at(struct changes *c, unsigned int i)
{
	return &c->log[(c->log_first + i) % c->log_max];
}

static void widen(struct change *to, unsigned long start, unsigned long last,
		  bool protection)
{
	to->start = min(to->start, start);
	to->last = max(to->last, last);
	to->protection &= protection;
}

/* The end of a change often finds its start there, not yet told. */
static void log_add(struct changes *c, unsigned long start, unsigned long last,
		    bool protection)
{
	struct change *ch = c->log_cnt ? log_at(c, c->log_cnt - 1) : NULL;

	if (ch && ((ch->start == start && ch->last == last &&
		    ch->protection == protection) || c->log_cnt == c->log_max)) {
		widen(ch, start, last, protection);
	} else {
		ch = log_at(c, c->log_cnt++);
		ch->start = start;
		ch->last = last;
		ch->protection = protection;
	}
	ch->seq = c->counter;
}

/*
 * False: there are more than @left, which is how many may still be looked at. A
 * quiet one counts, too, as the work has a bound.
 */
static bool tell_few(struct rb_root_cached *tree, unsigned long start,
		     unsigned long last, unsigned int *left, bool *told)
{
	struct interval_tree_node *n;
	struct watch *w;

	for (n = interval_tree_iter_first(tree, start, last); n;
	     n = interval_tree_iter_next(n, start, last)) {
		if (!(*left)--)
			return false;
		w = container_of(n, struct watch, range);
		if (unlikely(w->mover) && w->mover == task_pid(current))
			continue;
		watch_tell(w, start, last);
		*told = true;
	}
	return true;
}

/* True if it concerns a watch. */
static bool tell(struct changes *c, unsigned long start, unsigned long last,
		 bool protection)
{
	unsigned int left = DIRECT_MAX;
	bool all, told = false;

	all = tell_few(&c->strict, start, last, &left, &told) &&
	      (protection || tell_few(&c->plain, start, last, &left, &told));
	if (all && !told)
		return false;
	changes_move(c);
	if (!all)
		log_add(c, start, last, protection);
	return true;
}

/* ---- between start and end ---- */

static void start_without_slot(struct changes *c, unsigned long start,
			       unsigned long last, bool protection, bool hit)
{
	struct change *over = &c->over;

	if (!c->over_cnt++)
		*over = (struct change){ start, last, 0, protection, false };
	widen(over, start, last, protection);
	if (hit && !over->hit)
		c->unsettled++;
	over->hit |= hit;
}

bool changes_start(struct changes *c, unsigned long start, unsigned long last,
		   bool protection)
{
	unsigned long i;
	bool hit;

	spin_lock(&c->lock);
	hit = tell(c, start, last, protection);
	i = find_first_zero_bit(c->slots, RUNNING_MAX);
	if (i < RUNNING_MAX) {
		__set_bit(i, c->slots);
		c->running[i] = (struct change){ start, last, 0, protection,
						 hit };
		c->unsettled += hit;
	} else {
		start_without_slot(c, start, last, protection, hit);
	}
	spin_unlock(&c->lock);
	return hit;
}

/* A change that had a slot; its place, or -1. */
static int find_running(const struct changes *c, unsigned long start,
			unsigned long last, bool protection)
{
	const struct change *r;
	unsigned long i;

	for_each_set_bit(i, c->slots, RUNNING_MAX) {
		r = &c->running[i];
		if (r->start == start && r->last == last &&
		    r->protection == protection)
			return i;
	}
	return -1;
}

/* True if it concerned a watch; @settles: no such change is left with it. */
static bool forget_running(struct changes *c, int i, bool *settles)
{
	if (i >= 0) {
		__clear_bit(i, c->slots);
		*settles = c->running[i].hit;
		return c->running[i].hit;
	}
	*settles = false;
	if (WARN_ON_ONCE(!c->over_cnt))
		return false;
	*settles = !--c->over_cnt && c->over.hit;
	return c->over.hit;
}

bool changes_end(struct changes *c, unsigned long start, unsigned long last,
		 bool protection)
{
	bool hit, settles;

	spin_lock(&c->lock);
	hit = forget_running(c, find_running(c, start, last, protection),
			     &settles);
	if (hit)
		tell(c, start, last, protection);
	if (settles)
		c->unsettled--;
	spin_unlock(&c->lock);
	return hit;
}

/* ---- watches ---- */

/* For a watch that is added a change that is running begins just then. */
static bool join_one(struct changes *c, struct change *r, struct watch *w)
{
	if (r->last < w->range.start || w->range.last < r->start ||
	    (r->protection && !w->protection))
		return false;
	c->unsettled += !r->hit;
	r->hit = true;
	watch_tell(w, r->start, r->last);
	return true;
}

void changes_add(struct changes *c, struct watch *w)
{
	bool joined = false;
	unsigned long i;

	lockdep_assert_held(&c->lock);
	w->since = c->counter;
	interval_tree_insert(&w->range, tree_of(c, w->protection));
	for_each_set_bit(i, c->slots, RUNNING_MAX)
		joined |= join_one(c, &c->running[i], w);
	if (c->over_cnt)
		joined |= join_one(c, &c->over, w);
	if (joined)
		changes_move(c);
}

static void cursor_next(struct changes *c)
{
	const struct change *ch = &c->doing;

	c->cursor = interval_tree_iter_next(c->cursor, ch->start, ch->last);
	if (!c->cursor && c->cursor_strict && !ch->protection) {
		c->cursor_strict = false;
		c->cursor = interval_tree_iter_first(&c->plain, ch->start,
						     ch->last);
	}
}

void changes_del(struct changes *c, struct watch *w)
{
	lockdep_assert_held(&c->lock);
	if (c->cursor == &w->range)
		cursor_next(c);
	interval_tree_remove(&w->range, tree_of(c, w->protection));
}

void changes_forget(struct changes *c)
{
	lockdep_assert_held(&c->lock);
	c->plain = RB_ROOT_CACHED;
	c->strict = RB_ROOT_CACHED;
	c->log_cnt = 0;
	c->cursor = NULL;
}

/* ---- telling ---- */

/* The next entry that concerns anybody still. */
static void cursor_first(struct changes *c)
{
	struct change *ch = &c->doing;

	*ch = *log_at(c, 0);
	c->log_first = (c->log_first + 1) % c->log_max;
	c->log_cnt--;
	c->cursor_strict = true;
	c->cursor = interval_tree_iter_first(&c->strict, ch->start, ch->last);
	if (c->cursor || ch->protection)
		return;
	c->cursor_strict = false;
	c->cursor = interval_tree_iter_first(&c->plain, ch->start, ch->last);
}

static void tell_next(struct changes *c)
{
	struct watch *w = container_of(c->cursor, struct watch, range);

	/* A change does not concern a watch that was added after it. */
	if (w->since < c->doing.seq)
		watch_tell(w, c->doing.start, c->doing.last);
	cursor_next(c);
}

bool changes_resolve_some(struct changes *c, unsigned int *entries)
{
	unsigned int left = BATCH_MAX;
	bool some;

	spin_lock(&c->lock);
	some = changes_pending(c);
	for (; left && *entries && changes_pending(c); left--) {
		if (c->cursor)
			tell_next(c);
		else
			cursor_first(c);
		*entries -= !c->cursor;
	}
	spin_unlock(&c->lock);
	return some;
}
