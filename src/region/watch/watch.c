// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program may unmap a part of a region, map other memory over it, move it away, or drop its
 * pages. Peers, which have the file, would go on with bytes that the program does not see. So from
 * its first handle on each region has a userfaultfd, and a thread, "kedge-gaps", reads its events.
 *
 * No access is missed. The kernel holds the call that makes the change until its event is read.
 * The thread knows that there is one to be read before it reads: it takes gaps_lock, shuts the
 * gates, reads, notes the gap, opens the gates, and lets the lock go. When the call returns the
 * gates have been shut, and they do not open before the gap is in them; accesses that are served
 * are made with the lock. So an access that begins when that call has returned finds the gap. One
 * that began before may be of either side of the change.
 *
 * Adapters of peers that have a lease look at no gate. So before it reads, the thread has all
 * leases of the region given back, and no other is given before the gap is noted, nor while there
 * is one. A peer that does not give it back in time is cut off: the call that makes the change
 * waits that long at the most, and for the end of the registration.
 *
 * A drop of pages is told before they go, and whether any did is not told: the range is a gap
 * all the same.
 *
 * A region is @noticed as long as its userfaultfd tells of all changes, and only then peers have
 * its memory or a lease of it. Where a process gets no userfaultfd (seccomp, an old kernel, another
 * one has the memory), or while a migration needs the memory's one for itself, accesses are done
 * here for all peers, and before each it is looked whether the mapping is what it was
 * (look_at_access()). So peers are turned out of the memory before a userfaultfd is given up.
 *
 * The mappings of the region's file at its own addresses are registered: other memory in
 * between is left alone. Between a look at the mappings and the registration they can change, so
 * they are looked at again after it, and what is not there is a gap.
 *
 * But for leases the thread does not wait, nor allocate, as the call that waits for it may be in an
 * allocator.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <kedge/hooks.h>

#include "base/base.h"
#include "base/process/thread.h"
#include "notify/internal.h"
#include "region/keeper.h"
#include "region/share/share.h"
#include "region/watch/look.h"
#include "region/watch/uffd.h"
#include "region/watch/watch.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#define EVENTS_A_ROUND 64 /* then others get the lock */
#define LEASE_MS       1000 /* that peers have to give a lease back */
#define NAP_NS	       20000
#define CLOSE(fd)      syscall(SYS_close, fd)

static struct sig_lock thread_lock = SIG_LOCK_INIT; /* taken within a region's; guards: */
static struct keeper_thread beside;
static int epoll = -1, stop = -1; /* in the keeper's table */

static struct list watched = { &watched, &watched }; /* guarded by gaps_lock */

/* ---- the thread ---- */

/* With gaps_lock. The region may have ended since it was told of. */
static bool is_watched(const struct kedge_region *r)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &watched)
		if (list_entry(l, struct kedge_region, of_watched) == r)
			return r->uffd >= 0;
	return false;
}

/* With gaps_lock. Addresses elsewhere are of a part that was moved away. */
static void note(struct kedge_region *r, uint64_t start, uint64_t end)
{
	const uint64_t first = (uintptr_t)r->at, last = first + r->max_len;

	if (end <= first || start >= last)
		return;
	gaps_add(&r->gaps, start < first ? 0 : start - first,
		 end > last ? r->max_len : end - first);
	r->changes++;
}

/* With gaps_lock, which is let go meanwhile: the region may have ended then. */
static void end_leases(struct kedge_region *r)
{
	const uint64_t until = clock_after_ms(LEASE_MS);
	const struct timespec nap = { 0, NAP_NS };
	bool cut = false, wake = true;

	while (is_watched(r) && leases_stop(r, cut)) {
		sig_unlock_blocked(&gaps_lock);
		if (wake)
			leases_wake();
		wake = !cut && clock_ns() >= until;
		cut |= wake;
		nanosleep(&nap, NULL);
		sig_lock_blocked(&gaps_lock);
	}
}

