// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * /dev/ummunot: the device and its file operations. <linux/ummunot.h> says what
 * a program may expect.
 */
#include <linux/compat.h>
#include <linux/cred.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "internal.h"

unsigned int max_watches_per_file = 1 << 20;
module_param(max_watches_per_file, uint, 0644);
MODULE_PARM_DESC(max_watches_per_file, "Watches of one open file at the most");

unsigned long max_kib_per_user;
module_param(max_kib_per_user, ulong, 0644);
MODULE_PARM_DESC(max_kib_per_user,
		 "Memory of one user at the most, in KiB (1 % of all memory)");

static bool ummunotify;
module_param(ummunotify, bool, 0444);
MODULE_PARM_DESC(ummunotify, "Also make the node /dev/ummunotify");

/* Events that are copied to the user at once, from the stack. */
#define TAKE_MAX 16

static bool is_owner(const struct file_state *f)
{
	return space_is_mine(f->space);
}

static struct file_state *file_new(void)
{
	struct file_state *f;
	int err = -ENOMEM;

	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return ERR_PTR(-ENOMEM);
	f->quota = quota_get(current_cred());
	if (IS_ERR(f->quota)) {
		err = PTR_ERR(f->quota);
		goto free_file;
	}
	err = quota_charge(f->quota, sizeof(*f));
	if (err)
		goto put_quota;
	f->space = space_get(f->quota);
	if (IS_ERR(f->space)) {
		err = PTR_ERR(f->space);
		goto uncharge;
	}
	file_join(f);
	return f;

uncharge:
	quota_uncharge(f->quota, sizeof(*f));
put_quota:
	quota_put(f->quota);
free_file:
	kfree(f);
	return ERR_PTR(err);
}

static int ummunot_open(struct inode *inode, struct file *file)
{
	struct file_state *f;

	if ((file->f_mode & FMODE_WRITE) || !current->mm)
		return -EINVAL;
	f = file_new();
	if (IS_ERR(f))
		return PTR_ERR(f);
	file->private_data = f;
	/* A caller that may not wait gets EAGAIN; io_uring polls then. */
	file->f_mode |= FMODE_NOWAIT;
	return stream_open(inode, file);
}

static int ummunot_release(struct inode *inode, struct file *file)
{
	struct file_state *f = file->private_data;

	file_leave(f);
	space_put(f->space);
	quota_uncharge(f->quota, sizeof(*f));
	quota_put(f->quota);
	kfree(f);
	return 0;
}

/* Copies as many whole events as fit; puts back those it could not copy. */
static ssize_t copy_events(struct file_state *f, struct iov_iter *to,
			   bool nonblock)
{
	struct ummunot_event ev[TAKE_MAX];
	size_t copied, room;
	unsigned int n, max;
	ssize_t total = 0;

	for (;;) {
		room = iov_iter_count(to) / sizeof(ev[0]);
		max = min_t(size_t, room, TAKE_MAX);
		if (!max)
			break;
		n = watch_take(f, ev, max, nonblock);
		if (!n)
			break;
		copied = copy_to_iter(ev, n * sizeof(ev[0]), to);
		copied /= sizeof(ev[0]);
		total += copied * sizeof(ev[0]);
		if (copied < n) {
			watch_put_back(f, ev + copied, n - copied);
			return total ? total : -EFAULT;
		}
		if (ev[n - 1].type == UMMUNOT_EVENT_TYPE_LAST ||
		    signal_pending(current))
			break;
		cond_resched();
	}
	return total;
}

static ssize_t ummunot_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct file *file = iocb->ki_filp;
	struct file_state *f = file->private_data;
	bool nonblock = file->f_flags & O_NONBLOCK;
	bool nowait = iocb->ki_flags & IOCB_NOWAIT;
	ssize_t rc;

	if (!is_owner(f))
		return -ESRCH;
	if (iov_iter_count(to) < sizeof(struct ummunot_event))
		return -EINVAL;

	for (;;) {
		rc = space_resolve(f->space, nowait);
		if (rc)
			return rc;
		rc = copy_events(f, to, nonblock);
		if (rc)
			return rc;
		if (nonblock || nowait)
			return -EAGAIN;
		rc = wait_event_interruptible(f->space->wait, file_stirs(f));
		/* The wait looks for signals only if the file did not stir. */
		if (rc || signal_pending(current))
			return -ERESTARTSYS;
	}
}

static __poll_t ummunot_poll(struct file *file, poll_table *wait)
{
	struct file_state *f = file->private_data;
	__poll_t mask = 0;

	poll_wait(file, &f->space->wait, wait);
	if (file_readable(f))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(f->space->dead))
		mask |= EPOLLHUP;
	return mask;
}

static int ummunot_fasync(int fd, struct file *file, int on)
{
	struct file_state *f = file->private_data;
	struct space *s = f->space;
	int rc;

	if (on && !is_owner(f))
		return -ESRCH;
	mutex_lock(&s->async_lock);
	rc = fasync_helper(fd, file, on, &f->fasync);
	if (f->fasync && list_empty(&f->async)) {
		list_add(&f->async, &s->async);
		WRITE_ONCE(s->async_cnt, s->async_cnt + 1);
	} else if (!f->fasync && !list_empty(&f->async)) {
		list_del_init(&f->async);
		WRITE_ONCE(s->async_cnt, s->async_cnt - 1);
	}
	mutex_unlock(&s->async_lock);
	return rc;
}

