// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What an open file watches, what happened to it, and what is happening.
 *
 * A change reaches us twice: invalidate_range_start() before the first page is
 * taken away, invalidate_range_end() when the last is gone. In between a page
 * that is pinned may be an old one or, where another thread has touched it, a
 * new one. So each of the two queues every watch that it concerns and moves the
 * counter, and in between the watch is busy: the file does not say that all has
 * been told. f->running remembers what is between its start and its end, for a
 * watch that is added then.
 *
 *   w->busy     == running changes that concern w        (overflow included)
 *   f->busy_cnt == watches with w->busy != 0
 *   f->owed     == the counter is not what the last LAST carried
 *
 * Two running changes of the same range and kind are the same to us: whichever
 * of them ends, the ends pair up.
 *
 * Nothing here asks who `current` is, sleeps or puts off anything: a change
 * that is made for another process, or from reclaim, is told in its own
 * context, blockable or not.
 *
 * Why the counter is never late. It is stored by the thread that makes the
 * change, before that goes on to the page tables. Who sees a new page at an
 * address has either put it there itself, which takes the lock of the page
 * table after the old one was cleared under it by the changing thread: that
 * unlock and this lock order the store before all that follows. Or he walked to
 * an entry that somebody stored after that: smp_wmb() below orders the counter
 * before every later store of the changing thread (the cleared entry, and the
 * new one where the same thread puts it), and that somebody, having taken the
 * page table's lock, orders it before his. Who reads the new page and then the
 * counter (an acquire, or the address dependency and x86) sees it moved.
 * Between the counter and the queue no order is needed: a reader of the queue
 * takes f->lock, under which both changed.
 *
 * A processor may use the old page from its TLB until the change flushes that,
 * which may be after its end. What is pinned meanwhile is found by the page
 * tables and is the new page; what is written to the old one is lost, as it
 * would be had it been written just before.
 */
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "internal.h"

static struct kmem_cache *watch_cache;

/*
 * Freed as it was made: on no queue. A constructor also keeps the cache apart
 * from others of its size, so that what is left over shows under its name.
 */
static void watch_construct(void *p)
{
	struct watch *w = p;

	INIT_LIST_HEAD(&w->queued);
}

int watch_cache_create(void)
{
	watch_cache = kmem_cache_create("ummunot_watch", sizeof(struct watch),
					0, SLAB_ACCOUNT, watch_construct);
	return watch_cache ? 0 : -ENOMEM;
}

void watch_cache_destroy(void)
{
	kmem_cache_destroy(watch_cache);
}

void watch_init(struct file_state *f)
{
	spin_lock_init(&f->lock);
	f->ranges = RB_ROOT_CACHED;
	f->cookies = RB_ROOT;
	INIT_LIST_HEAD(&f->queue);
	f->counter = 1;
	WRITE_ONCE(*f->shown, f->counter);
}

/* Once no notifier can come any more. */
void watch_free_all(struct file_state *f)
{
	struct watch *w, *next;

	user_uncharge(f->user, f->watch_cnt);
	rbtree_postorder_for_each_entry_safe(w, next, &f->cookies, by_cookie) {
		INIT_LIST_HEAD(&w->queued);
		kmem_cache_free(watch_cache, w);
		cond_resched();
	}
}

static void move_counter(struct file_state *f)
{
	f->counter++;
	f->owed = true;
	WRITE_ONCE(*f->shown, f->counter);
	smp_wmb(); /* before the page tables change; see the top */
}

/* Without the lock. Those who wait for overflow to end are woken, too. */
static void wake(struct file_state *f)
{
	if (wq_has_sleeper(&f->wait))
		wake_up_poll(&f->wait, EPOLLIN | EPOLLRDNORM);
	if (READ_ONCE(f->async))
		kill_fasync(&f->async, SIGIO, POLL_IN);
}

static void queue_watch(struct file_state *f, struct watch *w,
			unsigned long start, unsigned long last)
{
	start = max(start, w->range.start);
	last = min(last, w->range.last);
	if (list_empty(&w->queued)) {
		w->hint_start = start;
		w->hint_last = last;
		list_add_tail(&w->queued, &f->queue);
		return;
	}
	w->hint_start = min(start, w->hint_start);
	w->hint_last = max(last, w->hint_last);
}

