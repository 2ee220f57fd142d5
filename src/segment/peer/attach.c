// SPDX-License-Identifier: BSD-2-Clause
/*
 * Attachments, and whether they are still the owner's memory.
 *
 * The owner counts the changes of a range, and tells each; this process counts what it was
 * told. Where both are the same as of a generation, and the attachment was not among what
 * went, it is valid as of that generation, which is what valid() compares with from then
 * on. check.c has the owner's side, and what orders both.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process/page.h"
#include "segment/peer/attached.h"
#include "segment/place.h"

#define SETTLE_NS  100000000u
#define HOLD_TRIES 100

/* As of an even generation all changes were heard of. It is loaded first: what moves it later is
 * seen at the next look. */
static bool is_heard(const struct kedge_grant *g, uint64_t *generation)
{
	const struct seg_check *c = g->map.check;

	*generation = atomic_load_explicit(&c->generation, memory_order_acquire);
	return !(*generation & 1) &&
	       atomic_load_explicit(&c->changes[g->word], memory_order_acquire) ==
		       atomic_load_explicit(&g->count, memory_order_acquire);
}

static bool settled(const struct kedge_grant *g, uint64_t *generation)
{
	uint64_t deadline = clock_ns() + SETTLE_NS;

	for (;;) {
		if (is_heard(g, generation))
			return !g->ended;
		if (g->ended || clock_ns() > deadline)
			return false;
		sig_unlock(&seg_lock);
		sched_yield();
		sig_lock(&seg_lock);
	}
}

static bool is_gone(const struct kedge_grant *g, uint64_t start, uint64_t end)
{
	uint32_t i;

	for (i = 0; i < g->gone_cnt; i++)
		if (g->gone[i].start < end && start < g->gone[i].end)
			return true;
	return false;
}

/* And nothing has gone at all. The parts that have are noted before the count of changes
 * moves, so they are looked at after it. */
static bool is_whole(const struct kedge_grant *g, uint64_t *generation)
{
	return is_heard(g, generation) &&
	       !atomic_load_explicit(&g->gone_cnt, memory_order_relaxed);
}

/* The thread may take it already, and no part of it has gone before: or -ESTALE. */
static int enter(struct kedge_attachment *a)
{
	struct kedge_grant *g = a->grant;
	uint64_t generation;
	bool valid;

	if (!g->own)
		attached_enter(a);
	valid = is_whole(g, &generation);
	if (!valid) {
		sig_lock(&seg_lock);
		valid = settled(g, &generation) &&
			!is_gone(g, a->file_off, a->file_off + a->len);
		sig_unlock(&seg_lock);
	}
	return valid && attached_confirm(a, generation) ? 0 : segment_is_stale();
}

#ifdef __SANITIZE_THREAD__
#define FORGETS false /* what was at an address, only if mmap() gave it */
#else
#define FORGETS true
#endif

static bool hold(void *at, size_t len)
{
	return mmap(at, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
		    -1, 0) != MAP_FAILED;
}

/* One mapping takes the place of one, so just the kernel's own memory may be wanting, for a
 * moment. Free addresses may be another thread's when they are unmapped as a whole. */
void segment_unmap(void *at, size_t len)
{
	int tries;

	for (tries = 0; !hold(at, len); tries++) {
		if (tries == HOLD_TRIES) {
			munmap(at, len);
			return;
		}
		sched_yield();
	}
}

/* In the list before it is mapped. */
static bool reserve(struct kedge_attachment *a)
{
	void *to = a->at;

	if (!to)
		to = mmap(NULL, a->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);
	if (to == MAP_FAILED)
		return false;
	a->at = to;
	if (!a->grant->own)
		return true;
	sig_lock(&seg_lock);
	list_add_tail(&a->grant->attachments, &a->node);
	sig_unlock(&seg_lock);
	return true;
}

/* Of no bytes of a shared mapping mremap() makes another one. */
static bool map(struct kedge_attachment *a)
{
	char *from = a->grant->map.base + a->file_off;
	void *p;

	if (FORGETS && !a->grant->own && !a->at) {
		p = mremap(from, 0, a->len, MREMAP_MAYMOVE);
		a->at = p;
		return p != MAP_FAILED;
	}
	if (!reserve(a))
		return false;
	return mremap(from, 0, a->len, MREMAP_MAYMOVE | MREMAP_FIXED, a->at) != MAP_FAILED;
}

