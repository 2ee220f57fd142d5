// SPDX-License-Identifier: BSD-2-Clause
/*
 * The userfaultfd backend: the kernel tells of munmap, mremap, MAP_FIXED over,
 * MADV_DONTNEED and their kin, and holds the calling thread until the event has
 * been read. Ranges are registered for write-protect faults and never protected,
 * so that no access ever faults or hangs because of it.
 *
 * Why a change is visible before the call that made it returns (level ordered):
 *
 *  1. read() lets the calling thread go *before* it returns the event here. So
 *     the monitor polls, takes nf->lock, makes the generation odd, and only then
 *     reads. The store precedes the read in program order; the kernel passes
 *     the message under a spinlock that the waiting thread takes too; so when
 *     that thread is back from munmap() it sees the odd generation or a later
 *     one, never the one before. Any thread it tells sees it as well.
 *  2. A lookup that finds the generation odd or moved takes nf->lock, which the
 *     monitor holds until the event is queued. There is no state in which the
 *     event is neither unread nor visible.
 *  3. MADV_DONTNEED and its kin are announced before the pages go. What is
 *     registered from then until the call is known to be over is not kept: see
 *     taint.c.
 *
 * The order breaks if the read comes before the store (an event that no thread
 * sees), if queueing comes after unlocking (a lookup drains too early), or if the
 * read blocks (the generation would have to be odd all the time).
 *
 *  4. A second thread that gets the range from the kernel before that call
 *     returns asks the kernel: see uffd_settled().
 *
 * uffd_monitor.c has the monitor, uffd_kernel.c what the kernel is asked.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "notify/announce/announce.h"
#include "notify/backend/uffd.h"
#include "notify/backend/uffd_range.h"

#define SPIN_DEFAULT_US 200

/* Before the monitor starts, which keeps the descriptors. */
static void open_tripwire(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	int rc = tripwire_open(&u->tripwire);

	if (rc) {
		kedge__log(KEDGE_LOG_DEBUG, "no tripwire: %s",
			   kedge_strerror(rc));
		return;
	}
	/* It moves the generation, without a call. */
	if (!nf->push.fn)
		nf->blind &= ~tripwire_covers(u->tripwire);
	nf->head.trips = tripwire_counter(u->tripwire);
	nf->trips_seen = *nf->head.trips;
}

static void close_tripwire(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;

	nf->head.trips = (const uint64_t *)&nf->page->no_trips;
	nf->trips_seen = 0;
	tripwire_close(u->tripwire);
}

static int map_wakeup(struct uffd *u)
{
	size_t len = kedge__page_size();
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc = -ENOMEM;

	if (p == MAP_FAILED)
		return rc;
	u->wakeup = (uintptr_t)p;
	/* A child has the page too, but no monitor. */
	if (!madvise(p, len, MADV_WIPEONFORK))
		rc = uffd_register(u->fd, u->wakeup, u->wakeup + len);
	if (rc)
		munmap(p, len);
	return rc ? kedge_reason(rc, "userfaultfd refuses to watch a page of "
				     "kedge's own (%s)", strerrordesc_np(-rc))
		  : 0;
}

/* Unmap it while no monitor runs. */
static void unmap_wakeup(struct uffd *u)
{
	uffd_unregister(u->fd, u->wakeup, u->wakeup + kedge__page_size());
	munmap((void *)(uintptr_t)u->wakeup, kedge__page_size());
}

/* The way in which lookups make sure: see settle.c. */
static int choose_check(struct kedge_notifier *nf,
			const struct kedge_notifier_opts *opts)
{
	const struct uffd *u = nf->backend;
	const uint32_t ask = KEDGE_NOTIFIER_ASK | KEDGE_NOTIFIER_NO_BLIND_SPOT;

	/*
	 * Users of on_event put an entry where the callback finds it, and then ask. A change that
	 * is not announced may have had its call before the entry was there, and move the
	 * generation after the look: its count is raised by then.
	 */
	if (announce_hooked(NULL) && !(opts->flags & ask) && !opts->on_event &&
	    !announce_was_passed_by())
		return 0;
	if (!u->counts)
		return kedge_reason(-EOPNOTSUPP, "this kernel's userfaultfd "
				    "does not tell reliably whether a change "
				    "is under way (Linux 5.18 does): link "
				    "libkedge-hooks, or set "
				    "LD_PRELOAD=libkedge-hooks.so");
	notify_must_ask(nf, ASKS_KERNEL);
	return 0;
}

