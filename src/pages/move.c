// SPDX-License-Identifier: BSD-2-Clause
/*
 * The swap by UFFDIO_MOVE.
 *
 * Both ranges are registered for missing pages, so that a thread that touches an
 * address waits while its page is under way. Then all pages of both are moved out
 * to scratch space, and from there in again, each to the other's address.
 *
 * The way out is where the kernel refuses: a page that is pinned, or shared with
 * a child, stays, and what is out goes back to where it was. Once out, pages are
 * known to no other thread, so that the way in, and the way back, end well: what
 * stops them for a moment is tried again. Had pages been moved to their new address
 * at once, some thread could have pinned them there, and there would be no way back.
 *
 * Huge pages go as such if the entry of the page table that they come to is
 * empty. Page tables that single pages have left there are in the way;
 * MADV_DONTNEED takes them away, where the kernel does that (Linux 6.14); else
 * it splits the huge page, which is slow but no worse than that.
 *
 * In the window no memory may be touched that may lie in the ranges: no allocation,
 * no signal handler, no callback.
 */
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages/move.h"
#include "pages/share/hear.h"

#define OUT_TRIES     2000 /* for a page that somebody else is at */
#define BUSY_TRIES    4	   /* for one that may be pinned */
#define STRANGE_TRIES 3
#define SPLIT_TRIES   16 /* while others look at it */
#define NAP_NS	      100000
#define SCAN_CNT      64

/* No library's nap: those are cancellation points. */
static void nap(void)
{
	struct timespec ts = { 0, NAP_NS };

	syscall(SYS_nanosleep, &ts, NULL);
}

/* ---- what is there ---- */

static void note_region(uintptr_t at, uint8_t *kind,
			const struct scan_region_v1 *r)
{
	size_t huge = pages_huge_len();
	uintptr_t base = round_down(at, huge), p;

	for (p = round_down(r->start, huge); p < r->end; p += huge) {
		/* Regions end where the range does: a cut huge page is not whole. */
		bool one = r->categories & SCAN_HUGE && r->start <= p &&
			   p + huge <= r->end;

		kind[(p - base) / huge] = one ? PIECE_HUGE : PIECE_SMALL;
	}
}

void move_classify(struct swap_context *ctx, uintptr_t at, size_t len,
		   uint8_t *kind)
{
	size_t cnt = piece_cnt(at, len, pages_huge_len());
	struct scan_region_v1 r[SCAN_CNT];
	struct scan_arg_v1 s = {
		.size = sizeof(s),
		.start = at,
		.end = at + len,
		.vec = (uintptr_t)r,
		.vec_len = SCAN_CNT,
		.category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
		.return_mask = SCAN_HUGE,
	};
	int n, i;

	memset(kind, PIECE_EMPTY, cnt);
	while (s.start < s.end) {
		n = ioctl(ctx->pagemap, PAGEMAP_SCAN_V1, &s);
		if (n < 0 || (!n && s.walk_end < s.end)) {
			/* Not known: what is right for all. */
			memset(kind, PIECE_SMALL, cnt);
			if (ctx->pagemap >= 0 &&
			    !fd_same(ctx->pagemap, &ctx->pagemap_id))
				ctx->broken = true;
			return;
		}
		for (i = 0; i < n; i++)
			note_region(at, kind, &r[i]);
		s.start = s.walk_end;
	}
}

/* True if [p, p + huge) is mapped by a huge page, of data. */
static bool is_huge(struct swap_context *ctx, uintptr_t p)
{
	struct scan_region_v1 r;
	struct scan_arg_v1 s = {
		.size = sizeof(s),
		.start = p,
		.end = p + pages_huge_len(),
		.vec = (uintptr_t)&r,
		.vec_len = 1,
		.category_anyof_mask = SCAN_HUGE,
		.return_mask = SCAN_HUGE | SCAN_ZEROS,
	};

	return ioctl(ctx->pagemap, PAGEMAP_SCAN_V1, &s) == 1 &&
	       !(r.categories & SCAN_ZEROS);
}

/*
 * Split the huge page at @p, a part of which is in the range: SWAP_HUGE if it stays one.
 * Linux up to 6.12 at least tries for ever, in UFFDIO_MOVE, to split one that is
 * pinned. MADV_COLD of a part splits as well, and tries once.
 */
static int split_at(struct swap_context *ctx, uintptr_t p, uintptr_t part)
{
	unsigned int tries;

	for (tries = 0; is_huge(ctx, p); tries++) {
		if (tries == SPLIT_TRIES)
			return SWAP_HUGE;
		if (tries)
			nap();
		madvise((void *)part, kedge__page_size(), MADV_COLD);
	}
	return 0;
}

