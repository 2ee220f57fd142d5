/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel is asked whether an application's memory may be read or written
 * before it is copied, so that a bad buffer ends its message with -EFAULT and not
 * the process. Where the kernel copies, it sees for itself.
 *
 * The answer is remembered while an epoch lasts: of pages for short messages, of
 * buffers for long ones. A program that unmaps or protects one meanwhile, and then
 * uses it for a message all the same, faults.
 */
#ifndef CHANNEL_ACCESS_H
#define CHANNEL_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#define ACCESS_SLOTS  256u
#define ACCESS_RANGES 8u
#define ACCESS_USES   1024 /* of pages, then they are asked about again */
#define RANGE_SHIFT   4	   /* messages as a power of two: the same of buffers */
#define GRAIN	      4096u /* no page is smaller */
#define EPOCH_VALID   2048u /* no valid entry looks like zeroed memory */

/*
 * By [write]. A slot holds the address of a grain that is good and, in its lower
 * bits, the epoch in which that was found out. Grains used last, side by side, stand
 * by themselves, with the uses that are left of the epoch.
 */
struct access {
	struct {
		uint64_t from;
		uint64_t to;
		uint32_t epoch;
	} range[2][ACCESS_RANGES];
	uint64_t slot[2][ACCESS_SLOTS];
	uint32_t next[2]; /* range to be replaced */
	uint32_t epoch[2];
	struct {
		uint64_t from;
		uint64_t len;
		int64_t left;
	} last[2];
};

/* Asks the kernel: 0 or -EFAULT. */
int access_ask(const void *p, size_t len, bool write);
int access_slow(struct access *t, const void *p, size_t len, bool write);

/* For a short message: 0 or -EFAULT. */
static inline int access_check(struct access *t, const void *p, size_t len,
			       bool write)
{
	uintptr_t at = (uintptr_t)p - t->last[write].from;
	uint64_t good = t->last[write].len;

	if (likely(len <= good && at <= good - len &&
		   --t->last[write].left >= 0))
		return 0;
	return access_slow(t, p, len, write);
}

/* Of long ones: whether a range was good of late, and that it is. */
bool access_knows(const struct access *t, const void *p, size_t len, bool write,
		  uint32_t cnt);
void access_learn(struct access *t, const void *p, size_t len, bool write,
		  uint32_t cnt);

#endif /* CHANNEL_ACCESS_H */
