// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Address spaces in which something is watched, or may be.
 *
 * All files that are opened in one share a space: one notifier, one counter.
 * Callbacks wake a few readers themselves, without our lock. Longer work is
 * s->work's: many readers, signals, and the watches of an address space that has
 * gone. Its time is charged to no process, so it tells no watches, and rests
 * longer than it works.
 *
 * A space is kept by each file, by queued work, and by the notifier once that is
 * registered. The notifier stays until the address space ends (mm_release) or
 * the module does: whichever takes s out of `spaces` lets go of it.
 *
 * Order of locks: s->setup, mmap_lock, spaces_lock. s->resolving and
 * s->async_lock are taken alone, changes.lock last.
 */
#include <linux/hashtable.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "internal.h"

/*
 * A page that user space maps must not be charged where the charge is kept in
 * the same word as the count of its mappings (before 5.11).
 */
#ifdef PG_kmemcg
#define GFP_COUNTER (GFP_KERNEL | __GFP_ZERO)
#else
#define GFP_COUNTER (GFP_KERNEL_ACCOUNT | __GFP_ZERO)
#endif

/* With the pages of the counter and the log, and what it keeps of the mm. */
#define SPACE_BYTES (sizeof(struct space) + sizeof(struct mm_struct) + \
		     3 * PAGE_SIZE)
/* Of the time the work has taken; then it may begin again. */
#define REST 16

static DEFINE_HASHTABLE(spaces, 8);
/* Also taken where SRCU frees, with bottom halves off. */
static DEFINE_SPINLOCK(spaces_lock);
static struct workqueue_struct *workers;
/* Spaces that are not freed. */
static atomic_t space_cnt;

static void space_work(struct work_struct *work);

/* ---- life ---- */

/* True for the one that took it out of the table. */
static bool unhash(struct space *s)
{
	bool mine;

	spin_lock_bh(&spaces_lock);
	mine = !hlist_unhashed(&s->node);
	if (mine)
		hash_del(&s->node);
	spin_unlock_bh(&spaces_lock);
	return mine;
}

static void space_free(struct kref *kref)
{
	struct space *s = container_of(kref, struct space, kref);

	unhash(s);
	quota_uncharge(s->quota, SPACE_BYTES);
	quota_put(s->quota);
	free_page((unsigned long)s->changes.log);
	__free_page(s->page);
	if (s->mm)
		mmdrop(s->mm);
	kfree(s);
	if (atomic_dec_and_test(&space_cnt))
		wake_up_var(&space_cnt);
}

void space_put(struct space *s)
{
	kref_put(&s->kref, space_free);
}

/* With spaces_lock held. One that is being freed is found no more. */
static struct space *find(struct mm_struct *mm)
{
	struct space *s;

	hash_for_each_possible(spaces, s, node, (unsigned long)mm)
		if (s->mm == mm && kref_get_unless_zero(&s->kref))
			return s;
	return NULL;
}

static struct space *find_locked(struct mm_struct *mm)
{
	struct space *s;

	spin_lock_bh(&spaces_lock);
	s = find(mm);
	spin_unlock_bh(&spaces_lock);
	return s;
}

static struct space *space_new(struct quota *q)
{
	struct space *s;

	s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	if (!s)
		return NULL;
	s->page = alloc_page(GFP_COUNTER);
	if (!s->page) {
		kfree(s);
		return NULL;
	}
	kref_init(&s->kref);
	mutex_init(&s->setup);
	mutex_init(&s->resolving);
	mutex_init(&s->async_lock);
	init_waitqueue_head(&s->wait);
	INIT_DELAYED_WORK(&s->work, space_work);
	INIT_LIST_HEAD(&s->async);
	INIT_LIST_HEAD(&s->files);
	changes_init(&s->changes);
	s->changes.shown = page_address(s->page);
	WRITE_ONCE(*s->changes.shown, s->changes.counter);
	s->mm = current->mm;
	mmgrab(s->mm);
	s->quota = quota_hold(q);
	atomic_inc(&space_cnt);
	return s;
}

bool space_is_mine(const struct space *s)
{
	return current->mm && current->mm == READ_ONCE(s->mm);
}

