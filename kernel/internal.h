/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The module's parts, each using those below it:
 *
 *   main.c     the device and its file operations
 *   file.c     the watches of an open file, and its queue of events
 *   space.c    an address space: its notifier, its life, its waiters
 *   changes.c  what changes there: the log that callbacks write and readers
 *              work off, and what is between its start and its end
 *   users.c    how much memory each user has here
 */
#ifndef UMMUNOT_INTERNAL_H
#define UMMUNOT_INTERNAL_H

#include <linux/build_bug.h>
#include <linux/fs.h>
#include <linux/interval_tree.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include <linux/ummunot.h>

/* Programs were compiled with these. */
static_assert(sizeof(struct ummunot_event) == 32);
static_assert(sizeof(struct ummunot_register_ioctl) == 32);

#define UMMUNOT_FEATURES (UMMUNOT_FEATURE_PROTECTION |	\
			  UMMUNOT_FEATURE_SETTLED |	\
			  UMMUNOT_FEATURE_QUIET)

/* Changes that run at once in one address space and are remembered singly. */
#define RUNNING_MAX 64
/* Watches that are looked at with the lock held. */
#define BATCH_MAX 64
/* Watches that a callback tells itself. */
#define DIRECT_MAX 16
/* Sleepers that a callback wakes itself. */
#define WAKE_MAX 16

/* ---- users.c ---- */

struct cred;
struct quota;

/* The users charged for what @cred's task opens, or an ERR_PTR(). */
struct quota *quota_get(const struct cred *cred);
struct quota *quota_hold(struct quota *q);
void quota_put(struct quota *q);
/* -EDQUOT if one of them has as much as the limit allows. */
int quota_charge(struct quota *q, size_t bytes);
void quota_uncharge(struct quota *q, size_t bytes);

/* ---- changes.c ---- */

/* A range that changes, or has. */
struct change {
	unsigned long start;
	unsigned long last;	/* inclusive */
	u64 seq;		/* the counter, once it had moved for this */
	bool protection;	/* concerns only watches that asked for it */
	bool hit;		/* while it runs: it concerned a watch */
};

/*
 * The watched ranges of an address space, and their changes. All is guarded by
 * @lock, which is held for bounded work only: a search of each tree, and
 * BATCH_MAX watches at the most.
 *
 * @unsettled counts the running changes that concerned a watch; those in @over
 * are one.
 */
struct changes {
	spinlock_t lock;		/* guards all of this */
	struct rb_root_cached plain;	/* watches of pages */
	struct rb_root_cached strict;	/* and of protection, too */
	u64 counter;
	u64 *shown;			/* the counter, for user space */
	unsigned int unsettled;

	/* Between their start and their end. */
	DECLARE_BITMAP(slots, RUNNING_MAX);
	struct change running[RUNNING_MAX];
	struct change over;		/* around those without a slot */
	unsigned int over_cnt;

	/* Told to no watch yet: a ring, and the one that is being told. */
	struct change *log;		/* a page, from the first watch on */
	unsigned int log_max;
	unsigned int log_first;
	unsigned int log_cnt;
	struct change doing;
	struct interval_tree_node *cursor;	/* NULL: between entries */
	bool cursor_strict;
};

struct watch;

void changes_init(struct changes *c);
/* A change starts, or ends: true if somebody may want to know. */
bool changes_start(struct changes *c, unsigned long start, unsigned long last,
		   bool protection);
bool changes_end(struct changes *c, unsigned long start, unsigned long last,
		 bool protection);
/* With the lock held: a watch comes or goes. */
void changes_add(struct changes *c, struct watch *w);
void changes_del(struct changes *c, struct watch *w);
void changes_move(struct changes *c);
/*
 * Tell a bounded part of the log to its watches; false if all was told.
 * @entries: how many of the log at the most, and how many less then.
 */
bool changes_resolve_some(struct changes *c, unsigned int *entries);
/* With the lock held: entries that their watches were not told of, or in part. */
static inline unsigned int changes_pending(const struct changes *c)
{
	return c->log_cnt + !!c->cursor;
}

/* With the lock held: the address space is gone, and all watches with it. */
void changes_forget(struct changes *c);

/* ---- space.c ---- */

