/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions of UCX's caches, each with a watch of a notifier from before its pages are registered.
 *
 * A region that has lost pages, or that cannot be watched, is *going*: it is dropped from
 * UCX's cache before the next lookup of any thread, and stays on a list until the cache has let go
 * of it. UCX looks regions up, holds them and ends them as ever.
 *
 * The calls of this file are made with locks of UCX's held, but for regions_settle(), which alone
 * calls UCX: regions_begin() and regions_end() run within a registration.
 */
#ifndef ADAPTER_UCX_REGIONS_H
#define ADAPTER_UCX_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kedge/notifier.h>

struct regions;

/* It lies behind the region of UCX's, in the same piece of memory, all zeros at first. */
struct region {
	struct region *next, **at; /* of those that are going */
	uintptr_t start;
	size_t len;
	uint64_t process; /* that began it: see struct regions */
	uint64_t begun;	  /* its number in the order in which they began */
	const void *above; /* UCX's region */
	bool watched; /* once kedge_watch_add() has returned: before, a watch cannot end */
	bool changed; /* or was not to be kept: it is going, or has gone */
};

/**
 * struct regions_ops - the cache above
 * @drop:  regions that overlap the range are not found by lookups from now on. False: it has to be
 *         said again, as the cache above had no memory for it. Called by regions_settle() alone
 * @found: whether lookups find that region. Called while its memory is there, with a lock of
 *         regions' own. NULL: they do not, as @drop says by itself when it fails
 * @say:   no region is kept, as opening a notifier failed
 * @anew:  this process was forked from the one that used them before: locks of the layer above are
 *         in any state. Called once, before any other call of the child returns. May be NULL
 */
struct regions_ops {
	bool (*drop)(uintptr_t start, size_t len);
	bool (*found)(const struct region *r);
	void (*say)(int rc);
	void (*anew)(void);
};

/* 0, or a negative errno with its reason. @ops is borrowed. Where memory cannot be watched, it
 * says so, and no region is kept. It is never closed: UCX may call as long as the process lives. */
int regions_open(const struct regions_ops *ops, struct regions **out);

/* Before the pages of a region are registered that lookups may find, or wait for, from now on. */
void regions_begin(struct regions *t, struct region *r, const void *above, uintptr_t start,
		   size_t len);
/* Before a region is deregistered, or after it could not be registered. False: it was registered
 * by the process that forked this one, and is that one's. */
bool regions_end(struct regions *t, struct region *r);

/*
 * Before a lookup of the range: what it finds from now on has the pages that are there. Regions
 * that were registered before this call, and have changed since, are dropped; those that are
 * registered later have the pages that this thread sees already. Returns a number for
 * regions_is_stale(), or REGIONS_LOST where a drop has failed: a lookup may find what has changed.
 */
#define REGIONS_LOST UINT64_MAX
uint64_t regions_settle(struct regions *t, uintptr_t start, size_t len);

/* True: a region that a lookup has found, and holds, may have changed before the regions_settle()
 * that returned @since: the cache above has lost the drop of it. */
bool regions_is_stale(struct regions *t, const struct region *r, uint64_t since);
/* False, by one load: regions_is_stale() is so of no region that was found. */
bool regions_may_be_stale(const struct regions *t);

/* The number of this process: 0, or how many forks it is away from the one that opened it. */
uint64_t regions_process(struct regions *t);

/* For tests: regions that are going. */
unsigned int regions_going(struct regions *t);
/* The notifier, or NULL. */
struct kedge_notifier *regions_notifier(struct regions *t);

#endif /* ADAPTER_UCX_REGIONS_H */
