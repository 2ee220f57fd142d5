// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Attachments are mappings of a grant that may have entries (PTEs).
 *
 * Claim: when the owner's page P at address x goes, or may no more
 * be written, no attacher has an entry for P from a segment with x, nor gets one.
 *
 * Every such change is between a start and an end of MMU notifiers, for a range
 * that holds x. In this order:
 *
 *   change    C1  counter, start: takes space->lock, lists the range, unlocks
 *             C2  zapper, start: under segment->zapping, takes away the entries
 *                 of x in all attachments of the segments that handed x out
 *             C3  the page goes
 *             C4  counter, end: under space->lock, ends++, the range is unlisted
 *
 *   fault     F1  reads ends, under space->lock
 *             F2  finds P at x in the owner's page tables, takes a reference
 *             F3  takes space->lock: no listed range holds x, ends is as in F1,
 *                 the segment is not dead; marks x handed out, makes the entry,
 *                 unlocks
 *             F4  drops the reference
 *
 * C1 and F3 exclude each other.
 *   F3 before C1: the mark is there when C1 and C2 look, and the attachment was
 *     in the segment's tree before F1. So C2 takes the entry away, as it flushes
 *     the TLBs before it goes on. A mark is taken off after the entries were, and
 *     before C4, while F3 refuses x; so a second change that runs meanwhile sees
 *     the mark, or the entries are gone.
 *   F3 between C1 and C4: refused, the range is listed.
 *   F3 after C4: if F2 saw P before C3, F1 was before C4, and ends differs:
 *     refused. If F2 was after C3, P is not what it saw.
 * The reference keeps P from being another's page between F2 and F3.
 *
 * The owner's entry is writable where F2 was for a store (FOLL_WRITE without
 * FOLL_FORCE), so the attacher's may be; all that makes the owner's read-only
 * (fork, mprotect, KSM, writeback) is such a change as well. An entry made for a
 * load is read-only, whatever mprotect() the attacher does: the mapping has a
 * pfn_mkwrite, for which the kernel keeps its protection without write.
 *
 * Taking entries away needs the attacher's mapping and page tables to stay. It
 * cannot wait for the attacher's mmap_lock, and not for the i_mmap_rwsem of a file
 * either, as unmap_mapping_range() does: the change may hold the lock of the
 * page's own mappings (reclaim, migration), and mm_take_all_locks(), which every
 * registration of an MMU notifier calls, takes an address space's i_mmap_rwsems
 * first and then waits for those: a deadlock for a process that has attached
 * memory of itself, of a relative, or of a file that both have mapped. So
 * segment->zapping is what keeps them, and all that would take them away waits
 * for it:
 *   munmap, mremap, MAP_FIXED: the zapper of the attacher's space, called with
 *     MMU_NOTIFY_UNMAP before entries are moved and page tables freed, detaches;
 *   a mapping that is cut in two, and so changes its ends: may_split detaches;
 *   exit: the counter's release detaches all;
 *   merges, growth, fork: VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTCOPY, where
 *     VM_IO keeps MADV_DOFORK out.
 * Detaching takes the entries away and then the attachment out of the trees, both
 * under segment->zapping. The mapping, or the parts of it that are left, is
 * attached anew by its next fault, which has mmap_lock and so runs after the cut.
 *
 * Taking entries away is a change of the attacher's address space, and no notifier
 * may be registered there between its start and its end: it would see an end
 * alone. mm_take_all_locks() excludes itself from changes by mmap_lock, and by the
 * i_mmap_rwsem of the attached file; either is enough, and both are tried only. If
 * both are taken for long, that is mm_take_all_locks(), which waits for a lock
 * that our caller holds (then it cannot go on before we return, and needs no
 * exclusion), or for another caller's. One caller at a time waits, for a second,
 * and then goes on without: if it is another that keeps the registration waiting,
 * that one waits for last_resort, so that the registration cannot go on either.
 * The case left is a registration that some other code kept from going on for a
 * second and lets go on in that very moment.
 *
 * Locks, outermost first: any mmap_lock, or lock of a page's mappings;
 * segment->zapping; last_resort; space->lock; the lock of a page table. No memory
 * is allocated under zapping, as reclaim would take it again. Taking an entry away
 * calls the attacher's notifiers, ours among them: the counter takes a space->lock,
 * the zapper finds no page of the range handed out, as attached ones never are.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/lockdep.h>
#include <linux/mmap_lock.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "internal.h"

/* The bytes taken away before others may have the lock. */
#define DETACH_STEP (64ul << 20)
/* The time that a registration of a notifier is waited for. */
#define WAIT_MAX HZ

static DEFINE_MUTEX(last_resort);

static void attachment_free(struct kref *kref)
{
	struct attachment *a = container_of(kref, struct attachment, kref);

	/* No entry is left: see attachment_detach(). */
	if (a->stray) {
		put_page(a->stray);
		quota_uncharge(a->quota, PAGE_SIZE);
	}
	quota_uncharge(a->quota, sizeof(*a));
	quota_put(a->quota);
	segment_put(a->segment);
	kfree(a);
}

void attachment_put(struct attachment *a)
{
	kref_put(&a->kref, attachment_free);
}

