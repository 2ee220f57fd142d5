// SPDX-License-Identifier: BSD-2-Clause
/* kedge perf --check calls every byte wrong that is not its message's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/perf/rank.h"

#define LEN 4099u
#define SEED 42u

static unsigned char *buf;

static int setup(void **state)
{
	buf = malloc(LEN + PERF_GUARD);
	if (!buf)
		return -1;
	perf_fill_guard(buf, LEN);
	perf_fill(buf, LEN, SEED, 7);
	return 0;
}

static int teardown(void **state)
{
	free(buf);
	return 0;
}

static void what_was_filled_is_right(void **state)
{
	size_t len;

	assert_int_equal(perf_verify(buf, LEN, SEED, 7), -1);
	for (len = 0; len < 40; len++) {
		perf_fill(buf, len, SEED, len);
		perf_fill_guard(buf, len);
		assert_int_equal(perf_verify(buf, len, SEED, len), -1);
	}
}

static void each_wrong_byte_is_found(void **state)
{
	size_t i;

	for (i = 0; i < LEN; i++) {
		buf[i] ^= 0x10;
		assert_int_equal(perf_verify(buf, LEN, SEED, 7), i);
		buf[i] ^= 0x10;
	}
	assert_int_equal(perf_verify(buf, LEN, SEED, 7), -1);
}

static void each_byte_behind_is_found(void **state)
{
	size_t i;

	for (i = LEN; i < LEN + PERF_GUARD; i++) {
		buf[i] ^= 1;
		assert_int_equal(perf_verify(buf, LEN, SEED, 7), i);
		buf[i] ^= 1;
	}
}

static void another_message_is_wrong(void **state)
{
	uint64_t seq;

	for (seq = 0; seq < 100; seq++) {
		if (seq != 7)
			assert_in_range(perf_verify(buf, LEN, SEED, seq), 0, 8);
		assert_in_range(perf_verify(buf, LEN, SEED + 1, seq), 0, 8);
	}
}

/* A page, or a few bytes, that lie where others should. */
static void shifted_is_wrong(void **state)
{
	size_t by;

	for (by = 1; by < 64; by++) {
		memmove(buf + 100, buf + 100 + by, 1000);
		assert_in_range(perf_verify(buf, LEN, SEED, 7), 100, 110);
		perf_fill(buf, LEN, SEED, 7);
	}
}

static void swapped_is_wrong(void **state)
{
	unsigned char tmp[8];

	memcpy(tmp, buf + 1024, 8);
	memcpy(buf + 1024, buf + 2048, 8);
	memcpy(buf + 2048, tmp, 8);
	assert_in_range(perf_verify(buf, LEN, SEED, 7), 1024, 1031);
}

static void use_reads_every_byte(void **state)
{
	const uint64_t sum = perf_use(buf, LEN);
	size_t i;

	for (i = 0; i < LEN; i++) {
		buf[i] ^= 1;
		assert_true(perf_use(buf, LEN) != sum);
		buf[i] ^= 1;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_filled_is_right, setup,
						teardown),
		cmocka_unit_test_setup_teardown(each_wrong_byte_is_found, setup,
						teardown),
		cmocka_unit_test_setup_teardown(each_byte_behind_is_found,
						setup, teardown),
		cmocka_unit_test_setup_teardown(another_message_is_wrong, setup,
						teardown),
		cmocka_unit_test_setup_teardown(shifted_is_wrong, setup,
						teardown),
		cmocka_unit_test_setup_teardown(swapped_is_wrong, setup,
						teardown),
		cmocka_unit_test_setup_teardown(use_reads_every_byte, setup,
						teardown),
	};

	return cmocka_run_group_tests_name("perf_check", tests, NULL, NULL);
}
