// SPDX-License-Identifier: BSD-2-Clause
/*
 * See held.h. No thread waits for events: they are read when the program registers,
 * deregisters and ends. A thread of ours would be a second one in programs that have one.
 *
 * A watch begins and ends with some twenty system calls, which is more than a registration
 * from the cache costs. So the watches of ranges that were registered last stay, idle, until
 * they are registered again, have changed, or are too many.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/owner.h"
#include "preload/held.h"
#include "preload/library.h"
#include "preload/preload.h"
#include "preload/table.h"

#define EVENTS	64
#define BUCKETS 256u /* a power of two */
#define IDLE_MAX 1024u
#define SPANS	 8u
#define LOOK_NS	 UINT64_C(10000000)

struct span {
	uintptr_t start;
	uintptr_t end;
	uint32_t kind;
	uint32_t change; /* kedge doctor's number of it; 0: it was not seen */
};

struct held {
	const struct ibv_mr *mr; /* NULL: idle */
	struct library *by;
	uintptr_t at;
	size_t len;
	struct span span[SPANS]; /* what has changed of it */
	unsigned int spans;
	bool doomed; /* it was idle, and its watch ends */
	struct held **back; /* to it, on the list of those that have changed; NULL: it is not */
	struct held *next; /* of those that have changed, are doomed, or are idle in a bucket */
	struct held *older, *younger; /* idle */
	struct table_slot *slot; /* while it is held, for kedge doctor */
	bool unwatched; /* kedge doctor, which follows calls, is all that looks */
};

static _Atomic int owner; /* the process that all of this belongs to */
static struct kedge_notifier *_Atomic notifier; /* NULL: not yet, or it cannot be had */
static _Atomic uint64_t clean; /* the generation at which no event was left */
/* Guards what follows, and stores to the two above; that of the domains is taken within it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool asked; /* for the notifier */
static void *by_mr; /* a tree of tsearch()'s */
static struct held *changed;
static struct held *idle[BUCKETS], *oldest, *youngest;
static unsigned int idle_cnt;
static uint64_t followed, not_followed, left_to_fi, looked;
static bool begun;
static char *unsaid; /* until the lock is let go of */

/* A forked child holds the parent's registrations, which its own notifier does not watch. */
static void anew(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store(&notifier, NULL);
	atomic_store(&clean, 0);
	asked = false;
	by_mr = NULL;
	changed = oldest = youngest = NULL;
	memset(idle, 0, sizeof(idle));
	library_forget();
	idle_cnt = 0;
	followed = not_followed = left_to_fi = looked = 0;
	begun = false;
	unsaid = NULL;
}

static int cmp_mr(const void *a, const void *b)
{
	const struct held *l = a, *r = b;

	return l->mr < r->mr ? -1 : l->mr > r->mr;
}

static struct held *found(void *node)
{
	return node ? *(struct held **)node : NULL;
}

/* ---- events, with the lock ---- */

static const char *kind_word(uint32_t kind)
{
	switch (kind) {
	case KEDGE_EVENT_UNMAP:
		return "unmapped";
	case KEDGE_EVENT_REMOVE:
		return "dropped";
	case KEDGE_EVENT_REMAP:
		return "moved";
	}
	return "changed";
}

static bool is_mapped(uintptr_t at)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	unsigned char in;

	return !mincore((void *)(at & ~(page - 1)), page, &in);
}

/* Any page of it. */
static bool is_mapped_in(uintptr_t start, uintptr_t end)
{
	uintptr_t from, to;
	bool found = false;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2 && from < end &&
			to > start;
	if (f)
		fclose(f);
	return found;
}

/* Memory has come back where pages went. @all: to look at the ends alone is not enough. */
static const struct span *came_back(const struct held *h, bool all)
{
	const struct span *s;

	for (s = h->span; s < h->span + h->spans; s++)
		if (is_mapped(s->start) || is_mapped(s->end - 1) ||
		    (all && is_mapped_in(s->start, s->end)))
			return s;
	return NULL;
}

static void off_list(struct held *h)
{
	if (!h->back)
		return;
	*h->back = h->next;
	if (h->next)
		h->next->back = h->back;
	h->back = NULL;
}

static void look_at(struct held *h, bool all)
{
	const struct span *s = came_back(h, all);

	if (!s)
		return;
	off_list(h);
	if (library_lost(&h->by->stale, s->start, s->end, kind_word(s->kind), s->change))
		unsaid = library_text(unsaid, h->by);
}

static void look_at_changed(bool all)
{
	struct held *h, *next;

	for (h = changed; h; h = next) {
		next = h->next;
		look_at(h, all);
	}
	looked = clock_ns();
}

