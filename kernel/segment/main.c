// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * /dev/kedge-segment: the device and its file operations.
 */
#include <linux/cred.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

unsigned int max_segments_per_user = 1024;
module_param(max_segments_per_user, uint, 0644);
MODULE_PARM_DESC(max_segments_per_user, "Segments of one user at the most");

unsigned int max_attachments_per_segment = 1024;
module_param(max_attachments_per_segment, uint, 0644);
MODULE_PARM_DESC(max_attachments_per_segment,
		 "Mappings of one segment at the most, in all processes");

unsigned long max_kib_per_user;
module_param(max_kib_per_user, ulong, 0644);
MODULE_PARM_DESC(max_kib_per_user,
		 "Memory of one user at the most, in KiB (1 % of all memory)");

/* With the space that each may need, and what that keeps of the mm. */
#define FILE_BYTES (sizeof(struct file_state) + sizeof(struct space) + \
		    sizeof(struct mm_struct))

static int segment_file_open(struct inode *inode, struct file *file)
{
	struct file_state *f;
	int err;

	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return -ENOMEM;
	f->quota = quota_get(current_cred());
	if (IS_ERR(f->quota)) {
		err = PTR_ERR(f->quota);
		goto free_file;
	}
	err = quota_charge(f->quota, FILE_BYTES);
	if (err)
		goto put_quota;
	mutex_init(&f->lock);
	spin_lock_init(&f->failed_lock);
	INIT_LIST_HEAD(&f->segments);
	file->private_data = f;
	return nonseekable_open(inode, file);

put_quota:
	quota_put(f->quota);
free_file:
	kfree(f);
	return err;
}

static int segment_file_release(struct inode *inode, struct file *file)
{
	struct file_state *f = file->private_data;

	segments_of_file_end(f);
	if (f->segment) {
		atomic_dec(&f->segment->grant_cnt);
		segment_put(f->segment);
	}
	if (f->space)
		space_put(f->space);
	quota_uncharge(f->quota, FILE_BYTES);
	quota_put(f->quota);
	kfree(f);
	return 0;
}

static int segment_file_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct file_state *f = file->private_data;

	/* Pairs with the store that made it a grant. */
	if (smp_load_acquire(&f->use) != USE_GRANT)
		return -EINVAL;
	if (!file_is_mine(f))
		return -ESRCH;
	return map_grant(f, vma);
}

static const struct file_operations segment_fops = {
	.owner = THIS_MODULE,
	.open = segment_file_open,
	.release = segment_file_release,
	.unlocked_ioctl = request,
	.mmap = segment_file_mmap,
};

/* Anybody may: a process shares only its own memory, and what it takes is limited. */
static struct miscdevice segment_dev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kedge-segment",
	.fops = &segment_fops,
	.mode = 0666,
};

static int __init kedge_segment_init(void)
{
	if (!max_kib_per_user)
		max_kib_per_user = totalram_pages() / 100 * (PAGE_SIZE / 1024);
	return misc_register(&segment_dev);
}

static void __exit kedge_segment_exit(void)
{
	misc_deregister(&segment_dev);
	spaces_exit();
}

module_init(kedge_segment_init);
module_exit(kedge_segment_exit);
MODULE_DESCRIPTION("Load from and store to another process's memory");
MODULE_AUTHOR("The kedge developers");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(KEDGE_SEGMENT_VERSION);
