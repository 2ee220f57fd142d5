// SPDX-License-Identifier: BSD-2-Clause
/* Copying by plain moves, 16 bytes each. */
#include "base/base.h"
#include "base/copy.h"

typedef uint64_t copy_vec
	__attribute__((vector_size(16), aligned(1), may_alias));

/* Four loads before four stores: no store is waited for. */
void copy_plain(char *dst, const char *src, size_t len)
{
	size_t i;

	for (i = 0; i + 64 <= len; i += 64) {
		copy_vec a = *(const copy_vec *)(src + i);
		copy_vec b = *(const copy_vec *)(src + i + 16);
		copy_vec c = *(const copy_vec *)(src + i + 32);
		copy_vec d = *(const copy_vec *)(src + i + 48);

		*(copy_vec *)(dst + i) = a;
		*(copy_vec *)(dst + i + 16) = b;
		*(copy_vec *)(dst + i + 32) = c;
		*(copy_vec *)(dst + i + 48) = d;
	}
	if (i < len)
		memcpy(dst + i, src + i, len - i);
}
