// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cost of a swap on this machine, measured once in a process, at the first
 * question: each way at two lengths, the best of a few tries, and a line through
 * both. The ranges are the measurement's own.
 */
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>

#include "pages/internal.h"

#define TRIES	    3
#define SMALL_FEW   16 /* pages */
#define SMALL_MANY  64
#define ALIKE_FIRST 100000 /* ns: until smaps has been read once */

/* Nanoseconds; INFINITY: not to be had here. */
struct line {
	double fixed;
	double each;
};

static struct costs {
	struct line small;  /* MOVE, by page */
	struct line huge;   /* MOVE, by huge page, congruent */
	struct line split;  /* MOVE, by huge page, not congruent */
	struct line tables; /* REMAP, by huge page's length, congruent */
	struct line pages;  /* REMAP, by page, not congruent */
	struct line entries; /* PHYS, by page, not congruent */
	struct line whole;   /* PHYS, by huge page, congruent */
	struct line cut;     /* PHYS, by huge page, not congruent */
} costs;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Two ranges to try on: each starts at a huge page's boundary. */
struct field {
	char *area;
	size_t area_len;
	uintptr_t a;
	uintptr_t b;
};

static bool field_init(struct field *f, bool huge)
{
	size_t unit = pages_huge_len(), each = 3 * unit;

	f->area_len = 2 * each + unit;
	f->area = mmap(NULL, f->area_len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f->area == MAP_FAILED)
		return false;
	munlock(f->area, f->area_len);
	madvise(f->area, f->area_len, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	f->a = round_up((uintptr_t)f->area, unit);
	f->b = f->a + each;
	return true;
}

static void field_fini(struct field *f)
{
	munmap(f->area, f->area_len);
}

static void touch(uintptr_t at, size_t len)
{
	size_t page = kedge__page_size(), i;

	for (i = 0; i < len; i += page)
		*(volatile char *)(at + i) = 1;
}

typedef int (*swap_fn)(uintptr_t a, uintptr_t b, size_t len);

/*
 * The best of a few tries on ranges of their own, of which @touched bytes have
 * pages: mremap() would leave another length in several mappings.
 */
static double best(swap_fn fn, bool huge, size_t off, size_t len,
		   size_t touched, int tries)
{
	double ns = INFINITY;
	struct field f;
	uint64_t t0;

	if (!field_init(&f, huge))
		return INFINITY;
	touch(f.a, touched);
	touch(f.b + off, touched);
	while (tries--) {
		t0 = clock_ns();
		if (fn(f.a, f.b + off, len)) {
			ns = INFINITY;
			break;
		}
		t0 = clock_ns() - t0;
		if ((double)t0 < ns)
			ns = (double)t0;
	}
	field_fini(&f);
	return ns;
}

static struct line through(double x0, double y0, double x1, double y1)
{
	struct line l = { INFINITY, INFINITY };

	if (isinf(y0) || isinf(y1))
		return l;
	l.each = y1 > y0 ? (y1 - y0) / (x1 - x0) : 0;
	l.fixed = y0 > l.each * x0 ? y0 - l.each * x0 : 0;
	return l;
}

static struct line pages(swap_fn fn, size_t off)
{
	size_t few = SMALL_FEW * kedge__page_size();
	size_t many = SMALL_MANY * kedge__page_size();

	return through(SMALL_FEW, best(fn, false, off, few, few, TRIES),
		       SMALL_MANY, best(fn, false, off, many, many, TRIES));
}

/* A table costs the same however full it is. */
static struct line tables(void)
{
	size_t huge = pages_huge_len(), few = SMALL_FEW * kedge__page_size();

	return through(1, best(remap_exchange, false, 0, huge, few, TRIES),
		       2, best(remap_exchange, false, 0, 2 * huge, few, TRIES));
}

/* True if a fault brings a huge page: if not, there is no huge page to swap. */
static bool huge_pages_come(void)
{
	size_t huge = pages_huge_len();
	struct swap_context *ctx;
	uint8_t kind[4] = { PIECE_EMPTY };
	struct field f;

	if (huge == kedge__page_size() || context_get(huge, &ctx))
		return false;
	if (field_init(&f, true)) {
		touch(f.a, kedge__page_size());
		move_classify(ctx, f.a, huge, kind);
		field_fini(&f);
	}
	context_put(ctx);
	return kind[0] == PIECE_HUGE;
}

static void measure_huge(swap_fn fn, struct line *whole, struct line *split)
{
	size_t page = kedge__page_size(), huge = pages_huge_len();

	*whole = through(1, best(fn, true, 0, huge, huge, TRIES), 2,
			 best(fn, true, 0, 2 * huge, 2 * huge, TRIES));
	split->fixed = whole->fixed;
	/* Once: the second time there is no huge page left to split. */
	split->each = best(fn, true, page, huge, huge, 1);
}

static void measure_all(void)
{
	const struct line none = { INFINITY, INFINITY };
	sigset_t saved;

	costs = (struct costs){ none, none, none, none, none, none, none, none };
	if (swap_begin(&saved))
		return;
	costs.small = pages(swap_by_move, 0);
	costs.pages = pages(remap_exchange, kedge__page_size());
	costs.tables = tables();
	costs.entries = pages(phys_exchange, kedge__page_size());
	if (huge_pages_come()) {
		measure_huge(swap_by_move, &costs.huge, &costs.split);
		if (!isinf(costs.entries.each))
			measure_huge(phys_exchange, &costs.whole, &costs.cut);
	}
	swap_end(&saved);
}

/* 0 pages cost 0, even at an infinite price. */
static double times(double n, double each)
{
	return n > 0 ? n * each : 0;
}

/* The pages that are there: single and huge ones, of both sides. */
struct there {
	double pages;
	double whole;
};

/* *@t stays if that cannot be told. */
static void look(uintptr_t a, uintptr_t b, size_t len, struct there *t)
{
	size_t page = kedge__page_size(), huge = pages_huge_len(), i, cnt;
	uintptr_t at[2] = { a, b };
	struct swap_context *ctx;
	sigset_t saved;
	int side;

	if (swap_begin(&saved))
		return;
	if (context_get(len, &ctx)) {
		swap_end(&saved);
		return;
	}
	*t = (struct there){ 0, 0 };
	for (side = 0; side < 2; side++) {
		move_classify(ctx, at[side], len, ctx->kind[side]);
		cnt = piece_cnt(at[side], len, huge);
		for (i = 0; i < cnt; i++) {
			t->whole += ctx->kind[side][i] == PIECE_HUGE;
			t->pages += ctx->kind[side][i] == PIECE_SMALL
				? (double)(len < huge ? len : huge) /
					  (double)page
				: 0;
		}
	}
	context_put(ctx);
	swap_end(&saved);
}

/* Measured with both sides full. */
static double cost_of_pages(const struct there *t, const struct line *small,
			    double whole)
{
	return small->fixed + times(t->pages / 2, small->each) +
	       times(t->whole / 2, whole);
}

static double cost_of_remap(uintptr_t a, uintptr_t b, size_t len)
{
	size_t huge = pages_huge_len();
	double alike = (double)swap_alike_ns();

	if (!alike)
		alike = ALIKE_FIRST;
	if ((a ^ b) & (huge - 1) || len < huge)
		return alike + costs.pages.fixed +
		       costs.pages.each * (double)(len / kedge__page_size());
	return alike + costs.tables.fixed +
	       costs.tables.each * (double)(len / huge) +
	       2 * costs.pages.each * (double)(len % huge /
					       kedge__page_size());
}

/* Each of PHYS's lines is below MOVE's: there is no need to look at the pages. */
static bool phys_below_move(void)
{
	return costs.entries.fixed <= costs.small.fixed &&
	       costs.entries.each <= costs.small.each &&
	       costs.whole.each <= costs.huge.each &&
	       costs.cut.each <= costs.split.each;
}

uint32_t swap_fastest(uintptr_t a, uintptr_t b, size_t len, uint32_t ways)
{
	bool apart = (a ^ b) & (pages_huge_len() - 1);
	struct there t = { 2 * (double)(len / kedge__page_size()), 0 };
	double move, remap = INFINITY, phys;

	pthread_once(&once, measure_all);
	if (ways & KEDGE_SWAP_REMAP)
		remap = cost_of_remap(a, b, len);
	/* All of single pages is the most that it costs. */
	phys = ways & KEDGE_SWAP_PHYS ? cost_of_pages(&t, &costs.entries, 0)
				      : INFINITY;
	if (!isinf(phys) && phys <= remap && phys_below_move())
		return KEDGE_SWAP_PHYS;
	look(a, b, len, &t);
	move = ways & KEDGE_SWAP_MOVE
		? cost_of_pages(&t, &costs.small,
				apart ? costs.split.each : costs.huge.each)
		: INFINITY;
	if (ways & KEDGE_SWAP_PHYS)
		phys = cost_of_pages(&t, &costs.entries,
				     apart ? costs.cut.each : costs.whole.each);
	if (phys <= move && phys <= remap && !isinf(phys))
		return KEDGE_SWAP_PHYS;
	if (ways & KEDGE_SWAP_REMAP &&
	    (remap < move || !(ways & KEDGE_SWAP_MOVE)))
		return KEDGE_SWAP_REMAP;
	return ways & KEDGE_SWAP_MOVE ? KEDGE_SWAP_MOVE : KEDGE_SWAP_PHYS;
}
