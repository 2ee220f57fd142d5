// SPDX-License-Identifier: BSD-2-Clause
/*
 * A table with open hashing of a fixed number of ranges, in the order in which they came.
 *
 * Lookups do not take the lock as long as nothing has changed (ranges_valid()):
 *
 *  1. They load @clean, ask whether the notifier's generation is that still, and then load
 *     @pending_cnt. Events are taken by drain(), with the lock: it stores @pending_cnt before it
 *     stores @clean (release), so a lookup that has the new @clean (acquire) finds what the events
 *     have made pending. One that has the former @clean is told that it is not the generation.
 *     @loads, which says that a load of the generation is the whole question, is stored before
 *     @clean as well: where that changes, the generation does (enum kedge_check).
 *  2. A range that was pending leaves the count only when libfabric's caches have been told, and
 *     none of them has a registration of it.
 *
 * libfabric holds its own lock over all calls of its caches. Nothing here depends on that.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "ranges.h"

#define BUCKETS	   4096u /* a power of two */
#define EVENTS	   64
#define TRIES	   64	/* while changes are under way */
#define ROOM_SHIFT 4	/* a 16th of all goes at once where there is no room */

struct range {
	uintptr_t start;
	size_t len;
	uint64_t since; /* when the watch began, of @clock */
	struct range *next; /* of the bucket, or of those that are free */
	struct range *older, *younger;
	struct range *next_pending;
	bool used;
	bool watched;
	bool changed; /* since then, or it is not known */
	bool kept;
	bool pending;
	bool goes; /* to make room, once libfabric knows */
};

struct ranges {
	struct kedge_notifier *nf;
	pthread_mutex_t lock; /* guards all but what is atomic */
	pthread_cond_t wake; /* something is pending, or it is stopped */
	_Atomic uint64_t clean; /* the generation at which no event was left */
	_Atomic bool loads; /* KEDGE_CHECK_LOAD, at that generation */
	_Atomic uint32_t pending_cnt;
	_Atomic uint64_t clock;
	struct range *bucket[BUCKETS];
	struct range *free;
	struct range *oldest, *youngest;
	struct range *pending; /* those that the other thread has not taken, and */
	struct range *telling; /* those that it tells of now */
	unsigned int used;
	unsigned int max;
	bool stopped;
	struct range all[];
};

/* ---- the table, with the lock ---- */

static struct range **bucket_of(struct ranges *t, uintptr_t start, size_t len)
{
	uint64_t h = (uint64_t)start / 64 * UINT64_C(0x9e3779b97f4a7c15) +
		     (uint64_t)len * UINT64_C(0xc2b2ae3d27d4eb4f);

	return &t->bucket[(h >> 40) % BUCKETS];
}

static struct range *find(struct ranges *t, uintptr_t start, size_t len)
{
	struct range *r = *bucket_of(t, start, len);

	while (r && (r->start != start || r->len != len))
		r = r->next;
	return r;
}

static void link_young(struct ranges *t, struct range *r)
{
	r->older = t->youngest;
	r->younger = NULL;
	if (t->youngest)
		t->youngest->younger = r;
	else
		t->oldest = r;
	t->youngest = r;
}

static void unlink_age(struct ranges *t, struct range *r)
{
	if (r->older)
		r->older->younger = r->younger;
	else
		t->oldest = r->younger;
	if (r->younger)
		r->younger->older = r->older;
	else
		t->youngest = r->older;
}

static struct range *add(struct ranges *t, uintptr_t start, size_t len)
{
	struct range **to = bucket_of(t, start, len), *r = t->free;

	t->free = r->next;
	*r = (struct range){ .start = start, .len = len, .next = *to, .used = true };
	*to = r;
	link_young(t, r);
	t->used++;
	return r;
}

static uint64_t cookie_of(const struct ranges *t, const struct range *r)
{
	return (uint64_t)(r - t->all);
}

static void end_watch(struct ranges *t, struct range *r)
{
	if (r->watched)
		kedge_watch_remove(t->nf, cookie_of(t, r));
	r->watched = false;
}

