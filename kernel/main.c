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

unsigned int max_watches_per_user = 1 << 22;
module_param(max_watches_per_user, uint, 0644);
MODULE_PARM_DESC(max_watches_per_user, "Watches of one user at the most");

static bool ummunotify;
module_param(ummunotify, bool, 0444);
MODULE_PARM_DESC(ummunotify, "Also make the node /dev/ummunotify");

/*
 * A page that user space maps must not be charged where the charge is kept in
 * the same word as the count of its mappings (before 5.11).
 */
#ifdef PG_kmemcg
#define GFP_COUNTER (GFP_KERNEL | __GFP_ZERO)
#else
#define GFP_COUNTER (GFP_KERNEL_ACCOUNT | __GFP_ZERO)
#endif

/* Events that are copied to the user at once, from the stack. */
#define TAKE_MAX 16

static bool is_owner(const struct file_state *f)
{
	return current->mm == f->mm;
}

static int ummunot_open(struct inode *inode, struct file *file)
{
	struct file_state *f;
	int err = -ENOMEM;

	if ((file->f_mode & FMODE_WRITE) || !current->mm)
		return -EINVAL;

	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return -ENOMEM;
	f->page = alloc_page(GFP_COUNTER);
	if (!f->page)
		goto free_state;
	f->user = user_get(current_uid());
	if (!f->user)
		goto free_page;
	f->shown = page_address(f->page);
	mutex_init(&f->setup);
	init_waitqueue_head(&f->wait);
	watch_init(f);
	f->mm = current->mm;
	mmgrab(f->mm);

	file->private_data = f;
	/* Who may not wait gets EAGAIN, also io_uring: it polls then. */
	file->f_mode |= FMODE_NOWAIT;
	return stream_open(inode, file);

free_page:
	__free_page(f->page);
free_state:
	kfree(f);
	return err;
}

static int ummunot_release(struct inode *inode, struct file *file)
{
	struct file_state *f = file->private_data;

	if (f->notifying)
		mmu_notifier_unregister(&f->notifier, f->mm);
	watch_free_all(f);
	mmdrop(f->mm);
	user_put(f->user);
	__free_page(f->page);
	kfree(f);
	return 0;
}

/* Copies as many whole events as fit; none that was taken is lost. */
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
	ssize_t rc;

	if (!is_owner(f))
		return -ESRCH;
	if (iov_iter_count(to) < sizeof(struct ummunot_event))
		return -EINVAL;

	for (;;) {
		rc = copy_events(f, to, nonblock);
		if (rc)
			return rc;
		if (nonblock || (iocb->ki_flags & IOCB_NOWAIT))
			return -EAGAIN;
		rc = wait_event_interruptible(f->wait, watch_readable(f));
		if (rc)
			return rc;
	}
}

static __poll_t ummunot_poll(struct file *file, poll_table *wait)
{
	struct file_state *f = file->private_data;
	__poll_t mask = 0;

	poll_wait(file, &f->wait, wait);
	if (watch_readable(f))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(f->dead))
		mask |= EPOLLHUP;
	return mask;
}

static int ummunot_fasync(int fd, struct file *file, int on)
{
	struct file_state *f = file->private_data;

	return fasync_helper(fd, file, on, &f->async);
}

static int exchange_features(struct file_state *f, u32 __user *arg)
{
	u32 features;
	int err = 0;

	if (get_user(features, arg))
		return -EFAULT;
	features &= UMMUNOT_FEATURES;

	mutex_lock(&f->setup);
	if (f->notifying && features != f->features)
		err = -EBUSY;
	else
		WRITE_ONCE(f->features, features);
	mutex_unlock(&f->setup);
	if (err)
		return err;
	return put_user(features, arg);
}

static int register_region(struct file_state *f, void __user *arg)
{
	struct ummunot_register_ioctl r;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	if (r.start >= r.end || r.end > f->mm->task_size || r.reserved)
		return -EINVAL;
	if (r.flags & ~UMMUNOT_REGISTER_PROTECTION)
		return -EINVAL;
	if ((r.flags & UMMUNOT_REGISTER_PROTECTION) &&
	    !(READ_ONCE(f->features) & UMMUNOT_FEATURE_PROTECTION))
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
	default:
		return -ENOTTY;
	}
}

static vm_fault_t counter_fault(struct vm_fault *vmf)
{
	struct file_state *f = vmf->vma->vm_file->private_data;

	if (vmf->pgoff)
		return VM_FAULT_SIGBUS;
	get_page(f->page);
	vmf->page = f->page;
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

static int __init ummunot_init(void)
{
	int err;

	err = watch_cache_create();
	if (err)
		return err;
	err = misc_register(&ummunot_dev);
	if (err)
		goto destroy_cache;
	if (ummunotify) {
		err = misc_register(&ummunotify_dev);
		if (err)
			goto deregister;
	}
	return 0;

deregister:
	misc_deregister(&ummunot_dev);
destroy_cache:
	watch_cache_destroy();
	return err;
}

static void __exit ummunot_exit(void)
{
	if (ummunotify)
		misc_deregister(&ummunotify_dev);
	misc_deregister(&ummunot_dev);
	watch_cache_destroy();
}

module_init(ummunot_init);
module_exit(ummunot_exit);
MODULE_DESCRIPTION("Tell a process when what it has mapped changes");
MODULE_AUTHOR("The kedge developers");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(UMMUNOT_VERSION);
