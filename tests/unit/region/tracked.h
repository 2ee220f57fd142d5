/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory whose stores are told, and what is told of it. */
#ifndef TESTS_REGION_TRACKED_H
#define TESTS_REGION_TRACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "region/migrate/track.h"

#define UFFD "userfaultfd"
#define SOFT "soft-dirty"

#define PAGES	 2048u /* of most tests' memory: more ranges than a way tells at a time */
#define HUGE_LEN ((uint64_t)2 << 20)

/* @at is where a huge page can begin, in addresses from @kept on; @copy is as large. */
struct mem {
	char *kept;
	char *at;
	uint64_t len;
	uint64_t page;
	uint64_t *copy;
};

extern struct mem mem;
extern struct track *track; /* of it */

/* @flags of memfd_create(). Of a transparent huge page it may be told more than was stored
 * into: not with @small. False: there are no such pages. */
bool get_mem(uint64_t len, uint64_t page, unsigned int flags, bool small);
void drop_mem(void);

/* Fixtures: PAGES small pages, locked as a region's; pages as the kernel likes; the end. */
int begin_test(void **state);
int begin_any(void **state);
int end_test(void **state);

/* Skips the test where the way does not work. */
void begin(const char *way);

/* @end: of the range before; @stop: the call that stops it */
struct told {
	uint64_t end;
	uint64_t cnt;
	uint64_t len;
	uint64_t stop;
	bool page[PAGES];
};

extern struct told told;
extern const bool no_page[PAGES];

/* For a take: @arg is a struct told. */
int note(void *arg, uint64_t off, uint64_t len);
void take(void);
void takes_all(void);
/* Those that are @set and, where the way does not forget, those since all were told. */
void takes(const bool *set);

/* A store into the byte at @at. */
void by_thread(char *at);
void by_read(char *at);
void from_outside(char *at);

/* The mapping of @at has the flag of smaps, " uw". */
bool has_flag(const char *at, const char *flag);

#define ON(mem, way, test) { #test " (" way ")", test, mem, end_test, (void *)(uintptr_t)(way) }
#define BY(way, test)	   ON(begin_test, way, test)
#define BOTH(test)	   BY(UFFD, test), BY(SOFT, test)
#define ONE(test)	   { #test, test, begin_test, end_test, NULL }

#endif /* TESTS_REGION_TRACKED_H */