struct space *space_get(struct quota *q)
{
	struct space *s, *new;
	int err;

	s = find_locked(current->mm);
	if (s)
		return s;
	err = quota_charge(q, SPACE_BYTES);
	if (err)
		return ERR_PTR(err);
	new = space_new(q);
	if (!new) {
		quota_uncharge(q, SPACE_BYTES);
		return ERR_PTR(-ENOMEM);
	}
	spin_lock_bh(&spaces_lock);
	s = find(current->mm);
	if (!s)
		hash_add(spaces, &new->node, (unsigned long)new->mm);
	spin_unlock_bh(&spaces_lock);
	if (!s)
		return new;
	/* Another thread was first. */
	space_put(new);
	return s;
}

/* ---- the notifier ---- */

static struct mmu_notifier *alloc_notifier(struct mm_struct *mm)
{
	struct space *s = find_locked(mm);

	return s ? &s->mn : ERR_PTR(-ESRCH);
}

static void free_notifier(struct mmu_notifier *mn)
{
	space_put(container_of(mn, struct space, mn));
}

/* Changes that leave the pages: the same answer at the start and at the end. */
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
	struct space *s = container_of(mn, struct space, mn);

	if (changes_start(&s->changes, range->start, range->end - 1,
			  is_protection(range)))
		space_kick(s);
	return 0;
}

static void range_end(struct mmu_notifier *mn,
		      const struct mmu_notifier_range *range)
{
	struct space *s = container_of(mn, struct space, mn);

	if (changes_end(&s->changes, range->start, range->end - 1,
			is_protection(range)))
		space_kick(s);
}

/* The work takes its own reference; it may end after all others. */
static void queue(struct space *s)
{
	kref_get(&s->kref);
	if (!queue_delayed_work(workers, &s->work, READ_ONCE(s->rest)))
		space_put(s);
}

static void queue_at_once(struct space *s)
{
	kref_get(&s->kref);
	if (mod_delayed_work(workers, &s->work, 0))
		space_put(s);
}

/* The address space goes. Its watches, maybe a million, are freed by the work. */
static void mm_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct space *s = container_of(mn, struct space, mn);

	spin_lock(&s->changes.lock);
	WRITE_ONCE(s->dead, true);
	changes_forget(&s->changes);
	spin_unlock(&s->changes.lock);
	queue_at_once(s);
	if (unhash(s))
		mmu_notifier_put(mn);
}

static const struct mmu_notifier_ops notifier_ops = {
	.release = mm_release,
	.invalidate_range_start = range_start,
	.invalidate_range_end = range_end,
	.alloc_notifier = alloc_notifier,
	.free_notifier = free_notifier,
};

/*
 * Registering takes the locks of all mappings one by one and gives up at a
 * pending signal: where signals come faster than that, it would never end. So all
 * but SIGKILL and SIGSTOP wait.
 */
