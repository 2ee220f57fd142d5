// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Segments: their table, their life, their permissions.
 *
 * In the table      <=> in the list of the file that made it; both under table_lock
 * dead              =>  no page is handed out any more, the generation is odd
 *
 * A reference is held by the table, by each grant and by each attachment. The
 * segment keeps its space in turn, so the tree it is in is there until it leaves.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/pid.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "internal.h"

/* With the page of the generation. */
#define SEGMENT_BYTES (sizeof(struct segment) + PAGE_SIZE)

static DEFINE_HASHTABLE(by_id, 10);
static DEFINE_HASHTABLE(by_uid, 6);
static DEFINE_MUTEX(table_lock);

/* ---- the generation; with space->lock held ---- */

static void show(struct segment *s, u64 generation)
{
	s->generation = generation;
	/* Seen before any page goes: pairs with the reader's acquire. */
	smp_store_release((u64 *)page_address(s->page), generation);
	/* Before the entries are looked at, on every CPU that has some. */
	smp_mb();
}

void segment_hit(struct segment *s)
{
	s->invalidations++;
	if (!(s->generation & 1))
		show(s, s->generation + 1);
}

void segment_rest(struct segment *s)
{
	if (!s->dead && (s->generation & 1))
		show(s, s->generation + 1);
}

void segment_strays(struct segment *s)
{
	if (!s->dead)
		show(s, s->generation + 2);
}

void segment_die(struct segment *s)
{
	s->dead = true;
	if (!(s->generation & 1))
		show(s, s->generation + 1);
}

/* ---- pages that attachers have ---- */

/* The pages of a range, by their numbers in the segment; false: none. */
static bool part(const struct segment *s, unsigned long *start,
		 unsigned long *last)
{
	if (*start > s->range.last || *last < s->range.start)
		return false;
	*start = (max(*start, s->range.start) - s->range.start) >> PAGE_SHIFT;
	*last = (min(*last, s->range.last) - s->range.start) >> PAGE_SHIFT;
	return true;
}

bool segment_handed(const struct segment *s, unsigned long start,
		    unsigned long last)
{
	return part(s, &start, &last) && handed_any(&s->handed, start, last);
}

void segment_zap(struct segment *s, unsigned long start, unsigned long last)
{
	struct interval_tree_node *n;
	bool more;

	mutex_lock(&s->zapping);
	n = interval_tree_iter_first(&s->attachments, start, last);
	for (; n; n = interval_tree_iter_next(n, start, last)) {
		attachment_zap(container_of(n, struct attachment, by_owner),
			       start, last);
		cond_resched();
	}
	mutex_unlock(&s->zapping);

	if (!part(s, &start, &last))
		return;
	do {
		spin_lock(&s->space->lock);
		more = handed_clear_some(&s->handed, &start, last);
		spin_unlock(&s->space->lock);
	} while (more);
}

/* ---- life ---- */

static void segment_free(struct kref *kref)
{
	struct segment *s = container_of(kref, struct segment, kref);

	handed_fini(&s->handed);
	put_page(s->page);
	put_pid(s->pid);
	quota_uncharge(s->quota, SEGMENT_BYTES);
	quota_put(s->quota);
	space_put(s->space);
	kfree(s);
}

void segment_put(struct segment *s)
{
	kref_put(&s->kref, segment_free);
}

static struct segment *segment_new(struct quota *q)
{
	struct segment *s;
	int err;

	err = quota_charge(q, SEGMENT_BYTES);
	if (err)
		return ERR_PTR(err);
	err = -ENOMEM;
	s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	if (!s)
		goto uncharge;
	s->page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!s->page)
		goto free_segment;
	s->space = space_get();
	if (IS_ERR(s->space)) {
		err = PTR_ERR(s->space);
		goto free_page;
	}
	s->quota = quota_hold(q);
	kref_init(&s->kref);
	s->pid = get_pid(task_tgid(current));
	s->uid = current_fsuid();
	s->gid = current_fsgid();
	s->attachments = RB_ROOT_CACHED;
	mutex_init(&s->zapping);
	handed_init(&s->handed);
	show(s, 2);
	return s;

free_page:
	__free_page(s->page);
free_segment:
	kfree(s);
uncharge:
	quota_uncharge(q, SEGMENT_BYTES);
	return ERR_PTR(err);
}

/* With table_lock held. */
static struct segment *find(const u64 *id)
{
	struct segment *s;

	hash_for_each_possible(by_id, s, by_id, id[0])
		if (s->id[0] == id[0] && (!id[1] || s->id[1] == id[1]))
			return s;
	return NULL;
}

