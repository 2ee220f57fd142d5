// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cookie of a watch is the address of its region, which is alive while it is watched:
 * regions_end() takes the watch away, and @lock is held over both that and a reading of events.
 *
 * A hit has pages that are there, as of three kinds of regions a lookup finds no other:
 *
 *  1. Of one that was registered before regions_settle() began, the watch is older than the
 *     registration. So a change is an event, or on the way to one, and the generation is not
 *     @clean. The thread that reads the event makes the region going (@going_cnt) before it stores
 *     @clean (release); one that loads the new @clean (acquire) finds it going. A thread that finds
 *     one takes @telling, behind which it was dropped, or drops it. @loads, which says that a load
 *     of the generation is the whole question, is stored before @clean as well: where that
 *     changes, the generation does (enum kedge_check).
 *  2. One that is registered later has the pages of that moment, at which the thread had the range
 *     already. A change after that is made while it looks up or holds the region.
 *  3. One that is being registered meanwhile is in UCX's cache, locked. An event of it that is
 *     dropped then waits there for the lock, and is met before the region is found.
 *
 * A region stays going until the cache says that lookups do not find it (@found). UCX postpones a
 * drop while another thread has its lock, and loses it where it has no memory to keep it by, so
 * each regions_settle() drops anew what is still found. A lookup that finds it all the same holds a
 * region of kind 1: it began before that regions_settle() did (@begun counts a region before its
 * watch begins, and is read before the generation, both in the one order of seq_cst), and it is
 * going, so @going_cnt is not 0 as long as it is found. regions_is_stale() tells it, and the
 * lookup is made again. Of a region of kind 3 that began before it says so, too, if that cannot be
 * watched; that costs a second lookup.
 *
 * In a forked child the notifier is the parent's, as are the registrations: @here is zero there,
 * whatever call made the child, and the first to see that begins anew. All regions are dropped;
 * the deregistration of one of the parent's would be done to the parent.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "regions.h"

#define EVENTS 64
#define SPANS  64
#define TRIES  64 /* while changes are under way */
#define ALL    ((size_t)1 << 62) /* more than there is, and UCX's sums do not wrap */

enum here { HERE_CHILD, HERE_YES, HERE_BEGINS };

struct span {
	uintptr_t start;
	size_t len;
};

struct regions {
	const struct regions_ops *ops;
	_Atomic uint32_t *here; /* enum here, in a page that a fork empties */
	struct kedge_notifier *nf;
	pthread_mutex_t telling; /* held while UCX is told */
	pthread_mutex_t lock; /* guards regions and the lists; within the one above */
	struct region *going, *told;
	_Atomic uint32_t going_cnt; /* of both lists */
	_Atomic uint64_t clean; /* the generation at which no event was left */
	_Atomic bool loads; /* KEDGE_CHECK_LOAD, at that generation */
	_Atomic uint64_t begun; /* regions, so far */
	bool all; /* of the parent's have to go */
	bool lost; /* a drop of the last regions_settle() that dropped: with @telling */
	uint64_t process; /* grows with each fork */
};

/* ---- the process ---- */

/* A notifier that cannot be had has no region kept: that is slow, and not wrong. */
static void open_notifier(struct regions *t)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier *nf = NULL;
	int rc = kedge_notifier_open(NULL, &nf);

	if (!rc && !kedge_notifier_info(nf, &info) && info.level == KEDGE_LEVEL_NONE) {
		kedge_notifier_close(nf);
		nf = NULL;
		rc = kedge_reason(-EOPNOTSUPP, "nothing can be watched here: see kedge info");
	}
	/* Not that of any notifier: the first lookup takes what there is. */
	atomic_store(&t->clean, UINT64_MAX);
	t->nf = nf;
	if (rc)
		t->ops->say(rc);
}

static void begin_anew(struct regions *t)
{
	pthread_mutex_init(&t->telling, NULL);
	pthread_mutex_init(&t->lock, NULL);
	/* A thread of the parent's may have been at them; their regions are the parent's. */
	t->going = t->told = NULL;
	atomic_store(&t->going_cnt, 0);
	t->all = true;
	t->lost = false;
	t->process++;
	if (t->ops->anew)
		t->ops->anew();
	/* The parent's is left as it is, as another thread of this process may ask it. */
	open_notifier(t);
}

