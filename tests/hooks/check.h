/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_HOOKS_CHECK_H
#define TESTS_HOOKS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond)                                                            \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s: failed: %s\n", __FILE__,   \
				__LINE__, __func__, #cond);                    \
			exit(1);                                               \
		}                                                              \
	} while (0)

#define SKIP(why)                                                              \
	do {                                                                   \
		fprintf(stderr, "skipped: %s\n", why);                         \
		return;                                                        \
	} while (0)

#endif /* TESTS_HOOKS_CHECK_H */
