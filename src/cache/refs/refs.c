// SPDX-License-Identifier: BSD-2-Clause
/*
 * References without atomic read-modify-writes. Each thread has a record per
 * cache with a count per region id, which only that thread writes. A count may
 * be negative (got here, put there); the sum over all records, and of what was
 * counted under the lock in the region itself, is the number of references. A
 * record outlives its thread: the next one without a record takes it over,
 * counts and all.
 *
 * A record has room for the ids that were in use when it was made, and is made
 * larger by its thread when a lookup meets an id beyond: a word for each id that
 * a cache may come to use would be megabytes of address space for each thread.
 *
 * Proof that a sum of 0 means free. To free a region, a thread, under the lock,
 *  1. takes it out of the index and marks it DYING,
 *  2. readers_wait(): membarrier(), then waits until every section that was
 *     odd has ended,
 *  3. adds up.
 * membarrier() makes every running thread of the process execute a full barrier
 * between its own instructions. If a lookup's section began (store) before its
 * thread's barrier, it is seen odd in 2 and waited for; its count is then visible
 * (release of the section's end, acquire in 2). One that begins after the
 * barrier reads the index after 1 and does not find the region. So after 2 the
 * sum can only fall, by puts. A put stores its count, then loads the state. If
 * the load came before its thread's barrier, so did the store, and 3 counts it.
 * If after, it sees DYING and goes the slow way, under the lock, where the sum
 * is taken again. A get that finds the region under the lock, or makes it, adds to
 * its thread's record there (ref_own()), so it comes before 1, or does not find it.
 * So the last put is never lost; and once the sum is 0, the region is not held, and
 * no thread can find it.
 *
 * Without 2's barrier a lookup's store of the section could still be in its
 * CPU's store buffer while it already reads the index; without the wait a
 * reference could be added after the sum.
 *
 * Where there is no membarrier() each lookup and put executes the fence itself
 * (MODE_FENCE): between the store of the section and the load of the index, and
 * between the store of the count and the load of the state. With 2's own fence
 * one of the two sees the other's store, which is all that the proof needs.
 *
 * membarrier() may also be refused later, by a seccomp filter. Then the cache goes
 * over to MODE_FENCE, and a thread does so when it next loads the modes; until then
 * it may be in a lookup, or a put, without a fence. So each thread says in its
 * record that it has executed a fence by the new mode (fences). The load of that
 * (acquire) makes visible all that the thread has done without one (release), and
 * what it does later has one: a thread that has once loaded the new mode never
 * loads an older one. A record that is made or taken over gets the mark under the
 * lock, under which the mode was set, and so does that of the thread which sets it.
 * While a thread has not said so, no conclusion is drawn from its record:
 * readers_wait() fails, and the region stays DYING, in limbo, until the thread has,
 * has ended, or the cache is closed. No put ends a region that is in limbo.
 * To interrupt the other CPUs by mprotect() was ruled out: that is no barrier on
 * every architecture.
 */
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/hit.h"

__thread struct last_rec last_rec;

static pthread_key_t thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool have_key;
static bool have_membarrier;

/* This thread's records, of all caches. */
static __thread struct thread_rec *own_recs;

/*
 * A record and its first counts share a page. What a thread allocates here comes
 * from mmap(): malloc() would give each thread an arena of 64 MiB of address
 * space.
 */
