// SPDX-License-Identifier: BSD-2-Clause
/* What the models have in common. */

/* A step that is left out where @condition does not hold. */
#define when(condition, ...) if :: condition -> __VA_ARGS__ :: else fi
/* A step is done again as long as @condition holds. */
#define repeat(condition, ...) do :: condition -> __VA_ARGS__ :: else -> break od

/* The environment, and what was reached at all, told in the end. */
#define MARKS 48
c_decl {
\#include <stdio.h>
\#include <stdlib.h>
	static unsigned char mark[MARKS];

	static int set(const char *name, int by_default)
	{
		const char *v = getenv(name);

		return v && *v ? atoi(v) : by_default;
	}

	static void __attribute__((destructor)) marks_tell(void)
	{
		int i;

		for (i = 0; i < MARKS; i++)
			if (mark[i])
				printf("mark %d\n", i);
	}
};
#define MARK(n) c_code { mark[n] = 1; };
