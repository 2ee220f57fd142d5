// SPDX-License-Identifier: BSD-2-Clause
/* The slab: aligned, zeroed, disjoint, reused, and honest without memory. */
#include "cases.h"
#include "base/slab.h"
#include "fakes/memory.h"

#define CNT 20000

static bool is_zero(const unsigned char *s, size_t len)
{
	return !s[0] && !memcmp(s, s + 1, len - 1);
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
	struct slab s;
	int i, before, maps = mapped;

	assert_non_null(all);
	slab_init(&s, size);
	for (i = 0; i < CNT; i++) {
		all[i] = slab_get(&s);
		assert_non_null(all[i]);
		assert_true(is_zero(all[i], size));
	}
	fill(all, size);
	for (i = 0; i < CNT; i += 2)
		slab_put(&s, all[i]);
	/* Objects that were put are used again, zeroed, before more is mapped. */
	before = mapped;
	for (i = 0; i < CNT; i += 2) {
		all[i] = slab_get(&s);
		assert_true(is_zero(all[i], size));
	}
	assert_int_equal(mapped, before);
	fill(all, size);
	slab_fini(&s);
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
	struct slab s;
	void *one;

	slab_init(&s, 64);
	no_memory = true;
	assert_null(slab_get(&s));
	no_memory = false;
	one = slab_get(&s);
	assert_non_null(one);
	no_memory = true;
	/* An object that is there still goes out. */
	slab_put(&s, one);
	assert_ptr_equal(slab_get(&s), one);
	no_memory = false;
	slab_fini(&s);
	/* A slab that ended may be begun again. */
	slab_init(&s, 64);
	slab_fini(&s);
	assert_int_equal(mapped, 0);
}

#define LISTED PLAIN
#include "test_slab.cases.h"