static void busy_begin(struct file_state *f, struct watch *w)
{
	if (w->busy++)
		return;
	if (!f->busy_cnt++)
		f->quiet = f->counter;
}

static void busy_end(struct file_state *f, struct watch *w)
{
	if (!--w->busy)
		f->busy_cnt--;
}

/* Tell every watch that a change concerns; false if there is none. */
static bool tell(struct file_state *f, unsigned long start, unsigned long last,
		 bool protection,
		 void (*also)(struct file_state *f, struct watch *w))
{
	struct interval_tree_node *n;
	bool hit = false;
	struct watch *w;

	for (n = interval_tree_iter_first(&f->ranges, start, last); n;
	     n = interval_tree_iter_next(n, start, last)) {
		w = container_of(n, struct watch, range);
		if (protection && !w->protection)
			continue;
		also(f, w);
		queue_watch(f, w, start, last);
		hit = true;
	}
	if (hit)
		move_counter(f);
	return hit;
}

/* What changes no page: the same answer at the start and at the end. */
static bool is_protection(const struct mmu_notifier_range *range)
{
	switch (range->event) {
	case MMU_NOTIFY_PROTECTION_VMA:
	case MMU_NOTIFY_PROTECTION_PAGE:
	case MMU_NOTIFY_SOFT_DIRTY:
		return true;
	default:
		return false;
	}
}

static int range_start(struct mmu_notifier *mn,
		       const struct mmu_notifier_range *range)
{
	struct file_state *f = container_of(mn, struct file_state, notifier);
	bool protection = is_protection(range);
	struct running *r;
	unsigned long i;
	bool hit;

	/* f->features does not change while we are registered. */
	if (protection && !(f->features & UMMUNOT_FEATURE_PROTECTION))
		return 0;

	spin_lock(&f->lock);
	hit = tell(f, range->start, range->end - 1, protection, busy_begin);
	i = find_first_zero_bit(f->slots, RUNNING_MAX);
	if (i < RUNNING_MAX) {
		__set_bit(i, f->slots);
		r = &f->running[i];
		r->start = range->start;
		r->last = range->end - 1;
		r->protection = protection;
		r->hit = hit;
	} else {
		f->overflow++;
	}
	spin_unlock(&f->lock);

	if (hit)
		wake(f);
	return 0;
}

/* Forget a running change; true if it may have made a watch busy. */
static bool forget_running(struct file_state *f, unsigned long start,
			   unsigned long last, bool protection)
{
	struct running *r;
	unsigned long i;

	for_each_set_bit(i, f->slots, RUNNING_MAX) {
		r = &f->running[i];
		if (r->start == start && r->last == last &&
		    r->protection == protection) {
			__clear_bit(i, f->slots);
			return r->hit;
		}
	}
	if (WARN_ON_ONCE(!f->overflow))
		return false;
	f->overflow--;
	return true;
}

static void range_end(struct mmu_notifier *mn,
		      const struct mmu_notifier_range *range)
{
	struct file_state *f = container_of(mn, struct file_state, notifier);
	bool protection = is_protection(range);
	bool news;

	if (protection && !(f->features & UMMUNOT_FEATURE_PROTECTION))
		return;

	spin_lock(&f->lock);
	news = forget_running(f, range->start, range->end - 1, protection);
	if (news)
		tell(f, range->start, range->end - 1, protection, busy_end);
	spin_unlock(&f->lock);

	if (news)
		wake(f);
}

/* The address space goes, or the file does. */
static void mm_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct file_state *f = container_of(mn, struct file_state, notifier);

	spin_lock(&f->lock);
	WRITE_ONCE(f->dead, true);
	spin_unlock(&f->lock);
	wake_up_poll(&f->wait, EPOLLHUP);
}

static const struct mmu_notifier_ops notifier_ops = {
	.release = mm_release,
	.invalidate_range_start = range_start,
	.invalidate_range_end = range_end,
};

