/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cache over a device that only counts, and pages to get from it by number:
 * the fixture of the tests of the cache's rules.
 */
#ifndef TESTS_CACHE_PAGES_H
#define TESTS_CACHE_PAGES_H

#include "cases.h"

#define CHUNK 32 /* pages */
#define PAGES (8 * CHUNK)
#define WRITE KEDGE_ACCESS_LOCAL_WRITE

extern struct nodev *dev;
extern struct kedge_notifier *nf;
extern struct kedge_cache *cache;
extern char *mem; /* PAGES of them; it starts at a chunk */
extern size_t page;

/* Memory and the device: setup_windows(), one with memory windows. */
int setup(void **state);
int setup_windows(void **state);
int teardown(void **state);

/* Open the notifier and the cache. Chunks are of CHUNK pages if @o has none. */
void open_with(struct kedge_cache_opts o);

char *at(size_t n);
struct kedge_cache_stats stats(void);

/* The registration of a get has been checked. */
const struct kedge_mr *get(size_t first, size_t cnt, uint32_t access);
void get_put(size_t first, size_t cnt, uint32_t access);
bool is_hit(size_t first, size_t cnt, uint32_t access);

/*
 * main() of such a test. With the argument "single", all of it in a cache with a
 * single thread.
 */
#define RUN_CASES(tests, argc, argv)                                           \
	(cache_pages_begin(argc, argv) ? 77                                    \
	 : cmocka_run_group_tests(tests, NULL, NULL) ? 1                       \
						     : 0)

/* 0, or 77: the tests are to be skipped. */
int cache_pages_begin(int argc, char **argv);

#endif /* TESTS_CACHE_PAGES_H */
