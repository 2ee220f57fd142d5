/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The harnesses' common ground. A file that reads the kernel is included by its
 * harness after this header, so that its calls end here instead: open() gives
 * the one file there is, whose bytes are the fuzzer's, and read() tears it
 * where the fuzzer says. syscall() is replaced as well, since code that must
 * not be a cancellation point calls the kernel by it; a system call that has no
 * fake ends the run, so that none reaches the kernel unnoticed.
 */
#ifndef FUZZ_FEED_H
#define FUZZ_FEED_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

/*
 * The content of the file from the next open on; borrowed. A read gives at most
 * @chunk bytes, and every second one fails with EINTR first if @interrupts.
 */
void feed_set(const void *data, size_t len, size_t chunk, int interrupts);

/* The file was closed as often as it was opened. */
int feed_is_closed(void);

int fuzz_open(const char *path, int flags, ...);
ssize_t fuzz_read(int fd, void *to, size_t len);
int fuzz_close(int fd);
int fuzz_ioctl(int fd, unsigned long what, ...); /* -1, ENOTTY */

/* openat, read, close, ioctl, lseek to the start; capget: all of them. */
long fuzz_syscall(long number, ...);

#define open	fuzz_open
#define read	fuzz_read
#define close	fuzz_close
#define ioctl	fuzz_ioctl
#define syscall fuzz_syscall

#endif /* FUZZ_FEED_H */
