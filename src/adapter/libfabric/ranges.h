/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges that libfabric's caches have registered, each with a watch of a notifier.
 *
 * A range is *kept* from the moment that libfabric was told so: some cache may have a registration
 * of it. One that changes then is *pending*, until libfabric was told of that (notify), which takes
 * it out of all caches; and so is one that has to make room. So while no range is pending, and no
 * watch has an event, each registration in a cache is of a kept range that has not changed.
 *
 * libfabric calls ranges_keep() and ranges_valid() with its own lock held, which notify takes. So
 * they do not tell it: another thread does, which is woken (ranges_wait()).
 */
#ifndef ADAPTER_LIBFABRIC_RANGES_H
#define ADAPTER_LIBFABRIC_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kedge/notifier.h>

struct ranges;

struct span {
	const void *at;
	size_t len;
};

/* @max: of ranges at once. 0, or a negative errno with its reason. @nf is borrowed; with NULL no
 * range is kept. */
int ranges_open(struct kedge_notifier *nf, unsigned int max, struct ranges **out);
void ranges_close(struct ranges *t);

/*
 * A registration of the range was made by this thread, and the last that it told of at @before (of
 * ranges_clock()) was made earlier. True: it may be kept, as the range was watched since before it
 * was made, and has not changed.
 */
bool ranges_keep(struct ranges *t, const void *at, size_t len, uint64_t before);

/* A registration that is kept is still of the pages that are there. */
bool ranges_valid(struct ranges *t, const void *at, size_t len);

/* It grows with each watch that begins; the first is 1. */
uint64_t ranges_clock(struct ranges *t);

/* Wait for ranges that libfabric is to be told of: how many of @out, @max at most, or 0 after
 * ranges_stop(). All of them are told before the next call. */
size_t ranges_wait(struct ranges *t, struct span *out, size_t max);
void ranges_stop(struct ranges *t);
/* The last cache has gone, and all ranges go. */
void ranges_forget(struct ranges *t);

/* In a forked child: a thread of the parent may have had the lock. No range is kept any more. */
void ranges_after_fork(struct ranges *t);

/* For tests: how many ranges there are, kept or not, and pending. */
void ranges_count(struct ranges *t, unsigned int *all, unsigned int *pending);

#endif /* ADAPTER_LIBFABRIC_RANGES_H */