/* Before each use of what a fork leaves in any state. */
static void enter(struct regions *t)
{
	uint32_t is = HERE_CHILD;

	/* acquire: what begin_anew() stored. */
	while ((is = atomic_load_explicit(t->here, memory_order_acquire)) != HERE_YES) {
		if (is == HERE_CHILD && atomic_compare_exchange_strong(t->here, &is, HERE_BEGINS)) {
			begin_anew(t);
			atomic_store_explicit(t->here, HERE_YES, memory_order_release);
		}
		sched_yield();
	}
}

/* ---- those that are going, with the lock ---- */

static void list_add(struct region **list, struct region *r)
{
	r->next = *list;
	r->at = list;
	if (r->next)
		r->next->at = &r->next;
	*list = r;
}

static void list_remove(struct region *r)
{
	*r->at = r->next;
	if (r->next)
		r->next->at = r->at;
	r->at = NULL;
}

static void end_watch(struct regions *t, struct region *r)
{
	if (r->watched)
		kedge_watch_remove(t->nf, (uintptr_t)r);
	r->watched = false;
}

static void make_going(struct regions *t, struct region *r)
{
	end_watch(t, r);
	if (r->changed)
		return;
	r->changed = true;
	list_add(&t->going, r);
	/* A lookup that does not see it began before the pages were registered: it comes before
	 * that in regions_begin(), and behind it no step of this thread's is moved up. */
	atomic_fetch_add(&t->going_cnt, 1);
}

static void has_gone(struct regions *t, struct region *r)
{
	list_remove(r);
	atomic_fetch_sub(&t->going_cnt, 1);
}

/* ---- registrations ---- */

void regions_begin(struct regions *t, struct region *r, const void *above, uintptr_t start,
		   size_t len)
{
	int saved, rc = -EOPNOTSUPP;

	enter(t);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved);
	*r = (struct region){ .start = start, .len = len, .process = t->process,
			      .begun = atomic_fetch_add(&t->begun, 1) + 1, .above = above };
	/* Without the lock, as it may take a while; an event of it may be read meanwhile. */
	if (t->nf)
		rc = kedge_watch_add(t->nf, (const void *)start, len, (uintptr_t)r);
	pthread_mutex_lock(&t->lock);
	r->watched = rc >= 0;
	/* Pages that are on their way out may be registered, and must not be kept. The watch of
	 * one that has changed already ends here. */
	if (rc || r->changed)
		make_going(t, r);
	pthread_mutex_unlock(&t->lock);
	pthread_setcancelstate(saved, &saved);
}

bool regions_end(struct regions *t, struct region *r)
{
	int saved;

	enter(t);
	if (r->process != t->process)
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved);
	pthread_mutex_lock(&t->lock);
	end_watch(t, r);
	if (r->at)
		has_gone(t, r);
	pthread_mutex_unlock(&t->lock);
	pthread_setcancelstate(saved, &saved);
	return true;
}

/* ---- events ---- */

/* The queue was empty at @generation. */
static void is_clean_at(struct regions *t, uint64_t generation)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	atomic_store_explicit(&t->loads, !kedge_notifier_info(t->nf, &info) &&
			      info.check == KEDGE_CHECK_LOAD, memory_order_relaxed);
	/* release: behind what is going now. */
	atomic_store_explicit(&t->clean, generation, memory_order_release);
}

static void read_events(struct regions *t)
{
	struct kedge_event ev[EVENTS];
	ssize_t n, i;

	n = kedge_notifier_read(t->nf, ev, EVENTS);
	for (i = 0; i < n; i++) {
		if (ev[i].kind == KEDGE_EVENT_LAST)
			is_clean_at(t, ev[i].generation);
		else
			make_going(t, (struct region *)(uintptr_t)ev[i].cookie);
	}
}

static bool is_clean(struct regions *t)
{
	/* acquire: step 1 of the proof. */
	const uint64_t clean = atomic_load_explicit(&t->clean, memory_order_acquire);

	if (!t->nf)
		return false;
	if (atomic_load_explicit(&t->loads, memory_order_relaxed))
		return kedge_notifier_generation(t->nf) == clean;
	return kedge_notifier_unchanged(t->nf, clean) == 1;
}

/* ---- dropping, with @telling ---- */

/* As many as fit, which are told of next. */
static size_t take(struct regions *t, struct span out[SPANS])
{
	struct region *r;
	size_t n = 0;

	pthread_mutex_lock(&t->lock);
	while (n < SPANS && (r = t->going)) {
		list_remove(r);
		list_add(&t->told, r);
		out[n++] = (struct span){ r->start, r->len };
	}
	pthread_mutex_unlock(&t->lock);
	return n;
}

