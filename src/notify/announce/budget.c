// SPDX-License-Identifier: BSD-2-Clause
/*
 * The number of the process's mappings that watching may cost. A registered one does
 * not melt with a neighbour that is not registered, so where both are private
 * anonymous memory of one protection there is a seam: a mapping more than without
 * kedge. A process may have vm.max_map_count of them; beyond that its own mmap()
 * fails, and its munmap() of a part.
 *
 * The bound is counted in intervals of nf->registered, each of which has two
 * ends:
 *
 * - While all ends together are within a 20th of vm.max_map_count no mapping is
 *   looked at. That is a comparison at each arming.
 * - Beyond it, a mapping that would make a new interval takes its neighbours of
 *   the same kind in, so its ends are no seams when it is armed. What the process
 *   has is counted now and then: an interval is refused (-ENOSPC: that memory is
 *   not cached) if a 20th are seams; or if the mappings there are, and one at
 *   either end of each interval, which new memory in a hole beside it will be,
 *   come near the limit.
 *
 * Between two counts at most as many intervals are added as could not exceed
 * either bound, if each end of each were a seam. Mappings that others make are
 * not seen before the next count: they were counted as holes beside an
 * interval, so the second bound has room for them.
 *
 * Seams of mappings that were both written to before they could melt stay, though
 * both are registered. They are counted as what they are, two mappings.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notify/announce/announce.h"
#include "notify/announce/budget.h"
#include "notify/internal.h"

#define SHARE	    20u /* of vm.max_map_count: seams */
#define NEAR	    16u /* and what is left to the process */
#define DEFAULT_MAX 65530u

/* Tests have their own. */
__attribute__((weak, noinline)) uint32_t budget_max_map_count(void)
{
	static _Atomic uint32_t known;
	uint32_t max = atomic_load_explicit(&known, memory_order_relaxed);
	char text[32] = "";
	int fd, saved = errno;

	if (max)
		return max;
	fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/vm/max_map_count",
			  O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (syscall(SYS_read, fd, text, sizeof(text) - 1) > 0)
			max = (uint32_t)strtoul(text, NULL, 10);
		syscall(SYS_close, fd);
	}
	errno = saved;
	max = max ? max : DEFAULT_MAX;
	/* Relaxed: whoever reads it reads the same. */
	atomic_store_explicit(&known, max, memory_order_relaxed);
	return max;
}

struct census {
	struct kedge_notifier *nf;
	struct vma_info before;
	bool before_armed;
	uint64_t mappings;
	uint64_t seams;
};

static bool would_melt(const struct vma_info *a, const struct vma_info *b)
{
	return a->end == b->start && a->plain && b->plain && a->prot == b->prot;
}

static void count_one(void *arg, const struct vma_info *v)
{
	struct census *c = arg;
	bool armed = v->plain && registered_overlaps(c->nf, v->start, v->end);

	c->mappings++;
	if (would_melt(&c->before, v) && armed != c->before_armed)
		c->seams++;
	c->before = *v;
	c->before_armed = armed;
}

static uint64_t room(uint64_t limit, uint64_t used)
{
	return limit > used ? limit - used : 0;
}

/* The intervals, maybe 0, that may be added before the next count. */
static uint64_t count(struct kedge_notifier *nf, uint64_t intervals)
{
	uint64_t max = budget_max_map_count(), seams, near;
	struct census c = { .nf = nf };

	if (vma_walk(count_one, &c))
		return 0;
	seams = room(max / SHARE, c.seams) / 2;
	/* An interval's own mapping may be split off another: 2, and 2 ends. */
	near = room(max - max / NEAR, c.mappings + 2 * intervals) / 4;
	return seams < near ? seams : near;
}

static int refuse(void)
{
	return kedge_reason(-ENOSPC, "watching that memory too would take the "
			    "process near its limit of mappings: raise "
			    "vm.max_map_count, or take buffers from fewer "
			    "mappings");
}

/* Take in the neighbours that *whole would melt with. */
static void widen(struct kedge_notifier *nf, struct vma_span *whole)
{
	struct vma_info own, v;

	if (vma_at(nf->maps_fd, whole->end - 1, &own))
		return;
	if (!vma_at(nf->maps_fd, whole->end, &v) && would_melt(&own, &v))
		whole->end = v.end;
	if (vma_at(nf->maps_fd, whole->start, &own))
		return;
	if (whole->start &&
	    !vma_at(nf->maps_fd, whole->start - 1, &v) && would_melt(&v, &own))
		whole->start = v.start;
}

/* So many are refused before the process is looked at again. */
static uint64_t refusals(void)
{
	return budget_max_map_count() / SHARE / 4 + 1;
}

/* One interval more, if the last count allows for it; else count. */
static int take_one(struct kedge_notifier *nf, uint64_t intervals)
{
	uint64_t left;
	bool due;

	sig_lock_blocked(&nf->lock);
	due = !nf->budget_left && !nf->budget_refusals;
	sig_unlock_blocked(&nf->lock);
	/* Without the lock: reading all mappings takes a while. */
	left = due ? count(nf, intervals) : 0;
	sig_lock_blocked(&nf->lock);
	if (due) {
		nf->budget_left = left;
		/* Refused: so many more, then it may look better. */
		nf->budget_refusals = left ? 0 : refusals();
	}
	left = nf->budget_left;
	if (left)
		nf->budget_left--;
	else if (nf->budget_refusals)
		nf->budget_refusals--;
	sig_unlock_blocked(&nf->lock);
	return left ? 0 : refuse();
}

int budget_admit(struct kedge_notifier *nf, struct vma_span *whole)
{
	uint64_t intervals;
	bool known, held;

	if (nf->ops->announced_only)
		return 0;
	sig_lock_blocked(&nf->lock);
	intervals = nf->registered.cnt + 1;
	known = tree_first_overlap(&nf->registered,
				   whole->start ? whole->start - 1 : 0,
				   whole->end + 1);
	held = nf->budget_refusals;
	sig_unlock_blocked(&nf->lock);
	if (!held && 2 * intervals <= budget_max_map_count() / SHARE)
		return 0;
	if (!nf->exact)
		widen(nf, whole);
	/* It melts with one that there is: no interval more. */
	return known ? 0 : take_one(nf, intervals);
}

static void has_registered(struct kedge_notifier *nf, void *arg)
{
	sig_lock_blocked(&nf->lock);
	*(bool *)arg |= nf->registered.cnt > 0;
	sig_unlock_blocked(&nf->lock);
}

/* Keep what is let go now from being taken again at once. */
static void hold_back(struct kedge_notifier *nf, void *arg)
{
	sig_lock_blocked(&nf->lock);
	nf->budget_left = 0;
	nf->budget_refusals = refusals();
	sig_unlock_blocked(&nf->lock);
}

static void count_line(void *arg, const struct vma_info *v)
{
	++*(uint64_t *)arg;
}

int kedge_hook_relieve(void)
{
	uint64_t max = budget_max_map_count(), mappings = 0;
	struct kedge_hook hook;
	int saved = errno;
	bool any = false;

	announce_each(has_registered, &any);
	if (!any || vma_walk(count_line, &mappings) ||
	    mappings < max - max / NEAR) {
		errno = saved;
		return 0;
	}
	announce_each(hold_back, NULL);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP | KEDGE_HOOK_YIELD, NULL,
			 (size_t)0 - 65536);
	kedge_hook_end(&hook);
	errno = saved;
	return 1;
}
