/* SPDX-License-Identifier: BSD-2-Clause */
/* References counted by thread: refs.c has the proof. Part of internal.h. */
#ifndef CACHE_REFS_H
#define CACHE_REFS_H

#include <stdatomic.h>

#include <kedge/cache.h>

#include "base/base.h"

struct region;

/*
 * The part of a cache that is one thread's; see refs.c. refs has room for the ids that were
 * in use when it was made. Its thread alone replaces it, under the lock; so the
 * thread reads it without the lock, and others read it under the lock.
 */
struct thread_rec {
	_Atomic uint64_t section; /* odd inside a lookup; its thread writes */
	_Atomic uint32_t *refs;	  /* by id; its thread writes */
	struct region *last;	  /* of the last hit; its thread's alone */
	uint32_t refs_cnt;	  /* ids that refs has room for */
	uint32_t looks_after;	  /* so many suspected puts more; see overput.c */
	uint32_t patience;
	_Atomic uint32_t fences;  /* it fences all it does; see refs.c */
	_Atomic uint64_t missed;  /* sections that were no hit; its thread's */
	_Atomic uint32_t gone;	  /* REC_* */
	uint64_t serial;	     /* of the cache */
	struct thread_rec *next;     /* of the cache */
	struct thread_rec *next_own; /* of the thread */
	_Atomic uint32_t first_refs[] __attribute__((aligned(64)));
};

#define REC_THREAD_GONE 1u
#define REC_CACHE_GONE	2u

/* The calling thread's records are no longer its own. */
void forget_last(void);
/* 0, or -EPERM where the cache is another thread's alone. */
int check_thread(struct kedge_cache *c);
/* The cache is the calling thread's: the other has ended. */
void claim_thread(struct kedge_cache *c);
/* With the lock held: a reference of the calling thread's. */
void ref_own(struct kedge_cache *c, uint32_t id);
/* rec_grow() of the calling thread's record, if it has one. */
void own_rec_grow(struct kedge_cache *c);

void recs_init(struct kedge_cache *c);
void recs_free(struct kedge_cache *c);
/*
 * With the lock held: wait for lookups under way. False: it is not known whether there are any, so
 * regions that they may have found must stay.
 */
bool readers_wait(struct kedge_cache *c);
/* With the lock held: the references to @id, those counted in its region with them. */
uint32_t refs_sum(struct kedge_cache *c, uint32_t id);

#endif /* CACHE_REFS_H */
