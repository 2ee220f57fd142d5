// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The owner's pages are found, brought in and handed out here, for a fault.
 *
 * While the attacher's mmap_lock is held, no lock of the owner's is waited for:
 * its mmap_lock is tried, its page tables are looked at and not filled. A page
 * not had so is brought in without any lock by pages_bring_in(), and the attacher's
 * fault is retried. So two processes that have each other's memory attached, or
 * one that has its own, never wait for each other's locks; and where an
 * owner's own fault waits for a userfaultfd, the attacher waits and can be killed.
 */
#include <linux/delay.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "internal.h"

/* Mappings that GUP takes no page from. */
#define NOT_OURS (VM_IO | VM_PFNMAP)

/* With the owner's mmap_lock. */
static struct vm_area_struct *mapping_of(struct mm_struct *mm,
					 unsigned long addr, bool write)
{
	struct vm_area_struct *vma = find_vma(mm, addr);

	if (!vma || vma->vm_start > addr || (vma->vm_flags & NOT_OURS))
		return NULL;
	if (!(vma->vm_flags & (write ? VM_WRITE : VM_READ)))
		return NULL;
	return vma;
}

static long get_pages(struct mm_struct *mm, unsigned long addr,
		      unsigned long cnt, unsigned int flags,
		      struct page **pages, int *locked)
{
#ifdef HAVE_GUP_VMAS
	return get_user_pages_remote(mm, addr, cnt, flags, pages, NULL, locked);
#else
	return get_user_pages_remote(mm, addr, cnt, flags, pages, locked);
#endif
}

static long present_pages(struct mm_struct *mm, unsigned long addr,
			  unsigned long cnt, bool write, struct page **pages)
{
	unsigned int flags = FOLL_NOFAULT | (write ? FOLL_WRITE : 0);
	struct vm_area_struct *vma = mapping_of(mm, addr, write);
	long got;

	if (!vma)
		return -EFAULT;
	cnt = min(cnt, (vma->vm_end - addr) >> PAGE_SHIFT);
	got = get_pages(mm, addr, cnt, flags, pages, NULL);
	return got > 0 ? got : -ENOENT;
}

/* F1 and F2 of the proof in attach.c. */
static long look(struct segment *s, unsigned long addr, unsigned long cnt,
		 bool write, struct page **pages, u64 *ends)
{
	struct mm_struct *mm = space_mm(s->space);
	long got = -EAGAIN;

	spin_lock(&s->space->lock);
	*ends = s->ends;
	spin_unlock(&s->space->lock);
	/* Not an error yet: the release of the space is about to say so. */
	if (!mmget_not_zero(mm))
		return -EFAULT;
	if (mmap_read_trylock(mm)) {
		got = present_pages(mm, addr, cnt, write, pages);
		mmap_read_unlock(mm);
	}
	mmput_async(mm);
	return got;
}

/* F3. Page tables are there, so that nothing is allocated. */
static int hand_out(struct vm_fault *vmf, struct segment *s,
		    unsigned long addr, struct page **pages, long cnt,
		    u64 ends, pgprot_t prot)
{
	unsigned long number = (addr - s->range.start) >> PAGE_SHIFT;
	vm_fault_t ret;
	int err = 0;
	long i;

	spin_lock(&s->space->lock);
	if (s->dead)
		err = -EFAULT;
	else if (s->ends != ends ||
		 space_changes(s->space, addr, addr + cnt * PAGE_SIZE - 1))
		err = -EAGAIN;
	for (i = 0; !err && i < cnt; i++) {
		handed_set(&s->handed, number + i);
		ret = vmf_insert_pfn_prot(vmf->vma,
					  vmf->address + i * PAGE_SIZE,
					  page_to_pfn(pages[i]), prot);
		if (ret != VM_FAULT_NOPAGE)
			err = i ? 1 : -EFAULT;
	}
	spin_unlock(&s->space->lock);
	return min(err, 0);
}

static int nothing(pte_t *pte, unsigned long addr, void *data)
{
	return 0;
}

/* Pages that a fault may map from its own on, within a page table. */
static unsigned long room(const struct vm_fault *vmf)
{
	unsigned long end = round_down(vmf->address, AROUND_MAX * PAGE_SIZE) +
			    AROUND_MAX * PAGE_SIZE;

	end = min(end, vmf->vma->vm_end);
	return (end - vmf->address) >> PAGE_SHIFT;
}

static int prepare(struct vm_fault *vmf, struct attachment *a,
		   unsigned long addr, unsigned long cnt)
{
	struct segment *s = a->segment;
	unsigned long number = (addr - s->range.start) >> PAGE_SHIFT;
	int err;

	err = handed_prepare(&s->handed, number, number + cnt - 1, a->quota);
	if (err)
		return err;
	return apply_to_page_range(vmf->vma->vm_mm, vmf->address,
				   cnt * PAGE_SIZE, nothing, NULL);
}

