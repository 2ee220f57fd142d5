/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cache over a device that only counts, and pages to get from it by number or by
 * address: the fixture of the tests of the cache.
 */
#ifndef TESTS_CACHE_PAGES_H
#define TESTS_CACHE_PAGES_H

#include "notifier.h"

#define CHUNK 32 /* pages */
#define PAGES (8 * CHUNK)
#define WRITE KEDGE_ACCESS_LOCAL_WRITE

extern struct nodev *dev;
extern struct kedge_cache *cache;
extern char *mem; /* it starts at a block of PAGES */
extern size_t page;

/* @cnt pages of memory, and a device as nodev_new_with(@what) makes it. */
int pages_setup(unsigned int what, size_t cnt);
/* Nothing is left registered, and nothing was ended twice. */
int teardown(void **state);
/* PAGES of them: setup_windows(), and a device with memory windows. */
int setup(void **state);
int setup_windows(void **state);
/* Another device in the place of the one that nobody has used. */
void device_with(unsigned int what);

/* Open a notifier and the cache, in the place of any before. Chunks are of CHUNK pages if @o has
 * none. */
void open_with(struct kedge_cache_opts o);
/* The cache alone, with the notifier that it takes; @o may be NULL. */
void open_cache(const struct kedge_cache_opts *o);
/* There is none any more. */
void close_cache(void);
/* setup(), and one that is open: by open_with(), or by open_cache(). */
int setup_open(void **state);
int setup_plain(void **state);
#define OPEN(f) cmocka_unit_test_setup_teardown(f, setup_open, teardown)

char *at(size_t n);
/* The figures of the cache, which have to agree with one another, and for stats() with the device:
 * raw_stats() is for windows that are lent, and for a device that is at work. */
struct kedge_cache_stats stats(void);
struct kedge_cache_stats raw_stats(void);

/* The registration of a get has been checked. */
const struct kedge_mr *get_at(const void *p, size_t len, uint32_t access);
const struct kedge_mr *get(size_t first, size_t cnt, uint32_t access);
void put(const struct kedge_mr *mr);
void get_put(size_t first, size_t cnt, uint32_t access);
bool is_hit(size_t first, size_t cnt, uint32_t access);

/*
 * main() of such a test. With the argument "single", all of it in a cache with a
 * single thread.
 */
#define RUN_CASES(tests, argc, argv) (cache_pages_begin(argc, argv) ? 77 : RUN(tests))

/* 0, or 77: the tests are to be skipped. */
int cache_pages_begin(int argc, char **argv);
/* Each cache is one of a single thread. */
bool is_single(void);

#endif /* TESTS_CACHE_PAGES_H */
