/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moving a range's pages out to scratch space and in again, by UFFDIO_MOVE: the parts
 * that move.c makes a swap of, and share.c a change of the mapping. The end of internal.h.
 */
#ifndef PAGES_MOVE_H
#define PAGES_MOVE_H

#include "pages/internal.h"

/* PAGEMAP_SCAN of <linux/fs.h>, which older headers lack. */
struct scan_arg_v1 {
	uint64_t size;
	uint64_t flags;
	uint64_t start;
	uint64_t end;
	uint64_t walk_end;
	uint64_t vec;
	uint64_t vec_len;
	uint64_t max_pages;
	uint64_t category_inverted;
	uint64_t category_mask;
	uint64_t category_anyof_mask;
	uint64_t return_mask;
};

struct scan_region_v1 {
	uint64_t start;
	uint64_t end;
	uint64_t categories;
};

#define PAGEMAP_SCAN_V1 _IOWR('f', 16, struct scan_arg_v1)
#define SCAN_PRESENT	(1u << 3)
#define SCAN_SWAPPED	(1u << 4)
#define SCAN_ZEROS	(1u << 5)
#define SCAN_HUGE	(1u << 6)

_Static_assert(sizeof(struct scan_arg_v1) == 96, "kernel ABI");

/* One of the two ranges. */
struct side {
	struct swap_context *ctx;
	uintptr_t at;
	size_t len;
	uintptr_t scratch[PIECE_SMALL + 1]; /* by kind; for the byte at @at */
	const uint8_t *kind;
	size_t out; /* so many bytes have been moved out */
};

/* Bytes [start, end) of a range, of pieces of one kind. */
struct run {
	enum piece_kind kind;
	size_t start;
	size_t end;
};

/* Look what is at [@at, @at + @len), which goes to scratch space @i of the context. */
void move_side(struct side *s, struct swap_context *ctx, int i, uintptr_t at,
	       size_t len);
/* The run that starts at byte @from; false at the end. */
bool move_next_run(const struct side *s, size_t from, struct run *run);
/* 0; or a negative errno, and @s->out bytes are out. The range is registered. */
int move_all_out(struct side *s);
/* Moves the pages that are out, up to byte @end, to @to. False: a mapping has gone meanwhile. */
bool move_all_in(uintptr_t to, const struct side *s, size_t end);
/* Moves the pages that are out to the place of that memory by now (the context hears), but only
 * if it is that mapping still: others may have mapped anything else there. The rest is dropped. */
void move_back(const struct side *s);

/* A huge page that is pinned would have to be split. */
#define SWAP_HUGE 2
/* Split those that an end cuts, or @all: 0 or SWAP_HUGE. */
int move_split_huge(struct swap_context *ctx, uintptr_t at, size_t len,
		    bool all);

/* ---- watchdog.c ---- */

/* A move of single pages from @src to scratch space at @dst. */
struct move_guard {
	struct move_guard *next;
	struct swap_context *ctx;
	uintptr_t dst;
	uintptr_t src;
	size_t len;
	uintptr_t seen;	/* the page at work at the last look */
	clockid_t cpu;	/* the mover's processor time */
	uint64_t since; /* of that, when the page was first seen */
};

/* Before the ranges are registered, as memory may be needed, and after the swap. With
 * signals blocked, as all four. */
void move_guard_ready(void);
void move_guard_done(void);
void move_guard_begin(struct move_guard *g);
void move_guard_end(struct move_guard *g);

/* Tests have one of their own. */
bool move_guard_wanted(void);

#endif /* PAGES_MOVE_H */