int pages_map(struct vm_fault *vmf, struct attachment *a)
{
	bool write = vmf->flags & FAULT_FLAG_WRITE;
	struct segment *s = a->segment;
	unsigned long addr = pages_owner(s, vmf->vma, vmf->address);
	pgprot_t prot = vmf->vma->vm_page_prot;
	struct page *pages[AROUND_MAX];
	u64 ends;
	long got, i;
	int err;

	/* That of the mapping is without write: see attach.c. */
	if (write)
		prot = vm_get_page_prot(vmf->vma->vm_flags);
	err = prepare(vmf, a, addr, room(vmf));
	if (err)
		return err;
	got = look(s, addr, room(vmf), write, pages, &ends);
	if (got < 0)
		return got;
	err = hand_out(vmf, s, addr, pages, got, ends, prot);
	for (i = 0; i < got; i++)
		put_page(pages[i]);
	return err;
}

/* Faults of one mapping come at once. */
static struct page *stray_of(struct attachment *a)
{
	struct page *old, *new;
	int err;

	/* Pairs with the exchange below. */
	new = smp_load_acquire(&a->stray);
	if (new)
		return new;
	err = quota_charge(a->quota, PAGE_SIZE);
	if (err)
		return ERR_PTR(err);
	new = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	old = new ? cmpxchg(&a->stray, NULL, new) : ERR_PTR(-ENOMEM);
	if (!old)
		return new;
	quota_uncharge(a->quota, PAGE_SIZE);
	if (new)
		put_page(new);
	return old;
}

/*
 * The generation moves first, so that a reader of that page and then of it knows.
 * The entry goes as those of the owner's pages do, at the latest with the attachment.
 */
int pages_map_stray(struct vm_fault *vmf, struct attachment *a)
{
	pgprot_t prot = vm_get_page_prot(vmf->vma->vm_flags);
	struct segment *s = a->segment;
	struct page *page;
	vm_fault_t ret;
	int err;

	page = stray_of(a);
	if (IS_ERR(page))
		return PTR_ERR(page);
	err = apply_to_page_range(vmf->vma->vm_mm, vmf->address & PAGE_MASK,
				  PAGE_SIZE, nothing, NULL);
	if (err)
		return err;
	spin_lock(&s->space->lock);
	segment_strays(s);
	ret = vmf_insert_pfn_prot(vmf->vma, vmf->address, page_to_pfn(page),
				  prot);
	spin_unlock(&s->space->lock);
	return ret == VM_FAULT_NOPAGE ? 0 : -EFAULT;
}

/*
 * With the owner's mmap_lock, which it drops. A page that GUP refuses here it would
 * refuse for ever, other than by an interrupted wait or a lack of memory: then the
 * attacher's fault is tried again, and a signal ends that.
 */
static int bring_in(struct mm_struct *mm, unsigned long addr, bool write,
		    bool interruptible)
{
	unsigned int flags = write ? FOLL_WRITE : 0;
	struct page *page;
	int locked = 1;
	long got = -EFAULT;

#ifdef HAVE_FOLL_INTERRUPTIBLE
	if (interruptible)
		flags |= FOLL_INTERRUPTIBLE;
#endif
	if (mapping_of(mm, addr, write))
		got = get_pages(mm, addr, 1, flags, &page, &locked);
	if (locked)
		mmap_read_unlock(mm);
	if (got == 1)
		put_page(page);
	return got == -EFAULT || got == -EHWPOISON ? -EFAULT : 0;
}

/* A change may run for long. Its end wakes no sleeper, so that it costs no more. */
static bool wait_for_change(struct segment *s, unsigned long addr,
			    bool interruptible)
{
	bool yes;

	spin_lock(&s->space->lock);
	yes = space_changes(s->space, addr, addr + PAGE_SIZE - 1);
	spin_unlock(&s->space->lock);
	if (yes)
		usleep_range_state(50, 200, interruptible ?
				   TASK_INTERRUPTIBLE : TASK_KILLABLE);
	return yes;
}

int pages_bring_in(struct segment *s, unsigned long addr,
		   unsigned int fault_flags)
{
	/* A fault of the kernel's goes on after a signal: it must sleep. */
	bool interruptible = (fault_flags & FAULT_FLAG_INTERRUPTIBLE) &&
			     (fault_flags & FAULT_FLAG_USER);
	struct mm_struct *mm = space_mm(s->space);
	int err = 0;

	if (wait_for_change(s, addr, interruptible))
		return 0;
	if (!mmget_not_zero(mm))
		return -EFAULT;
	if (!mmap_read_lock_killable(mm))
		err = bring_in(mm, addr, fault_flags & FAULT_FLAG_WRITE,
			       interruptible);
	mmput_async(mm);
	return err;
}
