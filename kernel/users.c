// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How many watches each user has, in all files that he opened. A user is known
 * for as long as one of his files is open.
 */
#include <linux/atomic.h>
#include <linux/hashtable.h>
#include <linux/slab.h>

#include "internal.h"

struct user {
	struct hlist_node node;		/* in users */
	kuid_t uid;
	unsigned int files;		/* under users_lock */
	atomic_t watches;
};

static DEFINE_HASHTABLE(users, 6);
static DEFINE_MUTEX(users_lock);

static struct user *user_find(kuid_t uid)
{
	struct user *u;

	hash_for_each_possible(users, u, node, __kuid_val(uid))
		if (uid_eq(u->uid, uid))
			return u;
	return NULL;
}

/* NULL if there is no memory. */
struct user *user_get(kuid_t uid)
{
	struct user *u;

	mutex_lock(&users_lock);
	u = user_find(uid);
	if (!u) {
		u = kzalloc(sizeof(*u), GFP_KERNEL_ACCOUNT);
		if (!u)
			goto unlock;
		u->uid = uid;
		hash_add(users, &u->node, __kuid_val(uid));
	}
	u->files++;
unlock:
	mutex_unlock(&users_lock);
	return u;
}

void user_put(struct user *u)
{
	mutex_lock(&users_lock);
	if (!--u->files) {
		hash_del(&u->node);
		kfree(u);
	}
	mutex_unlock(&users_lock);
}

/* Count one more, or -EDQUOT. */
int user_charge(struct user *u)
{
	unsigned int max = READ_ONCE(max_watches_per_user);
	unsigned int now = atomic_read(&u->watches);

	do {
		if (now >= max)
			return -EDQUOT;
	} while (!atomic_try_cmpxchg(&u->watches, (int *)&now, now + 1));
	return 0;
}

void user_uncharge(struct user *u, unsigned int cnt)
{
	atomic_sub(cnt, &u->watches);
}