/*
 * An address space that a file was opened in. It lives as long as one of those
 * files, and, once something was watched, as long as the address space: so the
 * locks of all mappings, which registering a notifier takes, are taken once.
 */
struct space {
	struct kref kref;		/* files, the notifier, queued work */
	struct hlist_node node;		/* in spaces; under spaces_lock */
	struct mm_struct *mm;		/* by mm_count; NULL once it is gone */
	struct quota *quota;		/* of the first file's opener */
	struct page *page;		/* of the counter */

	struct mutex setup;		/* of the log and the notifier */
	bool listening;			/* mn is registered; set under setup */
	struct mmu_notifier mn;

	wait_queue_head_t wait;
	struct delayed_work work;
	unsigned long rest;		/* of the work, in jiffies */
	struct mutex resolving;		/* the log, which one does at a time */

	struct mutex async_lock;	/* guards async and its files' fasync */
	struct list_head async;		/* files that send SIGIO */
	unsigned int async_cnt;

	struct changes changes;
	/* Under changes.lock. */
	struct list_head files;
	bool dead;			/* the address space is gone */
};

int spaces_init(void);
void spaces_exit(void);
/* The one of current->mm, or an ERR_PTR(). */
struct space *space_get(struct quota *q);
void space_put(struct space *s);
/* Have changes told to us. The caller is in that address space. */
int space_listen(struct space *s);
/* True if the caller is in that address space. */
bool space_is_mine(const struct space *s);
/*
 * Tell the whole log to its watches. -EAGAIN if another does and @nowait, -EINTR
 * if the caller is killed.
 */
int space_resolve(struct space *s, bool nowait);
/* Something may have become readable. Bounded work, in any context. */
void space_kick(struct space *s);

/* ---- file.c ---- */

/* One watch. All is guarded by the space's lock. */
struct watch {
	struct interval_tree_node range;	/* in changes.plain or .strict */
	struct rb_node by_cookie;		/* in file->cookies */
	struct list_head queued;		/* in file->queue */
	struct file_state *file;
	u64 cookie;
	u64 since;				/* the counter when it came */
	unsigned long hint_start;		/* while queued */
	unsigned long hint_last;
	bool protection;
	struct pid *mover;	/* quiet: the thread that is not listened to */
};

/* An open file. @in_space and what follows: under the space's lock. */
struct file_state {
	struct space *space;
	struct quota *quota;
	struct fasync_struct *fasync;
	struct list_head async;		/* in space->async, or alone */

	struct list_head in_space;	/* in space->files */
	struct rb_root cookies;
	struct list_head queue;
	u64 told;			/* what the last LAST that told all carried */
	u32 features;
	bool began;			/* something was watched: features stay */
	unsigned int watch_cnt;
};

int watch_cache_create(void);
void watch_cache_destroy(void);
void file_join(struct file_state *f);
void file_leave(struct file_state *f);
/* The address space is gone. */
void file_drop_watches_of(struct space *s);
int file_features(struct file_state *f, u32 features);
int watch_add(struct file_state *f, const struct ummunot_register_ioctl *r);
int watch_remove(struct file_state *f, u64 cookie);
/* From now on it is told of every thread's changes. */
int watch_end_quiet(struct file_state *f, u64 cookie);
/* With the lock held: queue the event that part of @w has changed. */
void watch_tell(struct watch *w, unsigned long start, unsigned long last);
unsigned int watch_take(struct file_state *f, struct ummunot_event *ev,
			unsigned int max, bool nonblock);
void watch_put_back(struct file_state *f, const struct ummunot_event *ev,
		    unsigned int cnt);
/* Worth a read, which may still find no event while a change is running. */
bool file_stirs(struct file_state *f);
/* A read will not wait. */
bool file_readable(struct file_state *f);
/* Lines for /proc/PID/fdinfo. */
struct seq_file;
void file_show(struct file_state *f, struct seq_file *m);

#ifdef CONFIG_UMMUNOT_SWAP
/* ---- swap.c ---- */

int swap_pages(void __user *arg);
#endif

/* Module parameters, in main.c. */
extern unsigned int max_watches_per_file;
extern unsigned long max_kib_per_user;

#endif /* UMMUNOT_INTERNAL_H */
