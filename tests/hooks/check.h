/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_HOOKS_CHECK_H
#define TESTS_HOOKS_CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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
