/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How peers reach a region is chosen as a program of tests is run: TEST_REGION_BY names a way of
 * the tables in way.c and of the linked adapters, TEST_REGION_WITH a variant of what a suite does.
 */
#ifndef TESTS_REGION_WAY_H
#define TESTS_REGION_WAY_H

#include "core.h"

/*
 * @node:     the address that owners listen on, or NULL: peers are on this host
 * @node_env: a variable that has that address
 * @served:   the owner does accesses for its peers; else they map the memory
 * @leased:   peers access the memory by an adapter, as soon as they have a lease
 * @provider: of libfabric, which starts threads as it is chosen, or NULL
 * @use:      chooses the adapter; it returns 0, or a negative errno with a reason
 */
struct way {
	const char *name;
	const char *node;
	const char *node_env;
	bool served;
	bool leased;
	const char *provider;
	int (*use)(const char *provider);
};

/* That of this process. */
extern const struct way *way;

/*
 * The ways by an adapter that the program is linked to, up to one without a name: adapters.c by
 * the shared libraries, counted_fabric.c by libraries' insides.
 */
extern const struct way adapter_ways[];

/* TEST_REGION_WITH is @variant. */
bool region_with(const char *variant);

/* How often a case that kills processes at any moment does so: KEDGE_TEST_ROUNDS, or by circle. */
int test_rounds(int gate, int whole);

/* A case that has a meaning only where peers map the memory, or only where the owner serves them
 * and there is no adapter. */
enum { FOR_ALL, FOR_MAPPED, FOR_SERVED };
#define case_for(which, f) case_with(which, f, NULL, NULL)
#define case_with(which, f, begin, end) { #f, f, begin, end, (void *)(uintptr_t)(which) }

/*
 * Cases of one family.
 * @by:      the way where TEST_REGION_BY names none; NULL: there are no peers
 * @first:   before anything, or NULL: test_clock_begin()
 * @begin:   before the first case, @end: after the last one; or NULL
 * @may_run: false: this system cannot run them; or NULL
 */
struct suite {
	const char *name;
	const struct CMUnitTest *tests;
	size_t cnt;
	const char *by;
	void (*first)(void);
	CMFixtureFunction begin;
	CMFixtureFunction end;
	bool (*may_run)(void);
};

/* That of a program which has no main() of its own. */
extern const struct suite suite;

#define SUITE_OF(array) .tests = (array), .cnt = sizeof(array) / sizeof(*(array))

/* A program's exit status. Cases are all that the way has, or those that @only is a pattern of. */
int suite_run(const struct suite *s, const char *only);

#endif /* TESTS_REGION_WAY_H */