/*
 * From the first watch on; who watches nothing pays nothing. The caller is in
 * f->mm, so that it has users.
 */
int watch_listen(struct file_state *f)
{
	int err = 0;

	/* Pairs with the release below. */
	if (smp_load_acquire(&f->notifying))
		return 0;
	mutex_lock(&f->setup);
	if (f->notifying)
		goto unlock;
	f->notifier.ops = &notifier_ops;
	err = mmu_notifier_register(&f->notifier, f->mm);
	/* A signal came while it took the locks of all mappings. */
	if (err == -EINTR)
		err = -ERESTARTNOINTR;
	if (!err) {
		/* The notifier is there for whoever sees this. */
		smp_store_release(&f->notifying, true);
	}
unlock:
	mutex_unlock(&f->setup);
	return err;
}

static struct watch *find_cookie(struct file_state *f, u64 cookie)
{
	struct rb_node *n = f->cookies.rb_node;
	struct watch *w;

	while (n) {
		w = rb_entry(n, struct watch, by_cookie);
		if (cookie == w->cookie)
			return w;
		n = cookie < w->cookie ? n->rb_left : n->rb_right;
	}
	return NULL;
}

static int insert_cookie(struct file_state *f, struct watch *new)
{
	struct rb_node **link = &f->cookies.rb_node;
	struct rb_node *parent = NULL;
	struct watch *w;

	while (*link) {
		parent = *link;
		w = rb_entry(parent, struct watch, by_cookie);
		if (new->cookie == w->cookie)
			return -EEXIST;
		link = new->cookie < w->cookie ? &parent->rb_left :
						 &parent->rb_right;
	}
	rb_link_node(&new->by_cookie, parent, link);
	rb_insert_color(&new->by_cookie, &f->cookies);
	return 0;
}

/* What is running when a watch is added begins for it just then. */
static void join_running(struct file_state *f, struct watch *w)
{
	struct running *r;
	unsigned long i;

	for_each_set_bit(i, f->slots, RUNNING_MAX) {
		r = &f->running[i];
		if (r->last < w->range.start || w->range.last < r->start ||
		    (r->protection && !w->protection))
			continue;
		r->hit = true;
		busy_begin(f, w);
		queue_watch(f, w, r->start, r->last);
	}
	if (w->busy)
		move_counter(f);
}

/* 0, 1 if there is something to read, -EBUSY while overflow lasts, or why not. */
static int insert(struct file_state *f, struct watch *w)
{
	int err;

	lockdep_assert_held(&f->lock);
	if (f->overflow)
		return -EBUSY;
	if (f->watch_cnt >= READ_ONCE(max_watches_per_file))
		return -ENOSPC;
	err = insert_cookie(f, w);
	if (err)
		return err;
	interval_tree_insert(&w->range, &f->ranges);
	f->watch_cnt++;
	join_running(f, w);
	return w->busy != 0;
}

static bool overflows(struct file_state *f)
{
	bool yes;

	spin_lock(&f->lock);
	yes = f->overflow;
	spin_unlock(&f->lock);
	return yes;
}

/* Waits while more changes run than there are slots to remember them. */
static int insert_wait(struct file_state *f, struct watch *w)
{
	int rc;

	for (;;) {
		spin_lock(&f->lock);
		rc = insert(f, w);
		spin_unlock(&f->lock);
		if (rc != -EBUSY)
			break;
		rc = wait_event_killable(f->wait, !overflows(f));
		if (rc)
			return rc;
	}
	if (rc > 0) {
		wake(f);
		rc = 0;
	}
	return rc;
}

