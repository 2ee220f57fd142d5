// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ranges that the program vouches for: registrations of memory that no notifier can watch are kept
 * there, on its word, until it takes that back. What libkedge-hooks announces there is heeded all
 * the same, as is what is announced by kedge_hook_begin().
 */
#include <stdlib.h>

#include "cache/internal.h"

struct vouch {
	struct tree_node node;
};

static struct vouch *vouch_of(struct tree_node *n)
{
	return container_of(n, struct vouch, node);
}

/* Marked with the lock held, so that a promise that ends now finds the region. */
bool vouch_region(struct kedge_cache *c, struct region *r)
{
	uint64_t start = r->mr.addr, end = start + r->mr.len;
	struct tree_node *n;
	bool all = false;

	pthread_mutex_lock(&c->lock);
	for (n = tree_first_overlap(&c->vouches, start, end); n && !all;
	     n = tree_next_overlap(n, start, end))
		all = n->start <= start && n->end >= end;
	cold_of(c, r)->vouched = all;
	pthread_mutex_unlock(&c->lock);
	return all;
}

static int check(struct kedge_cache *c, const void *addr, size_t len)
{
	int rc;

	if (!c)
		return kedge_reason(-EINVAL, "the cache is NULL");
	rc = cache_check_args(c, (uintptr_t)addr, len, 0);
	return rc ? rc : check_thread(c);
}

static struct tree_node range_of_pages(const void *addr, size_t len)
{
	size_t page = kedge__page_size();
	uint64_t start = (uintptr_t)addr;

	return (struct tree_node){ .start = round_down(start, page),
				   .end = round_up(start + len, page) };
}

int kedge_cache_vouch(struct kedge_cache *c, const void *addr, size_t len)
{
	struct vouch *v;
	int rc = check(c, addr, len);

	if (rc)
		return rc;
	v = malloc(sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->node = range_of_pages(addr, len);
	pthread_mutex_lock(&c->lock);
	tree_insert(&c->vouches, &v->node);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static void kill_vouched(struct kedge_cache *c, const struct tree_node *range,
			 uint32_t *killed)
{
	uint32_t id;

	for (id = 1; id < c->ids_used; id++) {
		struct region_cold *cold = cold_at(c, id);
		struct region *r = &c->regions[id];
		uint32_t state = state_of(r);

		if (!cold->vouched || r->mr.addr >= range->end ||
		    range->start >= r->mr.addr + r->mr.len)
			continue;
		if (is_whole(state) || is_holed(state))
			region_kill(c, r, WHY_UNWANTED, killed);
		if (state != REGION_MAKING)
			continue;
		/* A region that loses pages while it is made is not kept. */
		cold->spoiled_start = r->mr.addr;
		cold->spoiled_end = r->mr.addr + r->mr.len;
	}
}

static struct vouch *take(struct kedge_cache *c, const struct tree_node *range)
{
	struct tree_node *n = tree_first_overlap(&c->vouches, range->start, range->end);

	while (n && (n->start != range->start || n->end != range->end))
		n = tree_next_overlap(n, range->start, range->end);
	if (!n)
		return NULL;
	tree_remove(&c->vouches, n);
	return vouch_of(n);
}

int kedge_cache_unvouch(struct kedge_cache *c, const void *addr, size_t len)
{
	uint32_t killed = 0, dead = 0;
	struct tree_node range;
	struct vouch *v;
	int rc = check(c, addr, len), saved;

	if (rc)
		return rc;
	range = range_of_pages(addr, len);
	saved = cancel_disable();
	pthread_mutex_lock(&c->lock);
	v = take(c, &range);
	if (v)
		kill_vouched(c, &range, &killed);
	region_collect(c, &killed, &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	cancel_restore(saved);
	free(v);
	return v ? 0
		 : kedge_reason(-ENOENT, "no kedge_cache_vouch() of 0x%llx + %zu",
				(unsigned long long)(uintptr_t)addr, len);
}

void vouches_free(struct kedge_cache *c)
{
	struct tree_node *n;

	while ((n = tree_first(&c->vouches))) {
		tree_remove(&c->vouches, n);
		free(vouch_of(n));
	}
}
