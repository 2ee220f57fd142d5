// SPDX-License-Identifier: BSD-2-Clause
/*
 * Adding and removing watches.
 *
 * Adding has an order that everything rests on: first the watch is in the tree,
 * so that no event passes it by; then the kernel is made to report on the
 * range; then the mapping is looked at. Only if the armed set was not cut
 * meanwhile does the range enter it: a cut may have been this very range,
 * unmapped and mapped anew without being registered.
 */
#include <inttypes.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notify/announce/announce.h"
#include "notify/announce/budget.h"
#include "notify/internal.h"

#define ARM_TRIES  8
#define MOVE_TRIES 1000

/* Tests change the mapping here. */
__attribute__((weak, noinline)) void watch_looked(void)
{
}

/* An mremap() of the application's is over soon. */
static int arm_between_moves(struct kedge_notifier *nf,
			     const struct vma_span *span)
{
	unsigned int tries;
	int rc = -EAGAIN;

	for (tries = 0; rc == -EAGAIN && tries < MOVE_TRIES; tries++) {
		if (tries)
			sched_yield();
		rc = nf->ops->arm(nf, span->start, span->end);
	}
	return rc != -EAGAIN ? rc
			     : kedge_reason(-EBUSY, "mappings are being moved "
					    "without a pause");
}

/* The findings while a watch is added. */
struct adding {
	uint64_t start; /* what is not armed */
	uint64_t end;
	uint64_t cuts; /* when that was so */
	bool armed;
	bool tainted;
	struct vma_span whole; /* what to register for that, or 0: look it up */
};

/* Make the kernel report on what is not armed, and on *span around it. */
static int register_around(struct kedge_notifier *nf, const struct adding *a,
			   struct vma_span *span)
{
	int rc;

	*span = a->whole;
	if (span->end && !budget_admit(nf, span) && !arm_between_moves(nf, span))
		return 0;
	rc = vma_check(nf->maps_fd, a->start, a->end, span);
	if (rc)
		return rc;
	if (nf->exact)
		*span = (struct vma_span){ a->start, a->end };
	rc = budget_admit(nf, span);
	return rc ? rc : arm_between_moves(nf, span);
}

/*
 * One try to arm what is not armed. 1: something was cut meanwhile, try again.
 *
 * All of the mapping is armed, as far as the kernel was asked for it: it reports
 * on a mapping as a whole, so what is said of a part is true of the rest. The next
 * range in there needs no call.
 *
 * That rests on the look after the kernel was asked. The unarmed part is within
 * the caller's own range, which the application leaves alone meanwhile, so it was
 * mapped and is registered; and where it is, so is all of the mapping that is found
 * around it. The look before is for its extent alone.
 */
static int arm_once(struct kedge_notifier *nf, const struct adding *a)
{
	struct vma_span before, after;
	int rc = register_around(nf, a, &before);

	if (!rc)
		rc = vma_check(nf->maps_fd, a->start, a->end, &after);
	if (rc)
		return rc;
	watch_looked();
	sig_lock_blocked(&nf->lock);
	/*
	 * If the kernel sends no events, memory without a watch can change
	 * without a cut: look again each time.
	 */
	if (nf->cuts != a->cuts)
		rc = 1;
	else if (!nf->ops->announced_only)
		armed_add(nf,
			  before.start > after.start ? before.start
						     : after.start,
			  before.end < after.end ? before.end : after.end);
	sig_unlock_blocked(&nf->lock);
	return rc;
}

/* With nf->lock held. */
static void look(struct kedge_notifier *nf, struct adding *a)
{
	const struct tree_node *whole;

	queue_check_trips(nf);
	whole = armed_whole(nf, a->start, a->end);
	a->armed = whole;
	if (whole)
		incoming_know(nf, whole->start, whole->end);
	else
		armed_first_gap(nf, &a->start, &a->end);
	a->whole = (struct vma_span){ 0, 0 };
	if (!a->armed)
		whole_find(nf, a->start, a->end, &a->whole.start,
			   &a->whole.end);
	a->cuts = nf->cuts;
}

/*
 * Arm what is not armed.
 *
 * Outside of own it must be armed at the very moment at which cuts is read: its
 * user may be unmapping it. If it is, that brings a cut and is noticed. If it
 * were not, it could be gone when the kernel is asked to report on it, and a new
 * mapping be there when it is looked at.
 */
static int arm(struct kedge_notifier *nf, struct adding *a, uint64_t start,
	       uint64_t end, struct own_range own)
{
	int rc = 1, tries;

	for (tries = 0; rc > 0 && tries < ARM_TRIES; tries++) {
		if (tries) {
			a->start = start;
			a->end = end;
			sig_lock_blocked(&nf->lock);
			look(nf, a);
			sig_unlock_blocked(&nf->lock);
		}
		if (a->armed)
			return 0;
		if (a->start < own.start || a->end > own.end)
			return -ESTALE;
		rc = arm_once(nf, a);
	}
	/*
	 * Others unmap without a pause. The kernel does report on the range,
	 * so the watch holds; it is only not known to be armed next time.
	 * The mapping may however have been exchanged since the look.
	 */
	return rc > 0 ? KEDGE_WATCH_PROVISIONAL : rc;
}

