// SPDX-License-Identifier: BSD-2-Clause
/*
 * The pool's blocks are as long as a huge page and aligned like one, so that a
 * block and the part of a buffer that it lands for have page tables alike: one
 * entry of a page table moves, however much it maps.
 *
 * A block is FREE (without pages), USED (with whatever single pages came back),
 * READY (one huge page, or all the single pages where there are no huge ones),
 * LENT, or LOST: a peer that did not let go may write there, so the addresses are
 * never used again. What is wanted READY are the first blocks, as many as were
 * lent together of late, and twice what the largest message takes: each message
 * gets the first that fit, and leaves a hole where its pages were. The thread
 * fills the holes if few blocks are READY, and gives all of them back to the
 * system after a while without messages. Where one follows another the channel
 * fills them itself, by pool_make(): huge pages that an application has just
 * given back are still in the cache, and in the allocator's list, of the
 * processor that it did so on. Where a hypervisor takes free memory away, others
 * cost ten times as much.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/base.h"
#include "base/service.h"
#include "channel/model.h"
#include "channel/pageswap.h"
#include "channel/pool.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define IDLE_S	   2
#define BLOCKS_MAX (1u << 16)

enum block {
	BLOCK_FREE,
	BLOCK_USED,
	BLOCK_MAKING, /* the thread has it, or pool_make() */
	BLOCK_READY,
	BLOCK_EMPTYING, /* LENT in a moment */
	BLOCK_LENT,
	BLOCK_LOST,
};

struct pool_landing {
	char *area; /* as mapped */
	size_t area_len;
	char *base; /* the first block */
	size_t unit;
	uint32_t cnt;
	/* lock guards what follows; its holder calls nothing that waits */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool quit;
	struct service service;
	atomic_bool single; /* the kernel gives no huge pages here */
	bool resting; /* the thread sleeps until it is woken */
	uint32_t want; /* blocks that are to be READY: the first */
	uint32_t ready;
	uint64_t used; /* counts takes, to see idle times */
	uint8_t *block;
};

static char *address(const struct pool_landing *p, uint32_t i)
{
	return p->base + (size_t)i * p->unit;
}

/* ---- the thread ---- */

/*
 * What was there goes, and so does the table of its single pages, which would be
 * in a huge page's way for good: madvise() takes that away since Linux 6.14 only.
 */
