/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The harnesses' common ground: the bytes of an input, and the file that sources which are
 * fed read in place of the kernel's.
 */
#ifndef FUZZ_FEED_H
#define FUZZ_FEED_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(cond)                                                            \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__,       \
				__LINE__, #cond);                              \
			abort();                                               \
		}                                                              \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* The bytes of an input, taken one by one; zeros when there are no more. */
struct bytes {
	const uint8_t *at;
	size_t left;
};

uint8_t take(struct bytes *b);
uint64_t take_number(struct bytes *b, unsigned int len);

/* The first eight bytes are @control, the rest is @rest; 0 where there are fewer. */
int take_control(const uint8_t *data, size_t len, struct bytes *control, struct bytes *rest);

/* A copy that is exactly as long, so that the sanitizer sees a byte too far; to be freed. */
void *exact_copy(const void *data, size_t len);
/* The same with a 0 behind it. */
char *text_copy(const void *data, size_t len);

/*
 * The content of the file from the next open on; borrowed. A read gives at most
 * @chunk bytes, and every second one fails with EINTR first if @interrupts.
 */
void feed_set(const void *data, size_t len, size_t chunk, int interrupts);

/* The file was closed as often as it was opened. */
int feed_is_closed(void);

/* A descriptor that the program keeps open, which knows no query. */
#define FEED_KEPT_FD 1000001

#endif /* FUZZ_FEED_H */