static int exchange_features(struct file_state *f, u32 __user *arg)
{
	u32 features;
	int err;

	if (get_user(features, arg))
		return -EFAULT;
	features &= UMMUNOT_FEATURES;
	err = file_features(f, features);
	if (err)
		return err;
	return put_user(features, arg);
}

/* Pointers of a program may carry a tag in bits that the processor ignores. */
static void untag(struct mm_struct *mm, struct ummunot_register_ioctl *r)
{
#ifdef untagged_addr_remote
	mmap_read_lock(mm);
	r->start = untagged_addr_remote(mm, r->start);
	r->end = untagged_addr_remote(mm, r->end - 1) + 1;
	mmap_read_unlock(mm);
#else
	r->start = untagged_addr(r->start);
	r->end = untagged_addr(r->end - 1) + 1;
#endif
}

static int register_region(struct file_state *f, void __user *arg)
{
	struct mm_struct *mm = current->mm;
	struct ummunot_register_ioctl r;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	if (r.start >= r.end || r.reserved)
		return -EINVAL;
	if (r.end > mm->task_size)
		untag(mm, &r);
	if (r.start >= r.end || r.end > mm->task_size)
		return -EINVAL;
	if (r.flags & ~(UMMUNOT_REGISTER_PROTECTION | UMMUNOT_REGISTER_QUIET))
		return -EINVAL;
	return watch_add(f, &r);
}

static int unregister_region(struct file_state *f, u64 __user *arg)
{
	u64 cookie;

	if (copy_from_user(&cookie, arg, sizeof(cookie)))
		return -EFAULT;
	return watch_remove(f, cookie);
}

static int end_quiet(struct file_state *f, u64 __user *arg)
{
	u64 cookie;

	if (copy_from_user(&cookie, arg, sizeof(cookie)))
		return -EFAULT;
	return watch_end_quiet(f, cookie);
}

static long ummunot_ioctl(struct file *file, unsigned int cmd,
			  unsigned long arg)
{
	struct file_state *f = file->private_data;
	void __user *p = (void __user *)arg;

	if (!is_owner(f))
		return -ESRCH;
	switch (cmd) {
	case UMMUNOT_EXCHANGE_FEATURES:
		return exchange_features(f, p);
	case UMMUNOT_REGISTER_REGION:
		return register_region(f, p);
	case UMMUNOT_UNREGISTER_REGION:
		return unregister_region(f, p);
	case UMMUNOT_END_QUIET:
		return end_quiet(f, p);
#ifndef UMMUNOT_VERSION
#ifdef CONFIG_UMMUNOT_SWAP
	case UMMUNOT_SWAP_PAGES:
		return swap_pages(p);
#endif
#endif
	default:
		return -ENOTTY;
	}
}

static vm_fault_t counter_fault(struct vm_fault *vmf)
{
	struct file_state *f = vmf->vma->vm_file->private_data;

	if (vmf->pgoff)
		return VM_FAULT_SIGBUS;
	get_page(f->space->page);
	vmf->page = f->space->page;
	return 0;
}

static const struct vm_operations_struct counter_ops = {
	.fault = counter_fault,
};

/* A private mapping is refused: it would stay behind once it was written to. */
static int ummunot_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct file_state *f = file->private_data;

	if (!is_owner(f))
		return -ESRCH;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
#ifdef HAVE_VM_FLAGS_MOD
	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP,
		     VM_MAYWRITE | VM_MAYEXEC);
#else
	vma->vm_flags |= VM_DONTEXPAND | VM_DONTDUMP;
	vma->vm_flags &= ~(VM_MAYWRITE | VM_MAYEXEC);
#endif
	vma->vm_ops = &counter_ops;
	return 0;
}

static void ummunot_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct file_state *f = file->private_data;

	file_show(f, m);
}

static const struct file_operations ummunot_fops = {
	.owner = THIS_MODULE,
	.open = ummunot_open,
	.release = ummunot_release,
	.read_iter = ummunot_read_iter,
	.poll = ummunot_poll,
	.fasync = ummunot_fasync,
	.unlocked_ioctl = ummunot_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = ummunot_mmap,
	.show_fdinfo = ummunot_show_fdinfo,
};

/* Anybody may: a process sees only itself, and what it takes is accounted. */
static struct miscdevice ummunot_dev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ummunot",
	.fops = &ummunot_fops,
	.mode = 0666,
};

static struct miscdevice ummunotify_dev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ummunotify",
	.fops = &ummunot_fops,
	.mode = 0666,
};

static int register_nodes(void)
{
	int err;

	err = misc_register(&ummunot_dev);
	if (err || !ummunotify)
		return err;
	err = misc_register(&ummunotify_dev);
	if (err)
		misc_deregister(&ummunot_dev);
	return err;
}

static int __init ummunot_init(void)
{
	int err;

	if (!max_kib_per_user)
		max_kib_per_user = totalram_pages() / 100 * (PAGE_SIZE / 1024);
	err = watch_cache_create();
	if (err)
		return err;
	err = spaces_init();
	if (err)
		goto destroy_cache;
	err = register_nodes();
	if (err)
		goto end_spaces;
	return 0;

end_spaces:
	spaces_exit();
destroy_cache:
	watch_cache_destroy();
	return err;
}

static void __exit ummunot_exit(void)
{
	if (ummunotify)
		misc_deregister(&ummunotify_dev);
	misc_deregister(&ummunot_dev);
	spaces_exit();
	watch_cache_destroy();
}

module_init(ummunot_init);
module_exit(ummunot_exit);
MODULE_DESCRIPTION("Tell a process when what it has mapped changes");
MODULE_AUTHOR("The kedge developers");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(UMMUNOT_VERSION);
