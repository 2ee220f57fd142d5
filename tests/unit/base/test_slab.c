// SPDX-License-Identifier: BSD-2-Clause
/* The pool: aligned, zeroed, disjoint, reused, and honest without memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/slab.h"
#include "fakes/memory.h"

#define CNT 20000

static bool is_zero(const unsigned char *p, size_t len)
{
	return !p[0] && !memcmp(p, p + 1, len - 1);
}

/* Each is filled with its own pattern: one that overlaps another shows. */
static void fill(unsigned char **all, size_t size)
{
	int i;

	for (i = 0; i < CNT; i++)
		memset(all[i], i % 251 + 1, size);
	for (i = 0; i < CNT; i++) {
		assert_int_equal(all[i][0], i % 251 + 1);
		assert_int_equal(all[i][size - 1], i % 251 + 1);
		assert_int_equal((uintptr_t)all[i] % 16, 0);
	}
}

static void check_size(size_t size)
{
	unsigned char **all = calloc(CNT, sizeof(*all));
	struct pool p;
	int i, before, maps = mapped;

	assert_non_null(all);
	pool_init(&p, size);
	for (i = 0; i < CNT; i++) {
		all[i] = pool_get(&p);
		assert_non_null(all[i]);
		assert_true(is_zero(all[i], size));
	}
	fill(all, size);
	for (i = 0; i < CNT; i += 2)
		pool_put(&p, all[i]);
	/* What was put is used again, zeroed, before more is mapped. */
	before = mapped;
	for (i = 0; i < CNT; i += 2) {
		all[i] = pool_get(&p);
		assert_true(is_zero(all[i], size));
	}
	assert_int_equal(mapped, before);
	fill(all, size);
	pool_fini(&p);
	assert_int_equal(mapped, maps);
	free(all);
}

static void objects_are_zeroed_and_apart(void **state)
{
	check_size(8);
	check_size(40);
	check_size(176);
}

static void no_memory_is_told_and_passes(void **state)
{
	struct pool p;
	void *one;

	pool_init(&p, 64);
	no_memory = true;
	assert_null(pool_get(&p));
	no_memory = false;
	one = pool_get(&p);
	assert_non_null(one);
	no_memory = true;
	/* What is there still goes out. */
	pool_put(&p, one);
	assert_ptr_equal(pool_get(&p), one);
	no_memory = false;
	pool_fini(&p);
	/* A pool that ended may be begun again. */
	pool_init(&p, 64);
	pool_fini(&p);
	assert_int_equal(mapped, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_are_zeroed_and_apart),
		cmocka_unit_test(no_memory_is_told_and_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
