// SPDX-License-Identifier: BSD-2-Clause
/*
 * References without atomic read-modify-writes. Each thread has a record per
 * cache with a count per region id, which only that thread writes. A count may
 * be negative (got here, put there); the sum over all records is the number of
 * references. A record outlives its thread: the next one without a record takes
 * it over, counts and all.
 *
 * Proof that a sum of 0 means free. Who wants to free a region, under the lock,
 *  1. takes it out of the index and marks it DYING,
 *  2. readers_wait(): membarrier(), then waits until every section that was
 *     odd has ended,
 *  3. adds up.
 * membarrier() makes every running thread of the process execute a full barrier
 * between its own instructions. A lookup whose section began (store) before its
 * thread's barrier is seen odd in 2 and waited for; its count is then visible
 * (release of the section's end, acquire in 2). One that begins after the
 * barrier reads the index after 1 and does not find the region. So after 2 the
 * sum can only fall, by puts. A put stores its count, then loads the state. If
 * the load came before its thread's barrier, so did the store, and 3 counts it.
 * If after, it sees DYING and goes the slow way, under the lock, where the sum
 * is taken again. So the last put is never lost; and once the sum is 0, nobody
 * holds the region or can find it.
 *
 * Without 2's barrier a lookup's store of the section could still be in its
 * CPU's store buffer while it already reads the index; without the wait a
 * reference could be added after the sum. Where there is no membarrier() each
 * lookup and put executes the fence itself (MODE_FENCE).
 */
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/internal.h"

static pthread_key_t thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;
static bool have_membarrier;

/* This thread's records, of all caches. */
static __thread struct thread_rec *own_recs;

static void free_rec(struct thread_rec *rec)
{
	free(rec);
}

/*
 * The thread ends: its records are for others to take, or to free. Other
 * destructors may still come here after this one: they begin anew.
 */
static void thread_ends(void *unused)
{
	struct thread_rec *rec, *next;

	forget_last();
	for (rec = own_recs; rec; rec = next) {
		next = rec->next_own;
		/* acq_rel: whoever comes second sees all of the first. */
		if (atomic_fetch_or_explicit(&rec->gone, REC_THREAD_GONE,
					     memory_order_acq_rel) &
		    REC_CACHE_GONE)
			free_rec(rec);
	}
	own_recs = NULL;
}

static void init_once(void)
{
	have_key = !pthread_key_create(&thread_end, thread_ends);
	have_membarrier =
		!syscall(SYS_membarrier,
			 MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

static size_t refs_len(const struct kedge_cache *c)
{
	return (size_t)c->ids * sizeof(_Atomic uint32_t);
}

static struct thread_rec *new_rec(struct kedge_cache *c)
{
	struct thread_rec *rec = calloc(1, sizeof(*rec));

	if (!rec)
		return NULL;
	rec->refs = mmap(NULL, refs_len(c), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (rec->refs == MAP_FAILED) {
		free(rec);
		return NULL;
	}
	rec->serial = c->serial;
	return rec;
}

int recs_init(struct kedge_cache *c)
{
	pthread_once(&once, init_once);
	if (!have_membarrier)
		c->modes |= MODE_FENCE;
	c->common = new_rec(c);
	if (!c->common)
		return -ENOMEM;
	c->recs = c->common;
	return 0;
}

void recs_free(struct kedge_cache *c)
{
	struct thread_rec *rec, *next;

	for (rec = c->recs; rec; rec = next) {
		next = rec->next;
		munmap((void *)rec->refs, refs_len(c));
		if (rec == c->common ||
		    atomic_fetch_or_explicit(&rec->gone, REC_CACHE_GONE,
					     memory_order_acq_rel) &
			    REC_THREAD_GONE)
			free_rec(rec);
	}
}

/* Forget records of caches that were closed since. */
static void sweep_own(void)
{
	struct thread_rec **link = &own_recs, *rec;

	while ((rec = *link)) {
		if (atomic_load_explicit(&rec->gone, memory_order_acquire) &
		    REC_CACHE_GONE) {
			*link = rec->next_own;
			free_rec(rec);
		} else {
			link = &rec->next_own;
		}
	}
}

/* A record that a thread left behind. */
static struct thread_rec *adopt(struct kedge_cache *c)
{
	struct thread_rec *rec;

	for (rec = c->recs; rec; rec = rec->next) {
		uint32_t gone = REC_THREAD_GONE;

		if (atomic_compare_exchange_strong_explicit(
			    &rec->gone, &gone, 0, memory_order_acq_rel,
			    memory_order_relaxed))
			return rec;
	}
	return NULL;
}

struct thread_rec *rec_of_thread(struct kedge_cache *c)
{
	struct thread_rec *rec, *fresh = NULL;

	if (!nf_owned(c->nf) || !have_key)
		return NULL;
	sweep_own();
	for (rec = own_recs; rec; rec = rec->next_own)
		if (rec->serial == c->serial)
			return rec;
	/* Any value but NULL: the destructor runs for it. */
	if (pthread_setspecific(thread_end, &own_recs))
		return NULL;
	pthread_mutex_lock(&c->lock);
	rec = adopt(c);
	pthread_mutex_unlock(&c->lock);
	if (!rec) {
		fresh = new_rec(c);
		if (!fresh)
			return NULL;
		pthread_mutex_lock(&c->lock);
		fresh->next = c->recs;
		c->recs = fresh;
		pthread_mutex_unlock(&c->lock);
		rec = fresh;
	}
	rec->next_own = own_recs;
	own_recs = rec;
	return rec;
}

static bool is_own(const struct thread_rec *rec)
{
	const struct thread_rec *own;

	for (own = own_recs; own; own = own->next_own)
		if (own == rec)
			return true;
	return false;
}

uint32_t refs_sum(struct kedge_cache *c, uint32_t id)
{
	struct thread_rec *rec;
	uint32_t sum = 0;

	/* acquire: what was done before a put is done. */
	for (rec = c->recs; rec; rec = rec->next)
		sum += atomic_load_explicit(&rec->refs[id],
					    memory_order_acquire);
	return sum;
}

void ref_add(struct kedge_cache *c, uint32_t id, uint32_t by)
{
	atomic_store_explicit(
		&c->common->refs[id],
		atomic_load_explicit(&c->common->refs[id],
				     memory_order_relaxed) + by,
		memory_order_release);
}

static void wait_section(struct thread_rec *rec)
{
	uint32_t s = atomic_load_explicit(&rec->section, memory_order_acquire);
	unsigned int tries = 0;

	if (!(s & 1))
		return;
	while (atomic_load_explicit(&rec->section, memory_order_acquire) == s) {
		if (++tries < 100)
			cpu_relax();
		else
			sched_yield();
	}
}

/*
 * Nobody but the caller, who is in no section, has ever looked something up:
 * a thread gets its record under the lock.
 */
static bool alone(const struct kedge_cache *c)
{
	struct thread_rec *rec;

	for (rec = c->recs; rec; rec = rec->next)
		if (rec != c->common && !is_own(rec))
			return false;
	return true;
}

void readers_wait(struct kedge_cache *c)
{
	struct thread_rec *rec;

	if (alone(c))
		return;
	if (c->modes & MODE_FENCE)
		full_fence();
	else
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (rec = c->recs; rec; rec = rec->next)
		wait_section(rec);
}