/* Those that cannot be moved whole: cut by an end, or all of them. */
int move_split_huge(struct swap_context *ctx, uintptr_t at, size_t len,
		      bool all)
{
	size_t huge = pages_huge_len();
	uintptr_t p;
	int rc = 0;

	for (p = round_down(at, huge); !rc && p < at + len; p += huge)
		if (all || p < at || p + huge > at + len)
			rc = split_at(ctx, p, p < at ? at : p);
	return rc;
}

/* The run that starts at byte @from; false at the end. */
bool move_next_run(const struct side *s, size_t from, struct run *run)
{
	size_t huge = pages_huge_len(), i, first;
	uintptr_t base = round_down(s->at, huge);

	if (from >= s->len)
		return false;
	first = i = (s->at + from - base) / huge;
	run->kind = s->kind[first];
	run->start = from;
	do {
		run->end = base + ++i * huge - s->at;
	} while (run->end < s->len && s->kind[i] == run->kind);
	if (run->end > s->len)
		run->end = s->len;
	return true;
}

/* ---- moving ---- */

/* The part of @len from @at that is one mapping; all of it, if that is not known. */
static size_t in_one_vma(struct swap_context *ctx, uintptr_t at, size_t len)
{
	struct vma_span vma;

	if (swap_vma_at(ctx->maps, at, &vma) || vma.end <= at ||
	    vma.end - at > len)
		return len;
	return vma.end - at;
}

/*
 * One call of the kernel's: bytes moved, or a negative errno. Neither side may
 * span mappings: what is refused is tried again with no more than is in one.
 */
static ssize_t move_once(struct swap_context *ctx, uintptr_t dst, uintptr_t src,
			 size_t len, uint32_t holes)
{
	struct uffdio_move_v1 m = {
		.dst = dst,
		.src = src,
		.len = len,
		.mode = MOVE_DONTWAKE | holes,
	};
	size_t less;

	if (!ioctl(ctx->uffd, UFFDIO_MOVE_V1, &m))
		return (ssize_t)len;
	if (errno == EAGAIN && m.move > 0)
		return (ssize_t)m.move;
	if (errno == EAGAIN && ctx->hears) {
		hear(ctx);
		return -EAGAIN;
	}
	/* It has looked at both mappings, then found no page at all. */
	if (errno == ENOENT && !holes)
		return (ssize_t)len;
	if (errno != EINVAL)
		return -errno;
	less = in_one_vma(ctx, src, in_one_vma(ctx, dst, len));
	if (less == len)
		return -EINVAL;
	return move_once(ctx, dst, src, less, holes);
}

/*
 * The kernel moves pages out of any mapping, also out of one that another thread has put
 * there since the range was registered: that would find zeros. A context that hears asks
 * just before; it is for callers that cannot know that no thread does so. UFFDIO_CONTINUE is
 * for files, and refused as such only where this memory is registered still.
 */
static ssize_t move_ours(struct side *s, uintptr_t dst, size_t len, uint32_t holes)
{
	struct uffdio_continue c = { .range = { s->at + s->out, len } };

	if (!s->ctx->hears)
		return move_once(s->ctx, dst, s->at + s->out, len, holes);
	c.range.len = in_one_vma(s->ctx, c.range.start, len);
	if (ioctl(s->ctx->uffd, UFFDIO_CONTINUE, &c) && errno == EINVAL)
		return move_once(s->ctx, dst, c.range.start, c.range.len, holes);
	if (errno != EAGAIN)
		return -ESTALE;
	hear(s->ctx);
	return -EAGAIN;
}

/*
 * For an empty run, too, the kernel is asked whether it would move pages: the other
 * side's are to come here. That leaves no page table.
 *
 * EBUSY is the kernel's word for a pin, but also, now and then, for a huge page mapped page
 * by page that it cannot split at that moment (seen on Linux 6.18, with nothing pinned): tried
 * again, it moves.
 */
static int move_run_out(struct side *s, const struct run *run)
{
	uint32_t holes = run->kind == PIECE_EMPTY ? 0 : MOVE_ALLOW_HOLES;
	size_t end = run->end;
	unsigned int tries = 0, busy = 0;
	ssize_t n;

	s->out = run->start;
	while (s->out < end) {
		n = move_ours(s, s->scratch[run->kind] + s->out, end - s->out, holes);
		if (n > 0) {
			s->out += (size_t)n;
			tries = 0;
		} else if (n == -EBUSY && ++busy < BUSY_TRIES) {
			nap();
		} else if (n != -EAGAIN) {
			return n ? (int)n : -EINVAL;
		} else if (s->ctx->moved) {
			return -ESTALE;
		} else if (++tries == OUT_TRIES) {
			return -EBUSY;
		} else if (tries % 16 == 0) {
			nap();
		}
	}
	return 0;
}

