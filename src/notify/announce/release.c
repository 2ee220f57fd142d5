// SPDX-License-Identifier: BSD-2-Clause
/*
 * The list of caches, which keep registrations of freed memory. It is walked by every free() of a
 * large chunk that has a watch, so without a lock; a user that leaves waits until no walk is under
 * way that may have found it.
 *
 * Proof. A walk raises a count (seq_cst), walks, and lowers it (release). A user that leaves is
 * taken out of the list (seq_cst), and then each count is read until it was 0 once (seq_cst). A
 * walk that raised its count before that read has lowered it since, and the read (acquire) has seen
 * it; one that raises it later finds the list without the user. The counts are several, by thread,
 * so that threads which free at the same time do not share a line.
 */
#include <sched.h>

#include "base/base.h"
#include "base/lock.h"
#include "notify/announce/release.h"

#define COUNTS_BITS 4
#define COUNTS	    (1u << COUNTS_BITS)

struct count {
	_Atomic int walks;
} __attribute__((aligned(64)));

static struct count counts[COUNTS];
static struct release_user *_Atomic first;
static struct sig_lock lock = SIG_LOCK_INIT; /* of changes of the list */

void release_attach(struct release_user *u)
{
	sig_lock(&lock);
	atomic_store_explicit(&u->next, atomic_load(&first), memory_order_relaxed);
	/* release: whoever finds the user finds it made. */
	atomic_store_explicit(&first, u, memory_order_release);
	sig_unlock(&lock);
}

static void unlink_user(struct release_user *u)
{
	struct release_user *_Atomic *link = &first, *at;

	sig_lock(&lock);
	while ((at = atomic_load(link)) && at != u)
		link = &at->next;
	if (at)
		atomic_store(link, atomic_load(&u->next));
	sig_unlock(&lock);
}

void release_detach(struct release_user *u)
{
	unsigned int i;

	unlink_user(u);
	for (i = 0; i < COUNTS; i++)
		while (atomic_load(&counts[i].walks) > 0)
			sched_yield();
}

/* By an address of the thread's own: stacks and blocks of threads lie far apart. */
static struct count *own_count(void)
{
	static __thread char mine;

	return &counts[((uintptr_t)&mine >> 12) * 0x9e3779b97f4a7c15ull >>
		       (64 - COUNTS_BITS)];
}

static struct count *walk_begins(void)
{
	struct count *c = own_count();

	atomic_fetch_add(&c->walks, 1);
	return c;
}

static void walk_ends(struct count *c)
{
	atomic_fetch_sub_explicit(&c->walks, 1, memory_order_release);
}

static struct release_user *after(const struct release_user *u)
{
	return atomic_load_explicit(&u->next, memory_order_acquire);
}

void release_chunk(uint64_t start, uint64_t end)
{
	struct count *c = walk_begins();
	struct release_user *u;

	for (u = atomic_load(&first); u; u = after(u))
		u->released(u, start, end);
	walk_ends(c);
}

void release_trim(void)
{
	struct count *c = walk_begins();
	struct release_user *u;

	for (u = atomic_load(&first); u; u = after(u))
		u->trimmed(u);
	walk_ends(c);
}

void release_reset(void)
{
	unsigned int i;

	sig_lock_init(&lock);
	atomic_store(&first, NULL);
	for (i = 0; i < COUNTS; i++)
		atomic_store(&counts[i].walks, 0);
}
