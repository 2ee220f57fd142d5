// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The ioctls. <linux/kedge_segment.h> says what a program may expect.
 */
#include <linux/cred.h>
#include <linux/overflow.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

/* Ids that one LIST copies at the most: it holds the table's lock meanwhile. */
#define LIST_MAX 65536u

/* The caller's struct, at the size that it was compiled with. */
static int take(void *to, size_t size, void __user *arg)
{
	u32 theirs, flags;
	int err;

	if (get_user(theirs, (u32 __user *)arg))
		return -EFAULT;
	if (theirs < size)
		return -EINVAL;
	if (theirs > PAGE_SIZE)
		return -E2BIG;
	err = copy_struct_from_user(to, size, arg, theirs);
	if (err)
		return err;
	flags = ((u32 *)to)[1];
	return flags & ~KEDGE_SEGMENT_WHOLE ? -EINVAL : 0;
}

static int give(void __user *arg, const void *from, size_t size)
{
	return copy_to_user(arg, from, size) ? -EFAULT : 0;
}

/* ---- make and remove ---- */

static int check_range(struct kedge_segment_make *r)
{
	u64 end;

	if (r->pad || (r->mode & ~0666u))
		return -EINVAL;
	if (r->flags & KEDGE_SEGMENT_WHOLE) {
		if (r->addr || r->len)
			return -EINVAL;
		r->len = round_down(current->mm->task_size, PAGE_SIZE);
		return 0;
	}
	if (!r->len || check_add_overflow(r->addr, r->len, &end) ||
	    end > round_down(current->mm->task_size, PAGE_SIZE))
		return -EINVAL;
	return 0;
}

/* With f->lock held: this file owns segments from now on. */
static int become_owner(struct file_state *f)
{
	struct space *s;

	if (f->use == USE_OWNER)
		return file_is_mine(f) ? 0 : -ESRCH;
	if (f->use == USE_GRANT)
		return -EBUSY;
	s = space_get();
	if (IS_ERR(s))
		return PTR_ERR(s);
	f->space = s;
	f->use = USE_OWNER;
	return 0;
}

static int make(struct file_state *f, void __user *arg)
{
	struct kedge_segment_make r;
	struct segment *s;
	int err;

	err = take(&r, sizeof(r), arg);
	if (!err)
		err = check_range(&r);
	if (err)
		return err;
	mutex_lock(&f->lock);
	err = become_owner(f);
	if (!err)
		err = segment_make(f, &r, r.id);
	mutex_unlock(&f->lock);
	if (err)
		return err;
	err = give(arg, &r, sizeof(r));
	if (!err)
		return 0;
	/* Its id would be known to no process. */
	s = segment_get(r.id);
	if (!IS_ERR(s)) {
		segment_end(s);
		segment_put(s);
	}
	return err;
}

static int remove(void __user *arg)
{
	struct kedge_segment_remove r;
	struct segment *s;
	int err;

	err = take(&r, sizeof(r), arg);
	if (err)
		return err;
	if (r.flags)
		return -EINVAL;
	s = segment_get(r.id);
	if (IS_ERR(s))
		return PTR_ERR(s);
	if (segment_is_callers(s))
		segment_end(s);
	else
		err = -EPERM;
	segment_put(s);
	return err;
}

/* ---- get ---- */

/* With f->lock held; takes the reference over where it succeeds. */
static int become_grant(struct file_state *f, struct segment *s, bool write)
{
	struct space *space;

	if (f->use != USE_NONE)
		return -EBUSY;
	space = space_get();
	if (IS_ERR(space))
		return PTR_ERR(space);
	f->space = space;
	f->segment = s;
	f->write = write;
	atomic_inc(&s->grant_cnt);
	/* Pairs with the load in the file's mmap(). */
	smp_store_release(&f->use, USE_GRANT);
	return 0;
}

static int get(struct file *file, void __user *arg)
{
	struct file_state *f = file->private_data;
	struct kedge_segment_get r;
	struct segment *s;
	bool write;
	int err;

	err = take(&r, sizeof(r), arg);
	if (err)
		return err;
	if (r.flags || !(r.access & KEDGE_SEGMENT_READ) ||
	    (r.access & ~(KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE)))
		return -EINVAL;
	write = r.access & KEDGE_SEGMENT_WRITE;
	s = segment_get(r.id);
	if (IS_ERR(s))
		return PTR_ERR(s);
	err = segment_permits(s, r.access);
	if (!err && write && !(file->f_mode & FMODE_WRITE))
		err = -EACCES;
	r.pid = pid_vnr(s->pid);
	r.addr = s->addr;
	r.len = s->len;
	/* Before it has effects. */
	if (!err)
		err = give(arg, &r, sizeof(r));
	if (!err) {
		mutex_lock(&f->lock);
		err = become_grant(f, s, write);
		mutex_unlock(&f->lock);
	}
	if (err)
		segment_put(s);
	return err;
}

/* ---- query and list ---- */

static void fill(struct kedge_segment_query *r, struct segment *s)
{
	struct user_namespace *ns = current_user_ns();

	r->addr = s->addr;
	r->len = s->len;
	r->pid = pid_vnr(s->pid);
	r->uid = from_kuid_munged(ns, s->uid);
	r->gid = from_kgid_munged(ns, s->gid);
	r->mode = s->mode;
	r->attachments = atomic_read(&s->mapping_cnt);
	r->grants = atomic_read(&s->grant_cnt);
	spin_lock(&s->space->lock);
	r->generation = s->generation;
	r->pages = s->handed.cnt;
	r->invalidations = s->invalidations;
	spin_unlock(&s->space->lock);
}

static int query(void __user *arg)
{
	struct kedge_segment_query r;
	struct segment *s;
	int err;

	err = take(&r, sizeof(r), arg);
	if (err)
		return err;
	if (r.flags)
		return -EINVAL;
	s = segment_get(r.id);
	if (IS_ERR(s))
		return PTR_ERR(s);
	err = segment_permits(s, KEDGE_SEGMENT_READ);
	if (!err)
		fill(&r, s);
	segment_put(s);
	return err ?: give(arg, &r, sizeof(r));
}

static int list(void __user *arg)
{
	struct kedge_segment_list r;
	unsigned int room;
	u64 *ids = NULL;
	int err;

	err = take(&r, sizeof(r), arg);
	if (err)
		return err;
	if (r.flags)
		return -EINVAL;
	room = min(r.room, LIST_MAX);
	if (room) {
		ids = kvcalloc(room, 2 * sizeof(*ids), GFP_KERNEL_ACCOUNT);
		if (!ids)
			return -ENOMEM;
	}
	r.cnt = segment_list(ids, room);
	room = min(room, r.cnt);
	if (room)
		err = give(u64_to_user_ptr(r.ids), ids,
			   room * 2 * sizeof(*ids));
	kvfree(ids);
	return err ?: give(arg, &r, sizeof(r));
}

long request(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct file_state *f = file->private_data;
	void __user *p = (void __user *)arg;

	/* A kernel thread has no address space to share. */
	if (!current->mm)
		return -ESRCH;
	switch (cmd) {
	case KEDGE_SEGMENT_MAKE:
		return make(f, p);
	case KEDGE_SEGMENT_REMOVE:
		return remove(p);
	case KEDGE_SEGMENT_GET:
		return get(file, p);
	case KEDGE_SEGMENT_QUERY:
		return query(p);
	case KEDGE_SEGMENT_LIST:
		return list(p);
	default:
		return -ENOTTY;
	}
}
