// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The memory that each user has here, in all files that it opened.
 *
 * A user namespace has ids of its own, 65,536 of them by default: what they take
 * is charged to the namespace's owner as well, and to the owners of those it is
 * in, as inotify and epoll do. So a file has a quota: all users charged for it.
 */
#include <linux/atomic.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include "internal.h"

struct user {
	struct hlist_node node;		/* in users */
	kuid_t uid;
	unsigned int quotas;		/* under users_lock */
	atomic_long_t bytes;
};

struct quota {
	refcount_t refs;
	unsigned int cnt;
	struct user *users[];		/* each once */
};

static DEFINE_HASHTABLE(users, 6);
/* Also taken where SRCU frees, with bottom halves off. */
static DEFINE_SPINLOCK(users_lock);

/* With users_lock held. */
static struct user *user_find(kuid_t uid)
{
	struct user *u;

	hash_for_each_possible(users, u, node, __kuid_val(uid))
		if (uid_eq(u->uid, uid))
			return u;
	return NULL;
}

/* NULL if there is no memory. */
static struct user *user_get(kuid_t uid)
{
	struct user *u, *new;

	new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
	if (!new)
		return NULL;
	new->uid = uid;
	spin_lock_bh(&users_lock);
	u = user_find(uid);
	if (!u) {
		u = new;
		new = NULL;
		hash_add(users, &u->node, __kuid_val(uid));
	}
	u->quotas++;
	spin_unlock_bh(&users_lock);
	kfree(new);
	return u;
}

static void user_put(struct user *u)
{
	bool last;

	spin_lock_bh(&users_lock);
	last = !--u->quotas;
	if (last)
		hash_del(&u->node);
	spin_unlock_bh(&users_lock);
	if (last)
		kfree(u);
}

void quota_put(struct quota *q)
{
	if (!refcount_dec_and_test(&q->refs))
		return;
	while (q->cnt)
		user_put(q->users[--q->cnt]);
	kfree(q);
}

struct quota *quota_hold(struct quota *q)
{
	refcount_inc(&q->refs);
	return q;
}

static bool has(const struct quota *q, kuid_t uid)
{
	unsigned int i;

	for (i = 0; i < q->cnt; i++)
		if (uid_eq(q->users[i]->uid, uid))
			return true;
	return false;
}

struct quota *quota_get(const struct cred *cred)
{
	const struct user_namespace *ns = cred->user_ns;
	kuid_t uid = cred->uid;
	struct quota *q;

	q = kzalloc(struct_size(q, users, ns->level + 1), GFP_KERNEL_ACCOUNT);
	if (!q)
		return ERR_PTR(-ENOMEM);
	refcount_set(&q->refs, 1);
	for (; ns; uid = ns->owner, ns = ns->parent) {
		if (has(q, uid))
			continue;
		q->users[q->cnt] = user_get(uid);
		if (!q->users[q->cnt]) {
			quota_put(q);
			return ERR_PTR(-ENOMEM);
		}
		q->cnt++;
	}
	return q;
}

static int charge(struct user *u, size_t bytes)
{
	unsigned long max = READ_ONCE(max_kib_per_user);
	long now = atomic_long_read(&u->bytes);

	max = max > LONG_MAX / 1024 ? LONG_MAX : max * 1024;
	do {
		if (now + bytes > max)
			return -EDQUOT;
	} while (!atomic_long_try_cmpxchg(&u->bytes, &now, now + bytes));
	return 0;
}

int quota_charge(struct quota *q, size_t bytes)
{
	unsigned int i;
	int err;

	for (i = 0; i < q->cnt; i++) {
		err = charge(q->users[i], bytes);
		if (err)
			goto undo;
	}
	return 0;

undo:
	while (i--)
		atomic_long_sub(bytes, &q->users[i]->bytes);
	return err;
}

void quota_uncharge(struct quota *q, size_t bytes)
{
	unsigned int i;

	for (i = 0; i < q->cnt; i++)
		atomic_long_sub(bytes, &q->users[i]->bytes);
}
