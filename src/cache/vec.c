// SPDX-License-Identifier: BSD-2-Clause
/*
 * A range that is registered piece by piece. Each piece is a lookup of its own:
 * it loads the generation before the index, so the proof of get.c holds for it.
 * The kernel is asked once for changes under way, if at all: those that begin
 * during the call are the application's affair.
 */
#include "cache/hit.h"

/* The range, rights and trust of a getv. */
struct ask {
	struct kedge_cache *c;
	uint64_t at; /* from here on it has no piece yet */
	uint64_t end;
	uint32_t access;
	enum trust trust; /* when the call began, or has asked since */
};

/* Serve a->at and what follows by region @id. False: it does not. */
static bool take_run(struct ask *a, uint32_t id, struct kedge_piece *p)
{
	struct region *r = &a->c->regions[id];
	uint64_t stop;

	if (!id)
		return false;
	stop = region_run(a->c, r, a->at, a->end, a->access, a->trust);
	if (stop <= a->at)
		return false;
	*p = (struct kedge_piece){ a->at, stop - a->at, &r->mr };
	return true;
}

static bool piece_hit(struct ask *a, struct thread_rec *rec,
		      struct kedge_piece *p)
{
	struct kedge_cache *c = a->c;
	uint64_t s = enter(rec, modes_of(c));
	uint32_t id = 0;
	bool hit = false;

	if (a->trust != TRUST_NONE && all_handled(c)) {
		id = index_find(c, a->at);
		hit = id < rec->refs_cnt && take_run(a, id, p);
	}
	if (hit)
		add_own(&rec->refs[id], 1);
	leave(rec, s);
	if (hit)
		mark_used(c, container_of(p->mr, struct region, mr));
	else
		count_own(&rec->missed);
	return hit;
}

/* In a cache with a single thread. */
static bool piece_single(struct ask *a, struct kedge_piece *p)
{
	struct kedge_cache *c = a->c;
	uint32_t id = 0;

	if (a->trust != TRUST_NONE && all_handled(c))
		id = index_find(c, a->at);

	if (!take_run(a, id, p))
		return false;
	c->regions[id].refs++;
	mark_used(c, &c->regions[id]);
	count_own(&c->hits);
	return true;
}

