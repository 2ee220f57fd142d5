// SPDX-License-Identifier: BSD-2-Clause
/*
 * A thread that has used a cache ends after the plug-in that had it was unloaded.
 * The arguments are plug-ins made of cache_plugin.c.
 */
#include <dlfcn.h>
#include <limits.h>

#include "core.h"

static const char *plugins[2];
static char *mem;
static int (*plugin_use)(void *);
static pthread_barrier_t step;

static void *use_it(void *arg)
{
	int rc = plugin_use(mem);

	pthread_barrier_wait(&step); /* closed */
	pthread_barrier_wait(&step); /* unloaded */
	return (void *)(intptr_t)rc;
}

/* Returns true if it is still loaded afterwards. */
static bool use_and_unload(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW), *rc;
	pthread_t t;
	bool stays;

	if (!lib)
		fail_msg("%s", dlerror());
	plugin_use = (int (*)(void *))dlsym(lib, "plugin_use");
	assert_non_null(plugin_use);
	assert_int_equal(pthread_create(&t, NULL, use_it, NULL), 0);
	pthread_barrier_wait(&step);
	assert_int_equal(dlclose(lib), 0);
	lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	stays = lib;
	if (lib)
		dlclose(lib);
	pthread_barrier_wait(&step);
	assert_int_equal(pthread_join(t, &rc), 0);
	assert_ptr_equal(rc, NULL);
	return stays;
}

static void a_thread_outlives_a_plugin(void **state)
{
	size_t i;

	for (i = 0; i < 2; i++) {
		assert_false(use_and_unload(plugins[i]));
		assert_false(use_and_unload(plugins[i]));
	}
}

static void the_library_stays(void **state)
{
	void *lib;

	use_and_unload(plugins[0]);
	lib = dlopen("libkedge.so.0", RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(lib);
	dlclose(lib);
}

/* Each time it is loaded it takes a key; there are no more than so many. */
static void a_plugin_gives_its_key_back(void **state)
{
	pthread_key_t key[PTHREAD_KEYS_MAX];
	int before, after, i, round;

	for (before = 0; !pthread_key_create(&key[before], NULL); before++)
		;
	for (i = 0; i < before; i++)
		pthread_key_delete(key[i]);
	for (round = 0; round < 5; round++)
		use_and_unload(plugins[1]);
	for (after = 0; !pthread_key_create(&key[after], NULL); after++)
		;
	for (i = 0; i < after; i++)
		pthread_key_delete(key[i]);
	assert_int_equal(after, before);
}

static int set_up(void **state)
{
	mem = new_pages(1);
	return pthread_barrier_init(&step, NULL, 2);
}

static int tear_down(void **state)
{
	free_pages(mem, 1);
	return pthread_barrier_destroy(&step);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(a_thread_outlives_a_plugin),
		CASE(the_library_stays),
		CASE(a_plugin_gives_its_key_back),
	};

	if (argc != 3) {
		fprintf(stderr, "usage: %s SHARED INSIDE\n", argv[0]);
		return 1;
	}
	plugins[0] = argv[1];
	plugins[1] = argv[2];
	if (need_uffd())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