static int register_notifier(struct space *s)
{
	struct mmu_notifier *mn;
	sigset_t most, old;
	int err = -EINTR;

	siginitsetinv(&most, sigmask(SIGKILL) | sigmask(SIGSTOP));
	sigprocmask(SIG_BLOCK, &most, &old);
	if (!mmap_write_lock_killable(current->mm)) {
		mn = mmu_notifier_get_locked(&notifier_ops, current->mm);
		err = PTR_ERR_OR_ZERO(mn);
		mmap_write_unlock(current->mm);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	/* One of those two, or task work that counts as a signal. */
	return err == -EINTR ? -ERESTARTNOINTR : err;
}

static int listen_first(struct space *s)
{
	struct changes *c = &s->changes;
	int err;

	if (!c->log) {
		c->log = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
		c->log_max = PAGE_SIZE / sizeof(*c->log);
	}
	if (!c->log)
		return -ENOMEM;
	err = register_notifier(s);
	if (err)
		return err;
	/* A thread that sees this has the log and the notifier. */
	smp_store_release(&s->listening, true);
	return 0;
}

int space_listen(struct space *s)
{
	int err = 0;

	/* Pairs with the release above. */
	if (smp_load_acquire(&s->listening))
		return 0;
	if (mutex_lock_killable(&s->setup))
		return -EINTR;
	if (!s->listening)
		err = listen_first(s);
	mutex_unlock(&s->setup);
	return err;
}

/* ---- readers ---- */

/* No more than there is now: changes may go on for ever. */
int space_resolve(struct space *s, bool nowait)
{
	struct changes *c = &s->changes;
	unsigned int entries;

	if (nowait) {
		if (!mutex_trylock(&s->resolving))
			return -EAGAIN;
	} else if (mutex_lock_killable(&s->resolving)) {
		return -EINTR;
	}
	spin_lock(&c->lock);
	entries = changes_pending(c);
	spin_unlock(&c->lock);
	while (entries && !fatal_signal_pending(current) &&
	       changes_resolve_some(c, &entries))
		cond_resched();
	mutex_unlock(&s->resolving);
	return 0;
}

/*
 * The holder of a descriptor decides how many sleep: one that is in a thousand
 * epoll sets is a thousand. The change may be another process's, which must not
 * wait for them, nor for the work, which holds the lock while it wakes.
 */
static bool few_sleep(wait_queue_head_t *wait)
{
	struct wait_queue_entry *e;
	unsigned int n = 0;
	unsigned long flags;

	if (!spin_trylock_irqsave(&wait->lock, flags))
		return false;
	list_for_each_entry(e, &wait->head, entry)
		if (++n > WAKE_MAX)
			break;
	spin_unlock_irqrestore(&wait->lock, flags);
	return n <= WAKE_MAX;
}

static void wake_all(struct space *s)
{
	wake_up_poll(&s->wait, EPOLLIN | EPOLLRDNORM);
}

void space_kick(struct space *s)
{
	bool later = READ_ONCE(s->async_cnt);

	if (wq_has_sleeper(&s->wait)) {
		if (few_sleep(&s->wait))
			wake_all(s);
		else
			later = true;
	}
	if (later)
		queue(s);
}

static void signal_all(struct space *s, int band)
{
	struct file_state *f;

	mutex_lock(&s->async_lock);
	list_for_each_entry(f, &s->async, async)
		kill_fasync(&f->fasync, SIGIO, band);
	mutex_unlock(&s->async_lock);
}

/* Drop the watches and the mm_struct of an address space that has gone. */
static void bury(struct space *s)
{
	struct mm_struct *mm = xchg(&s->mm, NULL);

	file_drop_watches_of(s);
	if (mm)
		mmdrop(mm);
}

static void space_work(struct work_struct *work)
{
	struct space *s = container_of(to_delayed_work(work), struct space,
				       work);
	unsigned long since = jiffies;
	bool dead = READ_ONCE(s->dead);

	if (dead) {
		bury(s);
		wake_up_poll(&s->wait, EPOLLHUP);
	} else {
		wake_all(s);
	}
	signal_all(s, dead ? POLL_HUP : POLL_IN);
	WRITE_ONCE(s->rest, min((jiffies - since) * REST, (unsigned long)HZ));
	space_put(s);
}

/* ---- the module ---- */

int spaces_init(void)
{
	/* One at a time a space; freezing would keep readers waiting. */
	workers = alloc_workqueue("ummunot", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	return workers ? 0 : -ENOMEM;
}

static struct space *any_space(void)
{
	struct space *s = NULL;
	int i;

	spin_lock_bh(&spaces_lock);
	hash_for_each(spaces, i, s, node) {
		hash_del(&s->node);
		break;
	}
	spin_unlock_bh(&spaces_lock);
	return s;
}

/*
 * No file is left, so those that are have a notifier. One may be on its way out of
 * the table to mmu_notifier_put(), in the exit of its process, so what is waited
 * for is that all are freed. SRCU frees them with bottom halves off, which is a
 * reader to RCU: the last of these calls has returned when that has waited.
 */
void spaces_exit(void)
{
	struct space *s;

	while ((s = any_space()))
		mmu_notifier_put(&s->mn);
	wait_var_event(&space_cnt, !atomic_read(&space_cnt));
	destroy_workqueue(workers);
	synchronize_rcu();
}
