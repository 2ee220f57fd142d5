// SPDX-License-Identifier: BSD-2-Clause
/*
 * To share: a chunk is registered for missing pages, its pages are moved out to scratch
 * space (UFFDIO_MOVE, which refuses what is pinned), written to the memfd from there, and
 * the memfd is mapped over the chunk. Then whoever waited goes on.
 *
 * Why no store is lost. A store to a page is done before UFFDIO_MOVE takes that page out,
 * which flushes the entry from every processor; so it is in the page that is copied. One
 * that comes later finds no page and waits, in the kernel, for this userfaultfd. The
 * mremap() that puts the memfd there takes the address space's lock and that of the
 * mapping, so it comes after each such fault has begun to wait; the wake after it finds
 * them all, and they fault again, in the new mapping. Wake them before it and they would
 * wait once more, for a registration that is gone.
 *
 * Why no device's write is lost: a page is pinned before a device may write it. Pinned
 * before the move, the move is refused; after it, there is no page to pin until the
 * memfd's is there.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process/own.h"
#include "pages/move.h"
#include "pages/share/priv.h"

#define SCAN_CNT 64
#define MOVED	 1 /* by another thread, and what was in its place is gone */

/* ---- the memfd ---- */

static int write_all(int fd, uintptr_t from, size_t len, uint64_t off)
{
	ssize_t n;

	for (; len; len -= (size_t)n) {
		n = pwrite(fd, (void *)from, len, (off_t)off);
		if (n <= 0)
			return n ? -errno : -ENOSPC;
		from += (uintptr_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

/* The pages at @at, of @len bytes with holes, to the file at @off. */
static int write_present(struct swap_context *ctx, uintptr_t at, size_t len,
			 int fd, uint64_t off)
{
	struct scan_region_v1 r[SCAN_CNT];
	struct scan_arg_v1 s = {
		.size = sizeof(s),
		.start = at,
		.end = at + len,
		.vec = (uintptr_t)r,
		.vec_len = SCAN_CNT,
		.category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
		.return_mask = SCAN_PRESENT,
	};
	int n, i, rc;

	while (s.start < s.end) {
		n = ioctl(ctx->pagemap, PAGEMAP_SCAN_V1, &s);
		if (n < 0 || (!n && s.walk_end < s.end))
			return -EOPNOTSUPP;
		for (i = 0; i < n; i++) {
			rc = write_all(fd, r[i].start, r[i].end - r[i].start,
				       off + (r[i].start - at));
			if (rc)
				return rc;
		}
		s.start = s.walk_end;
	}
	return 0;
}

/* The pages that are out of @s to the file. */
static int write_side(const struct side *s, int fd, uint64_t off)
{
	struct run run;
	size_t at = 0;
	int rc = 0;

	for (; !rc && move_next_run(s, at, &run); at = run.end)
		if (run.kind != PIECE_EMPTY)
			rc = write_present(s->ctx,
					   s->scratch[run.kind] + run.start,
					   run.end - run.start, fd,
					   off + run.start);
	return rc;
}

static void drop_scratch(const struct side *s)
{
	struct run run;
	size_t at = 0;

	for (; move_next_run(s, at, &run); at = run.end)
		if (run.kind != PIECE_EMPTY)
			context_drop(s->ctx, s->scratch[run.kind] + run.start,
				     run.end - run.start);
}

/* ---- one chunk ---- */

/*
 * Finds out if other memory was mapped there since the pages went out: UFFDIO_CONTINUE
 * is for files; the kernel says so only of memory that a userfaultfd has, of one mapping.
 * -EAGAIN: a thread waits to be heard.
 */
static int look_lifted(const struct swap_context *ctx, uintptr_t at, size_t len)
{
	const uintptr_t end = at + len;
	struct uffdio_continue c = { .mode = UFFDIO_CONTINUE_MODE_DONTWAKE };
	struct vma_info v;

	for (; at < end; at = v.end) {
		if (vma_at(ctx->maps, at, &v) || !v.plain ||
		    v.prot != (PROT_READ | PROT_WRITE))
			return -ESTALE;
		c.range.start = at;
		c.range.len = (v.end < end ? v.end : end) - at;
		if (!ioctl(ctx->uffd, UFFDIO_CONTINUE, &c))
			return -ESTALE;
		if (errno != EINVAL)
			return errno == EAGAIN ? -EAGAIN : -ESTALE;
	}
	return 0;
}

/* Pages that were emptied meanwhile are no more in the file. */
static void punch_emptied(struct swap_context *ctx, int fd, uint64_t off)
{
	size_t pos, n;

	while (hear_emptied(ctx, &pos, &n))
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(off + pos),
			  (off_t)n);
}

/* Until no thread waits; then the exchange alone is left to be done. */
static int is_lifted(struct swap_context *ctx, uintptr_t at, size_t len, int fd,
		     uint64_t off)
{
	int rc = -EAGAIN;

	while (rc == -EAGAIN && !ctx->moved) {
		punch_emptied(ctx, fd, off);
		rc = look_lifted(ctx, at, len);
		if (rc == -EAGAIN) {
			hear(ctx);
			sched_yield();
		}
	}
	return ctx->moved ? -ESTALE : rc;
}

/* Not for children before it is at its place: one made by a system call faults there. */
static int map_over(struct swap_context *ctx, uintptr_t at, size_t len, int fd, uint64_t off)
{
	void *p = own_map_file(len, fd, (off_t)off);
	int rc;

	if (!p)
		return -errno;
	rc = madvise(p, len, MADV_DONTFORK) ? -errno : is_lifted(ctx, at, len, fd, off);
	if (!rc && own_remap(p, (void *)at, len, MREMAP_MAYMOVE | MREMAP_FIXED) == MAP_FAILED)
		rc = -errno;
	if (rc) {
		own_unmap(p, len);
		return rc;
	}
	/* A thread that moves it may have been quicker than the exchange. */
	hear_end(ctx);
	punch_emptied(ctx, fd, off);
	if (!ctx->moved)
		return 0;
	munmap((void *)at, len);
	return MOVED;
}

/* 0; or a negative errno, and the pages are back where it is the same memory still. */
static int lift_and_map(struct swap_context *ctx, const struct share_change *c,
			uintptr_t at, size_t len)
{
	const uint64_t off = c->off + (at - c->at);
	const int fd = c->fd;
	struct side s;
	int rc;

	hear_begin(ctx, at, len);
	move_side(&s, ctx, 0, at, len);
	rc = move_all_out(&s);
	if (rc && !c->stops && is_lifted(ctx, at, len, fd, off) && !swap_why_not(at, len))
		rc = -ESTALE;
	if (!rc)
		rc = write_side(&s, fd, off);
	if (!rc)
		rc = map_over(ctx, at, len, fd, off);
	if (!rc) {
		drop_scratch(&s);
		return 0;
	}
	if (rc != -ESTALE && hear_map_again(ctx, at, len, -1, 0))
		context_register(ctx, at, len);
	move_back(&s);
	/* Later there may be holes where these pages are. */
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len);
	return rc == MOVED ? -ESTALE : rc;
}

static int refused(int rc, uintptr_t at, size_t len)
{
	int why;

	switch (rc) {
	case -EBUSY:
		return kedge_reason(rc, "a page is pinned by a device or a "
				    "transfer, or shared with a forked child: "
				    "deregister it, or try again later");
	case -ENOMEM:
	case -ENOSPC:
		return kedge_reason(rc, "no memory for pages that are shared: "
				    "the memory cgroup's limit counts them, "
				    "and vm.max_map_count their mappings");
	case -EPERM:
		return kedge_reason(rc, "the memfd takes no more (%s)",
				    strerrordesc_np(-rc));
	}
	why = swap_why_not(at, len);
	return why ? why
		   : kedge_reason(-EOPNOTSUPP, "the kernel does not let pages of "
				  "that memory be shared in place (%s)",
				  strerrordesc_np(-rc));
}

/* The error has no reason with it: to find one takes an allocation, and a stopped thread may
 * have the allocator's lock. Memory that is as it was stays marked. */
static int lift_stopped(struct swap_context *ctx, const struct share_change *c, uintptr_t at,
			size_t len)
{
	int rc;

	if (ctx->pagemap < 0)
		return -EOPNOTSUPP;
	if (c->mark >= 0 && !mark_take(c->mark, at, len))
		return -ESTALE;
	if (move_split_huge(ctx, at, len, false))
		rc = -EBUSY;
	else
		rc = context_register(ctx, at, len);
	if (rc == -EBUSY && c->mark < 0)
		return SWAP_TAKEN;
	if (!rc) {
		rc = lift_and_map(ctx, c, at, len);
		if (!rc)
			share_watch(c, at, len);
		if (!rc)
			hear_wake(ctx, at, len);
		else
			hear_unregister(ctx, at, len);
	}
	if (c->mark < 0)
		return rc;
	if (rc && rc != -ESTALE)
		mark_set(c->mark, at, len);
	return rc == -EBUSY || rc == -ENOMEM || rc == -ENOSPC || !rc ? rc : -ESTALE;
}

/* 0, SWAP_TAKEN or a negative errno. */
int share_lift(struct swap_context *ctx, const struct share_change *c, uintptr_t at,
	       size_t len)
{
	int rc, why;

	if (c->stops)
		return lift_stopped(ctx, c, at, len);

	if (ctx->pagemap < 0)
		return kedge_reason(-EOPNOTSUPP, "/proc/self/pagemap cannot be read: mount "
				    "/proc; a process that has changed its user calls "
				    "prctl(PR_SET_DUMPABLE, 1)");
	rc = move_split_huge(ctx, at, len, false);
	if (rc)
		return refused(-EBUSY, at, len);
	rc = context_register(ctx, at, len);
	if (rc)
		return rc == -EBUSY ? SWAP_TAKEN : refused(rc, at, len);
	rc = lift_and_map(ctx, c, at, len);
	if (rc)
		hear_unregister(ctx, at, len);
	else
		hear_wake(ctx, at, len);
	if (!rc)
		return 0;
	/* Memory that can never be lifted is told from memory that has changed. */
	why = rc == -ESTALE ? swap_why_not(at, len) : 0;
	return rc == -ESTALE ? why ? why : rc : refused(rc, at, len);
}
