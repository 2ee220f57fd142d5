// SPDX-License-Identifier: BSD-2-Clause
/*
 * See held.h. No thread waits for events: they are read when the program registers,
 * deregisters and ends. A thread of ours would be a second one in programs that have one.
 *
 * A watch begins and ends with some twenty system calls, which is more than a registration
 * from the cache costs. So the watches of ranges that were registered last stay, idle, until
 * they are registered again, have changed, or are too many.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
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
#include "preload/preload.h"
#include "preload/table.h"

#define EVENTS	64
#define BUCKETS 256u /* a power of two */
#define IDLE_MAX 1024u

/* Registrations that outlived their pages, and what had gone of the first of them. */
struct loss {
	uint64_t cnt;
	uint64_t start;
	uint64_t end;
	const char *kind;
};

/* A library, or the program itself. */
struct library {
	struct library *next;
	struct loss stale;
	struct loss used; /* by work requests, which kedge doctor sees */
	uint64_t requests;
	bool coherent; /* it knows, and makes no use of what has gone */
	char name[];
};

/* Callers are remembered, as dladdr() goes through all symbols of a library for each. Another
 * library at the place of one that was unloaded gets its name. */
#define CALLERS 32u
static struct {
	const void *at;
	struct library *by;
} callers[CALLERS];