static void read_events(struct kedge_region *r)
{
	uint64_t start, end;
	bool drop;
	int n;

	sig_lock_blocked(&gaps_lock);
	end_leases(r);
	if (is_watched(r)) {
		gates_gaps_change(r);
		for (n = 0; n < EVENTS_A_ROUND && region_uffd_read(r->uffd, &start, &end, &drop);
		     n++)
			if (start < end && !(drop && r->emptied))
				note(r, start, end);
		gates_gaps_changed(r);
		r->changing = false;
	}
	sig_unlock_blocked(&gaps_lock);
}

/* With gaps_lock. Calls that wait go on, as with its last descriptor the userfaultfd ends. */
static void drop_uffd(struct kedge_region *r)
{
	if (r->uffd < 0)
		return;
	syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_DEL, r->uffd, NULL);
	CLOSE(r->uffd);
	r->uffd = -1;
	r->noticed = false;
}

static void *run(void *unused)
{
	struct epoll_event ev;
	struct list *l, *tmp;

	(void)unused;
	prctl(PR_SET_NAME, "kedge-gaps");
	for (;;) {
		if (syscall(SYS_epoll_pwait, epoll, &ev, 1, -1, NULL, 0) != 1)
			continue;
		if (ev.data.ptr == &stop)
			break;
		read_events(ev.data.ptr);
	}
	/* No call waits for a thread that has ended. */
	sig_lock_blocked(&gaps_lock);
	list_for_each_safe(l, tmp, &watched)
		drop_uffd(list_entry(l, struct kedge_region, of_watched));
	sig_unlock_blocked(&gaps_lock);
	return NULL;
}

/* ---- its beginning and end ---- */

static int watch_fd(int fd, void *what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = what };

	return syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static int close_all(void *unused)
{
	(void)unused;
	if (epoll >= 0)
		CLOSE(epoll);
	if (stop >= 0)
		CLOSE(stop);
	epoll = stop = -1;
	return 0;
}

/* By the keeper: the thread has its table of descriptors then, and its signals. */
static int start(void *unused)
{
	int rc = 0;

	epoll = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	stop = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC);
	if (epoll < 0 || stop < 0)
		rc = -errno;
	if (!rc)
		rc = watch_fd(stop, &stop);
	if (!rc)
		rc = thread_start(&beside.thread, run, NULL);
	if (rc)
		close_all(unused);
	return rc;
}