/* With table_lock held. */
static bool has_too_many(kuid_t uid)
{
	unsigned int cnt = 0;
	struct segment *s;

	hash_for_each_possible(by_uid, s, by_uid, __kuid_val(uid))
		if (uid_eq(s->uid, uid))
			cnt++;
	return cnt >= READ_ONCE(max_segments_per_user);
}

/* With table_lock held. */
static int enter(struct segment *s, struct file_state *f)
{
	if (has_too_many(s->uid))
		return -ENOSPC;
	do {
		get_random_bytes(s->id, sizeof(s->id));
		s->id[0] &= U64_MAX >> 1;
		/* Half of it is enough to be found by. */
	} while (!s->id[1] || find((u64[]){ s->id[0], 0 }));
	hash_add(by_id, &s->by_id, s->id[0]);
	hash_add(by_uid, &s->by_uid, __kuid_val(s->uid));
	list_add(&s->of_file, &f->segments);
	return 0;
}

int segment_make(struct file_state *f, const struct kedge_segment_make *r,
		 u64 *id)
{
	struct segment *s = segment_new(f->quota);
	int err;

	if (IS_ERR(s))
		return PTR_ERR(s);
	s->addr = r->addr;
	s->len = r->len;
	s->range.start = round_down(r->addr, PAGE_SIZE);
	s->range.last = round_up(r->addr + r->len, PAGE_SIZE) - 1;
	s->mode = r->mode;

	/* In its space first: an attacher that finds its id may be handed pages. */
	spin_lock(&s->space->lock);
	interval_tree_insert(&s->range, &s->space->segments);
	s->listed = true;
	spin_unlock(&s->space->lock);

	mutex_lock(&table_lock);
	err = enter(s, f);
	memcpy(id, s->id, sizeof(s->id));
	mutex_unlock(&table_lock);
	if (!err)
		return 0;
	segment_end(s);
	segment_put(s);
	return err;
}

struct segment *segment_get(const u64 *id)
{
	struct segment *s;

	mutex_lock(&table_lock);
	s = find(id);
	if (s)
		kref_get(&s->kref);
	mutex_unlock(&table_lock);
	return s ?: ERR_PTR(-ENOENT);
}

/* True for the caller that took it out. */
static bool leave_table(struct segment *s)
{
	bool mine;

	mutex_lock(&table_lock);
	mine = !hlist_unhashed(&s->by_id);
	if (mine) {
		hash_del(&s->by_id);
		hash_del(&s->by_uid);
		list_del(&s->of_file);
	}
	mutex_unlock(&table_lock);
	return mine;
}

/* The caller has a reference of its own. Two may do it at once. */
void segment_end(struct segment *s)
{
	bool mine = leave_table(s);

	spin_lock(&s->space->lock);
	segment_die(s);
	spin_unlock(&s->space->lock);
	segment_zap(s, s->range.start, s->range.last);
	spin_lock(&s->space->lock);
	if (s->listed)
		interval_tree_remove(&s->range, &s->space->segments);
	s->listed = false;
	spin_unlock(&s->space->lock);
	if (mine)
		segment_put(s);
}

static struct segment *any_of_file(struct file_state *f)
{
	struct segment *s;

	mutex_lock(&table_lock);
	s = list_first_entry_or_null(&f->segments, struct segment, of_file);
	if (s)
		kref_get(&s->kref);
	mutex_unlock(&table_lock);
	return s;
}

void segments_of_file_end(struct file_state *f)
{
	struct segment *s;

	while ((s = any_of_file(f))) {
		segment_end(s);
		segment_put(s);
		cond_resched();
	}
}

/* ---- permissions ---- */

/* Asked for each segment of a list: not worth a line in the audit log. */
static bool is_privileged(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_IPC_OWNER);
}

bool segment_is_callers(const struct segment *s)
{
	return uid_eq(current_fsuid(), s->uid) || is_privileged();
}

int segment_permits(const struct segment *s, u32 access)
{
	u32 need = 4, have = s->mode;

	if (access & KEDGE_SEGMENT_WRITE)
		need |= 2;
	if (uid_eq(current_fsuid(), s->uid))
		have >>= 6;
	else if (in_group_p(s->gid))
		have >>= 3;
	if ((have & need) == need || is_privileged())
		return 0;
	return -EACCES;
}

unsigned int segment_list(u64 *ids, unsigned int room)
{
	unsigned int cnt = 0;
	struct segment *s;
	int i;

	mutex_lock(&table_lock);
	hash_for_each(by_id, i, s, by_id) {
		if (segment_permits(s, KEDGE_SEGMENT_READ))
			continue;
		if (cnt < room)
			memcpy(ids + 2 * cnt, s->id, sizeof(s->id));
		cnt++;
	}
	mutex_unlock(&table_lock);
	return cnt;
}