/* Guarded: see watchdog.c. */
static int move_out(struct side *s, const struct run *run)
{
	struct move_guard g = {
		.ctx = s->ctx,
		.dst = s->scratch[run->kind] + run->start,
		.src = s->at + run->start,
		.len = run->end - run->start,
	};
	int rc;

	if (run->kind == PIECE_HUGE)
		return move_run_out(s, run);
	move_guard_begin(&g);
	rc = move_run_out(s, run);
	move_guard_end(&g);
	if (rc)
		context_drop(s->ctx, s->scratch[run->kind] + s->out, run->end - s->out);
	return rc == -EEXIST ? -EBUSY : rc;
}

int move_all_out(struct side *s)
{
	struct run run;
	size_t at = 0;
	int rc = 0;

	while (!rc && move_next_run(s, at, &run)) {
		rc = move_out(s, &run);
		at = run.end;
	}
	return rc;
}

/*
 * The way in was refused. True: it is worth another try. A page that has come
 * there meanwhile can only be a stranger: the registration was lost, because
 * somebody closed the descriptor.
 */
static bool heal(struct swap_context *ctx, uintptr_t dst, size_t len, int rc,
		 unsigned int *strange)
{
	switch (rc) {
	case -EAGAIN:
		sched_yield();
		return true;
	case -ENOMEM: /* for page tables: as a fault would wait for it */
	case -EBUSY:
		nap();
		return true;
	case -EBADF:
	case -ENOTTY:
		if (context_reopen(ctx))
			nap(); /* no descriptor to be had now */
		else
			context_register(ctx, dst, len);
		return true;
	case -EEXIST:
		return !context_register(ctx, dst, len) &&
		       !madvise((void *)dst, kedge__page_size(),
				MADV_DONTNEED);
	}
	/* Perhaps the registration alone is gone; else the mapping is. */
	if (++*strange > STRANGE_TRIES)
		return false;
	context_register(ctx, dst, len);
	return true;
}

/*
 * False: the destination has been unmapped under our hands, and no thread can want
 * the pages any more.
 */
static bool move_in(struct swap_context *ctx, uintptr_t dst, uintptr_t src,
		    size_t len)
{
	unsigned int strange = 0;
	ssize_t n;

	while (len) {
		n = move_once(ctx, dst, src, len, MOVE_ALLOW_HOLES);
		if (n > 0) {
			dst += (size_t)n;
			src += (size_t)n;
			len -= (size_t)n;
		} else if (!heal(ctx, dst, len, (int)n, &strange)) {
			context_drop(ctx, src, len);
			ctx->broken = true;
			return false;
		}
	}
	return true;
}

/* Move what is out of @s to @to, up to byte @end. */
bool move_all_in(uintptr_t to, const struct side *s, size_t end)
{
	bool ok = true;
	struct run run;
	size_t at = 0;

	while (at < end && move_next_run(s, at, &run)) {
		at = run.end;
		if (run.end > end)
			run.end = end;
		if (run.kind == PIECE_EMPTY)
			continue;
		if (!move_in(s->ctx, to + run.start,
			     s->scratch[run.kind] + run.start,
			     run.end - run.start))
			ok = false;
	}
	return ok;
}

/* Returns the bytes dealt with; 0: look anew where they belong. */
static size_t move_some_back(struct swap_context *ctx, uintptr_t dst, uintptr_t src,
			     size_t len, unsigned int *strange)
{
	const size_t page = kedge__page_size();
	ssize_t n = move_once(ctx, dst, src, len, MOVE_ALLOW_HOLES);

	if (n > 0)
		return (size_t)n;
	if (n == -EINVAL || n == -ENOENT || n == -EEXIST) {
		/* A part of it is another mapping. */
		if (len > page)
			return move_some_back(ctx, dst, src, page, strange);
		context_drop(ctx, src, page);
		return page;
	}
	if (heal(ctx, dst, len, (int)n, strange))
		return 0;
	ctx->broken = true;
	return len;
}

void move_back(const struct side *s)
{
	unsigned int strange = 0;
	uintptr_t to, src;
	struct run run;
	size_t at = 0, n;

	for (; at < s->out && move_next_run(s, at, &run); at = run.end) {
		if (run.end > s->out)
			run.end = s->out;
		while (run.kind != PIECE_EMPTY && run.start < run.end) {
			to = hear_place(s->ctx, run.start, run.end - run.start, &n);
			src = s->scratch[run.kind] + run.start;
			if (to)
				n = move_some_back(s->ctx, to, src, n, &strange);
			else
				context_drop(s->ctx, src, n);
			run.start += n;
		}
	}
}

