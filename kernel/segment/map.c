// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * mmap() of a grant, and the faults of its mappings.
 */
#include <linux/file.h>
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "internal.h"

#define GENERATION_PGOFF (KEDGE_SEGMENT_GENERATION_OFFSET >> PAGE_SHIFT)
#define KEEP_PGOFF ((unsigned long)(KEDGE_SEGMENT_KEEP >> PAGE_SHIFT))

/* ---- faults that fail after the lock was dropped ---- */

/*
 * A fault that has dropped the attacher's mmap_lock can but be retried. Where it
 * found that the page is not to be had, the retry says so: it has the flag
 * FAULT_FLAG_TRIED, without which what is noted here is of an earlier fault.
 */
static struct failed *failed_slot(struct file_state *f)
{
	return &f->failed[hash_ptr(current, ilog2(FAILED_MAX))];
}

static void fault_fails(struct file_state *f, unsigned long addr)
{
	struct failed *slot = failed_slot(f);

	spin_lock(&f->failed_lock);
	slot->task = current;
	slot->addr = addr;
	spin_unlock(&f->failed_lock);
}

static bool fault_failed(struct file_state *f, struct vm_fault *vmf,
			 unsigned long addr)
{
	struct failed *slot = failed_slot(f);
	bool yes;

	spin_lock(&f->failed_lock);
	yes = slot->task == current;
	if (yes)
		slot->task = NULL;
	yes = yes && slot->addr == addr && (vmf->flags & FAULT_FLAG_TRIED);
	spin_unlock(&f->failed_lock);
	return yes;
}

/* ---- faults ---- */

static void drop_lock(struct vm_fault *vmf)
{
#ifdef HAVE_RELEASE_FAULT_LOCK
	release_fault_lock(vmf);
#else
	mmap_read_unlock(vmf->vma->vm_mm);
#endif
}

/* The mapping, and its file, may go when the lock is dropped. */
static vm_fault_t wait_without_lock(struct vm_fault *vmf, unsigned long addr)
{
	struct file *file = get_file(vmf->vma->vm_file);
	struct file_state *f = file->private_data;

	drop_lock(vmf);
	if (pages_bring_in(f->segment, addr, vmf->flags))
		fault_fails(f, addr);
	fput(file);
	return VM_FAULT_RETRY;
}

/* @keeps: what the owner does not have is a page of zeros. */
static vm_fault_t fault(struct vm_fault *vmf, bool keeps)
{
	struct file_state *f = vmf->vma->vm_file->private_data;
	unsigned long addr = pages_owner(f->segment, vmf->vma, vmf->address);
	bool may_wait = (vmf->flags & FAULT_FLAG_ALLOW_RETRY) &&
			!(vmf->flags & FAULT_FLAG_RETRY_NOWAIT);
	bool failed = fault_failed(f, vmf, addr);
	struct attachment *a;
	int err;

	if (failed && !keeps)
		return VM_FAULT_SIGBUS;
	a = attachment_of(vmf->vma);
	if (IS_ERR(a))
		err = PTR_ERR(a);
	else
		err = failed ? -EFAULT : pages_map(vmf, a);
	if (err == -EFAULT && keeps)
		err = pages_map_stray(vmf, a);
	switch (err) {
	case 0:
		return VM_FAULT_NOPAGE;
	case -ENOMEM:
		return VM_FAULT_OOM;
	case -EAGAIN:
		return may_wait ? wait_without_lock(vmf, addr) :
				  VM_FAULT_NOPAGE;
	case -ENOENT:
		/* A caller that cannot wait must not be told to try for ever. */
		return may_wait ? wait_without_lock(vmf, addr) :
				  VM_FAULT_SIGBUS;
	default:
		return VM_FAULT_SIGBUS;
	}
}

static vm_fault_t grant_fault(struct vm_fault *vmf)
{
	return fault(vmf, false);
}

static vm_fault_t grant_fault_keep(struct vm_fault *vmf)
{
	return fault(vmf, true);
}

/*
 * A store to an entry that was made for a load. The kernel would make that entry
 * writable, whatever the owner's is; so it goes, and the store faults anew.
 */
static vm_fault_t grant_mkwrite(struct vm_fault *vmf)
{
	zap_vma_ptes(vmf->vma, vmf->address & PAGE_MASK, PAGE_SIZE);
	return VM_FAULT_NOPAGE;
}

