// SPDX-License-Identifier: BSD-2-Clause
/* Copies of every kind of length, with every distance that is treated apart. */
#include "base/copy.h"
#include "cases.h"

#define ROOM 16384u

static unsigned char from[ROOM], to[ROOM];

static unsigned char mark(size_t i)
{
	return (unsigned char)(i * 131 + (i >> 8));
}

static void check(void (*copy)(char *dst, const char *src, size_t len),
		  size_t dst, size_t src, size_t len)
{
	size_t i;

	memset(to, 0xee, sizeof(to));
	copy((char *)to + dst, (const char *)from + src, len);
	for (i = 0; i < sizeof(to); i++) {
		unsigned char want = i < dst || i >= dst + len
					     ? 0xee : mark(src + i - dst);

		if (to[i] != want)
			fail_msg("%zu bytes from %zu to %zu: byte %zu", len,
				 src, dst, i);
	}
}

static void bytes(char *dst, const char *src, size_t len)
{
	copy_bytes(dst, src, len);
}

static void every_byte_and_no_other(void **state)
{
	static const size_t lens[] = { 0, 1, 63, 64, 65, 127, 128, 2047, 2048,
				       2049, 2111, 4096, 8191 };
	size_t i, ahead;

	for (i = 0; i < ROOM; i++)
		from[i] = mark(i);
	/* The arrays' own distance counts as well: all residues near 0. */
	for (ahead = 0; ahead < 4096; ahead += ahead % 256 < 80 ? 1 : 16)
		for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
			check(bytes, ahead, 0, lens[i]);
			check(copy_plain, ahead, 5, lens[i]);
		}
}

#define LISTED PLAIN
#include "test_copy.cases.h"

int main(void)
{
	return cmocka_run_group_tests_name("copy", cases, NULL, NULL);
}
