// SPDX-License-Identifier: BSD-2-Clause
/*
 * Letting go of memory for an announced change, and taking it again.
 *
 * Memory about to be unmapped is unregistered by the announcer, so that the
 * change need not wait for the monitor. That splits the kernel's mapping at
 * both ends of the range. Where the change takes the range away no harm is
 * done; where the mapping stays (madvise(), a call that fails, a free() if the
 * allocator keeps the pages) the split would stay too: each one costs the
 * process a mapping of vm.max_map_count, and mremap() over it fails with
 * EFAULT. So at the end of the change what is still there is registered again:
 *
 * - After KEDGE_EVENT_REMOVE the range itself: its watches live on. A piece that
 *   cannot be registered is told to its watches as KEDGE_EVENT_UNMAP, or they
 *   would be believed and never hear of a change again. Only what was registered
 *   from end to end, so that there is no seam, and is watched by caches alone is
 *   left for the next watch to register: a cache believes in no page that it was
 *   told of, and what is registered anew there has a watch of its own.
 * - After the other kinds the watches have been told that they see no more
 *   changes, so only seams matter: a mapping that touches a registered one, at
 *   the place where that was cut, is registered as a whole and melts with it.
 *   Other mappings are left alone: they may be a stranger's.
 *
 * nf->back holds what the first kind has let go, per notifier: two notifiers of a
 * process must not take each other's memory. Guarded by nf->lock. Changes that
 * overlap share it: the first to end takes the other's part too, which then costs
 * the other only an event of the kernel's. For the other kinds the hook has the
 * hull of what was let go; where no registered mapping lies beside that, or the
 * change is known to have been made, all is done, and the end of an munmap()
 * costs what it cost without all this.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notify/announce/rearm.h"
#include "notify/internal.h"

/* Tell the watches there that they will see no more changes. */
static bool tell_lost(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	bool told;

	sig_lock_blocked(&nf->lock);
	armed_cut(nf, start, end);
	told = queue_publish(nf, KEDGE_EVENT_UNMAP | KIND_UNSEEN, start, end);
	if (told)
		/* Release: as in announce.c. */
		atomic_fetch_add_explicit(&nf->page->generation,
					  GENERATION_STEP,
					  memory_order_release);
	queue_signal(nf);
	sig_unlock_blocked(&nf->lock);
	return told;
}

/* True if something registered lies beside [start, end). */
static bool has_neighbours(struct kedge_notifier *nf, uint64_t start,
			   uint64_t end)
{
	return (start &&
		tree_first_overlap(&nf->registered, start - 1, start)) ||
	       tree_first_overlap(&nf->registered, end, end + 1);
}

/*
 * True if [s, e), the part of @n in which pages will be dropped, has to be
 * registered again after it.
 */
static bool needed_again(const struct kedge_notifier *nf,
			 const struct tree_node *n, uint64_t s, uint64_t e)
{
	const struct tree_node *w;

	if (n->start < s || n->end > e)
		return true;
	for (w = tree_first_overlap(&nf->watches, s, e); w;
	     w = tree_next_overlap(w, s, e))
		if (container_of(w, struct watch, node)->queue == &nf->queue)
			return true;
	return false;
}

/* Let go of [s, e), a part of @n. False: it is to be registered again. */
static bool drop_one(struct kedge_notifier *nf, const struct tree_node *n,
		     uint64_t s, uint64_t e)
{
	bool again = needed_again(nf, n, s, e);

	/*
	 * Unrecorded for want of memory, it is not registered again: then it
	 * is not unregistered either.
	 */
	if (again && back_add(nf, s, e))
		return true;
	nf->ops->disarm(nf, s, e);
	whole_add(nf, s, e);
	return !again;
}

void rearm_let_go(struct kedge_notifier *nf, struct kedge_hook *hook,
		  bool mapping_stays)
{
	struct tree_node *n = tree_first_overlap(&nf->registered, hook->start,
						 hook->end);
	uint64_t low = UINT64_MAX, high = 0;

	armed_cut(nf, hook->start, hook->end);
	while (n) {
		uint64_t s = n->start > hook->start ? n->start : hook->start;
		uint64_t e = n->end < hook->end ? n->end : hook->end;

		if (!mapping_stays)
			nf->ops->disarm(nf, s, e);
		if (!mapping_stays || !drop_one(nf, n, s, e)) {
			low = s < low ? s : low;
			high = e;
		}
		n = tree_first_overlap(&nf->registered, e, hook->end);
	}
	if (low >= high || (!mapping_stays && !has_neighbours(nf, low, high)))
		return;
	if (!hook->back_end || low < hook->back_start)
		hook->back_start = low;
	if (high > hook->back_end)
		hook->back_end = high;
}

