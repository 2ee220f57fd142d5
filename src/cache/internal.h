/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registration cache's insides.
 *
 * A region is one registration of the device. Regions live in an array and are
 * named by their index in it, the id; memory of a region is never anything else
 * while the cache is open, so a reader may look at one that is on its way out.
 *
 * The index maps address space to the id of the region to use there: 64 KiB by
 * 64 KiB where one region is all there is to name, else page by page. A region
 * with only good pages is WHOLE: any range within it is a hit, whichever
 * region its other pages name. A region of which an event took pages is HOLED:
 * then each page of a range must name it. With REGION_ASK either serves only lookups
 * that asked the kernel for changes under way (notify_settle_asking()).
 *
 * References are counted per thread and region: a hit adds to a number that no
 * other thread writes. A thread that wants to know whether a region is in use first
 * makes it unreachable, waits until no thread is in the middle of a lookup, and
 * adds up (refs.c has the proof). The idea is that of the kernel's percpu_ref.
 *
 * lock guards all but what is marked otherwise. Order: cache lock, then the
 * notifier's. The device is never called with the lock held.
 */
#ifndef CACHE_INTERNAL_H
#define CACHE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <kedge/cache.h>

#include "base/process/cancel.h"
#include "base/base.h"
#include "cache/sync/preserve.h"
#include "cache/refs/overput.h"
#include "cache/refs/refs.h"
#include "cache/state.h"
#include "device/device.h"
#include "notify/announce/release.h"
#include "notify/internal.h"
#include "stats/stats.h"

#define PAGE_SHIFT  12 /* the index's page, on every machine */
#define BLOCK_SHIFT 16
#define LEAF_SHIFT  24
#define LEVEL_BITS  12 /* two levels above the leaves */
#define LEVEL_CNT   (1u << LEVEL_BITS)
#define LEAF_BLOCKS (1u << (LEAF_SHIFT - BLOCK_SHIFT))
#define LEAF_PAGES  (1u << (LEAF_SHIFT - PAGE_SHIFT))
#define ADDR_BITS   (LEAF_SHIFT + 2 * LEVEL_BITS)
#define IDS_MAX	   (1u << 24)
#define COLD_SHIFT  12 /* ids that share a piece of c->cold */
#define COLD_CNT    (1u << COLD_SHIFT)

/* The part of a region that a hit reads: one cache line. */
struct region {
	struct kedge_mr mr;	/* constant while the region is not FREE */
	_Atomic uint32_t state; /* the phase is changed under lock, flags by any thread */
	_Atomic uint32_t used;	/* c->epoch of the last use; any thread */
	uint32_t refs;		/* references counted under the lock */
	_Atomic uint32_t next_freed; /* while REGION_LISTED */
} __attribute__((aligned(64)));

/* The rest of a region, which only slow paths need. */
struct region_cold {
	struct watch watch;
	uint32_t id;
	struct kedge_device_mr dev;
	uint64_t *frames;	/* for KEDGE_VERIFY, or NULL */
	uint64_t bad;		/* bytes that events took from the index */
	uint64_t spoiled_start; /* while MAKING: what events took */
	uint64_t spoiled_end;
	uint32_t base;	 /* of a window: the region that it is a part of */
	uint32_t queued; /* region.used when it was put in the LRU list */
	uint32_t next;	 /* LRU list, free list or a list of dead */
	uint32_t prev;
	bool watched;
	bool vouched;  /* kept on the program's word alone: see vouch.c */
	bool in_limbo; /* on the list of that name */
	int end_rc;    /* of its thread in reap.c */
	bool stuck;    /* on c->stuck: the device has failed to end it */

	bool rearm;    /* the range is likely to be watched again soon */

	/* For the device's preserve; see preserve.c. */
	bool safe;	   /* the data in it needs no preserve */
	bool covered;	   /* another one has its pages that no event hit */
	bool heir;	   /* it is that other one */
	bool hit;	   /* an event came since todo was made */
	bool due;	   /* with todo: of the thread that ends the region */
	struct fate fate;
	struct fate todo;
};