/* ---- mappings ---- */

static struct segment *segment_of(const struct vm_area_struct *vma)
{
	struct file_state *f = vma->vm_file->private_data;

	return f->segment;
}

/* A copy: the other part of one that was cut, or one that is moved. */
static void grant_open(struct vm_area_struct *vma)
{
	vma->vm_private_data = NULL;
	atomic_inc(&segment_of(vma)->mapping_cnt);
}

static void grant_close(struct vm_area_struct *vma)
{
	struct attachment *a = vma->vm_private_data;

	atomic_dec(&segment_of(vma)->mapping_cnt);
	if (!a)
		return;
	vma->vm_private_data = NULL;
	/* All that takes page tables away has detached it. */
	if (WARN_ON_ONCE(!READ_ONCE(a->detached)))
		attachment_detach(a);
	attachment_put(a);
}

/*
 * A hole in a mapping is two cuts, of which the second's part goes at once: so
 * there may be one more than the limit.
 */
static bool may_cut(const struct segment *s)
{
	return atomic_read(&s->mapping_cnt) <=
	       READ_ONCE(max_attachments_per_segment);
}

static int grant_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	struct attachment *a = vma->vm_private_data;

	if (!may_cut(segment_of(vma)))
		return -ENOSPC;
	if (a)
		attachment_detach(a);
	return 0;
}

static const struct vm_operations_struct grant_ops = {
	.open = grant_open,
	.close = grant_close,
	.may_split = grant_may_split,
	.fault = grant_fault,
	.pfn_mkwrite = grant_mkwrite,
};

static const struct vm_operations_struct grant_keep_ops = {
	.open = grant_open,
	.close = grant_close,
	.may_split = grant_may_split,
	.fault = grant_fault_keep,
	.pfn_mkwrite = grant_mkwrite,
};

static vm_fault_t generation_fault(struct vm_fault *vmf)
{
	struct segment *s = segment_of(vmf->vma);

	if (vmf->pgoff != GENERATION_PGOFF)
		return VM_FAULT_SIGBUS;
	get_page(s->page);
	vmf->page = s->page;
	return 0;
}

static const struct vm_operations_struct generation_ops = {
	.fault = generation_fault,
};

static void set_flags(struct vm_area_struct *vma, unsigned long set,
		      unsigned long clear)
{
#ifdef HAVE_VM_FLAGS_MOD
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags |= set;
	vma->vm_flags &= ~clear;
#endif
}

static int map_generation(struct vm_area_struct *vma)
{
	if (vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	set_flags(vma, VM_DONTEXPAND | VM_DONTCOPY | VM_DONTDUMP,
		  VM_MAYWRITE | VM_MAYEXEC);
	vma->vm_ops = &generation_ops;
	return 0;
}

static int map_pages(struct file_state *f, struct vm_area_struct *vma)
{
	const bool keeps = vma->vm_pgoff & KEEP_PGOFF;
	unsigned long cnt = segment_pages(f->segment);
	unsigned long clear = VM_MAYEXEC;

	vma->vm_pgoff &= ~KEEP_PGOFF;
	if (vma->vm_pgoff >= cnt || vma_pages(vma) > cnt - vma->vm_pgoff)
		return -EINVAL;
	if (!f->write && (vma->vm_flags & VM_WRITE))
		return -EACCES;
	if (READ_ONCE(f->segment->dead))
		return -EIDRM;
	if (atomic_inc_return(&f->segment->mapping_cnt) >
	    READ_ONCE(max_attachments_per_segment)) {
		atomic_dec(&f->segment->mapping_cnt);
		return -ENOSPC;
	}
	if (!f->write)
		clear |= VM_MAYWRITE;
	set_flags(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTCOPY |
		       VM_DONTDUMP, clear);
	vma->vm_private_data = NULL;
	vma->vm_ops = keeps ? &grant_keep_ops : &grant_ops;
	return 0;
}

int map_grant(struct file_state *f, struct vm_area_struct *vma)
{
	/* A private mapping would keep pages of its own. */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;
	if (vma->vm_pgoff == GENERATION_PGOFF)
		return map_generation(vma);
	return map_pages(f, vma);
}