/*
 * With zapping held, of owner's addresses. A change of one address space that
 * makes one of another is a recursion to lockdep, for which all MMU notifiers are
 * one lock. It ends there: see above.
 */
static void take_away(struct attachment *a, unsigned long start,
		      unsigned long last)
{
	lockdep_off();
	zap_vma_ptes(a->vma, a->by_attacher.start + (start - a->by_owner.start),
		     last - start + 1);
	lockdep_on();
}

/* Without a wait: no notifier can be registered in the attacher's while it runs. */
static bool try_take_away(struct attachment *a, unsigned long start,
			  unsigned long last)
{
	struct address_space *mapping = a->vma->vm_file->f_mapping;
	struct mm_struct *mm = a->vma->vm_mm;

	if (mmap_read_trylock(mm)) {
		take_away(a, start, last);
		mmap_read_unlock(mm);
		return true;
	}
	if (down_read_trylock(&mapping->i_mmap_rwsem)) {
		take_away(a, start, last);
		up_read(&mapping->i_mmap_rwsem);
		return true;
	}
	return false;
}

void attachment_zap(struct attachment *a, unsigned long start,
		    unsigned long last)
{
	unsigned long end;

	start = max(start, a->by_owner.start);
	last = min(last, a->by_owner.last);
	if (try_take_away(a, start, last))
		return;
	/* One at a time waits: see above. */
	mutex_lock(&last_resort);
	end = jiffies + WAIT_MAX;
	while (!try_take_away(a, start, last)) {
		if (time_after(jiffies, end)) {
			take_away(a, start, last);
			break;
		}
		usleep_range(100, 1000);
	}
	mutex_unlock(&last_resort);
}

/* With zapping held. */
static void take_out(struct attachment *a)
{
	interval_tree_remove(&a->by_owner, &a->segment->attachments);
	a->detached = true;
	spin_lock(&a->space->lock);
	if (a->listed)
		interval_tree_remove(&a->by_attacher, &a->space->attached);
	a->listed = false;
	spin_unlock(&a->space->lock);
	attachment_put(a);
}

/*
 * The caller keeps faults out: it has the mmap_lock for writing, or the mapping is
 * no more to be found, or its address space is torn down.
 */
void attachment_detach(struct attachment *a)
{
	unsigned long at = a->by_owner.start, last;
	bool more = true;

	while (more) {
		mutex_lock(&a->segment->zapping);
		if (a->detached) {
			more = false;
		} else {
			last = min(at | (DETACH_STEP - 1), a->by_owner.last);
			/* The caller keeps notifiers from being registered. */
			take_away(a, at, last);
			more = last != a->by_owner.last;
			if (!more)
				take_out(a);
			at = last + 1;
		}
		mutex_unlock(&a->segment->zapping);
		cond_resched();
	}
}

static struct attachment *attachment_new(struct vm_area_struct *vma)
{
	struct file_state *f = vma->vm_file->private_data;
	struct attachment *a;
	int err;

	err = quota_charge(f->quota, sizeof(*a));
	if (err)
		return ERR_PTR(err);
	a = kzalloc(sizeof(*a), GFP_KERNEL_ACCOUNT);
	if (!a) {
		quota_uncharge(f->quota, sizeof(*a));
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&a->kref);
	a->vma = vma;
	a->quota = quota_hold(f->quota);
	a->segment = f->segment;
	kref_get(&a->segment->kref);
	/* The mapping has the file, which has the space; not needed longer. */
	a->space = f->space;
	a->by_attacher.start = vma->vm_start;
	a->by_attacher.last = vma->vm_end - 1;
	a->by_owner.start = pages_owner(a->segment, vma, vma->vm_start);
	a->by_owner.last = a->by_owner.start + (vma->vm_end - 1 - vma->vm_start);
	return a;
}

/* With zapping held: into the trees, which have a reference; so has the mapping. */
static void put_in(struct attachment *a)
{
	kref_get(&a->kref);
	interval_tree_insert(&a->by_owner, &a->segment->attachments);
	spin_lock(&a->space->lock);
	interval_tree_insert(&a->by_attacher, &a->space->attached);
	a->listed = true;
	spin_unlock(&a->space->lock);
}

/*
 * Faults of one mapping come at once. Detaching is none of them, as they have the
 * mmap_lock; so what is returned stays attached until that is dropped.
 */
struct attachment *attachment_of(struct vm_area_struct *vma)
{
	struct file_state *f = vma->vm_file->private_data;
	struct attachment *new, *old, *a;

	/* Pairs with the store below. */
	a = smp_load_acquire((struct attachment **)&vma->vm_private_data);
	if (a && !READ_ONCE(a->detached))
		return a;
	new = attachment_new(vma);
	if (IS_ERR(new))
		return new;
	mutex_lock(&f->segment->zapping);
	old = vma->vm_private_data;
	a = old;
	if (!a || a->detached) {
		a = new;
		put_in(a);
		/* Pairs with the load above: it finds one that is in the trees. */
		smp_store_release((struct attachment **)&vma->vm_private_data,
				  a);
	}
	mutex_unlock(&f->segment->zapping);
	if (a != new)
		attachment_put(new);
	else if (old)
		attachment_put(old);
	return a;
}
