// SPDX-License-Identifier: BSD-2-Clause
/*
 * Segments that are converted in parts, when those are attached (demand.c is the owner's side).
 * Each part that the owner has shared is a grant of its own, with a connection and a memfd, and
 * is kept for further attachments. A range within one part is an attachment of that grant, as
 * any. A range over several parts, or with a hole, is a range of addresses into which each part
 * is mapped; pages without memory behind them fill a hole.
 *
 * A part that has ended, as it was the owner's before a fork, or that another one took the
 * place of, serves its attachments and no more, and is given back when they have gone.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process/page.h"
#include "segment/peer/attached.h"

#define PART_MAX ((uint64_t)256 << 20) /* to be converted within a time that is waited for */
#define TRIES	 16
#define UNUSED	 32 /* parts that are kept for what is attached next */
#define FULL_NS	 1000000

/* ---- parts ---- */

static void parts_lock(struct kedge_grant *g)
{
	while (atomic_flag_test_and_set_explicit(&g->spares_taken, memory_order_acquire))
		sched_yield();
}

static void parts_unlock(struct kedge_grant *g)
{
	atomic_flag_clear_explicit(&g->spares_taken, memory_order_release);
}

static bool has(const struct kedge_grant *p, uint64_t at)
{
	return !p->left && !__atomic_load_n(&p->ended, __ATOMIC_RELAXED) &&
	       at >= p->info.addr && at - p->info.addr < p->info.len;
}

/* One that has the owner's address, in use then; or NULL. */
static struct kedge_grant *use(struct kedge_grant *g, uint64_t at)
{
	struct kedge_grant *p = NULL;
	struct list *l, *tmp;

	parts_lock(g);
	list_for_each_safe(l, tmp, &g->parts) {
		p = list_entry(l, struct kedge_grant, part_node);
		if (has(p, at)) {
			atomic_fetch_add_explicit(&p->users, 1, memory_order_relaxed);
			break;
		}
		p = NULL;
	}
	parts_unlock(g);
	return p;
}

void parts_unuse(struct kedge_grant *p)
{
	/* release: it is given back after all that was done with it. */
	atomic_fetch_sub_explicit(&p->users, 1, memory_order_release);
}

/* It serves no more, or it is one too many; and it serves nothing now. */
static bool is_over(const struct kedge_grant *p, unsigned int *unused, unsigned int keep)
{
	if (atomic_load_explicit(&p->users, memory_order_acquire))
		return false;
	return p->left || __atomic_load_n(&p->ended, __ATOMIC_RELAXED) || ++*unused > keep;
}

static struct kedge_grant *take_over(struct kedge_grant *g, unsigned int keep)
{
	struct kedge_grant *p, *found = NULL;
	unsigned int unused = 0;
	struct list *l, *tmp;

	parts_lock(g);
	list_for_each_safe(l, tmp, &g->parts) {
		p = list_entry(l, struct kedge_grant, part_node);
		if (!is_over(p, &unused, keep))
			continue;
		list_remove(&p->part_node);
		found = p;
		break;
	}
	parts_unlock(g);
	return found;
}

/* But for the latest @keep of those that are not in use. False: there was none. */
static bool give_back(struct kedge_grant *g, unsigned int keep)
{
	struct kedge_grant *over;
	bool any = false;

	while ((over = take_over(g, keep))) {
		grant_free(over);
		any = true;
	}
	return any;
}

/* In use then. Another one of the same memfd is not attached from any more: a part of it was
 * found to have gone. */
static void add(struct kedge_grant *g, struct kedge_grant *p)
{
	struct kedge_grant *other;
	struct list *l, *tmp;

	p->whole = g;
	p->id = g->id;
	atomic_store_explicit(&p->users, 1, memory_order_relaxed);
	parts_lock(g);
	list_for_each_safe(l, tmp, &g->parts) {
		other = list_entry(l, struct kedge_grant, part_node);
		if (other->word == p->word)
			other->left = true;
	}
	/* Before the others, of which one may have had that memory once. */
	list_add_tail(g->parts.next, &p->part_node);
	parts_unlock(g);
}

