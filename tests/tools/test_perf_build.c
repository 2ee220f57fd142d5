// SPDX-License-Identifier: BSD-2-Clause
/* kedge perf tells a build of UCX with checks from a release build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/perf/ucx_build.h"

/* Texts that a compiler leaves, each with its end. Release builds of 1.13 and
 * 1.22 have the first two. */
#define STAYS                                                                  \
	"Assertion `%s' failed\0"                                             \
	"(pack_flags & UCP_ADDRESS_PACK_FLAG_DEVICE_ADDR) || (len == 0)\0"
#define ASSERTION "!(req->flags & UCP_REQUEST_FLAG_COMPLETED)\0"
#define CHECK	  "feature flags %s were not set for ucp_init()\0"

static void a_release_build_has_neither(void **state)
{
	static const char text[] = STAYS;

	assert_int_equal(perf_build_flags(text, sizeof(text)),
			 PERF_BUILD_KNOWN);
	assert_int_equal(perf_build_flags(text, 0), PERF_BUILD_KNOWN);
}

static void assertions_and_checks_are_told_apart(void **state)
{
	static const char asserts[] = STAYS ASSERTION;
	static const char checks[] = CHECK STAYS;
	static const char both[] = STAYS CHECK ASSERTION;

	assert_int_equal(perf_build_flags(asserts, sizeof(asserts)),
			 PERF_BUILD_KNOWN | PERF_BUILD_ASSERTIONS);
	assert_int_equal(perf_build_flags(checks, sizeof(checks)),
			 PERF_BUILD_KNOWN | PERF_BUILD_PARAM_CHECKS);
	assert_int_equal(perf_build_flags(both, sizeof(both)),
			 PERF_BUILD_KNOWN | PERF_BUILD_ASSERTIONS |
				 PERF_BUILD_PARAM_CHECKS);
}

static void a_file_is_read(void **state)
{
	static const char text[] = STAYS CHECK;
	char name[] = "/tmp/kedge-perf-build-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	assert_int_equal(perf_build_of(name), 0);
	assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
	assert_int_equal(perf_build_of(name),
			 PERF_BUILD_KNOWN | PERF_BUILD_PARAM_CHECKS);
	close(fd);
	unlink(name);
	assert_int_equal(perf_build_of(name), 0);
	assert_int_equal(perf_build_of("/"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_release_build_has_neither),
		cmocka_unit_test(assertions_and_checks_are_told_apart),
		cmocka_unit_test(a_file_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
