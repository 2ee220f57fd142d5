// SPDX-License-Identifier: BSD-2-Clause
/*
 * Areas: pages that are registered before a message needs them. It lands there, so the
 * CTS goes out at once; then the pages are put under the buffer by one mremap(), which
 * moves pinned pages too, and whole page tables where the addresses are congruent.
 *
 * An area is for one message at a time. It is READY (mapped, with pages, registered),
 * LENT, or SPENT: its pages have gone to a buffer, and its registration, which names
 * them still, gives nobody any right. While the next message lands, a spent one is
 * made anew: deregistered, mapped, filled with pages, registered. So a stream of
 * messages finds one ready each time, and the receiver's thread does that work while
 * the adapter writes.
 *
 * The registration goes along with the pages, where the cache can follow
 * (kedge__cache_adopt()): it is one of the buffer's then, kept for the next message into it, and a
 * spent area has none. It covers all pages of the area: those that did not move belong
 * to nobody from then on, and are pinned as long as it is kept. So an area has pages
 * where the last message's did, and some before and behind, as the next buffer of an
 * allocator lies a little further; all of it where that is little, compared with the
 * message, or where buffers have come at other offsets.
 *
 * Bounds: areas pin at most kedge_channel_opts.pool_bytes, those that are spent
 * included; what has gone along counts as the cache's. Where RLIMIT_MEMLOCK allows
 * less, registrations that nobody holds go first, and then messages take another way.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel/rdma/internal.h"
#include "pages/swap.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Pages before and behind the last message's. */
#define SLACK ((size_t)64 * 1024)
/* From here on an area has pages everywhere. */
#define WHOLE_MIN ((size_t)8 << 20)

enum state {
	AREA_READY,
	AREA_LENT,
	AREA_SPENT,
};

struct rdma_area {
	struct list node; /* r->areas */
	char *map;
	size_t map_len;
	char *at; /* aligned like a huge page */
	size_t len;
	size_t off; /* where its pages begin, and how many bytes they are */
	size_t pages;
	void *reg;
	enum state state;
	bool looked, alike; /* of the buffer that it is lent for */
	struct rdma_adoption adoption; /* of its registration, by the cache */
};

static struct rdma_area *area_of(struct list *l)
{
	return list_entry(l, struct rdma_area, node);
}

/* ---- making ---- */

/* An area gets pages for a message like the last one. */
static void choose_pages(const struct rdma *r, struct rdma_area *a)
{
	size_t end = round_up(r->area_off + r->area_need + SLACK, SLACK);

	a->off = 0;
	a->pages = a->len;
	if (r->area_whole || r->area_need >= WHOLE_MIN)
		return;
	if (r->area_off > SLACK)
		a->off = round_down(r->area_off - SLACK, SLACK);
	a->pages = (end < a->len ? end : a->len) - a->off;
}

static int map_anew(char *at, size_t len, int prot)
{
	return mmap(at, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED |
		    (prot ? 0 : MAP_NORESERVE), -1, 0) == MAP_FAILED ? -errno
								     : 0;
}

/* Plain memory, like an application's own, which it is going to be; but a forked child
 * does without it, as pages that are pinned would be copied for it. */