/* Changes that kedge doctor has seen become the registration's own, as it ends. */
static void take_gone(struct held *h)
{
	static const uint32_t kinds[TABLE_KINDS] = { KEDGE_EVENT_UNMAP, KEDGE_EVENT_REMOVE,
						     KEDGE_EVENT_REMAP };
	struct table_gone *g;
	unsigned int i;

	for (i = 0; h->slot && table_traced() && i < TABLE_GONE && h->spans < SPANS; i++) {
		g = &h->slot->gone[i];
		if (!atomic_load(&g->end))
			continue;
		h->span[h->spans++] = (struct span){ atomic_load(&g->start), atomic_load(&g->end),
						     kinds[atomic_load(&g->kind) % TABLE_KINDS],
						     atomic_load(&g->change) };
	}
}

/* ---- watches, with the lock ---- */

static struct held **bucket_of(uintptr_t at, size_t len)
{
	uint64_t h = (uint64_t)at * UINT64_C(0x9e3779b97f4a7c15) + len;

	return &idle[(h >> 32) % BUCKETS];
}

static void make_idle(struct held *h)
{
	struct held **to = bucket_of(h->at, h->len);

	h->mr = NULL;
	h->next = *to;
	*to = h;
	h->younger = NULL;
	h->older = youngest;
	*(youngest ? &youngest->younger : &oldest) = h;
	youngest = h;
	idle_cnt++;
}

static void leave_idle(struct held *h)
{
	struct held **from = bucket_of(h->at, h->len);

	while (*from != h)
		from = &(*from)->next;
	*from = h->next;
	*(h->older ? &h->older->younger : &oldest) = h->younger;
	*(h->younger ? &h->younger->older : &youngest) = h->older;
	idle_cnt--;
}

static struct held *take_idle(uintptr_t at, size_t len)
{
	struct held *h = *bucket_of(at, len);

	while (h && (h->at != at || h->len != len))
		h = h->next;
	if (h)
		leave_idle(h);
	return h;
}

static void end_watch(struct held *h)
{
	if (!h->unwatched)
		kedge_watch_remove(atomic_load(&notifier), (uintptr_t)h);
	free(h);
}

/* For libfabric libkedge-fi has a watch there, beside which the kernel allows no other. */
static struct held *begin_watch(const struct library *by, uintptr_t at, size_t len)
{
	struct held *h = take_idle(at, len);

	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->at = at;
	h->len = len;
	if (!by->coherent && atomic_load(&notifier) &&
	    kedge_watch_add(atomic_load(&notifier), (void *)at, len, (uintptr_t)h) >= 0)
		return h;
	h->unwatched = true;
	if (table_asked())
		return h;
	free(h);
	return NULL;
}

/* No tree knows it any more. */
static void let_go(struct held *h)
{
	table_remove(h->slot);
	h->slot = NULL;
	off_list(h);
	if (h->spans || h->unwatched) {
		end_watch(h);
		return;
	}
	make_idle(h);
	if (idle_cnt > IDLE_MAX) {
		h = oldest;
		leave_idle(h);
		end_watch(h);
	}
}

/* A watch that has ended has no event, so the cookie is one that is there. One read may have two
 * events of a watch, if another thread changes memory meanwhile; so none ends before the last. */
static void note(const struct kedge_event *ev, struct held **doomed)
{
	struct held *h = (struct held *)(uintptr_t)ev->cookie;

	if (h->doomed)
		return;
	if (!h->mr) {
		leave_idle(h);
		h->doomed = true;
		h->next = *doomed;
		*doomed = h;
		return;
	}
	/* An event that is no more than possible accuses no library. */
	if (ev->flags & KEDGE_EVENT_UNSURE)
		return;
	table_gone(h->slot, ev->kind == KEDGE_EVENT_REMOVE ? TABLE_DROP :
		   ev->kind == KEDGE_EVENT_REMAP ? TABLE_MOVE : TABLE_UNMAP, ev->start, ev->end);
	if (h->spans < SPANS)
		h->span[h->spans++] = (struct span){ ev->start, ev->end, ev->kind, 0 };
	/* Once is enough: one that was told is off the list. */
	if (h->spans > 1)
		return;
	h->next = changed;
	h->back = &changed;
	if (changed)
		changed->back = &h->next;
	changed = h;
}

