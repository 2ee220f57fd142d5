/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of ofi_bench's parts. */
#ifndef TESTS_OFI_BENCH_H
#define TESTS_OFI_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_DIE(...)                                                 \
	do {                                                           \
		fprintf(stderr, "ofi_bench: " __VA_ARGS__);            \
		fputc('\n', stderr);                                   \
		exit(1);                                               \
	} while (0)

/* @cnt messages of @len bytes, @window of them under way. */
struct bench {
	int serve;
	const char *provider, *node, *port;
	size_t len;
	uint64_t cnt;
	unsigned int window;
	char *buf; /* @window * @len bytes */
};

static inline double now_sec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Seconds that it took, from the first to the receiver's word for all. */
double bench_raw(const struct bench *b, int rma);
double bench_kedge(const struct bench *b);

#endif /* TESTS_OFI_BENCH_H */
