// SPDX-License-Identifier: BSD-2-Clause
/* The target that a value of KEDGE_STATS names. */
#include "published.h"
#include "stats/target.h"

static void names(const char *value, bool socket, const char *path)
{
	struct target t;

	assert_true(target_named(value));
	assert_int_equal(target_parse(&t, value, "prom"), 0);
	assert_int_equal(t.socket, socket);
	assert_string_equal(t.path, path);
}

static void no_place_is_named_by_switches(void **state)
{
	assert_false(target_named(NULL));
	assert_false(target_named(""));
	assert_false(target_named("0"));
	assert_false(target_named("1"));
	assert_true(target_named("11"));
}

static void a_path_is_a_file_or_a_socket(void **state)
{
	names("/x/y.prom", false, "/x/y.prom");
	names("unix:/x/y.sock", true, "/x/y.sock");
	names("/unix:x", false, "/unix:x");
}

static void a_process_has_its_number_in_it(void **state)
{
	char want[128];

	snprintf(want, sizeof(want), "/x/%d-%%p-%d%%q%%", getpid(), getpid());
	names("/x/%p-%%p-%p%q%", false, want);
}

static void a_relative_path_is_of_this_folder(void **state)
{
	char was[512];

	assert_non_null(getcwd(was, sizeof(was)));
	assert_int_equal(chdir(folder), 0);
	names("y", false, path_of("y"));
	names("unix:./y", true, path_of("./y"));
	assert_int_equal(chdir(was), 0);
}

static void a_folder_has_a_name_for_each_process(void **state)
{
	const char *me = program_invocation_short_name;
	char value[128];

	names(folder, false, path_of("kedge-%.31s-%d.prom", me, getpid()));
	snprintf(value, sizeof(value), "unix:%s", folder);
	names(value, true, path_of("kedge-%.31s-%d.sock", me, getpid()));
}

static void a_program_of_any_name_stays_in_the_folder(void **state)
{
	static char odd[] = "../a b\"\n";
	char *was = program_invocation_short_name;

	program_invocation_short_name = odd;
	names(folder, false, path_of("kedge-.._a_b__-%d.prom", getpid()));
	program_invocation_short_name = was;
}

static void what_is_too_long_is_refused(void **state)
{
	static char value[PATH_MAX + 2];
	struct target t;

	memset(value, 'x', sizeof(value) - 1);
	*value = '/';
	assert_int_equal(target_parse(&t, value, "prom"), -ENAMETOOLONG);
	value[PATH_MAX - 1] = '\0';
	assert_int_equal(target_parse(&t, value, "prom"), 0);
	/* The number makes it longer than it is. */
	memcpy(value + PATH_MAX - 3, "%p", 3);
	assert_int_equal(target_parse(&t, value, "prom"), getpid() < 100 ? 0 : -ENAMETOOLONG);
	/* So does the folder that it is in. */
	*value = 'x';
	assert_int_equal(target_parse(&t, value, "prom"), -ENAMETOOLONG);
}

static void no_path_is_an_error(void **state)
{
	struct target t;

	assert_true(target_named("unix:"));
	assert_int_equal(target_parse(&t, "unix:", "prom"), -EINVAL);
}

static void no_folder_is_an_error(void **state)
{
	char was[512];
	struct target t;

	assert_non_null(getcwd(was, sizeof(was)));
	assert_int_equal(mkdir(path_of("gone"), 0700), 0);
	assert_int_equal(chdir(path_of("gone")), 0);
	assert_int_equal(rmdir(path_of("gone")), 0);
	assert_int_equal(target_parse(&t, "y", "prom"), -ENOENT);
	assert_int_equal(chdir(was), 0);
}

#define LISTED PLAIN
#include "test_target.cases.h"

int main(void)
{
	int failed;

	folder_begin();
	failed = cmocka_run_group_tests(cases, NULL, NULL);
	folder_end();
	return failed;
}
