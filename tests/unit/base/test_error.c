// SPDX-License-Identifier: BSD-2-Clause
/* Errors in words, and structs that are older or newer than the library. */
#include <limits.h>

#include "cases.h"
#include "base/base.h"

struct opts {
	uint32_t size;
	uint32_t first;
	uint64_t second;
};

static void an_error_has_words(void **state)
{
	int rc;

	assert_string_equal(kedge_strerror(0), "success");
	for (rc = 1; rc < 200; rc++) {
		const char *text = kedge_strerror(-rc);

		assert_non_null(text);
		assert_true(strlen(text) > 3);
		assert_string_equal(kedge_strerror(rc), kedge_strerror(-rc));
	}
	assert_non_null(kedge_strerror(INT_MIN));
	assert_non_null(kedge_strerror(INT_MAX));
}

static void a_reason_is_for_its_error_alone(void **state)
{
	errno = 77;
	assert_int_equal(kedge_reason(-EBUSY, "slot %d is taken", 3), -EBUSY);
	assert_int_equal(errno, 77);
	assert_string_equal(kedge_strerror(-EBUSY), "slot 3 is taken");
	assert_string_not_equal(kedge_strerror(-EINVAL), "slot 3 is taken");
}

static void a_long_reason_is_cut(void **state)
{
	char longer[1000];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	kedge_reason(-EBUSY, "%s", longer);
	assert_int_equal(strlen(kedge_strerror(-EBUSY)), 255);
}

static void *other_thread(void *arg)
{
	kedge_reason(-EBUSY, "the other's");
	return NULL;
}

static void a_reason_is_its_threads(void **state)
{
	kedge_reason(-EBUSY, "mine");
	in_thread(other_thread, NULL);
	assert_string_equal(kedge_strerror(-EBUSY), "mine");
}

static void options_may_be_older_or_newer(void **state)
{
	struct {
		struct opts o;
		uint64_t newer;
	} user = { { .size = sizeof(user), .first = 1, .second = 2 }, 0 };
	struct opts o;

	assert_int_equal(kedge__opts_copy(&o, sizeof(o), 8, NULL), 0);
	assert_int_equal(o.second, 0);
	assert_int_equal(kedge__opts_copy(&o, sizeof(o), 8, &user), 0);
	assert_int_equal(o.second, 2);
	user.newer = 1;
	assert_int_equal(kedge__opts_copy(&o, sizeof(o), 8, &user), -E2BIG);
	user.o.size = 8; /* the first version had no second field */
	assert_int_equal(kedge__opts_copy(&o, sizeof(o), 8, &user), 0);
	assert_int_equal(o.first, 1);
	assert_int_equal(o.second, 0);
	user.o.size = 7;
	assert_int_equal(kedge__opts_copy(&o, sizeof(o), 8, &user), -EINVAL);
}

static void results_may_be_older_or_newer(void **state)
{
	struct {
		struct opts o;
		uint64_t newer;
	} user = { { .size = sizeof(user) }, 7 };
	struct opts o = { sizeof(o), 1, 2 };

	assert_int_equal(kedge__info_copy(&user, 8, &o, sizeof(o)), 0);
	assert_int_equal(user.o.size, sizeof(user));
	assert_int_equal(user.o.second, 2);
	assert_int_equal(user.newer, 0);
	user.o.size = 8;
	user.o.second = 9;
	assert_int_equal(kedge__info_copy(&user, 8, &o, sizeof(o)), 0);
	assert_int_equal(user.o.second, 9);
	user.o.size = 4;
	assert_int_equal(kedge__info_copy(&user, 8, &o, sizeof(o)), -EINVAL);
	assert_int_equal(kedge__info_copy(NULL, 8, &o, sizeof(o)), -EINVAL);
}

#define LISTED PLAIN
#include "test_error.cases.h"
