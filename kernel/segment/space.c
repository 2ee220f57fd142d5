// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Address spaces, and the changes that run in them.
 *
 * A space has two notifiers. The counter keeps a list of the changes that have
 * started and not ended; the zapper takes pages from attachers, which sleeps, so
 * in a context that must not (the OOM reaper) it answers -EAGAIN. A notifier that
 * does so must have no end: hence two. The counter was registered last, so its
 * start is called first; and where the zapper fails, the kernel calls the
 * counter's end.
 *
 * A space lives as long as a file or a segment that belongs to it. It keeps the
 * mm_struct, not the memory.
 *
 * Where its slots are all taken, a change widens the one range around all those
 * without a slot: more is then held to be changing than is.
 */
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "internal.h"

static atomic_t space_cnt;

/* ---- the list of running changes; with the lock held ---- */

static bool touches(const struct change *c, unsigned long start,
		    unsigned long last)
{
	return c->start <= last && start <= c->last;
}

bool space_changes(const struct space *s, unsigned long start,
		   unsigned long last)
{
	unsigned int i;

	if (s->over_cnt && touches(&s->over, start, last))
		return true;
	for_each_set_bit(i, s->slots, RUNNING_MAX)
		if (touches(&s->running[i], start, last))
			return true;
	return false;
}

/* A change that took pages from attachers touches the segment. */
static bool still_hit(const struct space *s, const struct segment *seg)
{
	unsigned long start = seg->range.start, last = seg->range.last;
	unsigned int i;

	if (s->over_cnt && s->over.hit && touches(&s->over, start, last))
		return true;
	for_each_set_bit(i, s->slots, RUNNING_MAX)
		if (s->running[i].hit &&
		    touches(&s->running[i], start, last))
			return true;
	return false;
}

static struct change *change_start(struct space *s, unsigned long start,
				   unsigned long last)
{
	unsigned int i = find_first_zero_bit(s->slots, RUNNING_MAX);
	struct change *c = &s->over;

	if (i < RUNNING_MAX) {
		__set_bit(i, s->slots);
		c = &s->running[i];
	} else if (s->over_cnt++) {
		c->start = min(c->start, start);
		c->last = max(c->last, last);
		return c;
	}
	c->start = start;
	c->last = last;
	c->hit = false;
	return c;
}

/* Of two that are the same range either may go, but a hit goes last. */
static void change_end(struct space *s, unsigned long start,
		       unsigned long last)
{
	unsigned int i, found = RUNNING_MAX;

	for_each_set_bit(i, s->slots, RUNNING_MAX) {
		if (s->running[i].start != start || s->running[i].last != last)
			continue;
		found = i;
		if (!s->running[i].hit)
			break;
	}
	if (found < RUNNING_MAX)
		__clear_bit(found, s->slots);
	else if (!WARN_ON_ONCE(!s->over_cnt))
		s->over_cnt--;
}

/* ---- segments of a range; with the lock held ---- */

static struct segment *first_segment(struct space *s, unsigned long start,
				     unsigned long last)
{
	struct interval_tree_node *n;

	n = interval_tree_iter_first(&s->segments, start, last);
	return n ? container_of(n, struct segment, range) : NULL;
}

static struct segment *next_segment(struct segment *seg, unsigned long start,
				    unsigned long last)
{
	struct interval_tree_node *n;

	n = interval_tree_iter_next(&seg->range, start, last);
	return n ? container_of(n, struct segment, range) : NULL;
}

/* One that attachers have pages of, with a reference. */
static struct segment *handed_segment(struct space *s, unsigned long start,
				      unsigned long last)
{
	struct segment *seg;

	spin_lock(&s->lock);
	for (seg = first_segment(s, start, last); seg;
	     seg = next_segment(seg, start, last))
		if (segment_handed(seg, start, last))
			break;
	if (seg)
		kref_get(&seg->kref);
	spin_unlock(&s->lock);
	return seg;
}

/* ---- the counter ---- */

static int count_start(struct mmu_notifier *mn,
		       const struct mmu_notifier_range *range)
{
	struct space *s = container_of(mn, struct space, counter);
	unsigned long start = range->start, last = range->end - 1;
	struct segment *seg;
	struct change *c;

	spin_lock(&s->lock);
	c = change_start(s, start, last);
	for (seg = first_segment(s, start, last); seg;
	     seg = next_segment(seg, start, last)) {
		if (!segment_handed(seg, start, last))
			continue;
		c->hit = true;
		segment_hit(seg);
	}
	spin_unlock(&s->lock);
	return 0;
}

static void count_end(struct mmu_notifier *mn,
		      const struct mmu_notifier_range *range)
{
	struct space *s = container_of(mn, struct space, counter);
	unsigned long start = range->start, last = range->end - 1;
	struct segment *seg;

	spin_lock(&s->lock);
	change_end(s, start, last);
	for (seg = first_segment(s, start, last); seg;
	     seg = next_segment(seg, start, last)) {
		seg->ends++;
		if (!still_hit(s, seg))
			segment_rest(seg);
	}
	spin_unlock(&s->lock);
}