/*
 * The kernel keeps the watch: of the mapping we need to know only that there is
 * one. An msync looks, and does no more with this flag.
 */
static int add_in_kernel(struct kedge_notifier *nf, struct watch *w)
{
	int rc;

	/* Not by msync(), which is a cancellation point. */
	if (syscall(SYS_msync, w->node.start, w->node.end - w->node.start,
		    MS_ASYNC))
		return kedge_reason(-EFAULT, "nothing is mapped in a part of "
				    "%#" PRIx64 "-%#" PRIx64,
				    w->node.start, w->node.end);
	sig_lock(&nf->lock);
	rc = nf->ops->add(nf, w);
	if (rc >= 0)
		tree_insert(&nf->watches, &w->node);
	sig_unlock(&nf->lock);
	return rc;
}

/* A watch that is incoming. With signals blocked: several locks are taken in a row. */
static int add(struct kedge_notifier *nf, uint64_t start, uint64_t end, struct own_range own)
{
	struct adding a = { .start = start, .end = end };
	int rc;

	sig_lock_blocked(&nf->lock);
	incoming_settle(nf);
	look(nf, &a);
	a.tainted = taint_serial(nf, start, end);
	sig_unlock_blocked(&nf->lock);
	if (a.tainted)
		a.tainted = !taint_over(nf, start, end);
	rc = arm(nf, &a, start, end, own);
	return !rc && a.tainted ? KEDGE_WATCH_PROVISIONAL : rc;
}

int notify_watch_add(struct kedge_notifier *nf, struct watch *w, uint64_t start,
		     uint64_t end, struct own_range own)
{
	int rc;

	if (unlikely(nf_asks(nf) == ASKS_LOST))
		return kedge_reason(-EOPNOTSUPP, "the application closed "
				    "kedge's userfaultfd: nothing can be "
				    "watched any more");
	w->node.start = start;
	w->node.end = end;
	w->pending = false;
	if (nf->ops->add)
		return add_in_kernel(nf, w);
	announce_watch(start, end);
	rc = 0;
	if (!incoming_add(nf, w)) {
		signals_block();
		rc = add(nf, start, end, own);
		signals_restore();
	}
	if (rc < 0)
		notify_watch_remove(nf, w, false);
	else if (announce_active(start, end) || announce_shared())
		rc = KEDGE_WATCH_PROVISIONAL;
	return rc;
}

bool notify_watch_announced(struct kedge_notifier *nf, struct watch *w,
			    uint64_t start, uint64_t end)
{
	if (nf->ops->add)
		return false;
	w->node.start = start;
	w->node.end = end;
	w->pending = false;
	announce_watch(start, end);
	sig_lock(&nf->lock);
	tree_insert(&nf->watches, &w->node);
	sig_unlock(&nf->lock);
	return true;
}

/* True if the range has no watch, nor gets one without the lock. With that held. */
static bool unwatched(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	incoming_forget(nf, start, end);
	incoming_settle(nf);
	return !tree_first_overlap(&nf->watches, start, end);
}

/*
 * Memory without a watch need not be reported: its munmap() is then as cheap as
 * without kedge. By whole mappings as they are now, which may have grown since
 * they were registered: a part would split them.
 */
static void disarm_unwatched(struct kedge_notifier *nf, uint64_t start,
			     uint64_t end)
{
	struct vma_span whole;
	bool go;

	sig_lock(&nf->lock);
	go = tree_first_overlap(&nf->registered, start, end) &&
	     unwatched(nf, start, end);
	sig_unlock(&nf->lock);
	if (!go || vma_check(nf->maps_fd, start, end, &whole))
		return;
	sig_lock(&nf->lock);
	if (unwatched(nf, whole.start, whole.end)) {
		armed_cut(nf, whole.start, whole.end);
		nf->ops->disarm(nf, whole.start, whole.end);
	}
	sig_unlock(&nf->lock);
}

void notify_watch_remove(struct kedge_notifier *nf, struct watch *w, bool keep)
{
	uint64_t start = w->node.start, end = w->node.end;

	sig_lock(&nf->lock);
	incoming_settle(nf);
	queue_forget(w);
	tree_remove(&nf->watches, &w->node);
	if (nf->ops->remove)
		nf->ops->remove(nf, w);
	sig_unlock(&nf->lock);
	if (nf->ops->remove)
		return;
	if (!keep)
		disarm_unwatched(nf, start, end);
	announce_unwatch(start, end);
}