/* A range that an event took from a region, to be made good by a resync. */
struct lost {
	uint64_t start;
	uint64_t end;
	uint32_t access;
	uint32_t id; /* the region, if it is HOLED still; see lost_take() */
};

#define LOST_MAX 1024

/* Regions that the device has failed to end. They are DEAD, and tried again. */
struct stuck {
	uint32_t first;
	uint32_t cnt;
	int rc;
	uint64_t retry_ns; /* when that is due */
	bool told;
};

#define BLOCK_SPLIT UINT32_MAX /* ask the pages */

struct pages {
	_Atomic uint32_t id[LEAF_PAGES];
};

struct leaf {
	/* An id stands for those of the block's pages that its region has. */
	_Atomic uint32_t block[LEAF_BLOCKS];
	_Atomic(struct pages *) pages; /* NULL while no block is split */
};

struct mid {
	_Atomic(struct leaf *) leaf[LEVEL_CNT];
};

struct arena {
	char *next;
	char *end;
	void *chunks;
};

/* Modes: the duties of a lookup besides looking up; any bit is rare. */
#define MODE_FENCE  1u /* there is no membarrier(): fence in every lookup */
#define MODE_VERIFY 2u
#define MODE_SINGLE 4u /* KEDGE_CACHE_SINGLE_THREAD */
#define MODE_TICKETS 8u /* KEDGE_VERIFY: see ticket.c */

/* counters.c */
extern const struct stats_kind cache_counters;

struct kedge_cache {
	/* Read by every hit, written rarely: a cache line. */
	struct kedge_notifier_head head; /* nf's own */
	_Atomic uint64_t seen; /* see caught_up() */
	struct region *regions;
	uint64_t serial;
	_Atomic uint32_t epoch; /* grows with every miss: the LRU's clock */
	_Atomic uint32_t modes; /* MODE_*; written under lock once it is open */
	_Atomic uintptr_t owner; /* of MODE_SINGLE: that thread, or 0 */
	struct region *last;	 /* of MODE_SINGLE: of the last hit */
	_Atomic(struct mid *) root[LEVEL_CNT];

	_Atomic uint64_t hits; /* of MODE_SINGLE; its thread writes */
	_Atomic uint64_t handled; /* generation up to which events are handled */
	pthread_mutex_t lock;
	struct kedge_notifier *nf;
	struct kedge_device *dev;
	struct kedge_device_attr attr;
	struct stats_object published;
	bool own_nf;
	uint64_t max_bytes;
	uint32_t max_regions;
	uint64_t chunk_bytes;
	uint64_t merge_bytes;
	uint32_t hint_threads;

	struct queue queue;	  /* of nf: what happened to our regions */
	struct region_cold **cold; /* by id, COLD_CNT at a time */
	uint32_t ids;		  /* ids there can be; 0 names no region */
	uint32_t ids_used;	  /* ids below this were used */
	uint32_t free_ids;	  /* list */
	uint32_t lru_first;	  /* least recently used */
	uint32_t lru_last;
	uint32_t limbo;		  /* dying, and a lookup may still find them */
	bool quiet;		  /* being closed: no lookup is under way */
	uint32_t live; /* regions that are not FREE */
	struct arena arena;
	struct thread_rec *recs;
	uint64_t bytes; /* registered, the dying included */
	struct release_user release;
	_Atomic int64_t freed_bytes; /* of regions that are REGION_FREED */
	int64_t max_freed_bytes;
	_Atomic uint32_t freed_new; /* a stack: any thread */
	uint32_t freed_first;	    /* a list, of what was taken from it */
	uint32_t freed_last;
	struct kedge_cache_stats st;
	struct overput overput;
	struct tickets *tickets; /* of MODE_TICKETS */
	int pagemap_fd;