/* ---- the zapper ---- */

static struct attachment *attached_in(struct space *s, unsigned long start,
				      unsigned long last)
{
	struct interval_tree_node *n;
	struct attachment *a = NULL;

	spin_lock(&s->lock);
	n = interval_tree_iter_first(&s->attached, start, last);
	if (n) {
		a = container_of(n, struct attachment, by_attacher);
		kref_get(&a->kref);
	}
	spin_unlock(&s->lock);
	return a;
}

/*
 * Page tables of the range may be freed, or their entries moved, when this has
 * returned.
 */
static int detach_range(struct space *s, unsigned long start,
			unsigned long last, bool blockable)
{
	struct attachment *a;

	while ((a = attached_in(s, start, last))) {
		if (!blockable) {
			attachment_put(a);
			return -EAGAIN;
		}
		attachment_detach(a);
		attachment_put(a);
	}
	return 0;
}

static int zap_start(struct mmu_notifier *mn,
		     const struct mmu_notifier_range *range)
{
	struct space *s = container_of(mn, struct space, zapper);
	unsigned long start = range->start, last = range->end - 1;
	bool blockable = mmu_notifier_range_blockable(range);
	struct segment *seg;

	/* Each turn leaves one segment without pages of the range. */
	while ((seg = handed_segment(s, start, last))) {
		if (!blockable) {
			segment_put(seg);
			return -EAGAIN;
		}
		segment_zap(seg, start, last);
		segment_put(seg);
	}
	if (range->event == MMU_NOTIFY_UNMAP)
		return detach_range(s, start, last, blockable);
	return 0;
}

/* The address space is torn down: no notifier is called any more. */
static void space_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct space *s = container_of(mn, struct space, counter);
	struct segment *seg;

	spin_lock(&s->lock);
	s->dead = true;
	for (seg = first_segment(s, 0, ULONG_MAX); seg;
	     seg = next_segment(seg, 0, ULONG_MAX))
		segment_die(seg);
	spin_unlock(&s->lock);
	while ((seg = handed_segment(s, 0, ULONG_MAX))) {
		segment_zap(seg, 0, ULONG_MAX);
		segment_put(seg);
	}
	detach_range(s, 0, ULONG_MAX, true);
}

/* ---- life ---- */

static void free_zapper(struct mmu_notifier *mn)
{
	kfree(container_of(mn, struct space, zapper));
	if (atomic_dec_and_test(&space_cnt))
		wake_up_var(&space_cnt);
}

static const struct mmu_notifier_ops zapper_ops = {
	.invalidate_range_start = zap_start,
	.free_notifier = free_zapper,
};

/* With mmap_lock held; the caller registers the counter next. */
static struct mmu_notifier *alloc_counter(struct mm_struct *mm)
{
	struct space *s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	int err;

	if (!s)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&s->lock);
	s->segments = RB_ROOT_CACHED;
	s->attached = RB_ROOT_CACHED;
	s->zapper.ops = &zapper_ops;
	err = __mmu_notifier_register(&s->zapper, mm);
	if (err) {
		kfree(s);
		return ERR_PTR(err);
	}
	atomic_inc(&space_cnt);
	return &s->counter;
}

/* Called as well where registering the counter failed. */
static void free_counter(struct mmu_notifier *mn)
{
	mmu_notifier_put(&container_of(mn, struct space, counter)->zapper);
}

static const struct mmu_notifier_ops counter_ops = {
	.release = space_release,
	.invalidate_range_start = count_start,
	.invalidate_range_end = count_end,
	.alloc_notifier = alloc_counter,
	.free_notifier = free_counter,
};

/*
 * Registering takes the locks of all mappings one by one and gives up at a
 * pending signal: where signals come faster than that, it would never end. So all
 * but SIGKILL and SIGSTOP wait.
 */
struct space *space_get(void)
{
	struct mmu_notifier *mn = ERR_PTR(-EINTR);
	sigset_t most, old;

	siginitsetinv(&most, sigmask(SIGKILL) | sigmask(SIGSTOP));
	sigprocmask(SIG_BLOCK, &most, &old);
	if (!mmap_write_lock_killable(current->mm)) {
		mn = mmu_notifier_get_locked(&counter_ops, current->mm);
		mmap_write_unlock(current->mm);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (mn == ERR_PTR(-EINTR))
		return ERR_PTR(-ERESTARTNOINTR);
	if (IS_ERR(mn))
		return ERR_CAST(mn);
	return container_of(mn, struct space, counter);
}

void space_put(struct space *s)
{
	mmu_notifier_put(&s->counter);
}

/*
 * No file is left. The last of the spaces are freed by SRCU with bottom halves
 * off, which is a reader to RCU: their calls have returned when that has waited.
 */
void spaces_exit(void)
{
	wait_var_event(&space_cnt, !atomic_read(&space_cnt));
	mmu_notifier_synchronize();
	synchronize_rcu();
}