/*
 * Every call that will report an event raises the descriptor's count of changes
 * (mmap_changing) while it holds the address space's lock, before a page goes,
 * and lowers it when its event has been read. While it is raised, requests to
 * fill a page are refused with EAGAIN before anything else is looked at. Else
 * one for no bytes is refused with EINVAL, without a look at any mapping: no
 * refusal that only a userfaultfd gives is cheaper. It is the answer of any
 * userfaultfd, though, if another has the number (uffd_number.c).
 *
 * Proof. Thread A takes a range away, the kernel hands it to thread B. B took
 * the address space's lock after A had raised the count, so B, and whoever B
 * tells, finds it raised until A's event has been read; and before that read
 * the monitor made the generation odd (point 1 above), which then is, or a
 * later one, what is loaded after this. Asked after the load it would not prove
 * it: the event could be read in between.
 */
static bool uffd_settled(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	uint32_t asks = ASKS_KERNEL;

	switch (uffd_ask_kernel(u)) {
	case UFFD_REST:
		/* kedge_hook_number() sets this before another descriptor has the number. */
		return likely(nf_asks(nf) != ASKS_LOST);
	case UFFD_STRANGER:
		/*
		 * A callback asks on the thread of another notifier's monitor, or
		 * the thread gave up the process's table (unshare()): the process
		 * has the descriptor still.
		 */
		if (uffd_is_monitor() || uffd_number_is_held(u))
			break;
		/* ASKS_NOT stays: announcements do for the rest. */
		atomic_compare_exchange_strong(&nf->page->asks, &asks,
					       ASKS_LOST);
		break;
	case UFFD_CHANGING:
		break;
	}
	return false;
}

/*
 * The application may have closed another notifier's userfaultfd, and ours could
 * have its number now: then that notifier's questions would be answered for us.
 * Numbers are given in turn (fd_move_up()), so that this takes as many opens as
 * there are numbers; here whoever lost its descriptor is told before.
 */
static void check_descriptor(struct kedge_notifier *other, void *arg)
{
	const struct uffd *u = other->backend, *fresh = arg;

	if (other->ops != &notify_uffd || uffd_is_monitor() ||
	    (u->fd != fresh->fd && uffd_fd_is_ours(u)))
		return;
	sig_lock_blocked(&other->lock);
	if (nf_asks(other) != ASKS_NOT)
		notify_must_ask(other, ASKS_LOST);
	sig_unlock_blocked(&other->lock);
}

static void take(struct kedge_notifier *nf, void *fd)
{
	const struct uffd *u = nf->backend;

	if (nf->ops != &notify_uffd || u->fd != *(int *)fd)
		return;
	sig_lock_blocked(&nf->lock);
	notify_must_ask(nf, ASKS_LOST);
	sig_unlock_blocked(&nf->lock);
}

void kedge_hook_number(int fd)
{
	announce_each(take, &fd);
}

static int uffd_open(struct kedge_notifier *nf,
		     const struct kedge_notifier_opts *opts)
{
	struct uffd *u = calloc(1, sizeof(*u));
	int rc = -ENOMEM;

	if (!u)
		return rc;
	nf->backend = u;
	u->nf = nf;
	nf->blind = uffd_blind_spots();
	u->spin_ns = opts->spin_us == UINT32_MAX ? 0
		     : 1000ull * (opts->spin_us ? opts->spin_us
						: SPIN_DEFAULT_US);
	u->gap_ns = u->spin_ns;
	rc = uffd_get_fd(u);
	if (rc)
		goto free_u;
	nf->threads.usable = u->counts;
	nf->can_ask = u->counts;
	announce_each(check_descriptor, u);
	rc = choose_check(nf, opts);
	if (rc)
		goto close_fd;
	rc = map_wakeup(u);
	if (rc)
		goto close_fd;
	sem_init(&u->ready, 0, 0);
	open_tripwire(nf);
	rc = uffd_monitor_start(nf);
	if (rc)
		goto close_tripwire;
	return 0;

close_tripwire:
	close_tripwire(nf);
	sem_destroy(&u->ready);
	unmap_wakeup(u);
close_fd:
	close(u->fd);
free_u:
	nf->backend = NULL;
	free(u);
	return rc;
}

