// SPDX-License-Identifier: BSD-2-Clause
/* The file of measured costs: kept, and not believed where it may be anybody's. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "channel/rdma/cost/costs.h"

static char dir[64];

static int setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/kedge-costs-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(setenv("KEDGE_COSTS", dir, 1), 0);
	return 0;
}

/* The only file there. */
static void file(char path[512])
{
	DIR *d = opendir(dir);
	struct dirent *e;

	path[0] = '\0';
	assert_non_null(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			assert_string_equal(path, "");
			snprintf(path, 512, "%s/%s", dir, e->d_name);
		}
	closedir(d);
}

static int teardown(void **state)
{
	char path[512];

	file(path);
	if (path[0])
		unlink(path);
	unsetenv("KEDGE_COSTS");
	return rmdir(dir);
}

static void some(struct curve c[CURVES])
{
	int i, j;

	for (i = 0; i < CURVES; i++)
		for (j = 0; j < POINTS; j++)
			c[i].ns[j] = 1000 * (i + 1) * (j + 1);
}

static void what_was_kept_is_read(void **state)
{
	struct curve in[CURVES], out[CURVES];

	some(in);
	assert_false(kedge__rdma_costs_load("rxe0", out));
	kedge__rdma_costs_save("rxe0", in);
	assert_true(kedge__rdma_costs_load("rxe0", out));
	assert_memory_equal(in, out, sizeof(in));
	/* Of that device alone. */
	assert_false(kedge__rdma_costs_load("rxe1", out));
}

static void a_later_one_takes_its_place(void **state)
{
	struct curve in[CURVES], out[CURVES];

	some(in);
	kedge__rdma_costs_save("rxe0", in);
	in[CURVE_REG].ns[1] = 7;
	kedge__rdma_costs_save("rxe0", in);
	assert_true(kedge__rdma_costs_load("rxe0", out));
	assert_true(out[CURVE_REG].ns[1] == 7);
}

static void without_a_folder_nothing_is_kept(void **state)
{
	struct curve in[CURVES], out[CURVES];

	some(in);
	unsetenv("KEDGE_COSTS");
	kedge__rdma_costs_save("rxe0", in);
	assert_false(kedge__rdma_costs_load("rxe0", out));
	assert_int_equal(setenv("KEDGE_COSTS", "/nonexistent", 1), 0);
	kedge__rdma_costs_save("rxe0", in);
	assert_false(kedge__rdma_costs_load("rxe0", out));
	/* The name of a device is no way out of the folder. */
	assert_int_equal(setenv("KEDGE_COSTS", dir, 1), 0);
	kedge__rdma_costs_save("../rxe0", in);
	assert_false(kedge__rdma_costs_load("../rxe0", out));
}

static void what_others_may_write_is_not_read(void **state)
{
	struct curve in[CURVES], out[CURVES];
	char path[512], to[520];

	some(in);
	kedge__rdma_costs_save("rxe0", in);
	file(path);
	assert_int_equal(chmod(path, 0622), 0);
	assert_false(kedge__rdma_costs_load("rxe0", out));
	assert_int_equal(chmod(path, 0600), 0);
	assert_true(kedge__rdma_costs_load("rxe0", out));
	/* Nor a link, wherever it leads. */
	snprintf(to, sizeof(to), "%s.real", path);
	assert_int_equal(rename(path, to), 0);
	assert_int_equal(symlink(to, path), 0);
	assert_false(kedge__rdma_costs_load("rxe0", out));
	assert_int_equal(unlink(to), 0);
	/* Nor a pipe, on which a reader would wait. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_false(kedge__rdma_costs_load("rxe0", out));
}

static void what_is_no_such_file_is_refused(void **state)
{
	static const char *const bad[] = {
		"", "kedge-costs 1", "kedge-costs 1\n", "kedge-costs 2\n1 1 1\n",
		"kedge-costs 1\n1 1 1 1 1 1 1 1 1 1 1\n",
		"kedge-costs 1\n1 1 1 1 1 1 1 1 1 1 1 1 1\n",
		"kedge-costs 1\n1 1 1 1 1 1 1 1 1 1 1 1",
		"kedge-costs 1\n0 1 1 1 1 1 1 1 1 1 1 1\n",
		"kedge-costs 1\n-1 1 1 1 1 1 1 1 1 1 1 1\n",
		"kedge-costs 1\nnan 1 1 1 1 1 1 1 1 1 1 1\n",
		"kedge-costs 1\ninf 1 1 1 1 1 1 1 1 1 1 1\n",
		"kedge-costs 1\n1e13 1 1 1 1 1 1 1 1 1 1 1\n",
		"kedge-costs 1\nx 1 1 1 1 1 1 1 1 1 1 1\n",
	};
	struct curve out[CURVES];
	size_t i;

	assert_true(kedge__rdma_costs_parse(
		"kedge-costs 1\n1 1 1 1 1 1 1 1 1 1 1 1\n", out));
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (kedge__rdma_costs_parse(bad[i], out))
			fail_msg("taken: %s", bad[i]);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(what_was_kept_is_read),
		CASE(a_later_one_takes_its_place),
		CASE(without_a_folder_nothing_is_kept),
		CASE(what_others_may_write_is_not_read),
		CASE(what_is_no_such_file_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
