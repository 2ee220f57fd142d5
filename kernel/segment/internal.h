/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The module's parts, each using those below it:
 *
 *   main.c     the device and its file operations
 *   request.c  ioctls
 *   map.c      mmap() of a grant, its mappings' faults
 *   pages.c    pages of the owner: found, brought in, handed to an attacher
 *   attach.c   attachments: mappings that have entries, and taking those away
 *   segment.c  segments: their table, life and permissions
 *   space.c    an address space: its notifiers, the changes running in it
 *   handed.c   the pages of a segment that attachers have
 *   ../users.c how much memory each user has here
 *
 * attach.c opens with the proof of the module.
 */
#ifndef KEDGE_SEGMENT_INTERNAL_H
#define KEDGE_SEGMENT_INTERNAL_H

#include <linux/build_bug.h>
#include <linux/fs.h>
#include <linux/interval_tree.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/xarray.h>

#include <linux/kedge_segment.h>

/* Programs were compiled with these. */
static_assert(sizeof(struct kedge_segment_make) == 48);
static_assert(sizeof(struct kedge_segment_remove) == 24);
static_assert(sizeof(struct kedge_segment_get) == 48);
static_assert(sizeof(struct kedge_segment_query) == 88);
static_assert(sizeof(struct kedge_segment_list) == 24);

/* Changes that run at once in one address space and are remembered singly. */
#define RUNNING_MAX 64
/* Pages that one fault maps. */
#define AROUND_MAX 16
/* Failed faults of one grant that are remembered until their retry. */
#define FAILED_MAX 8

/* ---- users.c ---- */

struct cred;
struct quota;

struct quota *quota_get(const struct cred *cred);
struct quota *quota_hold(struct quota *q);
void quota_put(struct quota *q);
int quota_charge(struct quota *q, size_t bytes);
void quota_uncharge(struct quota *q, size_t bytes);

/* ---- space.c ---- */

/* A range that is being changed. */
struct change {
	unsigned long start;
	unsigned long last;	/* inclusive */
	bool hit;		/* it took pages from attachers */
};

/*
 * An address space that owns segments or has some attached.
 *
 * @counter is called before @zapper: what that takes away cannot come back.
 */
struct space {
	struct mmu_notifier counter;	/* counts starts and ends of changes */
	struct mmu_notifier zapper;	/* takes pages from attachers */

	spinlock_t lock;		/* guards what follows */
	bool dead;			/* the address space is being torn down */
	struct rb_root_cached segments;	/* by the owner's addresses */
	struct rb_root_cached attached;	/* attachments, by the attacher's */
	DECLARE_BITMAP(slots, RUNNING_MAX);
	struct change running[RUNNING_MAX];
	struct change over;		/* around those without a slot */
	unsigned int over_cnt;
};

static inline struct mm_struct *space_mm(const struct space *s)
{
	return s->counter.mm;
}

/* The one of current->mm, or an ERR_PTR(). */
struct space *space_get(void);
void space_put(struct space *s);
/* With the lock held: a change is running that touches the range. */
bool space_changes(const struct space *s, unsigned long start,
		   unsigned long last);
void spaces_exit(void);

/* ---- handed.c ---- */

/*
 * Pages by their number in the segment. All but the preparing is done with the
 * lock of the owner's space held.
 */
struct handed {
	struct xarray chunks;
	unsigned long cnt;
};

void handed_init(struct handed *h);
void handed_fini(struct handed *h);
/* Have memory for the pages @first to @last, charged to @q. May sleep. */
int handed_prepare(struct handed *h, unsigned long first, unsigned long last,
		   struct quota *q);
void handed_set(struct handed *h, unsigned long page);
bool handed_any(const struct handed *h, unsigned long first,
		unsigned long last);
/* Bounded work; true if there is more to do, from *@first on. */
bool handed_clear_some(struct handed *h, unsigned long *first,
		       unsigned long last);

/* ---- segment.c ---- */

struct segment {
	struct kref kref;
	struct space *space;		/* the owner's */
	struct quota *quota;
	struct pid *pid;
	kuid_t uid;
	kgid_t gid;
	u32 mode;
	u64 id[2];
	u64 addr;			/* as the owner said; range has whole pages */
	u64 len;
	struct page *page;		/* of the generation */

	/* Under the table's lock. */
	struct hlist_node by_id;
	struct hlist_node by_uid;
	struct list_head of_file;

	/* Under space->lock. */
	struct interval_tree_node range;
	bool listed;			/* in space->segments */
	bool dead;
	u64 generation;			/* as in the page */
	u64 ends;			/* of changes that touched the range */
	u64 invalidations;
	struct handed handed;

