// SPDX-License-Identifier: BSD-2-Clause
/*
 * Structs that callers of another version hand in: of any size, never read or
 * written beyond it.
 */
#include "feed.h"

#include "base/base.h"

#define OURS_MAX 256u

/* The caller's struct: exactly @have bytes, from the input. */
static uint8_t *users(uint32_t have, struct bytes *in)
{
	uint8_t *user = malloc(have);
	uint32_t i;

	CHECK(user);
	for (i = 0; i < have; i++)
		user[i] = take(in);
	memcpy(user, &have, sizeof(have));
	return user;
}

static void try_opts(uint32_t have, size_t size, size_t min, struct bytes *in)
{
	uint8_t *user = users(have, in), *ours = malloc(size);
	int want = have < min ? -EINVAL : 0;
	size_t i;

	CHECK(ours);
	for (i = size; !want && i < have; i++)
		if (user[i])
			want = -E2BIG;
	memset(ours, 0xa5, size);
	CHECK(kedge__opts_copy(ours, size, min, user) == want);
	for (i = 0; !want && i < size; i++)
		CHECK(ours[i] == (i < have ? user[i] : 0));
	CHECK(!kedge__opts_copy(ours, size, min, NULL));
	for (i = 0; i < size; i++)
		CHECK(!ours[i]);
	free(ours);
	free(user);
}

static void try_info(uint32_t have, size_t size, size_t min, struct bytes *in)
{
	uint8_t *user = users(have, in), *ours = malloc(size);
	uint8_t *before = malloc(have);
	int want = have < min ? -EINVAL : 0;
	size_t i;

	CHECK(ours && before);
	memcpy(before, user, have);
	memset(ours, 0xa5, size);
	CHECK(kedge__info_copy(user, min, ours, size) == want);
	for (i = 0; i < have; i++) {
		if (want || i < sizeof(have))
			CHECK(user[i] == before[i]);
		else
			CHECK(user[i] == (i < size ? 0xa5 : 0));
	}
	CHECK(kedge__info_copy(NULL, min, ours, size) == -EINVAL);
	free(before);
	free(ours);
	free(user);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in = { data, len };
	uint8_t how = take(&in);
	/* Each has at least its size; ours has at least the first version. */
	size_t size = sizeof(uint32_t) + take(&in) % OURS_MAX;
	size_t min = sizeof(uint32_t) + take(&in) % (size - 3);
	uint32_t have = 4 + (uint32_t)take_number(&in, 2) % (4 * OURS_MAX);

	if (how & 1)
		try_opts(have, size, min, &in);
	else
		try_info(have, size, min, &in);
	return 0;
}
