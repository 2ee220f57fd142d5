// SPDX-License-Identifier: BSD-2-Clause
/* A peer's descriptions of the place where a message lands: each as it is right, and wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "channel/rdma/desc.h"

#define LEN  10000u
#define WIDE ((uint32_t)sizeof(struct rdma_target))

struct desc_case {
	const char *name;
	struct rdma_desc d;
	struct rdma_target target[2];
	uint32_t cnt; /* of those that came */
	int rc;
};

#define DIRECT(n) { .id = 3, .kind = DESC_DIRECT, .cnt = (n), .len = LEN }
#define TABLE(n)  { .id = 3, .kind = DESC_TABLE, .cnt = (n), .len = LEN }
#define STREAM(cnt_, len_)                                                        \
	{ .id = 3, .kind = DESC_STREAM, .cnt = 1, .len = LEN, .slot_cnt = (cnt_), \
	  .slot_len = (len_) }
#define BOTH	  { { 0, LEN - 1, 5 }, { UINT64_MAX, 1, 6 } }

static const struct desc_case cases[] = {
	/* Direct: the ranges hold the message. */
	{ "what is right passes", DIRECT(2), BOTH, 2, 0 },
	{ "a byte more", DIRECT(2), { { 0, LEN, 5 }, { UINT64_MAX, 1, 6 } }, 2, -EPROTO },
	{ "a byte less", DIRECT(2), { { 0, LEN - 2, 5 }, { UINT64_MAX, 1, 6 } }, 2, -EPROTO },
	{ "an empty range", DIRECT(2), { { 0, LEN, 5 }, { UINT64_MAX, 0, 6 } }, 2, -EPROTO },
	{ "the sum wraps to what it should be", DIRECT(2),
	  { { 0, UINT64_MAX, 5 }, { 0, LEN + 1, 0 } }, 2, -EPROTO },
	{ "to the last byte", DIRECT(2),
	  { { UINT64_MAX - LEN + 2, LEN - 1, 5 }, { UINT64_MAX, 1, 6 } }, 2, 0 },
	{ "beyond the last byte", DIRECT(2),
	  { { UINT64_MAX - LEN + 3, LEN - 1, 5 }, { UINT64_MAX, 1, 6 } }, 2, -EPROTO },
	/* Sizes and fields that disagree. */
	{ "one of two", DIRECT(1), BOTH, 2, -EPROTO },
	{ "three of two", DIRECT(3), BOTH, 2, -EPROTO },
	{ "none", DIRECT(0), BOTH, 0, -EPROTO },
	{ "what is to be zero", { .id = 3, .kind = DESC_DIRECT, .cnt = 2, .len = LEN, .zero = 1 },
	  BOTH, 2, -EPROTO },
	{ "no kind", { .id = 3, .cnt = 2, .len = LEN }, BOTH, 2, -EPROTO },
	{ "an unknown kind", { .id = 3, .kind = 4, .cnt = 2, .len = LEN }, BOTH, 2, -EPROTO },
	{ "slots of no stream",
	  { .id = 3, .kind = DESC_DIRECT, .cnt = 2, .len = LEN, .slot_cnt = 1 }, BOTH, 2, -EPROTO },
	/* A table is bounded. */
	{ "a table", TABLE(20), { { 0, 20 * WIDE, 5 } }, 1, 0 },
	{ "a table of two ranges", TABLE(20), { { 0, 20 * WIDE, 5 }, { UINT64_MAX, 1, 6 } }, 2,
	  -EPROTO },
	{ "a table with a byte more", TABLE(20), { { 0, 20 * WIDE + 1, 5 } }, 1, -EPROTO },
	{ "a table too long", TABLE(TABLE_TARGETS + 1), { { 0, (TABLE_TARGETS + 1) * WIDE, 5 } }, 1,
	  -EPROTO },
	{ "an empty table", TABLE(0), { { 0, 0, 5 } }, 1, -EPROTO },
	{ "24 times this is 24, modulo 2^32", TABLE((uint32_t)1 << 29 | 1), { { 0, 24, 5 } }, 1,
	  -EPROTO },
	/* A window is its slots. */
	{ "a window", STREAM(4, 4096), { { 0, 4 * 4096, 5 } }, 1, 0 },
	{ "a slot too many", STREAM(5, 4096), { { 0, 4 * 4096, 5 } }, 1, -EPROTO },
	{ "no slot", STREAM(0, 4096), { { 0, 4 * 4096, 5 } }, 1, -EPROTO },
	{ "slots beyond counting", STREAM(256, 4096), { { 0, 256 * 4096, 5 } }, 1, -EPROTO },
	{ "slots of nothing", STREAM(4, 0), { { 0, 0, 5 } }, 1, -EPROTO },
	{ "slots that wrap", STREAM(4, (UINT64_C(1) << 62) + 1), { { 0, 4, 5 } }, 1, -EPROTO },
	{ "more slots than are counted",
	  { .id = 3, .kind = DESC_STREAM, .cnt = 1, .len = UINT64_C(1) << 33, .slot_cnt = 4,
	    .slot_len = 1 }, { { 0, 4, 5 } }, 1, -EPROTO },
};

static union {
	struct rdma_desc d;
	char room[DESC_MAX];
} in, out;

static size_t len_of(uint32_t cnt)
{
	return sizeof(struct rdma_desc) + cnt * sizeof(struct rdma_target);
}

static void set_in(const struct desc_case *c)
{
	memset(&in, 0, sizeof(in));
	in.d = c->d;
	memcpy(in.d.target, c->target, sizeof(c->target));
}

static void each_descriptor_has_its_verdict(void **state)
{
	size_t i;
	int rc;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set_in(&cases[i]);
		rc = kedge__rdma_desc_parse(&in, len_of(cases[i].cnt), in.d.len, &out.d);
		if (rc != cases[i].rc)
			fail_msg("%s: %d, not %d", cases[i].name, rc, cases[i].rc);
		if (!rc)
			assert_memory_equal(&in, &out, len_of(cases[i].cnt));
	}
}

/* Of the bytes, or of the message that it is for. */
static void a_length_that_disagrees_is_eproto(void **state)
{
	set_in(&cases[0]);
	assert_int_equal(kedge__rdma_desc_parse(&in, len_of(2) - 1, LEN, &out.d), -EPROTO);
	assert_int_equal(kedge__rdma_desc_parse(&in, 0, LEN, &out.d), -EPROTO);
	assert_int_equal(kedge__rdma_desc_parse(&in, len_of(0) - 8, LEN, &out.d), -EPROTO);
	assert_int_equal(kedge__rdma_desc_parse(&in, len_of(2), LEN - 1, &out.d), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_descriptor_has_its_verdict),
		cmocka_unit_test(a_length_that_disagrees_is_eproto),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
