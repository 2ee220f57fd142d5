// SPDX-License-Identifier: BSD-2-Clause
/*
 * Registrations of memory that an allocator has taken back.
 *
 * free() mostly keeps the pages, and the next malloc() hands them out again. So a
 * registration stays: it is REGION_FREED, which makes it the first to be evicted, and
 * REGION_ASK where libc does not announce any more what becomes of all its pages.
 * Both end at the next lookup that may believe it: where the memory is known again
 * (origin_known()), once the kernel has said that no change is under way.
 *
 * free() waits for no lock of a cache: it sets the flags in the state itself.
 *
 * Proof that no lookup believes memory that may change unannounced. A thread F that
 * frees takes back what was known, then walks the index and changes the state of
 * each region there, before its chunk is freed. Any thread that gets the memory from
 * the allocator or the kernel afterwards finds the flags. They are taken off by a
 * thread L that (1) reads the state, (2) asks the kernel, (3) finds all known, (4) puts
 * a state without flags in place of just the word that it read. Each change of the word
 * has a number of its own (REGION_VERSION). If F's change of the state comes before (1),
 * L finds in (3) what F left, and a change that came after F's free() and before the
 * memory was handed out again began before (2). If it comes between (1) and (4), (4)
 * fails. If after, the flags are set again. Without the number, (4) could succeed though
 * the chunk was freed, unmapped and handed out again since (2).
 *
 * A region that is published at that moment: F takes back, fences, reads the index; the
 * publisher sets the index, fences, does (1), (3) and (4). One of them sees the other. The
 * publisher has asked before that, so it takes no flag off that F has set: the chunk may have
 * been unmapped and handed out again since.
 */
#include "cache/hit.h"
#include "notify/announce/origin.h"

#define FREED_DEFAULT ((uint64_t)256 << 20)

/* The range of a region, without the lock: right if the word has not changed since. */
struct range {
	uint64_t start;
	uint64_t end;
};

static struct range range_of(const struct region *r)
{
	uint64_t start = __atomic_load_n(&r->mr.addr, __ATOMIC_RELAXED);

	return (struct range){ start, start + __atomic_load_n(&r->mr.len, __ATOMIC_RELAXED) };
}

static uint64_t len_of(struct range g)
{
	return g.end - g.start;
}

static bool overlap(struct range a, struct range b)
{
	return a.start < b.end && a.end > b.start;
}

static bool is_known(const struct kedge_cache *c, struct range g)
{
	return notify_announced(c->nf, g.start, g.end);
}

void freed_settle(struct kedge_cache *c, struct region *r)
{
	uint32_t word, to;

	full_fence();
	word = state_word(r);
	do {
		if (word & REGION_FREED || !is_known(c, range_of(r)))
			return;
		to = word & ~REGION_ASK;
	} while (!state_change(r, &word, to));
}

/* Tests free, and allocate, here. */
__attribute__((weak, noinline)) void freed_asked(void)
{
}

/*
 * The flags that stay after a lookup. The answer to a lookup that asked before it read
 * the word is too old: only FREED goes, as the memory is in use.
 */
static uint32_t flags_left(struct kedge_cache *c, struct range g, uint32_t word,
			   enum trust *trust)
{
	if (*trust != TRUST_ANNOUNCED)
		return word & REGION_ASK;
	if (!(word & REGION_ASK) && is_known(c, g))
		return 0;
	*trust = notify_settle_asking(c->nf);
	freed_asked();
	return is_known(c, g) ? 0 : REGION_ASK;
}

enum trust freed_look(struct kedge_cache *c, struct region *r,
		      enum trust trust)
{
	uint32_t word = state_word(r), to;
	struct range g;
	enum trust now;

	do {
		if (trust_for(word) != TRUST_ALL)
			return trust;
		g = range_of(r);
		now = trust;
		to = word & ~(REGION_ASK | REGION_FREED);
		to |= flags_left(c, g, word, &now);
		if (now == TRUST_NONE)
			return now;
	} while (!state_change(r, &word, to));
	state_count(c, len_of(g), word, to);
	return now;
}

/* ---- the list, oldest first ---- */

/* A region is in it, or in the stack, while it is REGION_LISTED. */
static void push(struct kedge_cache *c, uint32_t id)
{
	uint32_t first = atomic_load_explicit(&c->freed_new,
					      memory_order_relaxed);

	do
		atomic_store_explicit(&c->regions[id].next_freed, first,
				      memory_order_relaxed);
	/* release: whoever takes the stack finds the next. */
	while (!atomic_compare_exchange_weak_explicit(
		&c->freed_new, &first, id, memory_order_release,
		memory_order_relaxed));
}

static void append(struct kedge_cache *c, uint32_t id)
{
	atomic_store_explicit(&c->regions[id].next_freed, 0,
			      memory_order_relaxed);
	if (c->freed_last)
		atomic_store_explicit(&c->regions[c->freed_last].next_freed, id,
				      memory_order_relaxed);
	else
		c->freed_first = id;
	c->freed_last = id;
}

