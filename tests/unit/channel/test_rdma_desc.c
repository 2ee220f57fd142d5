// SPDX-License-Identifier: BSD-2-Clause
/* A peer's descriptions of the place where a message lands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "channel/rdma/desc.h"

#define LEN 10000u

static union {
	struct rdma_desc d;
	char room[DESC_MAX];
} in, out;

static size_t len_of(uint32_t cnt)
{
	return sizeof(struct rdma_desc) + cnt * sizeof(struct rdma_target);
}

static int parse(uint32_t cnt)
{
	return kedge__rdma_desc_parse(&in, len_of(cnt), LEN, &out.d);
}

static int setup(void **state)
{
	memset(&in, 0, sizeof(in));
	in.d = (struct rdma_desc){ .id = 3, .kind = DESC_DIRECT, .cnt = 2,
				  .len = LEN };
	in.d.target[0] = (struct rdma_target){ 0, LEN - 1, 5 };
	in.d.target[1] = (struct rdma_target){ UINT64_MAX, 1, 6 };
	return 0;
}

static void what_is_right_passes(void **state)
{
	assert_int_equal(parse(2), 0);
	assert_memory_equal(&in, &out, len_of(2));
}

static void direct_ranges_hold_the_message(void **state)
{
	in.d.target[0].len++;
	assert_int_equal(parse(2), -EPROTO);
	in.d.target[0].len -= 2;
	assert_int_equal(parse(2), -EPROTO);
	setup(NULL);
	in.d.target[1].len = 0;
	in.d.target[0].len = LEN;
	assert_int_equal(parse(2), -EPROTO);
	setup(NULL);
	/* The sum wraps to what it should be. */
	in.d.target[0].len = UINT64_MAX;
	in.d.target[1] = (struct rdma_target){ 0, LEN + 1, 0 };
	assert_int_equal(parse(2), -EPROTO);
	setup(NULL);
	in.d.target[0].addr = UINT64_MAX - LEN + 2;
	assert_int_equal(parse(2), 0);
	in.d.target[0].addr++;
	assert_int_equal(parse(2), -EPROTO);
}

static void a_descriptor_whose_sizes_disagree_is_eproto(void **state)
{
	in.d.cnt = 1;
	assert_int_equal(parse(2), -EPROTO);
	in.d.cnt = 3;
	assert_int_equal(parse(2), -EPROTO);
	setup(NULL);
	assert_int_equal(kedge__rdma_desc_parse(&in, len_of(2) - 1, LEN, &out.d),
			 -EPROTO);
	assert_int_equal(kedge__rdma_desc_parse(&in, 0, LEN, &out.d), -EPROTO);
	assert_int_equal(kedge__rdma_desc_parse(&in, len_of(0) - 8, LEN, &out.d),
			 -EPROTO);
	assert_int_equal(kedge__rdma_desc_parse(&in, len_of(2), LEN - 1, &out.d),
			 -EPROTO);
	in.d.cnt = 0;
	assert_int_equal(parse(0), -EPROTO);
	in.d.zero = 1;
	in.d.cnt = 2;
	assert_int_equal(parse(2), -EPROTO);
	setup(NULL);
	in.d.kind = 0;
	assert_int_equal(parse(2), -EPROTO);
	in.d.kind = 4;
	assert_int_equal(parse(2), -EPROTO);
	setup(NULL);
	in.d.slot_cnt = 1;
	assert_int_equal(parse(2), -EPROTO);
}

static void a_table_is_bounded(void **state)
{
	in.d.kind = DESC_TABLE;
	in.d.cnt = 20;
	in.d.target[0].len = 20 * sizeof(struct rdma_target);
	assert_int_equal(parse(1), 0);
	assert_int_equal(parse(2), -EPROTO);
	in.d.target[0].len++;
	assert_int_equal(parse(1), -EPROTO);
	in.d.cnt = TABLE_TARGETS + 1;
	in.d.target[0].len = in.d.cnt * sizeof(struct rdma_target);
	assert_int_equal(parse(1), -EPROTO);
	in.d.cnt = 0;
	in.d.target[0].len = 0;
	assert_int_equal(parse(1), -EPROTO);
	/* Times 24, modulo 2^32, it is 24. */
	in.d.cnt = (uint32_t)1 << 29 | 1;
	in.d.target[0].len = 24;
	assert_int_equal(parse(1), -EPROTO);
}

static void a_window_is_its_slots(void **state)
{
	in.d.kind = DESC_STREAM;
	in.d.cnt = 1;
	in.d.slot_cnt = 4;
	in.d.slot_len = 4096;
	in.d.target[0].len = 4 * 4096;
	assert_int_equal(parse(1), 0);
	in.d.slot_cnt = 5;
	assert_int_equal(parse(1), -EPROTO);
	in.d.slot_cnt = 0;
	assert_int_equal(parse(1), -EPROTO);
	in.d.slot_cnt = 256;
	in.d.target[0].len = 256 * 4096;
	assert_int_equal(parse(1), -EPROTO);
	in.d.slot_cnt = 4;
	in.d.slot_len = 0;
	in.d.target[0].len = 0;
	assert_int_equal(parse(1), -EPROTO);
	in.d.slot_len = (UINT64_C(1) << 62) + 1;
	in.d.target[0].len = 4;
	assert_int_equal(parse(1), -EPROTO);
	/* More slots than are counted. */
	in.d.len = UINT64_C(1) << 33;
	in.d.slot_len = 1;
	in.d.target[0].len = 4;
	assert_int_equal(kedge__rdma_desc_parse(&in, len_of(1), in.d.len,
					       &out.d), -EPROTO);
}

#define TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_right_passes),
		TEST(direct_ranges_hold_the_message),
		TEST(a_descriptor_whose_sizes_disagree_is_eproto),
		TEST(a_table_is_bounded),
		TEST(a_window_is_its_slots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