static void drop(struct ranges *t, struct range *r)
{
	struct range **at = bucket_of(t, r->start, r->len);

	end_watch(t, r);
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	unlink_age(t, r);
	r->used = false;
	r->next = t->free;
	t->free = r;
	t->used--;
}

static void make_pending(struct ranges *t, struct range *r)
{
	r->pending = true;
	r->next_pending = t->pending;
	t->pending = r;
	atomic_fetch_add_explicit(&t->pending_cnt, 1, memory_order_relaxed);
	pthread_cond_signal(&t->wake);
}

/* The oldest go: at once, or once libfabric knows where it may have registrations of them. */
static void make_room(struct ranges *t)
{
	unsigned int n = (t->max >> ROOM_SHIFT) + 1;
	struct range *r = t->oldest, *next;

	for (; r && n; r = next, n--) {
		next = r->younger;
		if (!r->kept) {
			drop(t, r);
			continue;
		}
		r->goes = true;
		if (!r->pending)
			make_pending(t, r);
	}
}

/* ---- events, with the lock ---- */

static void note_change(struct ranges *t, const struct kedge_event *ev)
{
	struct range *r = &t->all[ev->cookie];

	if (ev->cookie >= t->max || !r->used)
		return;
	r->changed = true;
	if (r->kept && !r->pending)
		make_pending(t, r);
}

/* The queue was empty at @generation. */
static void is_clean_at(struct ranges *t, uint64_t generation)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	atomic_store_explicit(&t->loads, !kedge_notifier_info(t->nf, &info) &&
			      info.check == KEDGE_CHECK_LOAD, memory_order_relaxed);
	/* release: behind what is pending now. */
	atomic_store_explicit(&t->clean, generation, memory_order_release);
}

/* True: all events until now were taken, and no change is under way. */
static bool drain(struct ranges *t)
{
	struct kedge_event ev[EVENTS];
	unsigned int i;
	ssize_t n, at;

	for (i = 0; i < TRIES; i++) {
		if (kedge_notifier_unchanged(t->nf, atomic_load(&t->clean)) == 1)
			return true;
		n = kedge_notifier_read(t->nf, ev, EVENTS);
		if (n < 0)
			return false;
		for (at = 0; at < n; at++) {
			if (ev[at].kind != KEDGE_EVENT_LAST)
				note_change(t, &ev[at]);
			else
				is_clean_at(t, ev[at].generation);
		}
	}
	return false;
}

/* ---- what libfabric asks ---- */

/* False: it cannot be watched, and needs no place. */
static bool begin_watch(struct ranges *t, struct range *r)
{
	int rc;

	end_watch(t, r);
	rc = kedge_watch_add(t->nf, (const void *)r->start, r->len, cookie_of(t, r));
	if (rc < 0)
		return false;
	r->watched = true;
	/* Pages that were on their way out may be registered still: once more, next time. */
	r->changed = rc == KEDGE_WATCH_PROVISIONAL;
	/* release: a thread that loads it was later than the watch's beginning. */
	r->since = atomic_fetch_add_explicit(&t->clock, 1, memory_order_release) + 1;
	return true;
}

static bool keep(struct ranges *t, uintptr_t start, size_t len, uint64_t before)
{
	struct range *r = find(t, start, len);

	if (!r && t->used == t->max)
		make_room(t);
	if (!r && t->used == t->max)
		return false;
	if (!r)
		r = add(t, start, len);
	if (r->pending)
		return false;
	if (!r->watched || r->changed) {
		if (!begin_watch(t, r))
			drop(t, r);
		return false;
	}
	r->kept |= before >= r->since;
	return before >= r->since;
}

bool ranges_keep(struct ranges *t, const void *at, size_t len, uint64_t before)
{
	bool kept;

	if (!t->nf || !len)
		return false;
	pthread_mutex_lock(&t->lock);
	kept = drain(t) && keep(t, (uintptr_t)at, len, before);
	pthread_mutex_unlock(&t->lock);
	return kept;
}

static bool overlaps(const struct range *r, uintptr_t start, size_t len)
{
	for (; r; r = r->next_pending)
		if (r->start < start + len && start < r->start + r->len)
			return true;
	return false;
}