	bool exclusive;	/* the device takes no byte twice: see exclusive.c */
	pthread_cond_t moved; /* of an exclusive one: a region is made, or gone */
	struct stuck stuck;
	struct tree vouches;
	bool trusted; /* peers; else what they may touch ends with the put */
	struct lost lost[LOST_MAX]; /* in no order */
	uint32_t lost_cnt;
	uint32_t lost_next; /* to go where there is no room */
	struct resync_thread *resyncer;
};

static inline uint32_t modes_of(const struct kedge_cache *c)
{
	return atomic_load_explicit(&c->modes, memory_order_relaxed);
}

static inline void add_mode(struct kedge_cache *c, uint32_t mode)
{
	atomic_store_explicit(&c->modes, modes_of(c) | mode,
			      memory_order_relaxed);
}

static inline uint32_t region_id(const struct kedge_cache *c,
				 const struct region *r)
{
	return (uint32_t)(r - c->regions);
}

static inline struct region_cold *cold_at(const struct kedge_cache *c,
					  uint32_t id)
{
	return &c->cold[id >> COLD_SHIFT][id & (COLD_CNT - 1)];
}

static inline struct region_cold *cold_of(const struct kedge_cache *c,
					  const struct region *r)
{
	return cold_at(c, region_id(c, r));
}

static inline uint32_t state_of(const struct region *r)
{
	return atomic_load_explicit(&r->state, memory_order_relaxed) & REGION_BYTE;
}

/* state.c: a phase and flags, with those that it has of @keep. */
void set_state(struct kedge_cache *c, struct region *r, uint32_t set, uint32_t keep);
/* The whole word; and to change it from *@word, which is what it is now where that fails. */
uint32_t state_word(const struct region *r);
bool state_change(struct region *r, uint32_t *word, uint32_t to);
/* Add to c->freed_bytes what that changed; @len: the region's, as it was before the change. */
void state_count(struct kedge_cache *c, uint64_t len, uint32_t from, uint32_t to);

#include "cache/index.h"

/* No generation, ever: those are even at rest, and grow by 2. */
#define SEEN_NEVER UINT64_MAX

/* kedge_notifier_generation(), with the pointers in a line at hand. */
static inline uint64_t generation_now(const struct kedge_cache *c)
{
	return __atomic_load_n(c->head.generation, __ATOMIC_ACQUIRE) +
	       __atomic_load_n(c->head.trips, __ATOMIC_ACQUIRE);
}

/*
 * True if the cache has handled all that this thread may know of: the question
 * that makes a lookup a hit. Where the generation alone does not answer it,
 * seen is SEEN_NEVER: the common way has one comparison, and the other asks
 * first (notify_settle()), then whether all is handled. acquire: partner of the
 * release in cache_sync().
 */
static inline bool caught_up(const struct kedge_cache *c)
{
	return generation_now(c) ==
	       atomic_load_explicit(&c->seen, memory_order_acquire);
}

/* True if there is no event to read. A hit takes the answer to be asked before. */
static inline bool all_handled(const struct kedge_cache *c)
{
	return generation_now(c) ==
	       atomic_load_explicit(&c->handled, memory_order_acquire);
}

/* The ways to a device's functions disable cancellation (base/process/cancel.h): a thread
 * that ended there would leave a region MAKING for good. A hit makes no call. */

static inline void ref_add(struct kedge_cache *c, uint32_t id, uint32_t by)
{
	c->regions[id].refs += by;
}

/* get.c: a put of what this library itself has got. */
void put_region(struct kedge_cache *c, struct region *r);

/* region.c: zeroed memory, or NULL; munmap() ends it. */
void *reserve(size_t len);

/* region.c. With the lock held: */
struct region *region_new(struct kedge_cache *c);
void region_forget(struct kedge_cache *c, struct region *r);
enum why {
	WHY_CHANGED, /* or replaced: the range is likely to be asked for again */
	WHY_UNWANTED,
};
void region_kill(struct kedge_cache *c, struct region *r, enum why why,
		 uint32_t *killed);
