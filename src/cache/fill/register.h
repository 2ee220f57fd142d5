/* SPDX-License-Identifier: BSD-2-Clause */
/* Registering what a lookup did not find. Part of internal.h. */
#ifndef CACHE_FILL_REGISTER_H
#define CACHE_FILL_REGISTER_H

struct want {
	uint64_t start; /* what was asked for, in pages */
	uint64_t end;
	uint32_t access;
	enum trust trust; /* in what is there */
	bool hold;  /* the caller wants a reference: it is a get's miss */
	bool look;  /* what is there may do; then it was a hit */
	bool merge; /* neighbours may be taken in */
	bool evict; /* others may go for it */
	bool lend;  /* ends with its put; not of whole pages, maybe */
};

/* The range that is about to be registered. */
struct plan {
	uint64_t start;
	uint64_t end;
	uint32_t access;
	bool merged;
	bool joined; /* over a border of chunks: not worth another's registration */
	bool keep;
	bool exclusive; /* no other registration overlaps it */
	enum kedge_uncached why; /* not, where it is to be */
	uint64_t device_ns; /* spent in the device's reg, to be counted */
	bool made;	    /* reg has succeeded, to be counted */
};

/* plan.c. With the lock held. */
void make_plan(struct kedge_cache *c, const struct want *w, struct plan *p);

/*
 * exclusive.c. With the lock held: end what overlaps the plan. *dead is for region_reap() before
 * the device registers. 0, -EBUSY where some of it is held, or:
 */
#define WAY_BUSY  2 /* wait for c->moved, and plan anew */
#define WAY_STUCK 3 /* what the device has failed to end is in the way */
int make_way(struct kedge_cache *c, const struct want *w, struct plan *p,
	     uint32_t *killed, uint32_t *dead);
/* With the lock held, when what was in the way has ended, or should have. */
bool way_is_clear(struct kedge_cache *c, const struct region *r);
/* reg has answered -EEXIST. True: to the cache's surprise, so it may try again. */
bool exclusive_learn(struct kedge_cache *c, const struct plan *p);

/* vouch.c. Without the lock. */
bool vouch_region(struct kedge_cache *c, struct region *r);
void vouches_free(struct kedge_cache *c);

int cache_register(struct kedge_cache *c, const struct want *want,
		   struct region **out);
/*
 * A region in the state MAKING, for [@start, @end): 0, or a negative errno. Then: it is
 * to be elsewhere; it is made, to be kept if @keep and no event came in between; or it
 * is not made.
 */
int region_plan(struct kedge_cache *c, uint64_t start, uint64_t end,
		uint32_t access, struct region **out);
void region_place(struct kedge_cache *c, struct region *r, uint64_t start,
		  uint64_t len);
void region_finish(struct kedge_cache *c, struct region *r, bool keep);
void region_drop_unmade(struct kedge_cache *c, struct region *r);
int cache_check_args(struct kedge_cache *c, uint64_t addr, size_t len,
		     uint32_t access);
void count_failure(struct kedge_cache *c);
/*
 * A region with a reference: the one there is, or a new one. @trust: what
 * notify_settle() said when the call began.
 */
int get_kept(struct kedge_cache *c, uint64_t addr, size_t len, uint32_t access,
	     enum trust trust, struct region **out);
int get_slow(struct kedge_cache *c, uint64_t addr, size_t len, uint32_t access,
	     enum trust trust, struct region **out);

#endif /* CACHE_FILL_REGISTER_H */
