/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge bench swap: exchanging pages beside copying them. swap_run.c has the
 * measurements, which take turns round by round, swap.c the command line,
 * swap_report.c the result.
 */
#ifndef TOOLS_BENCH_SWAP_H
#define TOOLS_BENCH_SWAP_H

#include "tools/bench/bench.h"

/**
 * enum swap_pages - what the memory is made of
 * @SWAP_SMALL: both ranges of single pages
 * @SWAP_HUGE:  both of huge pages, as far as the kernel gives them
 * @SWAP_FRESH: the first was never touched, the second is of huge pages
 */
enum swap_pages { SWAP_SMALL, SWAP_HUGE, SWAP_FRESH, SWAP_PAGES };
extern const char *const swap_pages_names[SWAP_PAGES + 1];

/**
 * enum swap_place - how the addresses lie
 * @SWAP_CONGRUENT: equal modulo the size of a huge page, and its multiples
 * @SWAP_OFFSET:    one of them a page further
 */
enum swap_place { SWAP_CONGRUENT, SWAP_OFFSET, SWAP_PLACES };
extern const char *const swap_place_names[SWAP_PLACES + 1];

/**
 * enum swap_way - what is timed
 * @SWAP_MEMCPY: one range is copied to the other: half an exchange
 * @SWAP_MOVE:   kedge_page_swap_with(KEDGE_SWAP_MOVE)
 * @SWAP_REMAP:  kedge_page_swap_with(KEDGE_SWAP_REMAP)
 * @SWAP_PHYS:   kedge_page_swap_with(KEDGE_SWAP_PHYS)
 * @SWAP_MEMFD:  a memfd with the data is mapped over the range
 */
enum swap_way {
	SWAP_MEMCPY,
	SWAP_MOVE,
	SWAP_REMAP,
	SWAP_PHYS,
	SWAP_MEMFD,
	SWAP_WAYS
};
extern const char *const swap_way_names[SWAP_WAYS + 1];

struct swap_opts {
	char *sizes_text;
	char *pages_text;
	char *places_text;
	char *ways_text;
	char *plot;
	int rounds;
	int csv;
	struct number_list sizes;
	uint32_t pages;
	uint32_t places;
	uint32_t ways;
};

/**
 * struct swap_row - a line of the result
 * @ns:      median, in nanoseconds
 * @best_ns: the least
 * @x:       how many times faster than memcpy: the median of the ratios within a
 *           round; 0 where memcpy was not measured
 */
struct swap_row {
	enum swap_pages pages;
	enum swap_place place;
	enum swap_way way;
	uint64_t bytes;
	double ns;
	double best_ns;
	double x;
};

#define SWAP_ROWS_MAX (SWAP_PAGES * SWAP_PLACES * SWAP_WAYS * LIST_MAX)

/**
 * struct swap_result - everything
 * @why: why a way is not here, or ""
 */
struct swap_result {
	size_t n;
	struct swap_row row[SWAP_ROWS_MAX];
	char why[SWAP_WAYS][256];
};

/* 0, or an exit status with a message printed. */
int swap_run(const struct swap_opts *opt, struct swap_result *res);
int swap_report(const struct swap_opts *opt, const struct swap_result *res);
int swap_plot(const struct swap_result *res, const char *file);

#endif /* TOOLS_BENCH_SWAP_H */
