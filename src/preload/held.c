// SPDX-License-Identifier: BSD-2-Clause
/*
 * See held.h. No thread waits for events: they are read when the program registers,
 * deregisters and ends. A thread of ours would be a second one in programs that have one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/owner.h"
#include "preload/held.h"
#include "preload/preload.h"

#define EVENTS 64

/* A library, or the program itself. */
struct library {
	struct library *next;
	uint64_t stale;
	bool coherent; /* it knows, and makes no use of what has gone */
	char name[];
};

/* Where calls come from, as dladdr() goes through all symbols of a library. Another library at
 * the place of one that was unloaded gets its name. */
#define CALLERS 32u
static struct {
	const void *at;
	struct library *by;
} callers[CALLERS];

struct held {
	const struct ibv_mr *mr;
	struct library *by;
	uint64_t cookie;
	uintptr_t start; /* what has changed of it, while it is on the list */
	uintptr_t end;
	uint32_t kind;
	struct held *next; /* of the list */
};

static _Atomic int owner; /* the process that all of this belongs to */
/* Guards what follows; that of the domains is taken within it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *by_mr, *by_cookie; /* trees of tsearch()'s */
static struct held *changed;
static struct library *libraries;
static uint64_t cookies, followed, not_followed;
static uint64_t clean; /* the generation at which no event was left */

/* A forked child holds the parent's registrations, which its own notifier does not watch. */
static void anew(void)
{
	pthread_mutex_init(&lock, NULL);
	by_mr = by_cookie = NULL;
	changed = NULL;
	libraries = NULL;
	memset(callers, 0, sizeof(callers));
	clean = followed = not_followed = 0;
}

static int cmp_mr(const void *a, const void *b)
{
	const struct held *l = a, *r = b;

	return l->mr < r->mr ? -1 : l->mr > r->mr;
}

static int cmp_cookie(const void *a, const void *b)
{
	const struct held *l = a, *r = b;

	return l->cookie < r->cookie ? -1 : l->cookie > r->cookie;
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

static const char *kind_name(uint32_t kind)
{
	switch (kind) {
	case KEDGE_EVENT_UNMAP:
		return "unmapped";
	case KEDGE_EVENT_REMOVE:
		return "dropped";
	case KEDGE_EVENT_REMAP:
		return "moved elsewhere";
	}
	return "changed";
}

static void tell(const struct held *h)
{
	fprintf(stderr,
		"kedge: %s holds a registration whose pages have gone (%#lx to %#lx, %s), so an "
		"adapter reads and writes pages that the program has no more: %s\n",
		h->by->name, (unsigned long)h->start, (unsigned long)h->end, kind_name(h->kind),
		remedy(h->by->name));
}

/* ---- events, with the lock ---- */

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
	if (!h->by->coherent && !h->by->stale++)
		tell(h);
	return true;
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

static void note(const struct kedge_event *ev)
{
	struct held key = { .cookie = ev->cookie };
	struct held *h = found(tfind(&key, &by_cookie, cmp_cookie));

	/* Once is enough: it has gone for good. What is no more than possible is not told. */
	if (!h || h->end || ev->flags & KEDGE_EVENT_UNSURE)
		return;
	h->start = ev->start;
	h->end = ev->end;
	h->kind = ev->kind;
	h->next = changed;
	changed = h;
}

static void take_events(struct kedge_notifier *nf)
{
	struct kedge_event ev[EVENTS];
	ssize_t n, i;

	if (kedge_notifier_unchanged(nf, clean) == 1)
		return;
	do {
		n = kedge_notifier_read(nf, ev, EVENTS);
		for (i = 0; i < n; i++) {
			if (ev[i].kind == KEDGE_EVENT_LAST)
				clean = ev[i].generation;
			else
				note(&ev[i]);
		}
	} while (n == EVENTS);
}

static void look(struct kedge_notifier *nf)
{
	if (nf)
		take_events(nf);
	look_at_changed();
}

/* ---- registrations ---- */

static bool insert(struct held *h)
{
	if (!tsearch(h, &by_mr, cmp_mr))
		return false;
	if (tsearch(h, &by_cookie, cmp_cookie))
		return true;
	tdelete(h, &by_mr, cmp_mr);
	return false;
}

static bool follow(struct kedge_notifier *nf, const struct ibv_mr *mr, const void *caller)
{
	struct held *h = calloc(1, sizeof(*h));

	if (!h)
		return false;
	h->mr = mr;
	h->cookie = ++cookies;
	h->by = library_of(caller);
	if (h->by && kedge_watch_add(nf, mr->addr, mr->length, h->cookie) >= 0) {
		if (insert(h))
			return true;
		kedge_watch_remove(nf, h->cookie);
	}
	free(h);
	return false;
}

void held_begin(const struct ibv_mr *mr, const void *caller)
{
	struct kedge_notifier *nf;
	bool was = inside;
	int err = errno;

	inside = true;
	owner_adopt(&owner, anew);
	nf = domains_notifier();
	pthread_mutex_lock(&lock);
	look(nf);
	if (nf && mr->length && follow(nf, mr, caller))
		followed++;
	else
		not_followed++;
	pthread_mutex_unlock(&lock);
	inside = was;
	errno = err;
}

static void off_list(const struct held *h)
{
	struct held **at = &changed;

	while (*at && *at != h)
		at = &(*at)->next;
	if (*at)
		*at = h->next;
}

void held_end(const struct ibv_mr *mr)
{
	struct held key = { .mr = mr }, *h;
	struct kedge_notifier *nf;
	bool was = inside;
	int err = errno;

	inside = true;
	owner_adopt(&owner, anew);
	pthread_mutex_lock(&lock);
	h = found(tfind(&key, &by_mr, cmp_mr));
	if (h) {
		nf = domains_notifier();
		look(nf);
		off_list(h);
		tdelete(h, &by_mr, cmp_mr);
		tdelete(h, &by_cookie, cmp_cookie);
		if (nf)
			kedge_watch_remove(nf, h->cookie);
		free(h);
	}
	pthread_mutex_unlock(&lock);
	inside = was;
	errno = err;
}

void held_report(FILE *f)
{
	const struct library *l;

	owner_adopt(&owner, anew);
	pthread_mutex_lock(&lock);
	if (followed)
		look(domains_notifier());
	if (f)
		fprintf(f, "held %llu %llu\n", (unsigned long long)followed,
			(unsigned long long)not_followed);
	for (l = libraries; f && l; l = l->next)
		fprintf(f, "stale %llu %s\n", (unsigned long long)l->stale, l->name);
	pthread_mutex_unlock(&lock);
}
