/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The insides of the page swap. swap.c has the calls, context.c what a
 * swap works with, move.c, remap.c and phys.c the three ways, and
 * fill.c another, for pages that are not there yet;
 * vma.c the questions about mappings, cost.c the measurement.
 */
#ifndef PAGES_INTERNAL_H
#define PAGES_INTERNAL_H

#include <signal.h>

#include "base/base.h"
#include "notify/internal.h"
#include "pages/swap.h"

/* UFFDIO_MOVE of <linux/userfaultfd.h>, which older headers lack. */
struct uffdio_move_v1 {
	uint64_t dst;
	uint64_t src;
	uint64_t len;
	uint64_t mode;
	int64_t move;
};

#define UFFDIO_MOVE_V1	   _IOWR(0xAA, 0x05, struct uffdio_move_v1)
#define MOVE_DONTWAKE	   (1u << 0)
#define MOVE_ALLOW_HOLES   (1u << 1)

_Static_assert(sizeof(struct uffdio_move_v1) == 40, "kernel ABI");

/* The pages mapped in a piece of a range that is as long as a huge page. */
enum piece_kind {
	PIECE_EMPTY, /* no page */
	PIECE_HUGE,  /* one huge page, whole */
	PIECE_SMALL, /* anything else */
};

/*
 * The tools of one swap: a userfaultfd of its own, so that its registrations
 * never melt with another swap's, and scratch space: for the huge pages of both
 * sides, and for their single pages, apart from each other, as the page tables
 * of single pages would make the kernel split a huge page that follows. It lies in a
 * mapping of its own: pages under way may have neighbours from any allocator.
 */
struct swap_context {
	struct swap_context *next;
	int uffd;
	int pagemap;
	int maps;
	struct fd_id uffd_id;
	struct fd_id pagemap_id;
	struct fd_id maps_id;
	char *area; /* as mapped: area_len bytes */
	size_t area_len;
	size_t own_len; /* of this */
	size_t cap; /* the longest range that it serves */
	uintptr_t huge[2];
	uintptr_t small[2];
	uint8_t *kind[2]; /* of the pieces: enum piece_kind */
	bool broken;	  /* not to be used again */
	bool alone; /* other threads are stopped: no lock of theirs is taken */
	/* share/hear.h */
	bool hears;
	bool moved;   /* some page was, since hear_begin() */
	bool emptied; /* likewise */
	size_t heard_len;
	uintptr_t *place; /* of each page, where it is */
};

/*
 * context.c. Between the two signals are off and no fork() begins: neither
 * a handler nor a child may meet a page that is under way. 0, or a negative errno
 * with a reason, and then swap_end() is not to be called.
 */
int swap_begin(sigset_t *saved);
void swap_end(const sigset_t *saved);
/* In between: 0 or a negative errno with a reason. */
int context_get(size_t len, struct swap_context **ctx);
/* One that hears what other threads do (share/hear.h). */
int context_get_hearing(size_t len, struct swap_context **ctx);
void context_put(struct swap_context *ctx);
/* A userfaultfd in place of one that somebody closed; 0 or a negative errno. */
int context_reopen(struct swap_context *ctx);
int context_register(struct swap_context *ctx, uintptr_t at, size_t len);
/*
 * This wakes threads that wait there. Where the ends do not let themselves be cut
 * (the ranges touch and have melted, and there is no mapping left to have),
 * closing the descriptor ends it all.
 */
void context_unregister(struct swap_context *ctx, uintptr_t at, size_t len);
/* Pages in scratch space that are not missed. */
void context_drop(struct swap_context *ctx, uintptr_t at, size_t len);

/* kind.c: pages_writable() by what a context has open. */
int context_writable(struct swap_context *ctx, uintptr_t at, size_t len);

/* Another userfaultfd has a range, perhaps one of kedge's notifiers. */
#define SWAP_TAKEN 1
/* swap.c: true if it may have been watched anew since watches were @ended (inflight.h),
 * and not by a stranger. Naps where it has tried often. */
bool swap_try_again(uint32_t ended, unsigned int tries);

/* move.c: 0, SWAP_TAKEN or a negative errno with a reason. */
int swap_by_move(uintptr_t a, uintptr_t b, size_t len);
/* Find the kind of each piece of [at, at + len). */
void move_classify(struct swap_context *ctx, uintptr_t at, size_t len,
		   uint8_t *kind);
static inline size_t piece_cnt(uintptr_t at, size_t len, size_t huge)
{
	return (round_up(at + len, huge) - round_down(at, huge)) / huge;
}

/* remap.c: 0 or a negative errno with a reason. */
int swap_by_remap(uintptr_t a, uintptr_t b, size_t len);
/* One way, without a look at what is moved: b's pages under a. a's own are freed. 1: a
 * has new pages, with b's data. */
int remap_replace(uintptr_t a, uintptr_t b, size_t len);
/* Both ways, without a look. */
int remap_exchange(uintptr_t a, uintptr_t b, size_t len);

/*
 * phys.c: 0, SWAP_TAKEN or a negative errno with a reason; -EOPNOTSUPP and -E2BIG:
 * another way may do it. With @pins pinned pages go along, else they are -EBUSY.
 * @taken: every watch in the mapping has been told.
 */
int swap_by_phys(uintptr_t a, uintptr_t b, size_t len, bool pins, bool taken);
/* To measure it. */
int phys_exchange(uintptr_t a, uintptr_t b, size_t len);

/* vma.c: the private anonymous mapping that @at lies in. */
int swap_vma_at(int maps_fd, uintptr_t at, struct vma_span *vma);
/* Why the kernel refuses [at, at + len): -EFAULT or -EOPNOTSUPP, in words. */
int swap_why_not(uintptr_t at, size_t len);
/* Private memory there has a property that other memory would not have which takes its place:
 * -EOPNOTSUPP and which; -EFAULT: nothing is mapped in a part of it. */
int swap_is_kept(uintptr_t at, size_t len);
/* 0 if both are of one mapping each, fit to be swapped, and alike. */
int swap_alike(uintptr_t a, uintptr_t b, size_t len);
/* The time that it took last; 0 if it was never asked. */
uint64_t swap_alike_ns(void);
/* Mappings of the process now, and how many it may have. */
int swap_vma_count(size_t *have, size_t *max);

/* cost.c: which of @ways (KEDGE_SWAP_*) is the fastest, by measurement. */
uint32_t swap_fastest(uintptr_t a, uintptr_t b, size_t len, uint32_t ways);

#endif /* PAGES_INTERNAL_H */