void parts_free(struct kedge_grant *g)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &g->parts) {
		list_remove(l);
		grant_free(list_entry(l, struct kedge_grant, part_node));
	}
}

static int ask(struct kedge_grant *g, uint64_t start, uint64_t end, struct kedge_grant **part,
	       uint64_t *until)
{
	const struct timespec nap = { 0, FULL_NS };
	bool more = true;
	int rc, try;

	give_back(g, UNUSED);
	end = end - start < PART_MAX ? end : start + PART_MAX;
	rc = grant_part(g, start, end, part, until);
	/* The owner may have no more, or this process; and it takes a moment to be private. */
	for (try = 0; rc == -ENOSPC && more && try < TRIES; try++) {
		more = give_back(g, 0) || try;
		nanosleep(&nap, NULL);
		rc = grant_part(g, start, end, part, until);
	}
	if (!rc)
		add(g, *part);
	return rc;
}

/* ---- attachments that have several ---- */

static bool room(struct kedge_attachment *a)
{
	uint32_t more = a->part_room ? 2 * a->part_room : 4;
	struct kedge_attachment **part;

	if (a->part_cnt < a->part_room)
		return true;
	part = realloc(a->part, more * sizeof(*part));
	if (!part)
		return false;
	a->part = part;
	a->part_room = more;
	return true;
}

/* At its place in @a; what is attached then is a user of the part. */
static int attach_at(struct kedge_attachment *a, struct kedge_grant *p, uint64_t from,
		     uint64_t start, uint64_t end)
{
	struct kedge_attachment *sub;
	int rc;

	rc = room(a) ? attach_pages(p, start - p->info.addr, end - start, a->flags,
				    a->at + (start - from), &sub) : -ENOMEM;
	if (rc) {
		parts_unuse(p);
		return rc;
	}
	a->part[a->part_cnt++] = sub;
	/* A change before that is seen when all parts are looked at. */
	sig_lock(&seg_lock);
	sub->whole = a;
	sig_unlock(&seg_lock);
	return 0;
}

static int nothing(void)
{
	return kedge_reason(-EFAULT, "the owner has nothing mapped there");
}