struct held {
	const struct ibv_mr *mr; /* NULL: idle */
	struct library *by;
	uintptr_t at;
	size_t len;
	uintptr_t start; /* what has changed of it, while it is on that list */
	uintptr_t end;
	uint32_t kind;
	bool doomed; /* it was idle, and its watch ends */
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
static struct library *libraries;
static uint64_t followed, not_followed;

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
	libraries = NULL;
	memset(callers, 0, sizeof(callers));
	idle_cnt = 0;
	followed = not_followed = 0;
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

/* ---- what is told ---- */

/* Without the lock: a thread that loads a library, and registers in its constructor, waits for
 * that with the lock that dladdr() takes. */
static const char *name_of(const void *caller)
{
	const char *path = "the program", *slash;
	Dl_info where;

	if (dladdr(caller, &where) && where.dli_fname)
		path = where.dli_fname;
	slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static int is_plug_in(struct dl_phdr_info *lib, size_t size, void *path)
{
	static const char name[] = "/libkedge-fi.so";
	const size_t len = strlen(lib->dlpi_name), end = sizeof(name) - 1;

	(void)size;
	if (len < end || strcmp(lib->dlpi_name + len - end, name) != 0)
		return 0;
	*(const char **)path = lib->dlpi_name;
	return 1;
}

/* libfabric's cache asks libkedge-fi, and holds for a moment what it will not use. */
static bool is_coherent(const char *name)
{
	const char *path = NULL;
	bool (*watches)(void);
	void *lib;

	if (strncmp(name, "libfabric", 9) != 0 || !dl_iterate_phdr(is_plug_in, &path))
		return false;
	lib = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (!lib)
		return false;
	*(void **)&watches = dlsym(lib, "kedge_fi_watches");
	dlclose(lib);
	/* It is never unloaded. */
	return watches && watches();
}

static struct library *library_named(const char *name, bool coherent)
{
	struct library *l;

	for (l = libraries; l; l = l->next)
		if (!strcmp(l->name, name))
			return l;
	l = calloc(1, sizeof(*l) + strlen(name) + 1);
	if (!l)
		return NULL;
	strcpy(l->name, name);
	l->coherent = coherent;
	l->next = libraries;
	libraries = l;
	return l;
}

/* With the lock, which is let go of meanwhile where the caller is a new one. */
static struct library *library_of(const void *caller)
{
	const size_t at = ((uintptr_t)caller >> 2) % CALLERS;
	const char *name;
	bool coherent;

	if (callers[at].at == caller)
		return callers[at].by;
	pthread_mutex_unlock(&lock);
	name = name_of(caller);
	coherent = is_coherent(name);
	pthread_mutex_lock(&lock);
	callers[at].by = library_named(name, coherent);
	callers[at].at = callers[at].by ? caller : NULL;
	return callers[at].by;
}

static const char *remedy(const char *name)
{
	static const struct {
		const char *prefix, *text;
	} known[] = {
		{ "libuc", "UCX keeps them: set UCX_RCACHE_ENABLE=n UCX_IB_REG_METHODS=direct, as "
			   "kedge run does unless --keep-caches is given" },
		{ "libfabric", "libfabric keeps them: have libkedge-fi watch (kedge info, line "
			       "\"mr-cache\"), or set FI_MR_CACHE_MAX_COUNT=0" },
		{ "mca_", "Open MPI keeps them: set OMPI_MCA_mpi_leave_pinned=0" },
		{ "libopen-", "Open MPI keeps them: set OMPI_MCA_mpi_leave_pinned=0" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (!strncmp(name, known[i].prefix, strlen(known[i].prefix)))
			return known[i].text;
	return "deregister before memory is unmapped or dropped, or ask kedge_cache_get() for each "
	       "transfer (libkedge-verbs)";
}

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

static void tell(const struct held *h)
{
	fprintf(stderr,
		"kedge: %s holds a registration whose pages have gone (%#lx to %#lx, %s), so an "
		"adapter reads and writes pages that the program has no more: %s\n",
		h->by->name, (unsigned long)h->start, (unsigned long)h->end, kind_word(h->kind),
		remedy(h->by->name));
}

/* ---- events, with the lock ---- */

/* True: it is the first. */
static bool add_loss(struct loss *l, uint64_t start, uint64_t end, const char *kind)
{
	if (l->cnt++)
		return false;
	l->start = start;
	l->end = end;
	l->kind = kind;
	return true;
}

static bool is_mapped(uintptr_t at)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	unsigned char in;

	return !mincore((void *)(at & ~(page - 1)), page, &in);
}

static bool is_stale(const struct held *h)
{
	if (!is_mapped(h->start) && !is_mapped(h->end - 1))
		return false;
	if (!h->by->coherent && add_loss(&h->by->stale, h->start, h->end, kind_word(h->kind)))
		tell(h);
	return true;
}

/* Before its slot is given away. */
static void take_use(const struct held *h)
{
	static const char *const words[TABLE_KINDS] = { "unmapped", "dropped", "moved" };
	uint64_t requests = h->slot ? atomic_load(&h->slot->used) : 0;

	if (!requests)
		return;
	h->by->requests += requests;
	add_loss(&h->by->used, atomic_load(&h->slot->gone_start), atomic_load(&h->slot->gone_end),
		 words[atomic_load(&h->slot->kind) % TABLE_KINDS]);
}

static void look_at_changed(void)
{
	struct held **at = &changed, *h;

	while ((h = *at)) {
		if (is_stale(h))
			*at = h->next;
		else
			at = &h->next;
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

static struct held *begin_watch(uintptr_t at, size_t len)
{
	struct held *h = take_idle(at, len);

	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->at = at;
	h->len = len;
	if (atomic_load(&notifier) &&
	    kedge_watch_add(atomic_load(&notifier), (void *)at, len, (uintptr_t)h) >= 0)
		return h;
	h->unwatched = true;
	if (table_asked())
		return h;
	free(h);
	return NULL;
}

static void off_list(const struct held *h)
{
	struct held **at = &changed;

	while (*at && *at != h)
		at = &(*at)->next;
	if (*at)
		*at = h->next;
}

/* No tree knows it any more. */
static void let_go(struct held *h)
{
	take_use(h);
	table_remove(h->slot);
	h->slot = NULL;
	if (h->end)
		off_list(h);
	if (h->end || h->unwatched) {
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
	/* Once is enough: it has gone for good. What is no more than possible is not told. */
	if (h->end || ev->flags & KEDGE_EVENT_UNSURE)
		return;
	table_gone(h->slot, ev->kind == KEDGE_EVENT_REMOVE ? TABLE_DROP :
		   ev->kind == KEDGE_EVENT_REMAP ? TABLE_MOVE : TABLE_UNMAP, ev->start, ev->end);
	h->start = ev->start;
	h->end = ev->end;
	h->kind = ev->kind;
	h->next = changed;
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
	if (!asked)
		atomic_store(&notifier, domains_notifier());
	asked = true;
	nf = atomic_load(&notifier);
	if (!unchanged && nf)
		take_events(nf);
	look_at_changed();
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

static bool follow(const struct ibv_mr *mr, const void *caller)
{
	struct library *by = library_of(caller);
	struct held *h = by ? begin_watch((uintptr_t)mr->addr, mr->length) : NULL;

	if (!h)
		return false;
	h->by = by;
	h->mr = mr;
	if (insert(h)) {
		h->slot = table_add(&(struct table_range){ h->at, h->len, mr->lkey, mr->rkey,
							   by->name });
		return !h->unwatched;
	}
	end_watch(h);
	return false;
}

void held_begin(const struct ibv_mr *mr, const void *caller)
{
	bool was = inside;
	int err = errno;

	inside = true;
	enter();
	if (mr->length && follow(mr, caller))
		followed++;
	else
		not_followed++;
	pthread_mutex_unlock(&lock);
	inside = was;
	errno = err;
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
		let_go(h);
	}
	pthread_mutex_unlock(&lock);
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
	pthread_mutex_unlock(&lock);
	inside = was;
	errno = err;
}

static void print_loss(FILE *f, const char *what, const struct loss *l, const char *name)
{
	if (l->cnt)
		fprintf(f, "%s %llu %llx %llx %s %s\n", what, (unsigned long long)l->cnt,
			(unsigned long long)l->start, (unsigned long long)l->end, l->kind, name);
}

static void take_use_at(const void *node, VISIT visit, void *arg)
{
	(void)arg;
	if (visit == postorder || visit == leaf)
		take_use(*(struct held *const *)node);
}

void held_report(FILE *f)
{
	const struct library *l;

	enter();
	twalk_r(by_mr, take_use_at, NULL);
	if (f)
		fprintf(f, "held %llu %llu\n", (unsigned long long)followed,
			(unsigned long long)not_followed);
	for (l = libraries; f && l; l = l->next) {
		print_loss(f, "stale", &l->stale, l->name);
		print_loss(f, "used", &l->used, l->name);
		if (l->requests)
			fprintf(f, "requests %llu %s\n", (unsigned long long)l->requests, l->name);
	}
	pthread_mutex_unlock(&lock);
}