static int map_pages(struct rdma_area *a)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *at = a->at + a->off;
	size_t i;
	int rc;

	/* Without what was there before. */
	rc = a->pages != a->len ? map_anew(a->at, a->len, PROT_NONE) : 0;
	if (!rc)
		rc = map_anew(at, a->pages, PROT_READ | PROT_WRITE);
	if (rc)
		return rc;
	madvise(at, a->pages, MADV_DONTFORK);
	if (!madvise(at, a->pages, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* Linux before 5.14 */
	for (i = 0; i < a->pages; i += page)
		*(volatile char *)(at + i) = 0;
	return 0;
}

static int reg_pages(struct rdma *r, struct rdma_area *a)
{
	return r->port->reg(r, a->at + a->off, a->pages,
			    KEDGE_ACCESS_LOCAL_WRITE, &a->reg);
}

static int fill(struct rdma *r, struct rdma_area *a)
{
	int rc;

	choose_pages(r, a);
	rc = map_pages(a);
	if (rc)
		return rc;
	rc = reg_pages(r, a);
	/* The limit may be used up by registrations that nobody holds. */
	while (rc && kedge__rdma_relieve(r, a->pages))
		rc = reg_pages(r, a);
	return rc;
}

static void area_free(struct rdma *r, struct rdma_area *a)
{
	list_remove(&a->node);
	r->areas_len -= a->len;
	kedge__rdma_adopt_end(&a->adoption, 0);
	if (a->reg)
		r->port->dereg(r, a->reg);
	munmap(a->map, a->map_len);
	free(a);
}

static struct rdma_area *area_new(struct rdma *r, size_t len)
{
	struct rdma_area *a;
	int rc;

	if (len > r->areas_max - r->areas_len)
		return NULL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	list_init(&a->node);
	a->len = len;
	a->map_len = len + r->area_unit;
	a->map = mmap(NULL, a->map_len, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->map == MAP_FAILED) {
		free(a);
		return NULL;
	}
	a->at = (char *)round_up((uintptr_t)a->map, r->area_unit);
	list_add_tail(&r->areas, &a->node);
	r->areas_len += len;
	rc = fill(r, a);
	if (!rc)
		return a;
	kedge__log(KEDGE_LOG_WARN,
		   "no landing pages of %zu bytes (%s): messages are copied, "
		   "or their buffers registered", len, kedge_strerror(rc));
	/* Not tried again for each message. */
	r->areas_max = r->areas_len - len;
	area_free(r, a);
	return NULL;
}

/* An area anew, that is not LENT. False: it is gone. */
static bool renew(struct rdma *r, struct rdma_area *a)
{
	if (a->reg)
		r->port->dereg(r, a->reg);
	a->reg = NULL;
	if (fill(r, a)) {
		area_free(r, a);
		return false;
	}
	a->state = AREA_READY;
	return true;
}

/* ---- the ops ---- */

/* For a message like the last one. */
static bool serves(const struct rdma *r, const struct rdma_area *a)
{
	return a->state == AREA_READY && r->area_off >= a->off &&
	       r->area_off + r->area_need <= a->off + a->pages;
}

static struct rdma_area *find_ready(const struct rdma *r)
{
	struct rdma_area *a, *best = NULL;
	struct list *l;

	for (l = r->areas.next; l != &r->areas; l = l->next) {
		a = area_of(l);
		if (serves(r, a) && (!best || a->pages < best->pages))
			best = a;
	}
	return best;
}

/* The smallest that can be made anew for such a message. */
static struct rdma_area *find_idle(const struct rdma *r)
{
	struct rdma_area *a, *best = NULL;
	struct list *l;

	for (l = r->areas.next; l != &r->areas; l = l->next) {
		a = area_of(l);
		if (a->state != AREA_LENT && a->len >= r->area_len &&
		    !serves(r, a) && (!best || a->len < best->len))
			best = a;
	}
	return best;
}

/* Areas that are too small are in the way of larger ones. */
static void drop_smaller(struct rdma *r, size_t len)
{
	struct list *l, *tmp;
	struct rdma_area *a;

	list_for_each_safe(l, tmp, &r->areas) {
		a = area_of(l);
		if (len > r->areas_max - r->areas_len && a->len < len &&
		    a->state != AREA_LENT)
			area_free(r, a);
	}
}

/* One made while a message waits. */
static struct rdma_area *make(struct rdma *r)
{
	struct rdma_area *a = find_idle(r);

	/* It has pages, at another offset: there may be more of those. */
	if (a && a->state == AREA_READY)
		r->area_whole = true;
	if (a)
		return renew(r, a) ? a : NULL;
	drop_smaller(r, r->area_len);
	return area_new(r, r->area_len);
}

void *kedge__rdma_area_take(void *ctx, const char *buf, size_t len, char **addr)
{
	struct rdma *r = ctx;
	struct rdma_area *a;

	if (!r->area_unit)
		r->area_unit = kedge__pages_huge_len();
	r->area_off = (uintptr_t)buf & (r->area_unit - 1);
	r->area_need = len;
	/* So that it serves wherever the next buffer of that length lies. */
	r->area_len = round_up(len, r->area_unit) + r->area_unit;
	if (r->err || r->area_len > r->areas_max)
		return NULL;
	a = find_ready(r);
	if (!a)
		a = make(r);
	if (!a)
		return NULL;
	a->state = AREA_LENT;
	a->looked = a->alike = false;
	*addr = a->at + r->area_off;
	return a;
}

/* Finds out if the whole pages of [to, to + len) may be replaced. */
static void look(struct rdma *r, struct rdma_area *a, char *to, size_t len)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t start = round_up((uintptr_t)to, page);
	const uintptr_t end = round_down((uintptr_t)to + len, page);
	char *from = a->at + (start & (r->area_unit - 1));

	a->looked = true;
	/* A child is to have it as it has the rest of the application's. */
	madvise(from, end - start, MADV_DOFORK);
	a->alike = !kedge__pages_alike((void *)start, from, end - start);
	/* Not for the pages of a much longer message, which would stay pinned. The last,
	 * as the watch shows on the mapping. */
	if (a->alike && a->pages - len <= len / 2)
		kedge__rdma_adopt(r, &a->adoption, a->reg, a->at + a->off,
				  a->pages, from, end - start);
}