/* Pages that end before they begin, as those behind the end of a file. */
static int attach_hole(struct kedge_attachment *a, uint64_t from, uint64_t start, uint64_t end)
{
	int fd;
	void *p;

	if (a->flags & KEDGE_ATTACH_KEEP)
		return kedge_reason(-EFAULT, "the owner has nothing mapped in a part of that "
				    "range, and KEDGE_ATTACH_KEEP has no pages for holes");
	fd = memfd_create("kedge-segment-hole", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	p = mmap(a->at + (start - from), end - start, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return -ENOMEM;
	madvise(p, end - start, MADV_DONTFORK);
	return 0;
}

/* The end of @p, or @end. */
static uint64_t end_of(const struct kedge_grant *p, uint64_t end)
{
	return p->info.addr + p->info.len < end ? p->info.addr + p->info.len : end;
}

/* A part that is known, or one that the owner is asked for: from @start to *@until. */
static int attach_next(struct kedge_attachment *a, uint64_t from, uint64_t start, uint64_t end,
		       uint64_t *until)
{
	struct kedge_grant *p = use(a->grant, start);
	int rc = -ESTALE, try;

	if (p) {
		*until = end_of(p, end);
		rc = attach_at(a, p, from, start, *until);
	}
	for (try = 0; rc == -ESTALE && try < TRIES; try++) {
		rc = ask(a->grant, start, end, &p, until);
		if (rc == -EFAULT)
			return attach_hole(a, from, start, *until);
		if (!rc)
			rc = attach_at(a, p, from, start, *until);
		else if (rc == -ESTALE)
			break;
	}
	return rc;
}

static void detach_part(struct kedge_attachment *a)
{
	struct kedge_grant *p = a->grant;

	detach_pages(a);
	parts_unuse(p);
}

static void detach_all(struct kedge_attachment *a)
{
	uint32_t i;

	for (i = 0; i < a->part_cnt; i++)
		detach_part(a->part[i]);
	if (a->within)
		segment_unmap(a->at, a->len);
	else
		munmap(a->at, a->len);
}

static void leave(struct kedge_attachment *a)
{
	sig_lock(&seg_lock);
	list_remove(&a->node);
	sig_unlock(&seg_lock);
}

static int attach_all(struct kedge_attachment *a, uint64_t from)
{
	const uint64_t end = from + a->len;
	uint64_t at, until;
	int rc = 0;

	for (at = from; !rc && at < end; at = until)
		rc = attach_next(a, from, at, end, &until);
	if (!rc && !a->part_cnt)
		rc = nothing();
	if (rc)
		return rc;
	a->head.generation = a->part[0]->head.generation;
	return parts_valid(a) ? 0 : segment_is_stale();
}

int parts_attach_at(struct kedge_grant *g, uint64_t start, size_t len, uint32_t flags, char *at,
		    struct kedge_attachment **out)
{
	struct kedge_attachment *a = calloc(1, sizeof(*a));
	int rc;

	if (!a)
		return -ENOMEM;
	madvise(at, len, MADV_DONTFORK);
	a->grant = g;
	a->flags = flags;
	a->file_off = start;
	a->within = true;
	a->at = at;
	a->len = len;
	a->head.seen = PENDING;
	/* Its owner's end is heard of, and drop.c knows it. */
	sig_lock(&seg_lock);
	list_add_tail(&g->attachments, &a->node);
	sig_unlock(&seg_lock);
	rc = attach_all(a, start);
	if (rc) {
		leave(a);
		detach_all(a);
		free(a->part);
		free(a);
		return rc;
	}
	*out = a;
	return 0;
}

static int attach_parts(struct kedge_grant *g, uint64_t start, size_t len, uint32_t flags,
			struct kedge_attachment **out)
{
	void *at = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int rc;

	if (at == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no room for a mapping (vm.max_map_count, RLIMIT_AS)");
	rc = parts_attach_at(g, start, len, flags, at, out);
	if (rc)
		munmap(at, len);
	else
		(*out)->within = false;
	return rc;
}

/* ---- calls ---- */

int parts_attach(struct kedge_grant *g, uint64_t start, size_t len, uint32_t flags,
		 struct kedge_attachment **out)
{
	struct kedge_grant *p = use(g, start);
	uint64_t until;
	int rc = p ? 0 : ask(g, start, start + len, &p, &until);

	if (rc == -EFAULT)
		return until < start + len ? attach_parts(g, start, len, flags, out) : nothing();
	if (rc)
		return rc;
	rc = -ESTALE;
	if (end_of(p, start + len) == start + len)
		rc = attach_pages(p, start - p->info.addr, len, flags, NULL, out);
	if (rc)
		parts_unuse(p);
	return rc == -ESTALE ? attach_parts(g, start, len, flags, out) : rc;
}

void parts_detach(struct kedge_attachment *a)
{
	/* In a child the addresses are not mapped. */
	if (a->grant->pid == process_pid()) {
		leave(a);
		detach_all(a);
	}
	free(a->part);
	free(a);
}

/* It is valid as of the generation that all parts are valid as of. */
bool parts_valid(struct kedge_attachment *a)
{
	uint64_t generation = NEVER, seen;
	bool same = true;
	uint32_t i;

	for (i = 0; i < a->part_cnt; i++) {
		if (!attached_valid(a->part[i]))
			return false;
		seen = __atomic_load_n(&a->part[i]->head.seen, __ATOMIC_RELAXED);
		same = same && (!i || seen == generation);
		generation = seen;
	}
	sig_lock(&seg_lock);
	if (!a->gone && same)
		__atomic_store_n(&a->head.seen, generation, __ATOMIC_RELAXED);
	same = !a->gone;
	sig_unlock(&seg_lock);
	return same;
}