static uint32_t next_of(const struct kedge_cache *c, uint32_t id)
{
	return atomic_load_explicit(&c->regions[id].next_freed,
				    memory_order_relaxed);
}

/* Append what the stack has, of which the last is the oldest. */
static void take_new(struct kedge_cache *c)
{
	uint32_t id = atomic_exchange_explicit(&c->freed_new, 0,
					       memory_order_acquire);
	uint32_t oldest = 0, next;

	for (; id; id = next) {
		next = next_of(c, id);
		atomic_store_explicit(&c->regions[id].next_freed, oldest,
				      memory_order_relaxed);
		oldest = id;
	}
	for (; oldest; oldest = next) {
		next = next_of(c, oldest);
		append(c, oldest);
	}
}

static uint32_t pop(struct kedge_cache *c)
{
	uint32_t id = c->freed_first;

	c->freed_first = next_of(c, id);
	if (!c->freed_first)
		c->freed_last = 0;
	return id;
}

/* False: it was so already, and another thread sees to it. */
static bool set_listed(struct region *r, bool listed)
{
	uint32_t word = state_word(r);

	do
		if (!(word & REGION_LISTED) != listed)
			return false;
	while (!state_change(r, &word, word ^ REGION_LISTED));
	return true;
}

struct region *freed_take(struct kedge_cache *c)
{
	uint32_t last, id;

	take_new(c);
	last = c->freed_last;
	while (c->freed_first) {
		struct region *r;

		id = pop(c);
		r = &c->regions[id];
		set_listed(r, false);
		if (state_of(r) & REGION_FREED) {
			if (!is_held(c, id))
				return r;
			if (set_listed(r, true))
				append(c, id);
		}
		if (id == last)
			break;
	}
	return NULL;
}

uint64_t freed_now(const struct kedge_cache *c)
{
	int64_t bytes = atomic_load_explicit(&c->freed_bytes, memory_order_relaxed);

	return bytes > 0 ? (uint64_t)bytes : 0;
}

bool freed_too_much(const struct kedge_cache *c)
{
	return freed_now(c) > (uint64_t)c->max_freed_bytes;
}

/* ---- called by the thread that frees ---- */

struct chunk {
	struct range pages;
	struct range own; /* those that no other chunk shares */
};

static void give_up(struct kedge_cache *c, uint32_t id, const struct chunk *k)
{
	struct region *r = &c->regions[id];
	uint32_t word = state_word(r), to;
	struct range g;
	bool known;

	do {
		g = range_of(r);
		if (phase_of(word) == REGION_FREE || phase_of(word) > REGION_HOLED ||
		    !overlap(g, k->pages))
			return;
		known = is_known(c, g);
		if (known && !overlap(g, k->own))
			return;
		to = word | REGION_FREED | REGION_LISTED |
		     (known ? 0 : REGION_ASK);
	} while (!state_change(r, &word, to));
	/* By now the region may be another one. */
	state_count(c, len_of(g), word, to);
	if (!(word & REGION_LISTED))
		push(c, id);
}

static void released(struct release_user *u, uint64_t start, uint64_t end)
{
	struct kedge_cache *c = container_of(u, struct kedge_cache, release);
	uint64_t page = kedge__page_size(), at, next;
	const struct chunk k = {
		.pages = { round_down(start, page), round_up(end, page) },
		.own = { round_up(start, page), round_down(end, page) },
	};
	uint32_t id, before = 0;

	for (at = k.pages.start; at < k.pages.end; at = next) {
		id = index_step(c, at, &next);
		if (id && id != before)
			give_up(c, id, &k);
		before = id;
	}
}

static void trimmed(struct release_user *u)
{
	struct kedge_cache *c = container_of(u, struct kedge_cache, release);
	uint32_t killed = 0, dead = 0;
	struct region *r;
	int saved;

	if (!nf_owned(c->nf) || (modes_of(c) & MODE_SINGLE && !is_owner(c)))
		return;
	saved = cancel_disable();
	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	while ((r = freed_take(c)))
		region_kill(c, r, WHY_UNWANTED, &killed);
	region_collect(c, &killed, &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	cancel_restore(saved);
}

/* The kernel tells in time where it keeps the watches itself, and no announcement comes. */
static bool may_be_told(const struct kedge_cache *c)
{
	return !c->nf->ops->add;
}

void freed_init(struct kedge_cache *c, uint64_t max_bytes)
{
	c->max_freed_bytes = (int64_t)(max_bytes ? max_bytes : FREED_DEFAULT);
	c->release.released = released;
	c->release.trimmed = trimmed;
	if (may_be_told(c))
		release_attach(&c->release);
}

void freed_fini(struct kedge_cache *c)
{
	/* In a forked child the list is the parent's. */
	if (nf_owned(c->nf) && may_be_told(c))
		release_detach(&c->release);
}
