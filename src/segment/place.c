// SPDX-License-Identifier: BSD-2-Clause
/*
 * A range is found in a segment only where its pages are those that the segment's memfd has
 * at that place: not where a part was unmapped, emptied or moved, nor while it is private
 * because the process forks. The tables say so as of now: a change that has returned to the
 * program is in them, as the thread enters it before the system call goes on.
 *
 * A memo has what was found, as of an epoch. The epoch moves, with lock, before the tables
 * do: before the thread reads an event (check.c), and so before the munmap() returns that the
 * event is of; and when a segment comes, goes, or is private for a while. A memo is made with
 * lock. So one of the present epoch is what the tables say.
 *
 * That is not enough for a buffer which is handed out. An munmap() of another thread's frees
 * the addresses before its event is read, and a third thread may be given them meanwhile: what
 * it puts there is in no table's file. So the kernel is asked what is mapped there. Until the
 * buffer's operation is over nobody unmaps it.
 */
#include <fcntl.h>

#include "base/process/page.h"
#include "notify/internal.h"
#include "segment/internal.h"
#include "segment/place.h"

/* ---- converted memory ---- */

static bool is_in(const struct kedge_segment *s, uintptr_t at, size_t len)
{
	const struct extent *e;

	if (s->extent < 0 || s->backend != KEDGE_SEGMENT_CONVERT)
		return false;
	e = &seg->extent[s->extent];
	return !e->away && at >= s->addr && at - s->addr < s->len &&
	       len <= s->len - (at - s->addr) &&
	       piece_there_until((uint32_t)s->extent, at - e->at) >= at - e->at + len;
}

/* Without it a look takes a lock, for each buffer that was not asked about of late. */
bool segment_any(void)
{
	return atomic_load_explicit(&seg_cnt, memory_order_acquire);
}

static void fill(struct segment_memo *m, const struct kedge_segment *s, const struct extent *e)
{
	m->place = (struct segment_place){ s->id, m->at - s->addr };
	m->inode = e->inode;
	m->dev = e->dev;
	m->file_off = m->at - e->at;
}

static void look(struct segment_memo *m)
{
	const struct kedge_segment *s = NULL;

	sig_lock(&seg_lock);
	m->epoch = atomic_load(&seg_epoch);
	if (seg)
		for (s = seg->segments; s && !is_in(s, m->at, m->len); s = s->next)
			;
	m->found = m->converted = s != NULL;
	if (s)
		fill(m, s, &seg->extent[s->extent]);
	sig_unlock(&seg_lock);
}

/* ---- the address space, by the module ---- */

static struct {
	struct sig_lock lock;
	_Atomic pid_t pid; /* of which process that is known */
	_Atomic bool missing; /* there is no module */
	struct kedge_segment *segment; /* or NULL */
	uint32_t refs; /* memos that may name it */
} whole = { .lock = SIG_LOCK_INIT };

static _Atomic int handlers;

static void before_fork(void)
{
	sig_lock(&whole.lock);
}

static void after_fork(void)
{
	sig_unlock(&whole.lock);
}

/* With its lock. A child's address space is another one. */
static void adopt_whole(void)
{
	pid_t pid = process_pid();

	if (whole.pid == pid)
		return;
	kedge_segment_remove(whole.segment);
	whole.segment = NULL;
	whole.refs = 0;
	atomic_store(&whole.missing, false);
	atomic_store_explicit(&whole.pid, pid, memory_order_release);
}

/* With its lock. */
static void use_whole(struct segment_memos *all)
{
	const struct kedge_segment_opts o = { .size = sizeof(o), .flags = KEDGE_SEGMENT_WHOLE,
					      .backend = KEDGE_SEGMENT_MODULE };

	if (whole.missing)
		return;
	if (!whole.segment)
		kedge_segment_make(NULL, 0, &o, &whole.segment);
	atomic_store(&whole.missing, !whole.segment);
	if (all->whole || !whole.segment)
		return;
	all->whole = true;
	whole.refs++;
}

/* No memo names it any more. True: it is that one. */
static bool revoke_whole(const struct kedge_segment_id *id)
{
	bool is;

	sig_lock(&whole.lock);
	is = whole.segment && whole.pid == process_pid() &&
	     !memcmp(&whole.segment->id, id, sizeof(*id));
	if (is) {
		kedge_segment_remove(whole.segment);
		whole.segment = NULL;
	}
	sig_unlock(&whole.lock);
	if (is) {
		sig_lock(&seg_lock);
		place_forget();
		sig_unlock(&seg_lock);
	}
	return is;
}