static int say_stop(void *unused)
{
	const uint64_t one = 1;

	(void)unused;
	return syscall(SYS_write, stop, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

static void end(void)
{
	sig_lock(&thread_lock);
	keeper_thread_end(&beside);
	sig_unlock(&thread_lock);
}

static struct keeper_thread beside = { .start = start, .say_stop = say_stop, .finish = close_all,
				       .end = end, .what = "watch a region" };

static int use_thread(void)
{
	int rc;

	sig_lock(&thread_lock);
	rc = keeper_thread_use(&beside);
	sig_unlock(&thread_lock);
	return rc;
}

/* ---- regions, by a thread with the keeper's table ---- */

struct part {
	struct kedge_region *r;
	uint64_t from;
	uint64_t to;
	const void *at;
};

static int add_own(void *arg, enum look is, uint64_t from, uint64_t to)
{
	const struct kedge_region *r = arg;

	if (is != LOOK_OWN && is != LOOK_SHUT)
		return 0;
	return region_uffd_add(r->uffd, r->at + from, to - from);
}

static void note_gap(struct kedge_region *r, uint64_t from, uint64_t to)
{
	const struct gap *was;

	sig_lock(&gaps_lock);
	was = gaps_find(&r->gaps, from, to);
	if (!was || was->from > from || was->to < to) {
		gates_gaps_change(r);
		gaps_add(&r->gaps, from, to);
		r->changes++;
		gates_gaps_changed(r);
	}
	sig_unlock(&gaps_lock);
}

static int note_others(void *arg, enum look is, uint64_t from, uint64_t to)
{
	if (is != LOOK_OWN && is != LOOK_SHUT)
		note_gap(arg, from, to);
	return 0;
}

static int note_hole(void *arg, uint64_t from, uint64_t to)
{
	note_gap(arg, from, to);
	return 0;
}

/* As far as it can be seen now. */
static int note_all(struct kedge_region *r, uint64_t from, uint64_t to)
{
	int rc = look_through(r, from, to, note_others, r);

	return rc ? rc : look_for_holes(r, from, to, note_hole, r);
}

static int lacks(int rc)
{
	return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ||
	       rc == -ENOSPC; /* epoll's limit of a user */
}

static int set_uffd(struct kedge_region *r, int fd)
{
	int rc = 0;

	if (fd < 0)
		return fd;
	sig_lock(&gaps_lock);
	r->uffd = fd;
	if (epoll < 0)
		rc = -EOPNOTSUPP;
	if (!rc)
		rc = watch_fd(fd, r);
	sig_unlock(&gaps_lock);
	return rc;
}

static void forget_uffd(struct kedge_region *r)
{
	sig_lock(&gaps_lock);
	drop_uffd(r);
	sig_unlock(&gaps_lock);
}

static int begin_region(void *arg)
{
	struct kedge_region *r = arg;
	int rc = r->uffd >= 0 ? 0 : set_uffd(r, region_uffd_open());

	if (!rc)
		rc = look_through(r, 0, r->len, add_own, r);
	if (rc)
		forget_uffd(r);
	if (lacks(rc))
		return error_no_fd(-rc) ? rc : kedge_reason(-ENOMEM, "no memory to watch a "
				"region's mapping, or too many mappings (vm.max_map_count)");
	/* Changes of before can be seen; without a look no access is safe. */
	rc = note_all(r, 0, r->len);
	sig_lock(&gaps_lock);
	/* One that is not watched has no userfaultfd: its events would not be read. */
	if (rc)
		drop_uffd(r);
	r->noticed = r->uffd >= 0;
	sig_unlock(&gaps_lock);
	return rc;
}

/* All of it has been mapped by kedge just now, so no look is needed, which can fail. */
static int again(void *arg)
{
	const struct part *p = arg;

	return p->r->uffd < 0 ? 0 : region_uffd_add(p->r->uffd, p->r->at + p->from,
						    p->to - p->from);
}

static int all_again(void *arg)
{
	struct kedge_region *r = arg;
	int rc = look_through(r, 0, r->len, add_own, r);

	return rc ? rc : note_all(r, 0, r->len);
}

static int move_in(void *arg)
{
	const struct part *p = arg;

	return p->r->uffd < 0 ? 0 : region_uffd_add(p->r->uffd, p->at, p->to);
}

static int leave_out(void *arg)
{
	const struct part *p = arg;

	return p->r->uffd < 0 ? 0 : region_uffd_remove(p->r->uffd, p->r->at + p->from,
						       p->to - p->from);
}

/* The event that a call has waited for is read, so that its gap is noted. */
static int pause_region(void *arg)
{
	struct kedge_region *r = arg;

	read_events(r);
	forget_uffd(r);
	return 0;
}

int watch_look(struct kedge_region *r, uint64_t from, uint64_t to)
{
	const struct gap *found;
	struct gap gap = { 0 };
	int rc;

	sig_lock(&gaps_lock);
	found = gaps_find(&r->gaps, from, to);
	if (found)
		gap = *found;
	sig_unlock(&gaps_lock);
	if (found)
		return look_missing(gap.from, gap.to);
	rc = look_is_whole(r, from, to);
	/* Without /proc that is all that can be known. */
	return rc == -EOPNOTSUPP ? 0 : rc;
}

static int look_part(void *arg)
{
	const struct part *p = arg;

	return watch_look(p->r, p->from, p->to);
}

int watch_repaired(struct kedge_region *r, uint64_t from, uint64_t to, uint64_t changes)
{
	int rc = -EAGAIN;

	sig_lock(&gaps_lock);
	if (r->changes == changes) {
		gates_gaps_change(r);
		gaps_cut(&r->gaps, from, to);
		gates_gaps_changed(r);
		rc = 0;
	}
	sig_unlock(&gaps_lock);
	return rc;
}

/* ---- for others ---- */

static void enlist(struct kedge_region *r, bool is)
{
	sig_lock(&gaps_lock);
	if (is && !r->watched)
		list_add_tail(&watched, &r->of_watched);
	else if (!is && r->watched)
		list_remove(&r->of_watched);
	r->watched = is;
	sig_unlock(&gaps_lock);
}

static int disown(void *arg)
{
	const struct kedge_region *r = arg;

	own_file_remove(r->fd);
	return 0;
}

void watch_let_others(struct kedge_region *r)
{
	struct kedge_hook hook;

	if (r->given)
		return;
	r->given = true;
	keeper_call(disown, r);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP | KEDGE_HOOK_YIELD, r->at, r->len);
	kedge_hook_done(&hook);
}

int watch_begin(struct kedge_region *r)
{
	int rc;

	if (r->watched && r->uffd >= 0)
		return 0;
	watch_let_others(r);
	rc = use_thread();
	if (rc)
		return rc;
	enlist(r, true);
	rc = keeper_call(begin_region, r);
	if (rc)
		enlist(r, false);
	return rc;
}

void watch_pause(struct kedge_region *r)
{
	if (r->watched)
		keeper_call(pause_region, r);
}

void watch_go_on(struct kedge_region *r)
{
	if (r->watched && keeper_call(begin_region, r))
		kedge__log(KEDGE_LOG_WARN, "the mapping of a region cannot be watched any more: "
			   "peers have it served, and slower, until kedge_region_recommit() or "
			   "kedge_region_advertise()");
}

void watch_end(struct kedge_region *r)
{
	watch_pause(r);
	enlist(r, false);
}

int watch_leave_out(struct kedge_region *r, uint64_t from, uint64_t to)
{
	struct part p = { r, from, to, NULL };
	int rc = r->watched && from < to ? keeper_call(leave_out, &p) : 0;

	return rc ? kedge_reason(-ENOMEM, "the region's mapping is watched, and that cannot be "
				 "ended for a part of it: error %d; too many mappings "
				 "(vm.max_map_count)?", -rc) : 0;
}

/* A part cannot be watched, and so all of it is not. */
static void lose(struct kedge_region *r)
{
	sig_lock(&shares_lock);
	sig_lock(&gaps_lock);
	r->noticed = false;
	sig_unlock(&gaps_lock);
	gates_turn_out(r, -REGION_BY_STREAM, NULL);
	sig_unlock(&shares_lock);
	gates_cut(r, NULL);
	watch_pause(r);
	kedge__log(KEDGE_LOG_WARN, "the mapping of a region cannot be watched any more: peers have "
		   "it served, and slower, until kedge_region_recommit()");
}

void watch_as_before(struct kedge_region *r)
{
	/* Nothing was left out of a region that is not watched. */
	if (!look_is_needed(r) && keeper_call(all_again, r))
		lose(r);
}

void watch_again(struct kedge_region *r, uint64_t from, uint64_t to)
{
	struct part p = { r, from, to, NULL };

	if (r->watched && from < to && keeper_call(again, &p))
		lose(r);
}

int watch_move_in(struct kedge_region *r, const void *at, uint64_t len)
{
	struct part p = { r, 0, len, at };

	if (!r->watched || !keeper_call(move_in, &p))
		return 0;
	return kedge_reason(-ENOMEM, "the new pages cannot be watched: no memory, or too many "
			    "mappings (vm.max_map_count)");
}

/* True: it may go on, and what it drops is kedge's. */
static bool begin_emptying(struct kedge_region *r)
{
	bool may;

	sig_lock(&gaps_lock);
	may = !leases_any(r);
	r->emptied = may;
	sig_unlock(&gaps_lock);
	return may;
}

static int end_emptying(void *arg)
{
	struct kedge_region *r = arg;

	sig_lock(&gaps_lock);
	r->emptied = false;
	sig_unlock(&gaps_lock);
	return r->watched ? look_for_holes(r, 0, r->len, note_hole, r) : 0;
}

void watch_empty_tables(struct kedge_region *r)
{
	/* A lease would be given back for that, and once more for the suspension. */
	if (!begin_emptying(r))
		return;
	madvise(r->at, r->len, MADV_DONTNEED_LOCKED);
	keeper_call(end_emptying, r);
}

int watch_is_whole(struct kedge_region *r, uint64_t from, uint64_t to)
{
	struct part p = { r, from, to, NULL };

	return keeper_call(look_part, &p);
}

void watches_forget(void)
{
	sig_lock_init(&thread_lock);
	sig_lock_init(&gaps_lock);
	list_init(&watched);
	epoll = stop = -1;
	beside.runs = false;
}