bool kedge__rdma_area_meanwhile(void *ctx, void *area, char *to, size_t len)
{
	struct rdma_area *a = area, *spent;
	struct rdma *r = ctx;

	if (!a->looked) {
		look(r, a, to, len);
		return true;
	}
	if (find_ready(r))
		return false;
	spent = find_idle(r);
	if (spent)
		return renew(r, spent);
	return area_new(r, r->area_len);
}

/*
 * The pages from @at on that are there, or are not. Pages that are there could be
 * pinned, by a device that is not kedge's: replaced, its registration would go on
 * naming pages that are not the application's any more.
 */
static size_t run_of(char *at, size_t len, bool there)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char resident[1024];
	size_t n, part, i;

	for (n = 0; n < len; n += part) {
		part = sizeof(resident) * page;
		if (part > len - n)
			part = len - n;
		if (mincore(at + n, part, resident))
			return n;
		for (i = 0; i < part / page; i++)
			if ((resident[i] & 1) != there)
				return n + i * page;
	}
	return len;
}

/*
 * The part of a new buffer that has no pages yet. The ends may have some: a huge page came with
 * malloc()'s own first touch, or with a neighbour's. False: it is not new.
 */
static bool bare_part(char *to, size_t len, size_t *start, size_t *end)
{
	*start = run_of(to, len, true);
	*end = *start + run_of(to + *start, len - *start, false);
	return *end > *start && run_of(to + *end, len - *end, true) == len - *end;
}

int kedge__rdma_area_move(void *ctx, void *area, char *to, char *from,
			  size_t len)
{
	struct rdma_area *a = area;
	struct rdma *r = ctx;
	size_t start, end;
	int rc;

	if (!bare_part(to, len, &start, &end))
		return -EBUSY;
	/* It landed before there was time to look. */
	if (!a->looked)
		look(r, a, to, len);
	if (!a->alike)
		return -EOPNOTSUPP;
	memcpy(to, from, start);
	memcpy(to + end, from + end, len - end);
	rc = kedge__rdma_replace(&a->adoption, to + start, from + start,
				 end - start);
	if (rc)
		return rc;
	a->state = AREA_SPENT;
	if (kedge__rdma_adopt_end(&a->adoption, (uintptr_t)from + start))
		a->reg = NULL;
	return 0;
}

void kedge__rdma_area_give(void *ctx, void *area, bool quiet)
{
	struct rdma_area *a = area;
	struct rdma *r = ctx;

	/* A peer that may write there still has lost its connection, or will. */
	(void)quiet;
	kedge__rdma_adopt_end(&a->adoption, 0);
	if (r->err)
		area_free(r, a);
	else if (a->state == AREA_LENT)
		a->state = AREA_READY;
}

bool kedge__rdma_areas_trim(struct rdma *r)
{
	struct list *l, *tmp;
	bool any = false;

	list_for_each_safe(l, tmp, &r->areas)
		if (area_of(l)->state != AREA_LENT && area_of(l)->reg) {
			area_free(r, area_of(l));
			any = true;
		}
	return any;
}

void *kedge__rdma_area_reg(struct rdma *r, uint64_t addr, uint64_t len,
			   struct rdma_target *all)
{
	struct rdma_area *a;
	struct list *l;

	for (l = r->areas.next; l != &r->areas; l = l->next) {
		a = area_of(l);
		all->addr = (uintptr_t)a->at + a->off;
		all->len = a->pages;
		if (a->state == AREA_LENT && addr >= all->addr &&
		    len <= all->len && addr - all->addr <= all->len - len)
			return a->reg;
	}
	return NULL;
}

void kedge__rdma_areas_free(struct rdma *r)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &r->areas)
		area_free(r, area_of(l));
}
