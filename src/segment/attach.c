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

#include "base/process/cancel.h"
#include "segment/internal.h"

#define SETTLE_NS 100000000u

/* The generation is loaded first: what moves it later is seen at the next look. */
static bool settled(const struct kedge_grant *g, uint64_t *generation)
{
	uint64_t deadline = clock_ns() + SETTLE_NS;
	const struct seg_check *c = g->map.check;

	for (;;) {
		*generation = atomic_load_explicit(&c->generation, memory_order_acquire);
		if (g->ended)
			return false;
		if (!(*generation & 1) &&
		    atomic_load_explicit(&c->changes[g->word], memory_order_acquire) ==
			    g->count)
			return true;
		if (clock_ns() > deadline)
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

static int enter(struct kedge_attachment *a)
{
	struct kedge_grant *g = a->grant;
	uint64_t generation;
	int rc = -ESTALE;

	sig_lock(&seg_lock);
	if (settled(g, &generation) && !is_gone(g, a->file_off, a->file_off + a->len)) {
		a->head.seen = generation;
		if (!g->own)
			list_add_tail(&g->attachments, &a->node);
		rc = 0;
	}
	sig_unlock(&seg_lock);
	return rc ? segment_is_stale() : 0;
}

#ifdef __SANITIZE_THREAD__
#define FORGETS false /* what was at an address, only if mmap() gave it */
#else
#define FORGETS true
#endif

void segment_unmap(void *at, size_t len)
{
	if (mmap(at, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
		 -1, 0) == MAP_FAILED)
		munmap(at, len);
}

/* In the list before it is mapped. */
static bool reserve(struct kedge_attachment *a)
{
	void *to = mmap(NULL, a->len, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (to == MAP_FAILED)
		return false;
	a->at = to;
	a->head.seen = NEVER;
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

	if (FORGETS && !a->grant->own) {
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
	if (a->grant->own)
		segment_unmap(a->at, a->len);
	sig_lock(&seg_lock);
	list_remove(&a->node);
	sig_unlock(&seg_lock);
	munmap(a->at, a->len);
}

static int check_attach(const struct kedge_grant *g, uint64_t offset, size_t len,
			uint32_t flags, struct kedge_attachment **out)
{
	if (!g || !out || flags & ~KEDGE_ATTACH_KEEP)
		return kedge_reason(-EINVAL, "a pointer is NULL, or a flag is unknown");
	if (g->pid != getpid())
		return kedge_reason(-ECHILD, "the grant is the parent process's");
	if (!len || offset >= g->info.len || len > g->info.len - offset)
		return kedge_reason(-EINVAL, "the range is not within the segment");
	if (g->info.backend == KEDGE_SEGMENT_COPY)
		return kedge_reason(-EOPNOTSUPP, "the segment can only be copied%s%s: use "
				    "kedge_segment_copy()", g->info.reason[0] ? ": " : "",
				    g->info.reason);
	return 0;
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
	if (a->at && a->at != MAP_FAILED)
		unmap(a);
	return kedge_reason(-ENOMEM, "no room for a mapping (vm.max_map_count, RLIMIT_AS)");
}

int kedge_segment_attach(struct kedge_grant *g, uint64_t offset, size_t len, uint32_t flags,
			 struct kedge_attachment **out)
{
	const size_t page = kedge__page_size();
	struct kedge_attachment *a;
	uint64_t first;
	int rc = check_attach(g, offset, len, flags, out);

	if (rc)
		return rc;
	a = malloc(sizeof(*a));
	if (!a)
		return -ENOMEM;
	first = round_down(g->file_off + offset, page);
	*a = (struct kedge_attachment){
		.head = { .generation = (const uint64_t *)&g->map.check->generation,
			  .len = len },
		.grant = g, .flags = flags, .file_off = first,
		.len = round_up(g->file_off + offset + len, page) - first };
	list_init(&a->node);
	rc = attach(a);
	if (rc) {
		free(a);
		return rc;
	}
	a->head.addr = a->at + (g->file_off + offset - first);
	*out = a;
	return 0;
}

void kedge_segment_detach(struct kedge_attachment *a)
{
	if (!a)
		return;
	/* A thread that hears of a change maps nothing there once it is out of the list. */
	if (a->grant->pid != getpid())
		;
	else if (a->grant->info.backend == KEDGE_SEGMENT_MODULE)
		munmap(a->at, a->len);
	else
		unmap(a);
	free(a);
}

int kedge_segment_valid_slow(struct kedge_attachment *a)
{
	uint64_t generation;
	bool valid;

	/* The module's generation alone tells. */
	if (!a || a->grant->pid != getpid() || a->grant->info.backend == KEDGE_SEGMENT_MODULE)
		return false;
	sig_lock(&seg_lock);
	valid = settled(a->grant, &generation) && !a->gone;
	if (valid)
		__atomic_store_n(&a->head.seen, generation, __ATOMIC_RELAXED);
	sig_unlock(&seg_lock);
	return valid;
}