/* With the cache caught up. */
static bool piece_again(struct ask *a, struct kedge_piece *p)
{
	struct kedge_cache *c = a->c;
	uint32_t killed = 0, dead = 0, id;
	bool hit;

	pthread_mutex_lock(&c->lock);
	own_rec_grow(c);
	cache_sync(c, &killed);
	id = index_find(c, a->at);
	hit = take_run(a, id, p);
	if (hit)
		ref_own(c, id);
	c->st.hits += hit;
	region_collect(c, &killed, &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	return hit;
}

/*
 * The end of the piece that is to be registered from a->at on: the chunk's end,
 * or where something is registered already that may be believed.
 */
static uint64_t gap_end(const struct ask *a)
{
	uint64_t page = kedge__page_size(), size = a->c->chunk_bytes;
	uint64_t at = round_down(a->at, page), end = round_up(a->end, page);
	uint64_t stop = round_down(at, size) + size;

	if (end < stop)
		stop = end;
	pthread_mutex_lock(&a->c->lock);
	for (at += page; at < stop; at += page) {
		uint32_t id = index_find(a->c, at);

		if (id && region_run(a->c, &a->c->regions[id], at, stop,
				     a->access, a->trust) > at)
			break;
	}
	pthread_mutex_unlock(&a->c->lock);
	return at < stop ? at : stop;
}

static int piece_register(struct ask *a, struct kedge_piece *p)
{
	struct kedge_cache *c = a->c;
	struct want w = { .start = round_down(a->at, kedge__page_size()),
			  .end = gap_end(a),
			  .access = a->access,
			  .hold = true,
			  .evict = true,
			  .trust = a->trust };
	struct region *r;
	uint64_t stop;
	int rc = cache_register(c, &w, &r);

	if (rc)
		return rc;
	stop = w.end < a->end ? w.end : a->end;
	*p = (struct kedge_piece){ a->at, stop - a->at, &r->mr };
	return 0;
}

static int piece_slow(struct ask *a, struct kedge_piece *p)
{
	int saved = cancel_disable(), rc = 0;

	if (a->trust == TRUST_NONE || !piece_again(a, p))
		rc = piece_register(a, p);
	cancel_restore(saved);
	return rc;
}

static int piece_kept(struct ask *a, struct thread_rec *rec,
		      struct kedge_piece *p)
{
	int rc;

	a->trust = trust_at(a->c, a->at, a->trust);
	if (rec ? piece_hit(a, rec, p)
		: modes_of(a->c) & MODE_SINGLE && piece_single(a, p))
		return 0;
	rc = piece_slow(a, p);
	if (rc)
		return rc;
	if (modes_of(a->c) & MODE_VERIFY)
		verify_hit(a->c, container_of(p->mr, struct region, mr),
			   p->addr, p->addr + p->len);
	return 0;
}

/* A window is no longer than what is kept beneath it. */
static int piece_window(struct ask *a, struct thread_rec *rec,
			struct kedge_piece *p, struct region **out)
{
	struct ask local = *a;
	int rc;

	local.access = local_part(a->access);
	rc = piece_kept(&local, rec, p);
	return rc ? rc
		  : lend_over(a->c, container_of(p->mr, struct region, mr),
			      p->addr, p->len, a->access, out);
}

/* Up to what the device registers at once, whole pages where it has no less. */
static int piece_alone(struct ask *a, struct kedge_piece *p,
		       struct region **out)
{
	uint64_t max = a->c->attr.max_len, end = a->end, first = a->at;

	if (max && !(a->c->attr.flags & KEDGE_DEVICE_EXACT)) {
		first = round_down(first, kedge__page_size());
		max = round_down(max, kedge__page_size());
	}
	if (max && end - first > max)
		end = first + max;
	*p = (struct kedge_piece){ .addr = a->at, .len = end - a->at };
	return lend(a->c, p->addr, p->len, a->access, a->trust, out);
}

static int piece_lent(struct ask *a, struct thread_rec *rec,
		      struct kedge_piece *p)
{
	int saved = cancel_disable();
	struct region *r;
	int rc = a->c->dev->ops.bind ? piece_window(a, rec, p, &r)
				     : piece_alone(a, p, &r);

	cancel_restore(saved);
	if (!rc)
		p->mr = &r->mr;
	return rc;
}

static void put_regions(struct kedge_cache *c, const struct kedge_piece *pieces,
			size_t cnt)
{
	size_t i;

	for (i = 0; i < cnt; i++)
		put_region(c, container_of(pieces[i].mr, struct region, mr));
}

static ssize_t fill(struct ask a, struct kedge_piece *pieces, size_t max)
{
	struct thread_rec *rec = own_rec(a.c);
	bool lent = is_lent(a.c, a.access);
	size_t n = 0;
	int rc;

	while (a.at < a.end) {
		rc = n == max ? -ENOBUFS
		     : lent   ? piece_lent(&a, rec, &pieces[n])
			      : piece_kept(&a, rec, &pieces[n]);
		if (rc) {
			put_regions(a.c, pieces, n);
			return rc;
		}
		a.at += pieces[n++].len;
	}
	return (ssize_t)n;
}

/* Tickets for @n regions, or -ENOMEM with all of them put. */
static ssize_t give_tickets(struct kedge_cache *c, struct kedge_piece *pieces, ssize_t n,
			    const void *site)
{
	ssize_t i;

	for (i = 0; i < n; i++)
		if (ticket_give(c, container_of(pieces[i].mr, struct region, mr), site,
				&pieces[i].mr)) {
			kedge_cache_putv(c, pieces, (size_t)i);
			put_regions(c, pieces + i, (size_t)(n - i));
			return -ENOMEM;
		}
	return n;
}

#define MANY_CHUNKS 4 /* worth the threads of a hint */

ssize_t kedge_cache_getv(struct kedge_cache *c, const void *addr, size_t len,
			 uint32_t access, struct kedge_piece *pieces,
			 size_t max)
{
	struct ask a = { c, (uintptr_t)addr, (uintptr_t)addr + len, access };
	ssize_t n;
	int rc;

	if (!c || !pieces)
		return kedge_reason(-EINVAL, "the cache or the result pointer "
					     "is NULL");
	rc = cache_check_args(c, a.at, len, access);
	if (!rc)
		rc = check_thread(c);
	if (rc)
		return rc;
	a.trust = index_find(c, a.at) ? notify_settle(c->nf) : notify_settle_now(c->nf);
	if (len / c->chunk_bytes >= MANY_CHUNKS && !index_find(c, a.at))
		cache_hint(c, addr, len, access, true);
	n = fill(a, pieces, max);
	if (n == -ENOBUFS) {
		/* Holes make pieces. Without holes this changes no region. */
		cache_hint(c, addr, len, access, true);
		n = fill(a, pieces, max);
	}
	if (modes_of(c) & MODE_TICKETS)
		n = give_tickets(c, pieces, n, CALL_SITE);
	if (n < 0)
		count_failure(c);
	if (n == -ENOBUFS)
		return kedge_reason(-ENOBUFS, "%zu bytes in chunks of %llu take "
				    "more than %zu pieces", len,
				    (unsigned long long)c->chunk_bytes, max);
	return n;
}

void kedge_cache_putv(struct kedge_cache *c, const struct kedge_piece *pieces,
		      size_t cnt)
{
	size_t i;

	for (i = 0; c && pieces && i < cnt; i++)
		kedge_cache_put(c, pieces[i].mr);
}