static void unuse_whole(struct segment_memos *all)
{
	sig_lock(&whole.lock);
	if (whole.pid == process_pid() && !--whole.refs) {
		kedge_segment_remove(whole.segment);
		whole.segment = NULL;
	}
	sig_unlock(&whole.lock);
	all->whole = false;
}

/* There is no module, as was found out before. */
static bool is_missing(void)
{
	return atomic_load_explicit(&whole.pid, memory_order_acquire) == process_pid() &&
	       atomic_load_explicit(&whole.missing, memory_order_relaxed);
}

static bool place_whole(struct segment_memos *all, uintptr_t at, struct segment_place *place)
{
	bool has;

	/* The lock that is taken within this one is registered before it. */
	if (clofork_ready() || fork_handlers(&handlers, before_fork, after_fork, after_fork))
		return false;
	sig_lock(&whole.lock);
	adopt_whole();
	use_whole(all);
	has = whole.segment && clofork_ours(&whole.segment->dev);
	if (has)
		*place = (struct segment_place){ whole.segment->id, at };
	sig_unlock(&whole.lock);
	return has;
}

/* ---- memos ---- */

static struct segment_memo *memo_of(struct segment_memos *all, uintptr_t at, size_t len)
{
	uint64_t now = atomic_load_explicit(&seg_epoch, memory_order_acquire);
	struct segment_memo *m;

	for (m = all->memo; m < all->memo + MEMOS; m++)
		if (m->at == at && m->len == len && m->epoch == now)
			return m;
	m = &all->memo[all->next++ % MEMOS];
	*m = (struct segment_memo){ .at = at, .len = len };
	look(m);
	if (!m->found)
		m->found = place_whole(all, at, &m->place);
	return m;
}

/* ---- what is mapped ---- */

static bool open_maps(struct segment_memos *all)
{
	/* The number is not this one's any more. */
	if (all->opened)
		clofork_release(&all->maps);
	clofork_init(&all->maps);
	all->opened = !clofork_begin() &&
		      !clofork_end(&all->maps, open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
	return all->opened;
}

static bool has_file(struct segment_memos *all, const struct segment_memo *m)
{
	struct vma_info v;

	return !vma_query(all->maps.fd, m->at, &v) && v.shared &&
	       v.inode == m->inode && v.dev == m->dev &&
	       v.off + (m->at - v.start) == m->file_off && v.end - m->at >= m->len;
}

/*
 * The pages of the file are there, by one mapping. A program may have closed the descriptor, and
 * have its number for something else: that has no such answer (another process that maps
 * the same file has it elsewhere), so only an answer that is no is looked at twice, which saves
 * a system call for each message.
 */
static bool is_mapped(struct segment_memos *all, const struct segment_memo *m)
{
	if (all->opened && has_file(all, m))
		return true;
	if (all->opened && clofork_ours(&all->maps))
		return false;
	return open_maps(all) && has_file(all, m);
}

void segment_memos_fini(struct segment_memos *all)
{
	if (all->opened)
		clofork_close(&all->maps);
	all->opened = false;
	if (all->whole)
		unuse_whole(all);
}

bool segment_place(struct segment_memos *all, const void *at, size_t len,
		   struct segment_place *place)
{
	const struct segment_memo *m;

	if (!segment_any() && is_missing())
		return false;
	m = memo_of(all, (uintptr_t)at, len);
	if (!m->found || (m->converted && !is_mapped(all, m)))
		return false;
	*place = m->place;
	return true;
}

void segment_revoke(const struct segment_place *place, const void *at, size_t len)
{
	const uintptr_t start = (uintptr_t)at;
	int i;

	if (revoke_whole(&place->id))
		return;
	gate_lock();
	for (i = 0; seg && i < (int)EXTENTS; i++)
		if (extent_has(i, start, start + len))
			extent_renew(i);
	gate_unlock();
}

bool segment_converted(struct segment_memos *all, const void *at, size_t len)
{
	return segment_any() && memo_of(all, (uintptr_t)at, len)->converted;
}