static struct public_watch *find_cookie(struct kedge_notifier *nf,
					uint64_t cookie)
{
	struct tree_node *n = tree_at_or_after(&nf->cookies, cookie);

	return n && n->start == cookie
		? container_of(n, struct public_watch, by_cookie)
		: NULL;
}

static void public_count(struct kedge_notifier *nf, int by)
{
	nf->public_cnt += by;
	announce_by_generation(by);
}

static void free_public(struct kedge_notifier *nf, struct public_watch *p)
{
	slab_put(&nf->public_slab, p);
	public_count(nf, -1);
}

/* A public watch with its cookie taken, or NULL and *rc. */
static struct public_watch *new_public(struct kedge_notifier *nf,
				       uint64_t cookie, int *rc)
{
	struct public_watch *p = NULL;

	sig_lock(&nf->lock);
	if (find_cookie(nf, cookie)) {
		*rc = -EEXIST;
	} else {
		p = slab_get(&nf->public_slab);
		*rc = p ? 0 : -ENOMEM;
	}
	if (p) {
		p->by_cookie.start = cookie;
		p->by_cookie.end = cookie;
		p->watch.cookie = cookie;
		tree_insert(&nf->cookies, &p->by_cookie);
		public_count(nf, 1);
	}
	sig_unlock(&nf->lock);
	if (*rc == -EEXIST)
		kedge_reason(*rc, "cookie %llu names another watch",
			     (unsigned long long)cookie);
	return p;
}

/*
 * A user that watches by the generation cannot tell memory with announced changes
 * from other memory, as a cache does: from now on all have to ask. With nf->lock
 * held. Returns what kedge_watch_add() does.
 */
static int ask_for(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	if (notify_announced(nf, start, end))
		return 0;
	if (!nf->can_ask)
		return KEDGE_WATCH_PROVISIONAL;
	notify_must_ask(nf, ASKS_KERNEL);
	return 0;
}

int kedge_watch_add(struct kedge_notifier *nf, const void *addr, size_t len,
		    uint64_t cookie)
{
	size_t page = kedge__page_size();
	uint64_t start = (uintptr_t)addr, end;
	struct public_watch *p;
	int rc;

	if (!nf || !len || __builtin_add_overflow(start, len, &end) ||
	    end > UINT64_MAX - page)
		return kedge_reason(-EINVAL, "an empty range, or one that "
					     "wraps: %p + %zu", addr, len);
	if (!nf_owned(nf))
		return nf_not_owned();
	start = round_down(start, page);
	end = round_up(end, page);
	p = new_public(nf, cookie, &rc);
	if (!p)
		return rc;
	p->watch.queue = &nf->queue;
	rc = notify_watch_add(nf, &p->watch, start, end,
			      (struct own_range){ start, end });
	sig_lock(&nf->lock);
	p->ready = rc >= 0;
	if (!rc)
		rc = ask_for(nf, start, end);
	if (rc < 0) {
		tree_remove(&nf->cookies, &p->by_cookie);
		free_public(nf, p);
	}
	sig_unlock(&nf->lock);
	return rc;
}

int kedge_watch_remove(struct kedge_notifier *nf, uint64_t cookie)
{
	struct public_watch *p;

	if (!nf)
		return kedge_reason(-EINVAL, "the notifier is NULL");
	if (!nf_owned(nf))
		return nf_not_owned();
	sig_lock(&nf->lock);
	p = find_cookie(nf, cookie);
	if (p && !p->ready)
		p = NULL;
	if (p)
		tree_remove(&nf->cookies, &p->by_cookie);
	sig_unlock(&nf->lock);
	if (!p)
		return kedge_reason(-ENOENT, "no watch has cookie %llu",
				    (unsigned long long)cookie);
	notify_watch_remove(nf, &p->watch, false);
	sig_lock(&nf->lock);
	free_public(nf, p);
	sig_unlock(&nf->lock);
	return 0;
}

ssize_t kedge_notifier_read(struct kedge_notifier *nf, struct kedge_event *ev,
			    size_t max)
{
	uint64_t drained = 0;
	size_t n = 0;

	if (!nf || !ev || !max)
		return kedge_reason(-EINVAL, "no notifier or no room for an "
					     "event");
	if (!nf_owned(nf))
		return nf_not_owned();
	while (n < max && !drained) {
		struct taken t[16];
		size_t want = max - n < 16 ? max - n : 16, i, got;

		got = notify_take(nf, &nf->queue, t, want, &drained);
		for (i = 0; i < got; i++)
			ev[n++] = (struct kedge_event){
				.kind = t[i].kind,
				.flags = t[i].unsure ? KEDGE_EVENT_UNSURE : 0,
				.start = t[i].start,
				.end = t[i].end,
				.cookie = t[i].cookie,
				.generation = t[i].generation,
			};
	}
	if (drained && n < max)
		ev[n++] = (struct kedge_event){ .kind = KEDGE_EVENT_LAST,
						.generation = drained };
	return (ssize_t)n;
}
