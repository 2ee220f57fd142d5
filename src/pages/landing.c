// SPDX-License-Identifier: BSD-2-Clause
/*
 * The process's landing pool.
 *
 * Its blocks are as long as a huge page and aligned like one, so that a block
 * and the part of a buffer that it lands for have page tables alike: one entry
 * of a page table moves, however much it maps. They lie in extents, mappings
 * that are made when no block fits, and given back when no message comes.
 *
 * A block is FREE (without pages), USED (with whatever single pages came back),
 * READY (one huge page, or all the single pages where there are no huge ones),
 * LENT, or LOST: a peer that did not let go may write there, so that address is
 * never used again, by any channel, and has no pages any more. READY are to be
 * the first blocks, as many as were lent together of late, and twice what the
 * largest message takes: each message gets the first that fit, and leaves a
 * hole where its pages were. The thread fills the holes if few blocks are
 * READY, and gives all of them back to the system after a while without
 * messages. Where one follows another the channel fills them itself, by
 * landing_make(): huge pages that an application has just given back are still
 * in the cache, and in the allocator's list, of the processor that it did so
 * on. Where a hypervisor takes free memory away, others cost ten times as much.
 *
 * Bounds. A channel has at most its share of blocks LENT or LOST. All blocks that
 * can have pages are at most LIMIT_SHARES times the largest share of the channels
 * that are open, so that one peer that does not let go leaves others room. LOST
 * blocks cost addresses alone, LOST_MAX of them in a process: when a peer has
 * had so many, messages take other ways.
 *
 * Locks. gate is held while a channel joins or leaves, and while the thread is
 * started or joined; service.c's lock, held to end the thread before the process
 * ends, comes after it; pool.lock is the last, and its holder makes no call that
 * waits. The thread takes pool.lock alone, so that it can be joined
 * under both others. A block that is MAKING, EMPTYING or LENT belongs to the
 * thread that made it so: it reads it, and works on its pages, without a lock,
 * and its extent stays.
 *
 * A forked child has a copy of all this, perhaps with locks taken, but neither
 * the mappings nor the thread: the first channel that joins there starts anew.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/owner.h"
#include "base/process/service.h"
#include "pages/landing.h"
#include "pages/landing_priv.h"
#include "pages/swap.h"

#define IDLE_NS	     2000000000u
#define BLOCKS_MAX   (1u << 16)
#define EXTENT_MIN   16u
#define LIMIT_SHARES 2u
#define LOST_MAX     1024u

struct landing_member {
	struct list node; /* pool.members */
	uint32_t share;
	uint32_t held; /* blocks LENT to it, or LOST by it */
};

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int owner; /* the process that all this belongs to */

static struct {
	size_t unit;
	pthread_t thread;
	void (*first)(void); /* what the thread does before anything else */
	struct service service;
	atomic_bool single; /* the kernel gives no huge pages here */
	/* lock guards what follows */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool quit;
	bool resting; /* the thread sleeps until it is woken */
	uint32_t want; /* blocks that are to be READY: the first */
	uint32_t ready;
	uint32_t live;	/* blocks of extents, without those LOST */
	uint32_t limit; /* of them */
	uint32_t lost;
	uint64_t used;	/* counts takes and gives, to see idle times */
	uint64_t seen;	/* @used, as the thread saw it when it last began to nap */
	uint64_t until; /* when the pool has been idle for long, if it is still @seen */
	struct list members;
	struct list extents;
} pool;

static struct extent *extent_of(struct list *l)
{
	return list_entry(l, struct extent, node);
}

/* ---- the thread ---- */

/* The first block that is so, among the first @max. */
static struct extent *find(enum block what, uint32_t max, uint32_t *at)
{
	struct list *l, *tmp;
	struct extent *e;
	uint32_t i;

	list_for_each_safe(l, tmp, &pool.extents) {
		e = extent_of(l);
		for (i = 0; i < e->cnt && max; i++, max--)
			if (e->block[i] == what) {
				*at = i;
				return e;
			}
	}
	return NULL;
}