static void take_events(struct kedge_notifier *nf)
{
	struct held *doomed, *next;
	struct kedge_event ev[EVENTS];
	ssize_t n, i;

	do {
		doomed = NULL;
		n = kedge_notifier_read(nf, ev, EVENTS);
		for (i = 0; i < n; i++) {
			if (ev[i].kind == KEDGE_EVENT_LAST)
				atomic_store(&clean, ev[i].generation);
			else
				note(&ev[i], &doomed);
		}
		for (; doomed; doomed = next) {
			next = doomed->next;
			end_watch(doomed);
		}
	} while (n == EVENTS);
}

/* A change shows here once its call has returned, which is early enough to tell of it. In a forked
 * child the generation is not one of the parent's. */
static bool is_as_it_was(struct kedge_notifier *nf)
{
	return nf && kedge_notifier_generation(nf) == atomic_load(&clean);
}

/* Take the lock, and what has happened. A forked child is told from its parent before the lock is
 * taken, which another thread of the parent's may have had. */
static void enter(void)
{
	struct kedge_notifier *nf = atomic_load(&notifier);
	bool unchanged = is_as_it_was(nf);

	if (!unchanged)
		owner_adopt(&owner, anew);
	pthread_mutex_lock(&lock);
	if (!asked) {
		domains_used();
		atomic_store(&notifier, table_traced() ? NULL : domains_notifier());
		asked = true;
	}
	nf = atomic_load(&notifier);
	if (!unchanged && nf)
		take_events(nf);
	/* A look costs a system call a change, and a program may register often: now and then. */
	if (changed && (!unchanged || clock_ns() - looked > LOOK_NS))
		look_at_changed(false);
}

static void leave(void)
{
	char *text = unsaid;

	unsaid = NULL;
	pthread_mutex_unlock(&lock);
	library_say(text);
}

/* ---- registrations ---- */

static bool insert(struct held *h)
{
	struct held **node = tsearch(h, &by_mr, cmp_mr), *old;

	if (!node)
		return false;
	/* One that went with its device has left its address to another. */
	old = *node;
	*node = h;
	if (old != h)
		let_go(old);
	return true;
}

static bool follow(const struct ibv_mr *mr, uint64_t iova, struct library *by)
{
	struct held *h = by ? begin_watch(by, (uintptr_t)mr->addr, mr->length) : NULL;

	if (!h)
		return false;
	h->by = by;
	h->mr = mr;
	if (insert(h)) {
		h->slot = table_add(&(struct table_range){ h->at, h->len, iova, mr->context,
							   mr->lkey, mr->rkey, by->name });
		return !h->unwatched || (h->slot && table_traced());
	}
	end_watch(h);
	return false;
}

bool held_is_served(const void *caller)
{
	bool was = inside, served;
	const struct library *by;
	int err = errno;

	inside = true;
	enter();
	by = library_of(caller, &lock);
	served = !by || !by->coherent;
	leave();
	inside = was;
	errno = err;
	return served;
}

static void count(const struct ibv_mr *mr, uint64_t iova, struct library *by)
{
	const bool is_followed = mr->length && follow(mr, iova, by);

	if (by && by->coherent)
		left_to_fi++;
	else if (is_followed)
		followed++;
	else
		not_followed++;
}

bool held_begin(const struct ibv_mr *mr, uint64_t iova, const void *caller)
{
	bool was = inside, first;
	int err = errno;

	inside = true;
	enter();
	count(mr, iova, library_of(caller, &lock));
	first = !begun;
	begun = true;
	leave();
	inside = was;
	errno = err;
	return first;
}

void held_end(const struct ibv_mr *mr)
{
	struct held key = { .mr = mr }, *h;
	bool was = inside;
	int err = errno;

	inside = true;
	enter();
	h = found(tfind(&key, &by_mr, cmp_mr));
	if (h) {
		tdelete(h, &by_mr, cmp_mr);
		take_gone(h);
		if (h->back || table_traced())
			look_at(h, true);
		let_go(h);
	}
	leave();
	inside = was;
	errno = err;
}

void held_look(void)
{
	bool was = inside;
	int err = errno;

	if (is_as_it_was(atomic_load(&notifier)))
		return;
	inside = true;
	enter();
	leave();
	inside = was;
	errno = err;
}

static void look_at_node(const void *node, VISIT visit, void *arg)
{
	struct held *h = *(struct held *const *)node;

	(void)arg;
	if (visit != postorder && visit != leaf)
		return;
	take_gone(h);
	if (table_traced())
		look_at(h, true);
}

void held_report(FILE *f)
{
	enter();
	look_at_changed(true);
	twalk_r(by_mr, look_at_node, NULL);
	if (f) {
		fprintf(f, "held %llu %llu %llu\n", (unsigned long long)followed,
			(unsigned long long)not_followed, (unsigned long long)left_to_fi);
		library_report(f);
	}
	leave();
}