/* Take what was let go of the first piece in there. False: no such piece. */
static bool take_back(struct kedge_notifier *nf, uint64_t start, uint64_t end,
		      struct vma_span *piece, uint64_t *cuts)
{
	struct tree_node *n;

	sig_lock_blocked(&nf->lock);
	*cuts = nf->cuts;
	n = tree_first_overlap(&nf->back, start, end);
	if (n) {
		piece->start = n->start > start ? n->start : start;
		piece->end = n->end < end ? n->end : end;
		back_cut(nf, piece->start, piece->end);
	}
	sig_unlock_blocked(&nf->lock);
	return n;
}

/* Tests change the mapping here. */
__attribute__((weak, noinline)) void rearm_looked(void)
{
}

/*
 * [start, end) is registered: the next watch there need not ask for it again. As in arm_once():
 * what was mapped there in the place of what is registered has an event, which cuts it. @cuts is
 * of before it was registered.
 */
static void note_armed(struct kedge_notifier *nf, uint64_t start, uint64_t end, uint64_t cuts)
{
	struct vma_span whole;

	if (vma_check(nf->maps_fd, start, end, &whole))
		return;
	rearm_looked();
	sig_lock_blocked(&nf->lock);
	if (nf->cuts == cuts)
		armed_add(nf, start, end);
	sig_unlock_blocked(&nf->lock);
}

/* Register all of it that can be, mapping by mapping. True: watches were told of the rest. */
static bool stays(struct kedge_notifier *nf, uint64_t start, uint64_t end, uint64_t cuts)
{
	uint64_t at = start, page = kedge__page_size();
	struct vma_span whole;
	bool told = false;

	if (!nf->ops->arm(nf, start, end)) {
		note_armed(nf, start, end, cuts);
		return false;
	}
	while (at < end) {
		uint64_t to = at + page;

		if (vma_next(nf->maps_fd, at, &whole)) {
			return tell_lost(nf, at, end) || told;
		}
		if (whole.start > at) { /* a hole, or memory of another kind */
			to = whole.start < end ? whole.start : end;
			told |= tell_lost(nf, at, to);
		} else {
			to = whole.end < end ? whole.end : end;
			if (nf->exact)
				whole = (struct vma_span){ at, to };
			if (nf->ops->arm(nf, whole.start, whole.end))
				told |= tell_lost(nf, at, to);
		}
		at = to;
	}
	return told;
}

/* Register the mapping at the page @at, next to what is registered. */
static void heal_at(struct kedge_notifier *nf, uint64_t at,
		    const struct vma_span *piece)
{
	size_t page = kedge__page_size();
	struct vma_span whole;

	/*
	 * Mostly the page is unmapped: the change was made. An msync looks and
	 * does no more; the library's is a cancellation point.
	 */
	if (syscall(SYS_msync, at, page, MS_ASYNC) ||
	    vma_check(nf->maps_fd, at, at + page, &whole))
		return;
	if (nf->exact && whole.start < piece->start)
		whole.start = piece->start;
	if (nf->exact && whole.end > piece->end)
		whole.end = piece->end;
	/* If that is refused the seam stays; no watch relies on it. */
	nf->ops->arm(nf, whole.start, whole.end);
}

static void heal(struct kedge_notifier *nf, const struct vma_span *piece)
{
	uint64_t start = piece->start, end = piece->end;
	size_t page = kedge__page_size();

	if (start && registered_overlaps(nf, start - 1, start))
		heal_at(nf, start, piece);
	if (registered_overlaps(nf, end, end + 1) &&
	    !registered_overlaps(nf, end - page, end))
		heal_at(nf, end - page, piece);
}

bool rearm_again(struct kedge_notifier *nf, const struct kedge_hook *hook,
		 bool mapping_stays)
{
	struct vma_span piece = { hook->back_start, hook->back_end };
	bool told = false;
	uint64_t cuts;

	if (!mapping_stays) {
		heal(nf, &piece);
		return false;
	}
	while (take_back(nf, hook->start, hook->end, &piece, &cuts))
		told |= stays(nf, piece.start, piece.end, cuts);
	return told;
}
