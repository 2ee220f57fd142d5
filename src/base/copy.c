// SPDX-License-Identifier: BSD-2-Clause
/* Copying by plain moves, 16 bytes each; and what the processor is quick at. */
#include "base/base.h"
#include "base/copy.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define FSRM (1u << 4) /* leaf 7, edx: fast short "rep movsb" */

bool copy_has_strings;

static __attribute__((constructor)) void ask_processor(void)
{
	unsigned int a, b, c, d;

	copy_has_strings = __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & FSRM;
}
#endif

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