/* Called with the lock, which it lets go of for the slow part. */
static bool make_one(void)
{
	bool used = true, ok, single = false;
	struct extent *e;
	uint32_t i;

	e = find(BLOCK_USED, UINT32_MAX, &i);
	if (!e) {
		used = false;
		e = find(BLOCK_FREE, pool.want, &i);
	}
	if (!e)
		return false;
	e->block[i] = BLOCK_MAKING;
	pthread_mutex_unlock(&pool.lock);
	ok = used ? block_empty(e, i) : block_make(e, i, &single);
	if (ok && !used)
		pool.single = single;
	pthread_mutex_lock(&pool.lock);
	e->block[i] = ok && !used ? BLOCK_READY : BLOCK_FREE;
	pool.ready += ok && !used;
	/* There is no memory: ask for no more. A block that could not be emptied
	 * is FREE all the same, and lands on what it has: that is only slow. */
	if (!ok)
		pool.want = 0;
	return ok;
}

/* Out of the list, to be unmapped without the lock. */
static void drop(struct extent *e, struct list *dropped)
{
	list_remove(&e->node);
	list_add_tail(dropped, &e->node);
	pool.live -= e->cnt - extent_count(e, BLOCK_LOST);
	pool.ready -= extent_count(e, BLOCK_READY);
}

static void unmap_all(struct list *dropped)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, dropped) {
		list_remove(l);
		extent_unmap(extent_of(l));
	}
}

/* No block is wanted: addresses go back, too. True if there were any. With the
 * lock, which it lets go of. */
static bool drop_bare(void)
{
	struct list dropped, *l, *tmp;

	list_init(&dropped);
	list_for_each_safe(l, tmp, &pool.extents)
		if (extent_bare(extent_of(l)))
			drop(extent_of(l), &dropped);
	if (list_empty(&dropped))
		return false;
	pthread_mutex_unlock(&pool.lock);
	unmap_all(&dropped);
	pthread_mutex_lock(&pool.lock);
	return true;
}

/* The pool was idle for a while: the thread empties blocks next, one by one, so
 * that a message that comes now does not wait for all. */
static void trim(void)
{
	struct list *l, *tmp;
	struct extent *e;
	uint32_t i;

	pool.want = 0;
	pool.ready = 0;
	list_for_each_safe(l, tmp, &pool.extents) {
		e = extent_of(l);
		for (i = 0; i < e->cnt; i++)
			if (e->block[i] == BLOCK_READY)
				e->block[i] = BLOCK_USED;
	}
}

/* Idle time counts from the nap that first sees the latest use: neither a wake-up nor a
 * slice of a moved clock begins it anew. */
static void nap(void)
{
	if (pool.seen != pool.used) {
		pool.seen = pool.used;
		pool.until = clock_after_ns(IDLE_NS);
	}
	pool.resting = !pool.ready && !pool.want;
	if (pool.resting)
		pthread_cond_wait(&pool.wake, &pool.lock);
	else if (clock_cond_wait(&pool.wake, &pool.lock, pool.until) == ETIMEDOUT &&
		 pool.seen == pool.used)
		trim();
	pool.resting = false;
}

static void *run(void *arg)
{
	const struct sched_param prio = { 0 };

	(void)arg;
	/* A program's other threads are not put off when it wakes. */
	pthread_setschedparam(pthread_self(), SCHED_BATCH, &prio);
	if (pool.first)
		pool.first();
	pthread_mutex_lock(&pool.lock);
	while (!pool.quit) {
		if (make_one())
			continue;
		if (!pool.want && drop_bare())
			continue;
		nap();
	}
	pthread_mutex_unlock(&pool.lock);
	return NULL;
}

static void stop(void)
{
	int cancel;

	pthread_mutex_lock(&pool.lock);
	pool.quit = true;
	pthread_cond_signal(&pool.wake);
	pthread_mutex_unlock(&pool.lock);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_join(pool.thread, NULL);
	pthread_setcancelstate(cancel, NULL);
}

static void end_service(struct service *s)
{
	(void)s;
	stop();
}