static bool empty(struct pool_landing *p, uint32_t i)
{
	char *at = address(p, i);

	if (mmap(at, p->unit, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		return !madvise(at, p->unit, MADV_DONTNEED);
	madvise(at, p->unit, MADV_HUGEPAGE);
	madvise(at, p->unit, MADV_DONTFORK);
	return true;
}

/* One huge page where the kernel has one. */
static bool make(struct pool_landing *p, uint32_t i)
{
	char *at = address(p, i), *page;

	if (madvise(at, p->unit, MADV_POPULATE_WRITE)) {
		if (errno != EINVAL)
			return false;
		/* Linux before 5.14 */
		for (page = at; page < at + p->unit; page += kedge__page_size())
			*(volatile char *)page = 0;
	}
	p->single = pages_kind(at, p->unit) != PAGES_HUGE;
	return true;
}

static uint32_t find(const struct pool_landing *p, enum block what)
{
	uint32_t i;

	for (i = 0; i < p->cnt; i++)
		if (p->block[i] == what)
			return i;
	return p->cnt;
}

/* Called with the lock, which it lets go of for the slow part. */
static bool make_one(struct pool_landing *p)
{
	uint32_t i = find(p, BLOCK_USED);
	bool used = i < p->cnt, ok = true;

	if (!used)
		i = find(p, BLOCK_FREE);
	if (i == p->cnt || (!used && i >= p->want))
		return false;
	p->block[i] = BLOCK_MAKING;
	pthread_mutex_unlock(&p->lock);
	ok = used ? empty(p, i) : make(p, i);
	pthread_mutex_lock(&p->lock);
	p->block[i] = ok && !used ? BLOCK_READY : BLOCK_FREE;
	p->ready += ok && !used;
	/* There is no memory: ask for no more. A block that could not be emptied
	 * is FREE all the same, and lands on what it has: that is only slow. */
	if (!ok)
		p->want = 0;
	return ok;
}

/* Nobody has used it for a while: the thread empties them next, one by one, so
 * that a message that comes now does not wait for all. */
static void trim(struct pool_landing *p)
{
	uint32_t i;

	p->want = 0;
	p->ready = 0;
	for (i = 0; i < p->cnt; i++)
		if (p->block[i] == BLOCK_READY)
			p->block[i] = BLOCK_USED;
}

static void nap(struct pool_landing *p)
{
	uint64_t used = p->used;
	struct timespec ts;
	int rc;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_sec += IDLE_S;
	p->resting = !p->ready && !p->want;
	if (p->resting)
		rc = pthread_cond_wait(&p->wake, &p->lock);
	else
		rc = pthread_cond_timedwait(&p->wake, &p->lock, &ts);
	p->resting = false;
	if (rc == ETIMEDOUT && p->used == used)
		trim(p);
}

static void *run(void *arg)
{
	const struct sched_param prio = { 0 };
	struct pool_landing *p = arg;

	/* A program's other threads are not put off when it wakes. */
	pthread_setschedparam(pthread_self(), SCHED_BATCH, &prio);
	model_measure();
	pthread_mutex_lock(&p->lock);
	while (!p->quit)
		if (!make_one(p))
			nap(p);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void stop(struct pool_landing *p)
{
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
}

static void end_service(struct service *s)
{
	stop(container_of(s, struct pool_landing, service));
}

static int start(struct pool_landing *p)
{
	sigset_t all, saved;
	int rc;

	p->service.end = end_service;
	rc = service_begin(&p->service);
	if (rc)
		return rc;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = -pthread_create(&p->thread, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (rc)
		service_end(&p->service);
	return rc;
}

/* ---- opening and closing ---- */

static int map(struct pool_landing *p)
{
	p->area_len = (size_t)(p->cnt + 1) * p->unit;
	p->area = mmap(NULL, p->area_len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->area == MAP_FAILED)
		return -errno;
	p->base = (char *)round_up((uintptr_t)p->area, p->unit);
	madvise(p->area, p->area_len, MADV_HUGEPAGE);
	/* A page shared with a child could not be swapped. */
	madvise(p->area, p->area_len, MADV_DONTFORK);
	return 0;
}

static int init_wake(pthread_cond_t *c)
{
	pthread_condattr_t a;
	int rc = -pthread_condattr_init(&a);

	if (rc)
		return rc;
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	rc = -pthread_cond_init(c, &a);
	pthread_condattr_destroy(&a);
	return rc;
}

int pool_open(uint64_t bytes, struct pool_landing **out)
{
	struct pool_landing *p = calloc(1, sizeof(*p));
	int rc = -ENOMEM;

	if (!p)
		return rc;
	p->unit = pages_huge_len();
	bytes /= p->unit;
	p->cnt = bytes < BLOCKS_MAX ? (uint32_t)bytes : BLOCKS_MAX;
	p->block = calloc(p->cnt + 1, 1);
	if (!p->block)
		goto free_pool;
	rc = map(p);
	if (rc)
		goto free_blocks;
	rc = -pthread_mutex_init(&p->lock, NULL);
	if (rc)
		goto unmap;
	rc = init_wake(&p->wake);
	if (rc)
		goto destroy_lock;
	rc = start(p);
	if (rc)
		goto destroy_wake;
	*out = p;
	return 0;

destroy_wake:
	pthread_cond_destroy(&p->wake);
destroy_lock:
	pthread_mutex_destroy(&p->lock);
unmap:
	munmap(p->area, p->area_len);
free_blocks:
	free(p->block);
free_pool:
	free(p);
	return rc;
}

/* Addresses that somebody may still write to stay taken, and fault. */
static void unmap_blocks(struct pool_landing *p)
{
	char *from = p->area, *at;
	uint32_t i;

	for (i = 0; i < p->cnt; i++) {
		if (p->block[i] != BLOCK_LOST)
			continue;
		at = address(p, i);
		if (at > from)
			munmap(from, (size_t)(at - from));
		mmap(at, p->unit, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		     -1, 0);
		from = at + p->unit;
	}
	if (from < p->area + p->area_len)
		munmap(from, (size_t)(p->area + p->area_len - from));
}

void pool_close(struct pool_landing *p, bool ours)
{
	if (!p)
		return;
	if (ours) {
		if (service_end(&p->service))
			stop(p);
		pthread_cond_destroy(&p->wake);
		pthread_mutex_destroy(&p->lock);
		unmap_blocks(p);
	}
	free(p->block);
	free(p);
}

/* ---- taking and giving ---- */

/* What a message may land on: at best READY blocks. */
enum { TAKE_READY, TAKE_FREE, TAKE_USED, TAKES };

static bool fits(enum block b, int take)
{
	return b == BLOCK_READY || (b == BLOCK_FREE && take >= TAKE_FREE) ||
	       (b == BLOCK_USED && take >= TAKE_USED);
}

/* Neighbours; or p->cnt. */
static uint32_t find_run(const struct pool_landing *p, uint32_t cnt, int take)
{
	uint32_t i, run = 0;

	for (i = 0; i < p->cnt; i++) {
		run = fits(p->block[i], take) ? run + 1 : 0;
		if (run == cnt)
			return i + 1 - cnt;
	}
	return p->cnt;
}

/* With the lock, which it lets go of to empty those that are USED. What is
 * EMPTYING or LENT is written by nobody else, so it is read without it. */
static void lend(struct pool_landing *p, const struct landing *l)
{
	uint8_t *b = p->block + l->at;
	uint32_t i;

	for (i = 0; i < l->cnt; i++) {
		p->ready -= b[i] == BLOCK_READY;
		b[i] = b[i] == BLOCK_USED ? BLOCK_EMPTYING : BLOCK_LENT;
	}
	pthread_mutex_unlock(&p->lock);
	for (i = 0; i < l->cnt; i++)
		if (b[i] == BLOCK_EMPTYING)
			empty(p, l->at + i);
	pthread_mutex_lock(&p->lock);
	for (i = 0; i < l->cnt; i++)
		b[i] = BLOCK_LENT;
}

int pool_take(struct pool_landing *p, const char *buf, uint64_t len,
	      struct landing *l)
{
	uint64_t off = (uintptr_t)buf & (p->unit - 1);
	uint64_t cnt = (off + len + p->unit - 1) / p->unit;
	int rc = -EAGAIN, take;

	if (cnt > p->cnt)
		return rc;
	pthread_mutex_lock(&p->lock);
	p->used++;
	l->cnt = (uint32_t)cnt;
	/* If the thread is behind, pages come as the data does, a huge one at a
	 * fault, which still is a fraction of what they cost one by one. */
	l->at = p->cnt;
	for (take = TAKE_READY; take < TAKES && l->at == p->cnt; take++)
		l->at = find_run(p, l->cnt, take);
	if (l->at < p->cnt) {
		lend(p, l);
		l->addr = address(p, l->at) + off;
		rc = 0;
	}
	/* The thread hears of it when they come back: on a processor that it
	 * shares with us it would hold up the answer to the sender now. */
	if (p->want < 2 * l->cnt)
		p->want = 2 * l->cnt;
	if (!rc && p->want < l->at + l->cnt)
		p->want = l->at + l->cnt;
	pthread_mutex_unlock(&p->lock);
	return rc;
}

bool pool_make(struct pool_landing *p)
{
	bool made;

	pthread_mutex_lock(&p->lock);
	made = make_one(p);
	pthread_mutex_unlock(&p->lock);
	return made;
}

/* Looked at without the lock: they are the caller's alone. */
static enum block came_back(const struct pool_landing *p, uint32_t i)
{
	switch (pages_kind(address(p, i), p->unit)) {
	case PAGES_HUGE:
		return BLOCK_READY;
	case PAGES_NONE:
		return BLOCK_FREE;
	default:
		/* Where there are no others these are as good as new. */
		return p->single ? BLOCK_READY : BLOCK_USED;
	}
}

static void put_block(struct pool_landing *p, uint32_t i, enum block to)
{
	pthread_mutex_lock(&p->lock);
	p->block[i] = (uint8_t)to;
	p->ready += to == BLOCK_READY;
	pthread_mutex_unlock(&p->lock);
}

void pool_give(struct pool_landing *p, const struct landing *l, bool quiet)
{
	bool huge = quiet && pages_kind(address(p, l->at),
					l->cnt * p->unit) == PAGES_HUGE;
	uint32_t i;

	for (i = l->at; i < l->at + l->cnt; i++)
		put_block(p, i, !quiet ? BLOCK_LOST
				: huge ? BLOCK_READY : came_back(p, i));
	pthread_mutex_lock(&p->lock);
	if (p->resting || p->ready < 2 * l->cnt)
		pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
}
