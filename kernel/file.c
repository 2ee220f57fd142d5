// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The watches of an open file, and what it has to tell of them.
 *
 *   an event is queued for w   <=> !list_empty(&w->queued)
 *   the file owes a LAST       <=> f->told is not the counter
 *
 * A LAST that tells all is given where no event is queued, all that the log has
 * was told to its watches, and no change is running that concerned one.
 */
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
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

static struct changes *changes_of(const struct file_state *f)
{
	return &f->space->changes;
}

/* ---- a file comes and goes ---- */

void file_join(struct file_state *f)
{
	f->cookies = RB_ROOT;
	INIT_LIST_HEAD(&f->queue);
	INIT_LIST_HEAD(&f->in_space);
	INIT_LIST_HEAD(&f->async);
	spin_lock(&changes_of(f)->lock);
	f->told = changes_of(f)->counter;
	spin_unlock(&changes_of(f)->lock);
}

/* With the lock held. Without an address space there are no ranges. */
static void take_out(struct file_state *f, struct watch *w)
{
	rb_erase(&w->by_cookie, &f->cookies);
	if (!f->space->dead)
		changes_del(changes_of(f), w);
	if (!--f->watch_cnt)
		list_del_init(&f->in_space);
}

/* With the lock held: some of its watches, to be freed. */
static void take_some(struct file_state *f, struct list_head *out)
{
	unsigned int n = 0;
	struct watch *w;

	while (n < BATCH_MAX && !RB_EMPTY_ROOT(&f->cookies)) {
		w = rb_entry(rb_first(&f->cookies), struct watch, by_cookie);
		take_out(f, w);
		list_move(&w->queued, out);
		n++;
	}
	quota_uncharge(f->quota, n * sizeof(*w));
}

static void watch_free(struct watch *w)
{
	put_pid(w->mover);
	kmem_cache_free(watch_cache, w);
}

static void free_all(struct list_head *watches)
{
	struct watch *w, *next;

	list_for_each_entry_safe(w, next, watches, queued) {
		list_del_init(&w->queued);
		watch_free(w);
	}
	cond_resched();
}

void file_leave(struct file_state *f)
{
	spinlock_t *lock = &changes_of(f)->lock;
	bool more;

	do {
		LIST_HEAD(out);

		spin_lock(lock);
		take_some(f, &out);
		more = f->watch_cnt;
		spin_unlock(lock);
		free_all(&out);
	} while (more);
}

void file_drop_watches_of(struct space *s)
{
	struct file_state *f;
	bool more;

	do {
		LIST_HEAD(out);

		spin_lock(&s->changes.lock);
		f = list_first_entry_or_null(&s->files, struct file_state,
					     in_space);
		if (f)
			take_some(f, &out);
		more = f;
		spin_unlock(&s->changes.lock);
		free_all(&out);
	} while (more);
}

int file_features(struct file_state *f, u32 features)
{
	int err = 0;

	spin_lock(&changes_of(f)->lock);
	if (f->began && features != f->features)
		err = -EBUSY;
	else
		f->features = features;
	spin_unlock(&changes_of(f)->lock);
	return err;
}

/* ---- watches ---- */

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

static void insert_cookie(struct file_state *f, struct watch *new)
{
	struct rb_node **link = &f->cookies.rb_node;
	struct rb_node *parent = NULL;
	struct watch *w;

	while (*link) {
		parent = *link;
		w = rb_entry(parent, struct watch, by_cookie);
		link = new->cookie < w->cookie ? &parent->rb_left :
						 &parent->rb_right;
	}
	rb_link_node(&new->by_cookie, parent, link);
	rb_insert_color(&new->by_cookie, &f->cookies);
}

/* 0, or why not. With the lock held. */
static int may_insert(struct file_state *f, u32 flags, u64 cookie)
{
	if (flags & UMMUNOT_REGISTER_PROTECTION &&
	    !(f->features & UMMUNOT_FEATURE_PROTECTION))
		return -EINVAL;
	if (flags & UMMUNOT_REGISTER_QUIET &&
	    !(f->features & UMMUNOT_FEATURE_QUIET))
		return -EINVAL;
	if (find_cookie(f, cookie))
		return -EEXIST;
	if (f->watch_cnt >= READ_ONCE(max_watches_per_file))
		return -ENOSPC;
	return 0;
}

static int insert(struct file_state *f, struct watch *w, u32 flags)
{
	int err = may_insert(f, flags, w->cookie);

	if (err)
		return err;
	insert_cookie(f, w);
	f->began = true;
	if (!f->watch_cnt++)
		list_add_tail(&f->in_space, &f->space->files);
	changes_add(changes_of(f), w);
	return 0;
}

/* Refuse a wrong request before anything is charged, allocated or inserted. */
static int check_add(struct file_state *f,
		     const struct ummunot_register_ioctl *r)
{
	int err;

	spin_lock(&changes_of(f)->lock);
	err = may_insert(f, r->flags, r->user_cookie);
	spin_unlock(&changes_of(f)->lock);
	return err;
}