static void free_rec(struct thread_rec *rec)
{
	munmap(rec, kedge__page_size());
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

/*
 * libkedge stays loaded (-z nodelete), but a plug-in that has libkedge.a inside
 * may be unloaded while threads that used it live on. Then thread_ends() is gone
 * when they end, so the key must be, too; the pages that they keep of caches that
 * were closed are lost. At exit threads may still run: from now on they have no
 * record made, and use the lock.
 */
__attribute__((destructor)) static void delete_key(void)
{
	if (atomic_exchange(&have_key, false))
		pthread_key_delete(thread_end);
}

static void init_once(void)
{
	have_key = !pthread_key_create(&thread_end, thread_ends);
	have_membarrier =
		!syscall(SYS_membarrier,
			 MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static struct thread_rec *new_rec(struct kedge_cache *c)
{
	struct thread_rec *rec = map(kedge__page_size());

	if (!rec)
		return NULL;
	rec->serial = c->serial;
	rec->last = c->regions;
	rec->refs = rec->first_refs;
	rec->refs_cnt = (uint32_t)((kedge__page_size() - sizeof(*rec)) /
				   sizeof(*rec->refs));
	return rec;
}

/* Back to the counts in the record's own page. */
static void free_refs(struct thread_rec *rec)
{
	if (rec->refs != rec->first_refs)
		munmap((void *)rec->refs, rec->refs_cnt * sizeof(*rec->refs));
	rec->refs = rec->first_refs;
}

/*
 * The old counts may go at once: this thread is the only one that reads them
 * without the lock. Where there is no memory the record stays as it is, and what
 * it has no room for is counted under the lock.
 */
static void rec_grow(struct kedge_cache *c, struct thread_rec *rec)
{
	uint64_t cnt = 2ull * rec->refs_cnt;
	_Atomic uint32_t *refs;
	uint32_t i;

	if (rec->refs_cnt >= c->ids_used)
		return;
	while (cnt < c->ids_used)
		cnt *= 2;
	refs = map(cnt * sizeof(*refs));
	if (!refs)
		return;
	for (i = 0; i < rec->refs_cnt; i++)
		atomic_init(&refs[i],
			    atomic_load_explicit(&rec->refs[i],
						 memory_order_relaxed));
	free_refs(rec);
	rec->refs = refs;
	rec->refs_cnt = (uint32_t)cnt;
}

void recs_init(struct kedge_cache *c)
{
	pthread_once(&once, init_once);
	if (!have_membarrier)
		add_mode(c, MODE_FENCE);
}

void recs_free(struct kedge_cache *c)
{
	struct thread_rec *rec, *next;

	for (rec = c->recs; rec; rec = next) {
		next = rec->next;
		free_refs(rec);
		if (atomic_fetch_or_explicit(&rec->gone, REC_CACHE_GONE,
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

static struct thread_rec *find_own(const struct kedge_cache *c)
{
	struct thread_rec *rec;

	for (rec = own_recs; rec; rec = rec->next_own)
		if (rec->serial == c->serial)
			return rec;
	return NULL;
}

/* NULL: no memory. */
static struct thread_rec *rec_of_thread(struct kedge_cache *c)
{
	struct thread_rec *rec;

	if (!nf_owned(c->nf) || !have_key)
		return NULL;
	sweep_own();
	rec = find_own(c);
	if (rec)
		return rec;
	/* Any value but NULL: the destructor runs for it. */
	if (pthread_setspecific(thread_end, &own_recs))
		return NULL;
	pthread_mutex_lock(&c->lock);
	rec = adopt(c);
	if (!rec) {
		rec = new_rec(c);
		if (rec) {
			rec->next = c->recs;
			c->recs = rec;
		}
	}
	if (rec)
		atomic_store_explicit(&rec->fences,
				      !!(modes_of(c) & MODE_FENCE),
				      memory_order_relaxed);
	pthread_mutex_unlock(&c->lock);
	if (!rec)
		return NULL;
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
	uint32_t sum = c->regions[id].refs;
	struct thread_rec *rec;

	/* acquire: what was done before a put is done. */
	for (rec = c->recs; rec; rec = rec->next)
		if (id < rec->refs_cnt)
			sum += atomic_load_explicit(&rec->refs[id],
						    memory_order_acquire);
	return sum;
}

static void wait_section(struct thread_rec *rec)
{
	uint64_t s = atomic_load_explicit(&rec->section, memory_order_acquire);
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
 * True if only the caller, which is in no section, has ever looked something up:
 * a thread gets its record under the lock.
 */
static bool alone(const struct kedge_cache *c)
{
	struct thread_rec *rec;

	for (rec = c->recs; rec; rec = rec->next)
		if (!is_own(rec))
			return false;
	return true;
}

/* Fence, and see whether all others are known to do so, or have ended. */
static bool all_fence(const struct kedge_cache *c)
{
	struct thread_rec *rec;
	bool all = true;

	full_fence();
	for (rec = c->recs; rec; rec = rec->next)
		if (is_own(rec))
			atomic_store_explicit(&rec->fences, 1,
					      memory_order_release);
		else if (!atomic_load_explicit(&rec->fences,
					       memory_order_acquire) &&
			 !(atomic_load_explicit(&rec->gone,
						memory_order_acquire) &
			   REC_THREAD_GONE))
			all = false;
	return all;
}

bool readers_wait(struct kedge_cache *c)
{
	struct thread_rec *rec;

	if (c->quiet || alone(c))
		return true;
	if (!(modes_of(c) & MODE_FENCE) &&
	    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		add_mode(c, MODE_FENCE);
	if (modes_of(c) & MODE_FENCE && !all_fence(c))
		return false;
	for (rec = c->recs; rec; rec = rec->next)
		wait_section(rec);
	return true;
}

void forget_last(void)
{
	last_rec.serial = 0;
	last_rec.rec = NULL;
}

__attribute__((noinline)) struct thread_rec *switch_rec(struct kedge_cache *c)
{
	int saved = cancel_disable();
	struct thread_rec *rec = rec_of_thread(c);

	cancel_restore(saved);
	if (rec) {
		last_rec.serial = c->serial;
		last_rec.rec = rec;
	}
	return rec;
}

struct thread_rec *made_rec(struct kedge_cache *c)
{
	struct thread_rec *rec;

	if (has_last_rec(c))
		return last_rec.rec;
	rec = nf_owned(c->nf) ? find_own(c) : NULL;
	if (rec) {
		last_rec.serial = c->serial;
		last_rec.rec = rec;
	}
	return rec;
}

void own_rec_grow(struct kedge_cache *c)
{
	if (last_rec.serial == c->serial)
		rec_grow(c, last_rec.rec);
}

/* In the thread's own record, so that its put does not leave that below 0 (overput.c). */
void ref_own(struct kedge_cache *c, uint32_t id)
{
	own_rec_grow(c);
	if (has_last_rec(c) && id < last_rec.rec->refs_cnt)
		add_own(&last_rec.rec->refs[id], 1);
	else
		ref_add(c, id, 1);
}

/* The first thread that uses the cache is the one. */
int check_thread(struct kedge_cache *c)
{
	uintptr_t nobody = 0;

	if (!(modes_of(c) & MODE_SINGLE) || is_owner(c) ||
	    atomic_compare_exchange_strong(&c->owner, &nobody,
					   self()))
		return 0;
	return kedge_reason(-EPERM, "another thread uses this cache, which was "
			    "opened with KEDGE_CACHE_SINGLE_THREAD: open it "
			    "without, or one for each thread");
}

void claim_thread(struct kedge_cache *c)
{
	atomic_store_explicit(&c->owner, self(),
			      memory_order_relaxed);
}