static int start(void)
{
	sigset_t all, saved;
	int rc;

	pool.unit = pages_huge_len();
	pool.quit = false;
	pool.service.end = end_service;
	rc = service_begin(&pool.service);
	if (rc)
		return rc;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = -pthread_create(&pool.thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (rc)
		service_end(&pool.service);
	else
		service_runs(&pool.service);
	return rc;
}

/* ---- joining and leaving ---- */

static void init(void)
{
	const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	gate = fresh;
	memset(&pool, 0, sizeof(pool));
	pool.lock = fresh;
	/* This cannot fail: it only fills in what it is given. */
	clock_cond_init(&pool.wake);
	list_init(&pool.members);
	list_init(&pool.extents);
}

/* Once in a process and in each of its children. */
static void adopt(void)
{
	owner_adopt(&owner, init);
}

/* With the lock. */
static void set_limit(void)
{
	struct list *l, *tmp;
	uint32_t most = 0, share;

	list_for_each_safe(l, tmp, &pool.members) {
		share = list_entry(l, struct landing_member, node)->share;
		most = share > most ? share : most;
	}
	pool.limit = LIMIT_SHARES * most;
}

int landing_open(uint64_t bytes, void (*first)(void),
		 struct landing_member **out)
{
	struct landing_member *p = calloc(1, sizeof(*p));
	int rc = 0;

	if (!p)
		return -ENOMEM;
	bytes /= pages_huge_len();
	p->share = bytes < BLOCKS_MAX ? (uint32_t)bytes : BLOCKS_MAX;
	adopt();
	pthread_mutex_lock(&gate);
	if (list_empty(&pool.members)) {
		pool.first = first;
		rc = start();
	}
	if (!rc) {
		pthread_mutex_lock(&pool.lock);
		list_add_tail(&pool.members, &p->node);
		set_limit();
		pthread_mutex_unlock(&pool.lock);
	}
	pthread_mutex_unlock(&gate);
	if (rc)
		free(p);
	else
		*out = p;
	return rc;
}

/* With the gate, as the last one. */
static void end(void)
{
	struct list dropped, *l, *tmp;

	if (service_end(&pool.service))
		stop();
	list_init(&dropped);
	pthread_mutex_lock(&pool.lock);
	list_for_each_safe(l, tmp, &pool.extents)
		drop(extent_of(l), &dropped);
	pool.want = 0;
	pthread_mutex_unlock(&pool.lock);
	unmap_all(&dropped);
}

void landing_close(struct landing_member *p, bool ours)
{
	bool last;

	if (!p)
		return;
	if (ours) {
		pthread_mutex_lock(&gate);
		pthread_mutex_lock(&pool.lock);
		list_remove(&p->node);
		set_limit();
		last = list_empty(&pool.members);
		pthread_mutex_unlock(&pool.lock);
		if (last)
			end();
		pthread_mutex_unlock(&gate);
	}
	free(p);
}

/* ---- taking and giving ---- */

/* Neighbours in any extent: the readiest. */
static bool find_run(struct landing *l)
{
	struct list *n, *tmp;
	int take;

	for (take = TAKE_READY; take < TAKES; take++)
		list_for_each_safe(n, tmp, &pool.extents) {
			l->in = extent_of(n);
			l->at = extent_run(l->in, l->cnt, take);
			if (l->at < l->in->cnt)
				return true;
		}
	return false;
}

/*
 * An extent that has them: in place of others that are idle, if there may be no
 * more. With the lock, which it lets go of. Its blocks are FREE, and no other
 * thread has seen them before it returns.
 */
static bool grow(struct landing *l)
{
	struct list dropped, *n, *tmp;
	struct extent *e = NULL;
	uint32_t cnt = l->cnt;

	list_init(&dropped);
	list_for_each_safe(n, tmp, &pool.extents)
		if (pool.live + cnt > pool.limit && extent_idle(extent_of(n)))
			drop(extent_of(n), &dropped);
	if (pool.live + cnt <= pool.limit) {
		while (cnt < EXTENT_MIN && pool.live + cnt < pool.limit)
			cnt++;
		pool.live += cnt;
		pthread_mutex_unlock(&pool.lock);
		unmap_all(&dropped);
		e = extent_map(cnt);
		pthread_mutex_lock(&pool.lock);
		if (e)
			list_add_tail(&pool.extents, &e->node);
		else
			pool.live -= cnt;
	} else if (!list_empty(&dropped)) {
		pthread_mutex_unlock(&pool.lock);
		unmap_all(&dropped);
		pthread_mutex_lock(&pool.lock);
	}
	l->in = e;
	l->at = 0;
	return e;
}

/* With the lock, which it lets go of to empty those that are USED. */
static void lend(const struct landing *l)
{
	uint8_t *b = l->in->block + l->at;
	uint32_t i;

	for (i = 0; i < l->cnt; i++) {
		pool.ready -= b[i] == BLOCK_READY;
		b[i] = b[i] == BLOCK_USED ? BLOCK_EMPTYING : BLOCK_LENT;
	}
	pthread_mutex_unlock(&pool.lock);
	for (i = 0; i < l->cnt; i++)
		if (b[i] == BLOCK_EMPTYING)
			block_empty(l->in, l->at + i);
	pthread_mutex_lock(&pool.lock);
	for (i = 0; i < l->cnt; i++)
		b[i] = BLOCK_LENT;
}

/* The last block of a landing, counted from the pool's first. */
static uint32_t position(const struct landing *l)
{
	struct list *n = pool.extents.next;
	uint32_t at = l->at + l->cnt;

	for (; n != &l->in->node; n = n->next)
		at += extent_of(n)->cnt;
	return at;
}

int landing_take(struct landing_member *p, const char *buf, uint64_t len,
		 struct landing *l)
{
	uint64_t off = (uintptr_t)buf & (pool.unit - 1);
	uint64_t cnt = (off + len + pool.unit - 1) / pool.unit;
	int rc = -EAGAIN;

	if (cnt > p->share)
		return rc;
	l->cnt = (uint32_t)cnt;
	pthread_mutex_lock(&pool.lock);
	pool.used++;
	/* If the thread is behind, pages come as the data does, a huge one at a
	 * fault, which still is a fraction of what they cost one by one. */
	if (p->held + l->cnt <= p->share && pool.lost < LOST_MAX &&
	    (find_run(l) || grow(l))) {
		p->held += l->cnt;
		lend(l);
		l->addr = block_at(l->in, l->at, pool.unit) + off;
		rc = 0;
	}
	/* The thread hears of it when they come back: on a processor that it
	 * shares with us it would hold up the answer to the sender now. */
	if (pool.want < 2 * l->cnt)
		pool.want = 2 * l->cnt;
	if (!rc && pool.want < position(l))
		pool.want = position(l);
	pthread_mutex_unlock(&pool.lock);
	return rc;
}

bool landing_make(void)
{
	bool made;

	pthread_mutex_lock(&pool.lock);
	made = make_one();
	pthread_mutex_unlock(&pool.lock);
	return made;
}

/* Looked at without the lock: they are the caller's alone. */
static enum block came_back(const struct extent *e, uint32_t i)
{
	switch (pages_kind(block_at(e, i, pool.unit), pool.unit)) {
	case PAGES_HUGE:
		return BLOCK_READY;
	case PAGES_NONE:
		return BLOCK_FREE;
	default:
		/* If there are no huge ones, single pages are as good as new. */
		return pool.single ? BLOCK_READY : BLOCK_USED;
	}
}

static void put_block(struct extent *e, uint32_t i, enum block to)
{
	pthread_mutex_lock(&pool.lock);
	e->block[i] = (uint8_t)to;
	pool.ready += to == BLOCK_READY;
	if (to == BLOCK_LOST) {
		pool.lost++;
		pool.live--;
	}
	pthread_mutex_unlock(&pool.lock);
}

static void lose(const struct landing *l)
{
	uint32_t i;

	for (i = l->at; i < l->at + l->cnt; i++) {
		block_lose(l->in, i);
		put_block(l->in, i, BLOCK_LOST);
	}
}

void landing_give(struct landing_member *p, const struct landing *l, bool quiet)
{
	struct extent *e = l->in;
	uint32_t i;
	bool huge;

	if (!quiet) {
		lose(l);
		return;
	}
	huge = pages_kind(block_at(e, l->at, pool.unit),
			  l->cnt * pool.unit) == PAGES_HUGE;
	for (i = l->at; i < l->at + l->cnt; i++)
		put_block(e, i, huge ? BLOCK_READY : came_back(e, i));
	pthread_mutex_lock(&pool.lock);
	p->held -= l->cnt;
	pool.used++;
	if (pool.resting || pool.ready < 2 * l->cnt)
		pthread_cond_signal(&pool.wake);
	pthread_mutex_unlock(&pool.lock);
}
