// SPDX-License-Identifier: BSD-2-Clause
/*
 * An allocator's memory is attached while other threads allocate, move and free: the C
 * library's, or that of the one that HEAP names, which is preloaded then.
 */
#include <dlfcn.h>

#include "demand.h"

#define ROUNDS	 100
#define LARGEST	 200000
#define THREADS	 2

static _Atomic bool stops;

static bool has_only(const char *p, size_t len, char c)
{
	size_t i;

	for (i = 0; i < len; i += 97)
		if (p[i] != c)
			return false;
	return true;
}

/* Its memory is its own, and calloc()'s is zero, whatever is converted meanwhile. */
static bool allocates(size_t n, char c)
{
	char *p = malloc(n), *zeros = calloc(1, n), *more;
	bool right;

	if (!p || !zeros)
		return false;
	memset(p, c, n);
	more = realloc(p, 2 * n);
	right = more && has_only(more, n, c) && has_only(zeros, n, 0);
	free(more);
	free(zeros);
	return right;
}

static void *churns(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	while (!atomic_load(&stops))
		if (!allocates(1 + (size_t)rand_r(&seed) % LARGEST, (char)seed))
			return (void *)1;
	return NULL;
}

static void attaches(size_t n)
{
	char *p = malloc(n);
	uint64_t v = 0;

	assert_non_null(p);
	memset(p, 77, n);
	attach_in_time(addr_of(p), n);
	assert_int_equal(peer_load(&peer, 0, &v), 0);
	assert_int_equal((char)v, 77);
	assert_int_equal(peer_store(&peer, 8, 5), 0);
	assert_int_equal(p[8], 5);
	assert_true(has_only(p + 16, n - 16, 77));
	assert_int_equal(peer_detach(&peer), 0);
	free(p);
}

static void what_malloc_gives_is_attached(void **state)
{
	static const size_t size[] = { 64, 5000, 100000, 3000000 };
	pthread_t thread[THREADS];
	uintptr_t i;

	begin(NULL, 0, &whole);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, churns, (void *)i), 0);
	for (i = 0; i < ROUNDS; i++)
		attaches(size[i % 4]);
	atomic_store(&stops, true);
	join_threads(thread, THREADS);
	end();
}

#define LISTED PLAIN
#include "test_segment_heap.cases.h"

int main(int argc, char **argv)
{
	const char *heap = getenv("HEAP");

	peer_main(argc, argv);
	if (heap && !dlopen(heap, RTLD_NOW | RTLD_NOLOAD)) {
		printf("skipped: %s is not installed\n", heap);
		return 77;
	}
	return RUN(cases);
}