/* Take away page tables of single pages where huge ones of @from come to @s. */
static void clear_way(const struct side *s, const struct side *from)
{
	size_t at = 0, i, first;
	struct run run;

	if ((s->at ^ from->at) & (pages_huge_len() - 1))
		return;
	for (; move_next_run(from, at, &run); at = run.end) {
		if (run.kind != PIECE_HUGE)
			continue;
		first = (s->at + run.start - round_down(s->at, pages_huge_len())) /
			pages_huge_len();
		for (i = 0; i < (run.end - run.start) / pages_huge_len(); i++)
			if (s->kind[first + i] != PIECE_HUGE)
				break;
		if (i < (run.end - run.start) / pages_huge_len())
			madvise((void *)(s->at + run.start),
				run.end - run.start, MADV_DONTNEED);
	}
}

/* ---- the swap ---- */

void move_side(struct side *s, struct swap_context *ctx, int i,
		      uintptr_t at, size_t len)
{
	size_t off = at & (pages_huge_len() - 1);

	s->ctx = ctx;
	s->at = at;
	s->len = len;
	s->scratch[PIECE_HUGE] = ctx->huge[i] + off;
	s->scratch[PIECE_SMALL] = ctx->small[i] + off;
	s->scratch[PIECE_EMPTY] = s->scratch[PIECE_SMALL];
	s->kind = ctx->kind[i];
	s->out = 0;
	move_classify(ctx, at, len, ctx->kind[i]);
}

/* 0; or the error that stopped it, and all is back. @lost: see move_in(). */
static int exchange(struct swap_context *ctx, uintptr_t a, uintptr_t b,
		    size_t len, bool *lost)
{
	struct side sa, sb;
	bool ok;
	int rc;

	move_side(&sa, ctx, 0, a, len);
	move_side(&sb, ctx, 1, b, len);
	rc = move_all_out(&sa);
	if (!rc)
		rc = move_all_out(&sb);
	if (rc) {
		ok = move_all_in(a, &sa, sa.out);
		ok = move_all_in(b, &sb, sb.out) && ok;
	} else {
		clear_way(&sa, &sb);
		clear_way(&sb, &sa);
		ok = move_all_in(a, &sb, len);
		ok = move_all_in(b, &sa, len) && ok;
	}
	*lost = !ok;
	return rc;
}

/* Huge pages are split before the mappings are cut, which would map their pages one by
 * one and leave them whole. */
static int register_both(struct swap_context *ctx, uintptr_t a, uintptr_t b,
			 size_t len)
{
	const bool apart = (a ^ b) & (pages_huge_len() - 1);
	int rc = move_split_huge(ctx, a, len, apart);

	if (!rc)
		rc = move_split_huge(ctx, b, len, apart);
	if (rc)
		return rc;
	rc = context_register(ctx, a, len);
	if (rc)
		return rc;
	rc = context_register(ctx, b, len);
	if (rc)
		context_unregister(ctx, a, len);
	return rc;
}

static int refused(int rc, uintptr_t a, uintptr_t b, size_t len)
{
	int why;

	switch (rc) {
	case -EBUSY:
		return kedge_reason(rc, "a page is pinned by a device or a "
				    "transfer, or shared with a forked child: "
				    "deregister it, or try again later");
	case -ENOMEM:
		return kedge_reason(rc, "no memory for page tables, or the "
				    "process is at vm.max_map_count");
	}
	why = swap_why_not(a, len);
	if (!why)
		why = swap_why_not(b, len);
	if (why)
		return why;
	return kedge_reason(-EOPNOTSUPP, "the kernel does not move pages of "
			    "that memory (%s)", strerrordesc_np(-rc));
}

int swap_by_move(uintptr_t a, uintptr_t b, size_t len)
{
	struct swap_context *ctx;
	bool lost = false;
	int rc = context_get(len, &ctx);

	if (rc)
		return rc;
	move_guard_ready();
	rc = register_both(ctx, a, b, len);
	if (rc == SWAP_HUGE) {
		rc = -EBUSY;
	} else if (rc == -EBUSY) {
		rc = SWAP_TAKEN;
	} else if (!rc) {
		rc = exchange(ctx, a, b, len, &lost);
		context_unregister(ctx, a, len);
		context_unregister(ctx, b, len);
	}
	move_guard_done();
	context_put(ctx);
	if (lost)
		return kedge_reason(-EFAULT, "a mapping was changed by another "
				    "thread during the swap");
	return rc < 0 ? refused(rc, a, b, len) : rc;
}
