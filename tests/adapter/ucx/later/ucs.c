// SPDX-License-Identifier: BSD-2-Clause
/*
 * libucs's: see standin.h. Events are kept and met by the next ucs_rcache_get(), as UCX 1.17 and
 * later have it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "standin.h"

static int options[32] = { 4, 1, 2, [31] = 31 };

__attribute__((constructor)) static void begin(void)
{
	const char *wanted = getenv("UCX_MEM_MMAP_HOOK_MODE");
	int mode = options[2];

	if (wanted && strcmp(wanted, "bistro"))
		mode = !strcmp(wanted, "reloc");
	options[2] = mode;
	ucm_set_global_opts(options);
	if (options[2] != mode)
		abort(); /* it is libucs's, and stays */
}

/* Called with ucm's lock: memory comes from no malloc(). */
static void keep(void *arg, uintptr_t start, uintptr_t end)
{
	struct ucs_rcache *c = arg;
	struct event *e;

	e = ucm_orig_mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e == MAP_FAILED)
		return;
	pthread_mutex_lock(&c->lock);
	*e = (struct event){ c->events, start, end };
	/* The inlined lookup reads it without the lock, as UCX's does. */
	__atomic_store_n(&c->events, e, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&c->lock);
}

int ucs_rcache_create(const void *params, const char *name, void *stats, struct ucs_rcache **cache)
{
	struct ucs_rcache *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	snprintf(c->name, sizeof(c->name), "%s", name);
	pthread_rwlock_init(&c->table_lock, NULL);
	pthread_mutex_init(&c->lock, NULL);
	standin_handle(keep, c);
	*cache = c;
	RETURN(0);
}

static void end_region(struct region *r)
{
	struct dereg_params p = { .field_mask = 1, .memh = r->memh };

	if (r->memh)
		uct_md_mem_dereg_v2(r->md, &p);
	free(r);
}

/* With the table's lock. */
static void remove_region(struct ucs_rcache *c, struct region *r)
{
	struct region **at = &c->table.first;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	r->in_table = false;
	if (!__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL))
		end_region(r);
}

static void remove_range(struct ucs_rcache *c, uintptr_t start, uintptr_t end)
{
	struct region *r, *next;

	for (r = c->table.first; r; r = next) {
		next = r->next;
		if (r->start < end && start < r->end)
			remove_region(c, r);
	}
}

static void meet_events(struct ucs_rcache *c)
{
	struct event *e, *next;

	pthread_mutex_lock(&c->lock);
	e = c->events;
	__atomic_store_n(&c->events, NULL, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&c->lock);
	for (; e; e = next) {
		next = e->next;
		remove_range(c, e->start, e->end);
		munmap(e, PAGE);
	}
}

struct region *ucs_pgtable_lookup(const struct table *table, uintptr_t at)
{
	struct region *r;

	for (r = table->first; r && (at < r->start || at >= r->end); r = r->next)
		;
	return r;
}

int ucs_rcache_get(struct ucs_rcache *c, void *at, size_t len, size_t align, int prot, void *arg,
		   struct region **region)
{
	uintptr_t start = (uintptr_t)at, end = start + len;
	struct region *r;

	if (align != 64 || prot != 3 || arg != c)
		RETURN(-5); /* not all arguments have come */
	pthread_rwlock_wrlock(&c->table_lock);
	meet_events(c);
	r = ucs_pgtable_lookup(&c->table, start);
	if (!r || end > r->end) {
		/* It takes those in that it overlaps or that are beside it. */
		for (r = c->table.first; r; r = r->next) {
			if (r->start <= end && start <= r->end) {
				start = r->start < start ? r->start : start;
				end = r->end > end ? r->end : end;
			}
		}
		remove_range(c, start, end);
		r = calloc(1, sizeof(*r));
		if (!r)
			abort();
		*r = (struct region){ .next = c->table.first, .start = start, .end = end,
				      .refs = 1, .in_table = true };
		c->table.first = r;
	}
	__atomic_add_fetch(&r->refs, 1, __ATOMIC_ACQ_REL);
	pthread_rwlock_unlock(&c->table_lock);
	*region = r;
	RETURN(0);
}

void ucs_rcache_region_put(struct ucs_rcache *c, struct region *r)
{
	if (!__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL))
		end_region(r);
}

void ucs_rcache_destroy(struct ucs_rcache *c)
{
	standin_handle(NULL, c);
	meet_events(c);
	remove_range(c, 0, UINTPTR_MAX);
	pthread_rwlock_destroy(&c->table_lock);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