int watch_add(struct file_state *f, const struct ummunot_register_ioctl *r)
{
	struct watch *w;
	int err;

	err = user_charge(f->user);
	if (err)
		return err;
	w = kmem_cache_alloc(watch_cache, GFP_KERNEL);
	if (!w) {
		err = -ENOMEM;
		goto uncharge;
	}
	w->range.start = r->start;
	w->range.last = r->end - 1;
	w->cookie = r->user_cookie;
	w->busy = 0;
	w->protection = r->flags & UMMUNOT_REGISTER_PROTECTION;

	err = watch_listen(f);
	if (err)
		goto free_watch;
	err = insert_wait(f, w);
	if (err)
		goto free_watch;
	return 0;

free_watch:
	kmem_cache_free(watch_cache, w);
uncharge:
	user_uncharge(f->user, 1);
	return err;
}

int watch_remove(struct file_state *f, u64 cookie)
{
	bool settled = false;
	struct watch *w;

	spin_lock(&f->lock);
	w = find_cookie(f, cookie);
	if (w) {
		rb_erase(&w->by_cookie, &f->cookies);
		interval_tree_remove(&w->range, &f->ranges);
		list_del_init(&w->queued);
		f->watch_cnt--;
		if (w->busy)
			settled = !--f->busy_cnt;
	}
	spin_unlock(&f->lock);
	if (!w)
		return -ENOENT;

	if (settled)
		wake(f);
	kmem_cache_free(watch_cache, w);
	user_uncharge(f->user, 1);
	return 0;
}

static void fill(struct ummunot_event *ev, const struct watch *w)
{
	ev->type = UMMUNOT_EVENT_TYPE_INVAL;
	ev->flags = 0;
	if (w->hint_start != w->range.start || w->hint_last != w->range.last)
		ev->flags = UMMUNOT_EVENT_FLAG_HINT;
	ev->hint_start = w->hint_start;
	ev->hint_end = (u64)w->hint_last + 1;
	ev->user_cookie_counter = w->cookie;
}

static void fill_last(struct ummunot_event *ev, u64 counter)
{
	memset(ev, 0, sizeof(*ev));
	ev->type = UMMUNOT_EVENT_TYPE_LAST;
	ev->user_cookie_counter = counter;
}

/*
 * Take up to @max events, LAST included, and return how many. While a watch is
 * busy only who does not wait gets a LAST, an old one, and all is owed still.
 */
unsigned int watch_take(struct file_state *f, struct ummunot_event *ev,
			unsigned int max, bool nonblock)
{
	struct watch *w;
	unsigned int n;

	spin_lock(&f->lock);
	for (n = 0; n < max && !list_empty(&f->queue); n++) {
		w = list_first_entry(&f->queue, struct watch, queued);
		fill(&ev[n], w);
		list_del_init(&w->queued);
	}
	if (n == max || !f->owed)
		goto unlock;
	if (!f->busy_cnt) {
		fill_last(&ev[n++], f->counter);
		f->owed = false;
	} else if (nonblock) {
		fill_last(&ev[n++], f->quiet);
	}
unlock:
	spin_unlock(&f->lock);
	return n;
}

/*
 * Events that were taken and could not be handed out. Another reader may have
 * got a LAST meanwhile: the counter moves, so that he reads again.
 */
void watch_put_back(struct file_state *f, const struct ummunot_event *ev,
		    unsigned int cnt)
{
	bool back = false;
	struct watch *w;

	spin_lock(&f->lock);
	for (; cnt; cnt--, ev++) {
		if (ev->type == UMMUNOT_EVENT_TYPE_LAST) {
			f->owed = true;
			continue;
		}
		w = find_cookie(f, ev->user_cookie_counter);
		if (!w)
			continue;
		/* It may be another watch by now: then all of it. */
		if (ev->hint_start > w->range.last ||
		    ev->hint_end - 1 < w->range.start)
			queue_watch(f, w, w->range.start, w->range.last);
		else
			queue_watch(f, w, ev->hint_start, ev->hint_end - 1);
		back = true;
	}
	if (back)
		move_counter(f);
	spin_unlock(&f->lock);
	wake(f);
}

/* Whether poll() says so: an event, or a LAST that tells all. */
bool watch_readable(struct file_state *f)
{
	bool yes;

	spin_lock(&f->lock);
	yes = !list_empty(&f->queue) || (f->owed && !f->busy_cnt);
	spin_unlock(&f->lock);
	return yes;
}