int watch_add(struct file_state *f, const struct ummunot_register_ioctl *r)
{
	struct watch *w;
	bool news;
	int err;

	err = check_add(f, r);
	if (err)
		return err;
	err = quota_charge(f->quota, sizeof(*w));
	if (err)
		return err;
	w = kmem_cache_alloc(watch_cache, GFP_KERNEL);
	if (!w) {
		err = -ENOMEM;
		goto uncharge;
	}
	w->file = f;
	w->range.start = r->start;
	w->range.last = r->end - 1;
	w->cookie = r->user_cookie;
	w->protection = r->flags & UMMUNOT_REGISTER_PROTECTION;
	w->mover = NULL;
	if (r->flags & UMMUNOT_REGISTER_QUIET)
		w->mover = get_pid(task_pid(current));

	err = space_listen(f->space);
	if (err)
		goto free_watch;
	spin_lock(&changes_of(f)->lock);
	err = insert(f, w, r->flags);
	news = !err && !list_empty(&w->queued);
	spin_unlock(&changes_of(f)->lock);
	if (err)
		goto free_watch;
	if (news)
		space_kick(f->space);
	return 0;

free_watch:
	watch_free(w);
uncharge:
	quota_uncharge(f->quota, sizeof(*w));
	return err;
}

int watch_remove(struct file_state *f, u64 cookie)
{
	struct watch *w;

	spin_lock(&changes_of(f)->lock);
	w = find_cookie(f, cookie);
	if (w) {
		take_out(f, w);
		list_del_init(&w->queued);
	}
	spin_unlock(&changes_of(f)->lock);
	if (!w)
		return -ENOENT;

	watch_free(w);
	quota_uncharge(f->quota, sizeof(*w));
	return 0;
}

int watch_end_quiet(struct file_state *f, u64 cookie)
{
	struct pid *mover = NULL;
	struct watch *w;

	spin_lock(&changes_of(f)->lock);
	w = find_cookie(f, cookie);
	if (w)
		swap(mover, w->mover);
	spin_unlock(&changes_of(f)->lock);
	put_pid(mover);
	return w ? 0 : -ENOENT;
}

/* ---- events ---- */

void watch_tell(struct watch *w, unsigned long start, unsigned long last)
{
	start = max(start, w->range.start);
	last = min(last, w->range.last);
	if (list_empty(&w->queued)) {
		w->hint_start = start;
		w->hint_last = last;
		list_add_tail(&w->queued, &w->file->queue);
		return;
	}
	w->hint_start = min(start, w->hint_start);
	w->hint_last = max(last, w->hint_last);
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

/* With the lock held: every change that concerned a watch has ended. */
static bool settled(const struct changes *c)
{
	return !changes_pending(c) && !c->unsettled;
}

/*
 * Take up to @max events, LAST included, and return how many. Before all is
 * settled only a reader that does not wait gets a LAST, the old one, and the file
 * owes the new one still.
 */
unsigned int watch_take(struct file_state *f, struct ummunot_event *ev,
			unsigned int max, bool nonblock)
{
	struct changes *c = changes_of(f);
	struct watch *w;
	unsigned int n;

	spin_lock(&c->lock);
	for (n = 0; n < max && !list_empty(&f->queue); n++) {
		w = list_first_entry(&f->queue, struct watch, queued);
		fill(&ev[n], w);
		list_del_init(&w->queued);
	}
	if (n == max || f->told == c->counter)
		goto unlock;
	if (settled(c))
		f->told = c->counter;
	else if (!nonblock)
		goto unlock;
	fill_last(&ev[n++], f->told);
unlock:
	spin_unlock(&c->lock);
	return n;
}

/*
 * Events that were taken and could not be handed out. Another reader may have
 * got a LAST meanwhile: the counter moves, so that it reads again.
 */
void watch_put_back(struct file_state *f, const struct ummunot_event *ev,
		    unsigned int cnt)
{
	struct changes *c = changes_of(f);
	bool back = false;
	struct watch *w;

	spin_lock(&c->lock);
	for (; cnt; cnt--, ev++) {
		if (ev->type == UMMUNOT_EVENT_TYPE_LAST) {
			back = true;
			continue;
		}
		w = find_cookie(f, ev->user_cookie_counter);
		if (!w)
			continue;
		/* It may be another watch by now: then all of it. */
		if (ev->hint_start > w->range.last ||
		    ev->hint_end - 1 < w->range.start)
			watch_tell(w, w->range.start, w->range.last);
		else
			watch_tell(w, ev->hint_start, ev->hint_end - 1);
		back = true;
	}
	if (back)
		changes_move(c);
	spin_unlock(&c->lock);
	space_kick(f->space);
}

bool file_stirs(struct file_state *f)
{
	struct changes *c = changes_of(f);
	bool yes;

	spin_lock(&c->lock);
	yes = !list_empty(&f->queue) || changes_pending(c) ||
	      (f->told != c->counter && !c->unsettled);
	spin_unlock(&c->lock);
	return yes;
}

/*
 * The poll may be another process's, so the log stays as it is. The changes in
 * it have moved the counter: a read that works it off gives a LAST at least.
 */
bool file_readable(struct file_state *f)
{
	struct changes *c = changes_of(f);
	bool yes;

	spin_lock(&c->lock);
	yes = !list_empty(&f->queue) ||
	      (f->told != c->counter && !c->unsettled);
	spin_unlock(&c->lock);
	return yes;
}

void file_show(struct file_state *f, struct seq_file *m)
{
	struct changes *c = changes_of(f);
	unsigned int watches, features;
	u64 counter, told;

	spin_lock(&c->lock);
	watches = f->watch_cnt;
	features = f->features;
	counter = c->counter;
	told = f->told;
	spin_unlock(&c->lock);
	seq_printf(m, "ummunot-watches:\t%u\n", watches);
	seq_printf(m, "ummunot-features:\t%x\n", features);
	seq_printf(m, "ummunot-counter:\t%llu\n", counter);
	seq_printf(m, "ummunot-told:\t%llu\n", told);
}