/*
 * The number may be another descriptor's by now. Once the monitor has ended no
 * range is registered with ours, so it holds no thread up.
 */
static void close_fd(struct uffd *u, bool ours)
{
	if (u->closed)
		return;
	if (ours)
		close(u->fd);
	else
		kedge__log(KEDGE_LOG_DEBUG, "the userfaultfd was closed by the "
			   "application");
}

static void uffd_close(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	bool ours = uffd_fd_is_ours(u);

	uffd_monitor_stop(nf);
	if (!atomic_load(&u->wakeup_gone))
		munmap((void *)(uintptr_t)u->wakeup, kedge__page_size());
	sem_destroy(&u->ready);
	close_tripwire(nf);
	close_fd(u, ours);
	free(u);
}

/* In a child the monitor's thread is the parent's. */
static void uffd_abandon(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;

	close_tripwire(nf);
	close_fd(u, uffd_fd_is_ours(u));
	if (!atomic_load(&u->wakeup_gone))
		munmap((void *)(uintptr_t)u->wakeup, kedge__page_size());
	free(u);
}

/*
 * Ranges are registered and noted, and let go again, under the lock. A
 * registration in the middle of an application's mremap() would split what that
 * is about to move: see announce_moving().
 *
 * A range that was refused is not noted. The kernel refuses before it changes
 * anything, but for ENOMEM, and what is noted is unregistered in time: before Linux
 * 6.17 that ends the registration of any userfaultfd there, another notifier's or
 * the application's, which would not be told of changes any more.
 */
static int register_now(void *arg, uint64_t start, uint64_t end)
{
	struct kedge_notifier *nf = arg;
	struct uffd *u = nf->backend;
	int rc = -EAGAIN;

	sig_lock(&nf->lock);
	if (!announce_moving())
		rc = registered_room(nf);
	if (!rc) {
		rc = uffd_register(u->fd, start, end);
		if (!rc || rc == -ENOMEM)
			registered_add(nf, start, end);
	}
	sig_unlock(&nf->lock);
	return rc;
}

static int uffd_arm(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct uffd *u = nf->backend;

	if (!uffd_fd_is_ours(u))
		return kedge_reason(-EOPNOTSUPP, "the application closed "
				    "kedge's userfaultfd: nothing more can be "
				    "watched");
	return uffd_register_patiently(register_now, nf, start, end);
}

/*
 * True unless a change is under way, or its event was read and is not handled: what is noted as
 * ours may have been unmapped by it, and another userfaultfd may have what was mapped there since.
 * That one would lose it (see register_now()). With nf->lock held.
 */
static bool notes_hold(const struct uffd *u)
{
	return !(atomic_load(&u->nf->page->generation) & 1) && uffd_ask_kernel(u) == UFFD_REST;
}

/* A range that stays registered costs an event more when it changes, and is not wrong. */
static void uffd_disarm(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct uffd *u = nf->backend;

	if (uffd_fd_is_ours(u) && notes_hold(u) && !uffd_unregister(u->fd, start, end))
		registered_cut(nf, start, end);
}

const struct notify_ops notify_uffd = {
	.name = "uffd",
	.level = KEDGE_LEVEL_ORDERED,
	.open = uffd_open,
	.close = uffd_close,
	.abandon = uffd_abandon,
	.arm = uffd_arm,
	.disarm = uffd_disarm,
	.settled = uffd_settled,
};