	/*
	 * Held while entries are taken away. No memory is allocated and no lock
	 * of an address space or of a page's mappings is taken under it.
	 */
	struct mutex zapping;
	struct rb_root_cached attachments;	/* by the owner's addresses */

	atomic_t mapping_cnt;
	atomic_t grant_cnt;
};

static inline unsigned long segment_pages(const struct segment *s)
{
	return (s->range.last - s->range.start + 1) >> PAGE_SHIFT;
}

struct file_state;

int segment_make(struct file_state *f, const struct kedge_segment_make *r,
		 u64 *id);
/* The one of that id, or an ERR_PTR(); id[1] may be 0. */
struct segment *segment_get(const u64 *id);
void segment_put(struct segment *s);
/* No attacher reaches it any more; its id is free. */
void segment_end(struct segment *s);
void segments_of_file_end(struct file_state *f);
/* 0 or -EACCES; KEDGE_SEGMENT_READ, _WRITE. */
int segment_permits(const struct segment *s, u32 access);
bool segment_is_callers(const struct segment *s);
/* Returns the number that the caller may read; the ids of @room of them. */
unsigned int segment_list(u64 *ids, unsigned int room);

/* With space->lock held. */
void segment_hit(struct segment *s);
void segment_rest(struct segment *s);
/* An attacher sees what is not the owner's: the generation differs from now on. */
void segment_strays(struct segment *s);
void segment_die(struct segment *s);
bool segment_handed(const struct segment *s, unsigned long start,
		    unsigned long last);
/* Take the pages of the range from attachers; dead, or while it changes. */
void segment_zap(struct segment *s, unsigned long start, unsigned long last);

/* ---- attach.c ---- */

/* A mapping of a grant that may have entries. */
struct attachment {
	struct kref kref;
	struct vm_area_struct *vma;
	struct segment *segment;
	struct space *space;		/* the attacher's */
	struct quota *quota;
	struct page *stray;		/* for holes, if it keeps; or NULL */

	/* Under segment->zapping. */
	struct interval_tree_node by_owner;
	bool detached;
	/* Under space->lock. */
	struct interval_tree_node by_attacher;
	bool listed;
};

/* That of a mapping, made if there is none; the caller has mmap_lock. */
struct attachment *attachment_of(struct vm_area_struct *vma);
void attachment_put(struct attachment *a);
void attachment_zap(struct attachment *a, unsigned long start,
		    unsigned long last);
/* From now on it has no entries, and gets none. */
void attachment_detach(struct attachment *a);

/* ---- pages.c ---- */

/*
 * Map the owner's page for a fault, if it is there. 0, or
 *   -EAGAIN  something is in the way that passes by itself
 *   -ENOENT  the owner has to bring it in
 *   -EFAULT  it may not be had
 *   -ENOMEM
 */
int pages_map(struct vm_fault *vmf, struct attachment *a);
/* Map a page that nobody else has. 0, -ENOMEM, or another error. */
int pages_map_stray(struct vm_fault *vmf, struct attachment *a);
/* Wait until a page is there, without any lock. -EFAULT: it will not be. */
int pages_bring_in(struct segment *s, unsigned long addr,
		   unsigned int fault_flags);
/* The owner's address behind one of a mapping. */
static inline unsigned long pages_owner(const struct segment *s,
					const struct vm_area_struct *vma,
					unsigned long addr)
{
	return s->range.start + (vma->vm_pgoff << PAGE_SHIFT) +
	       (addr - vma->vm_start);
}

/* ---- map.c ---- */

int map_grant(struct file_state *f, struct vm_area_struct *vma);

/* ---- main.c, request.c ---- */

/* A fault that failed after it had dropped its lock; the retry reports it. */
struct failed {
	struct task_struct *task;
	unsigned long addr;
};

enum use { USE_NONE, USE_OWNER, USE_GRANT };

struct file_state {
	struct mutex lock;		/* of the use, until it is given */
	enum use use;
	bool write;			/* the grant's right */
	struct quota *quota;
	struct space *space;		/* NULL without a use */
	struct segment *segment;	/* of a grant */
	struct list_head segments;	/* under the table's lock */

	spinlock_t failed_lock;		/* guards failed */
	struct failed failed[FAILED_MAX];
};

/* True if the caller is in the address space that the file belongs to. */
static inline bool file_is_mine(const struct file_state *f)
{
	return current->mm && f->space && space_mm(f->space) == current->mm;
}

long request(struct file *file, unsigned int cmd, unsigned long arg);

extern unsigned int max_segments_per_user;
extern unsigned int max_attachments_per_segment;
extern unsigned long max_kib_per_user;

#endif /* KEDGE_SEGMENT_INTERNAL_H */