void region_collect(struct kedge_cache *c, uint32_t *killed, uint32_t *dead);
/* region_collect() for one. True: it is not held, and is the caller's now. */
bool region_seize(struct kedge_cache *c, uint32_t *killed);
void region_die(struct kedge_cache *c, struct region *r, uint32_t *dead);
/* Without the lock: */
int no_region(const struct kedge_cache *c); /* why region_new() failed */
void region_put_slow(struct kedge_cache *c, uint32_t id, uint32_t by);
uint32_t region_reap(struct kedge_cache *c, uint32_t dead); /* how many ended */
/* reap.c: what the device has failed to end. With the lock held: add it to *dead, for another try;
 * the same where a try is due; and why it failed. */
void stuck_take(struct kedge_cache *c, uint32_t *dead);
uint32_t stuck_due(struct kedge_cache *c);
int stuck_reason(const struct kedge_cache *c);
void lru_add(struct kedge_cache *c, struct region *r);
void lru_remove(struct kedge_cache *c, struct region *r);

/* sync.c. With the lock held. Regions that died come back in *killed. */
void cache_sync(struct kedge_cache *c, uint32_t *killed);
/* True if one region does, after that. Without the lock. */
bool cache_serves(struct kedge_cache *c, uint64_t start, uint64_t end,
		  uint32_t access);

/*
 * hint.c: kedge_cache_hint(); @whole: it ends at a chunk that is not mapped, for a
 * call that has to have all of it.
 */
ssize_t cache_hint(struct kedge_cache *c, const void *addr, size_t len,
		   uint32_t access, bool whole);

/* resync.c. The first with the lock held. */
void lost_note(struct kedge_cache *c, const struct region *r, uint64_t start,
	       uint64_t end);
int resyncer_start(struct kedge_cache *c);
void resyncer_stop(struct kedge_cache *c);

/* replace.c: 0, or the software path is to do it. */
int region_replace(struct kedge_cache *c, uint32_t id, uint64_t start,
		   uint64_t end);

/* evict.c. With the lock held: make room; false if too little can go. */
enum room {
	ROOM_LIMITS, /* within the cache's own */
	ROOM_DEVICE, /* in the device, which has refused */
};
bool evict(struct kedge_cache *c, enum room room, uint64_t bytes,
	   uint32_t *killed);
bool over_limit(const struct kedge_cache *c, uint64_t bytes);
/* Kill registrations of freed memory while there are more bytes than max_freed_bytes. */
void evict_freed(struct kedge_cache *c, uint32_t *killed);

#include "cache/freed.h"
#include "cache/fill/register.h"

/* lend.c */
#define ACCESS_REMOTE \
	((uint32_t)(KEDGE_ACCESS_REMOTE_READ | KEDGE_ACCESS_REMOTE_WRITE | \
		    KEDGE_ACCESS_REMOTE_ATOMIC))
static inline bool is_lent(const struct kedge_cache *c, uint32_t access)
{
	return access & ACCESS_REMOTE && !c->trusted;
}
uint32_t local_part(uint32_t access);
int lend(struct kedge_cache *c, uint64_t addr, uint64_t len, uint32_t access,
	 enum trust trust, struct region **out);
/* The same, over @base where that can be; the caller's reference to it goes. */
int lend_over(struct kedge_cache *c, struct region *base, uint64_t addr,
	      uint64_t len, uint32_t access, struct region **out);
/* A made region that is held once and ends with that. With the lock held. */
void lend_begin(struct kedge_cache *c, struct region *r);

/* verify.c */
int verify_open(struct kedge_cache *c);
void verify_record(struct kedge_cache *c, struct region *r);
/* The pages from byte @skip on have gone to where the region is now. */
void verify_follow(struct kedge_cache *c, struct region *r, uint64_t skip);
void verify_hit(struct kedge_cache *c, const struct region *r, uint64_t addr,
		uint64_t end);

#endif /* CACHE_INTERNAL_H */