static void unmap(struct kedge_attachment *a)
{
	if (a->grant->own) {
		segment_unmap(a->at, a->len);
		sig_lock(&seg_lock);
		list_remove(&a->node);
		sig_unlock(&seg_lock);
	} else {
		attached_leave(a);
	}
	if (a->within)
		segment_unmap(a->at, a->len);
	else
		munmap(a->at, a->len);
}

static int attach(struct kedge_attachment *a)
{
	int rc;

	if (a->grant->info.backend == KEDGE_SEGMENT_MODULE)
		return module_attach(a);
	if (map(a)) {
		rc = enter(a);
		if (rc)
			unmap(a);
		return rc;
	}
	if (a->grant->own && a->at)
		unmap(a);
	else if (a->at && a->at != MAP_FAILED && !a->within)
		munmap(a->at, a->len);
	return kedge_reason(-ENOMEM, "no room for a mapping (vm.max_map_count, RLIMIT_AS)");
}

/* Of the grant's chain, or one of its own. */
static bool is_chained(const struct kedge_grant *g)
{
	return !g->own && g->info.backend != KEDGE_SEGMENT_MODULE;
}

static struct kedge_attachment *record_get(struct kedge_grant *g)
{
	return is_chained(g) ? attached_get(g) : calloc(1, sizeof(struct kedge_attachment));
}

static void record_put(struct kedge_attachment *a)
{
	if (is_chained(a->grant))
		attached_put(a);
	else
		free(a);
}

int attach_pages(struct kedge_grant *g, uint64_t off, size_t len, uint32_t flags, char *at,
		 struct kedge_attachment **out)
{
	struct kedge_attachment *a = record_get(g);
	int rc;

	if (!a)
		return -ENOMEM;
	a->head = (struct kedge_attachment_head){
		.generation = (const uint64_t *)&g->map.check->generation, .seen = PENDING };
	a->grant = g;
	a->flags = flags;
	a->file_off = off;
	a->len = len;
	a->at = at;
	a->within = at;
	a->whole = NULL;
	a->gone = false;
	list_init(&a->node);
	rc = attach(a);
	if (rc)
		record_put(a);
	else
		*out = a;
	return rc;
}

void detach_pages(struct kedge_attachment *a)
{
	if (a->grant->pid != process_pid()) {
		/* A thread of the parent's may have had the lock of the others: they end with
		 * the grant. */
		if (!is_chained(a->grant))
			free(a);
		return;
	}
	/* A thread that hears of a change maps nothing there from then on. */
	if (a->grant->info.backend != KEDGE_SEGMENT_MODULE)
		unmap(a);
	else if (a->within)
		segment_unmap(a->at, a->len);
	else
		munmap(a->at, a->len);
	record_put(a);
}

static bool is_as_of(const struct kedge_attachment *a)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_acquire);
#endif
	return __atomic_load_n(a->head.generation, __ATOMIC_ACQUIRE) ==
	       __atomic_load_n(&a->head.seen, __ATOMIC_RELAXED);
}

bool segment_valid_now(struct kedge_attachment *a)
{
	struct kedge_grant *g = a->grant;
	uint64_t generation;
	bool valid;

	if (is_as_of(a))
		return true;
	if (a->part || g->pid != process_pid() || g->info.backend == KEDGE_SEGMENT_MODULE)
		return false;
	sig_lock(&seg_lock);
	valid = is_heard(g, &generation) && !g->ended && !a->gone;
	if (valid)
		__atomic_store_n(&a->head.seen, generation, __ATOMIC_RELAXED);
	sig_unlock(&seg_lock);
	return valid;
}

bool attached_valid(struct kedge_attachment *a)
{
	uint64_t generation;
	bool valid;

	/* The module's generation alone tells. */
	if (a->grant->info.backend == KEDGE_SEGMENT_MODULE)
		return false;
	sig_lock(&seg_lock);
	valid = settled(a->grant, &generation) && !a->gone;
	if (valid)
		__atomic_store_n(&a->head.seen, generation, __ATOMIC_RELAXED);
	sig_unlock(&seg_lock);
	return valid;
}