static bool drop(struct regions *t, uintptr_t start, size_t len)
{
	bool dropped = t->ops->drop(start, len);

	t->lost |= !dropped;
	return dropped;
}

static void drop_going(struct regions *t)
{
	struct span all[SPANS];
	size_t n, i;

	while ((n = take(t, all)))
		for (i = 0; i < n; i++)
			drop(t, all[i].start, all[i].len);
}

/* It was dropped and lookups find it still, or that drop was lost. */
static bool is_left(const struct regions *t, const struct region *r)
{
	return t->lost || (t->ops->found && t->ops->found(r));
}

/* Those of an earlier call that are found still are told of again. */
static void sort_told(struct regions *t, bool again)
{
	struct region *r, *next;

	pthread_mutex_lock(&t->lock);
	for (r = t->told; r; r = next) {
		next = r->next;
		if (!is_left(t, r)) {
			has_gone(t, r);
		} else if (again) {
			list_remove(r);
			list_add(&t->going, r);
		}
	}
	pthread_mutex_unlock(&t->lock);
}

/* False: a change of something is under way, and does not end. */
static bool drop_changed(struct regions *t)
{
	unsigned int i;

	for (i = 0; i < TRIES; i++) {
		drop_going(t);
		if (is_clean(t))
			return true;
		if (!t->nf)
			return false;
		pthread_mutex_lock(&t->lock);
		read_events(t);
		pthread_mutex_unlock(&t->lock);
	}
	drop_going(t);
	return false;
}

/* False: a drop was lost. */
static bool settle(struct regions *t, uintptr_t start, size_t len)
{
	bool lost;
	int saved;

	enter(t);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved);
	pthread_mutex_lock(&t->telling);
	sort_told(t, true);
	t->lost = false;
	if (t->all)
		t->all = !drop(t, 0, ALL);
	/* Regions of the range may have changed, so it is registered anew. */
	if (!drop_changed(t) && len)
		drop(t, start, len);
	sort_told(t, false);
	lost = t->lost;
	/* The next lookup comes here, also where no region is on a list. */
	if (lost)
		atomic_store(&t->clean, UINT64_MAX);
	pthread_mutex_unlock(&t->telling);
	pthread_setcancelstate(saved, &saved);
	return !lost;
}

uint64_t regions_settle(struct regions *t, uintptr_t start, size_t len)
{
	const uint64_t begun = atomic_load(&t->begun);

	/* In a child the generation is another one. */
	if ((!is_clean(t) || atomic_load_explicit(&t->going_cnt, memory_order_acquire)) &&
	    !settle(t, start, len))
		return REGIONS_LOST;
	return begun;
}

/* ---- after a lookup ---- */

bool regions_may_be_stale(const struct regions *t)
{
	return atomic_load_explicit(&t->going_cnt, memory_order_acquire);
}

bool regions_is_stale(struct regions *t, const struct region *r, uint64_t since)
{
	bool stale;
	int saved;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved);
	pthread_mutex_lock(&t->lock);
	stale = r->changed && r->begun <= since;
	pthread_mutex_unlock(&t->lock);
	pthread_setcancelstate(saved, &saved);
	return stale;
}

/* ---- all ---- */

uint64_t regions_process(struct regions *t)
{
	enter(t);
	return t->process;
}

unsigned int regions_going(struct regions *t)
{
	return atomic_load(&t->going_cnt);
}

struct kedge_notifier *regions_notifier(struct regions *t)
{
	return t->nf;
}

int regions_open(const struct regions_ops *ops, struct regions **out)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct regions *t = calloc(1, sizeof(*t));
	void *here;

	if (!t)
		return kedge_reason(-ENOMEM, "no memory");
	here = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (here == MAP_FAILED || madvise(here, page, MADV_WIPEONFORK)) {
		int rc = -errno;

		if (here != MAP_FAILED)
			munmap(here, page);
		free(t);
		return kedge_reason(rc, "no page that a fork empties: error %d", -rc);
	}
	t->ops = ops;
	t->here = here;
	pthread_mutex_init(&t->telling, NULL);
	pthread_mutex_init(&t->lock, NULL);
	open_notifier(t);
	atomic_store(t->here, HERE_YES);
	*out = t;
	return 0;
}
