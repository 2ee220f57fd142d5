/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The module's parts: main.c is the device and its file operations, watch.c
 * what an open file watches and has to tell, users.c what each user has.
 */
#ifndef UMMUNOT_INTERNAL_H
#define UMMUNOT_INTERNAL_H

#include <linux/build_bug.h>
#include <linux/fs.h>
#include <linux/interval_tree.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>

#include <linux/ummunot.h>

/* What programs were compiled with. */
static_assert(sizeof(struct ummunot_event) == 32);
static_assert(sizeof(struct ummunot_register_ioctl) == 32);

#define UMMUNOT_FEATURES (UMMUNOT_FEATURE_PROTECTION | UMMUNOT_FEATURE_SETTLED)

/* Changes that run at once in one address space and need no waiting. */
#define RUNNING_MAX 32

/* A change between its start and its end. */
struct running {
	unsigned long start;
	unsigned long last;	/* inclusive */
	bool protection;	/* told only to those who asked for it */
	bool hit;		/* made a watch busy */
};

/*
 * One watch. All is guarded by the file's lock.
 *
 * busy counts the running changes that concern it: those that overlap it and
 * are not of a kind that it does not want.
 */
struct watch {
	struct interval_tree_node range;	/* in file->ranges */
	struct rb_node by_cookie;		/* in file->cookies */
	struct list_head queued;		/* in file->queue */
	u64 cookie;
	unsigned long hint_start;		/* while queued */
	unsigned long hint_last;
	unsigned int busy;
	bool protection;
};

struct user;

/*
 * One open file.
 *
 * quiet is what the counter was before busy_cnt left 0: less than the counter
 * for as long as a watch is busy.
 */
struct file_state {
	struct mm_struct *mm;		/* the opener's, by mm_count */
	struct user *user;
	struct page *page;		/* of the counter */
	u64 *shown;			/* the counter in it */

	struct mutex setup;		/* features, and notifying's store */
	u32 features;
	bool notifying;			/* notifier is registered; set once */
	struct mmu_notifier notifier;

	wait_queue_head_t wait;
	struct fasync_struct *async;

	spinlock_t lock;		/* guards all that follows */
	struct rb_root_cached ranges;
	struct rb_root cookies;
	struct list_head queue;
	u64 counter;
	u64 quiet;
	unsigned int watch_cnt;
	unsigned int busy_cnt;		/* watches that are busy */
	bool owed;			/* the counter moved since it was told */
	bool dead;			/* the address space is gone */
	unsigned int overflow;		/* running, but without a slot */
	DECLARE_BITMAP(slots, RUNNING_MAX);
	struct running running[RUNNING_MAX];
};

/* watch.c */
int watch_cache_create(void);
void watch_cache_destroy(void);
void watch_init(struct file_state *f);
void watch_free_all(struct file_state *f);
int watch_listen(struct file_state *f);
int watch_add(struct file_state *f, const struct ummunot_register_ioctl *r);
int watch_remove(struct file_state *f, u64 cookie);
unsigned int watch_take(struct file_state *f, struct ummunot_event *ev,
			unsigned int max, bool nonblock);
void watch_put_back(struct file_state *f, const struct ummunot_event *ev,
		    unsigned int cnt);
bool watch_readable(struct file_state *f);

/* users.c */
struct user *user_get(kuid_t uid);
void user_put(struct user *u);
int user_charge(struct user *u);
void user_uncharge(struct user *u, unsigned int cnt);

/* Module parameters, in main.c. */
extern unsigned int max_watches_per_file;
extern unsigned int max_watches_per_user;

#endif /* UMMUNOT_INTERNAL_H */