static bool is_valid(struct ranges *t, uintptr_t start, size_t len)
{
	bool valid;

	pthread_mutex_lock(&t->lock);
	valid = drain(t) && !overlaps(t->pending, start, len) &&
		!overlaps(t->telling, start, len);
	pthread_mutex_unlock(&t->lock);
	return valid;
}

static bool is_unchanged(struct ranges *t, uint64_t clean)
{
	if (atomic_load_explicit(&t->loads, memory_order_relaxed))
		return kedge_notifier_generation(t->nf) == clean;
	return kedge_notifier_unchanged(t->nf, clean) == 1;
}

bool ranges_valid(struct ranges *t, const void *at, size_t len)
{
	uint64_t clean;

	if (!t->nf)
		return false;
	/* acquire: step 1 of the proof. */
	clean = atomic_load_explicit(&t->clean, memory_order_acquire);
	if (is_unchanged(t, clean) &&
	    !atomic_load_explicit(&t->pending_cnt, memory_order_relaxed))
		return true;
	return is_valid(t, (uintptr_t)at, len);
}

uint64_t ranges_clock(struct ranges *t)
{
	return atomic_load_explicit(&t->clock, memory_order_acquire);
}

/* ---- telling libfabric ---- */

/* No cache has a registration of those any more, with the lock. */
static void have_told(struct ranges *t)
{
	struct range *r;

	while ((r = t->telling)) {
		t->telling = r->next_pending;
		r->pending = r->kept = false;
		r->changed = true;
		if (r->goes)
			drop(t, r);
		atomic_fetch_sub_explicit(&t->pending_cnt, 1, memory_order_relaxed);
	}
}

size_t ranges_wait(struct ranges *t, struct span *out, size_t max)
{
	struct range *r;
	size_t n = 0;

	pthread_mutex_lock(&t->lock);
	have_told(t);
	while (!t->pending && !t->stopped)
		pthread_cond_wait(&t->wake, &t->lock);
	while (!t->stopped && n < max && (r = t->pending)) {
		t->pending = r->next_pending;
		r->next_pending = t->telling;
		t->telling = r;
		out[n++] = (struct span){ (const void *)r->start, r->len };
	}
	pthread_mutex_unlock(&t->lock);
	return n;
}

void ranges_stop(struct ranges *t)
{
	pthread_mutex_lock(&t->lock);
	t->stopped = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
}

void ranges_forget(struct ranges *t)
{
	struct range *r, *next;

	pthread_mutex_lock(&t->lock);
	/* Those that are told of just now go with that. */
	for (r = t->telling; r; r = r->next_pending)
		r->goes = true;
	while ((r = t->pending)) {
		t->pending = r->next_pending;
		r->pending = false;
		atomic_fetch_sub_explicit(&t->pending_cnt, 1, memory_order_relaxed);
	}
	for (r = t->oldest; r; r = next) {
		next = r->younger;
		if (!r->pending)
			drop(t, r);
	}
	pthread_mutex_unlock(&t->lock);
}

void ranges_after_fork(struct ranges *t)
{
	t->nf = NULL;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	t->pending = t->telling = NULL;
	t->stopped = true;
}

void ranges_count(struct ranges *t, unsigned int *all, unsigned int *pending)
{
	pthread_mutex_lock(&t->lock);
	*all = t->used;
	*pending = atomic_load(&t->pending_cnt);
	pthread_mutex_unlock(&t->lock);
}

/* ---- all ---- */

int ranges_open(struct kedge_notifier *nf, unsigned int max, struct ranges **out)
{
	struct ranges *t = calloc(1, sizeof(*t) + max * sizeof(t->all[0]));
	unsigned int i;

	if (!t)
		return kedge_reason(-ENOMEM, "no memory for %u ranges", max);
	t->nf = nf;
	t->max = max;
	for (i = max; i--;) {
		t->all[i].next = t->free;
		t->free = &t->all[i];
	}
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	/* Not that of any notifier: the first call takes what there is. */
	atomic_init(&t->clean, UINT64_MAX);
	*out = t;
	return 0;
}

void ranges_close(struct ranges *t)
{
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
