/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of the tests of /dev/ummunot. */
#ifndef UMMUNOT_LIB_H
#define UMMUNOT_LIB_H

#include <linux/ummunot.h>

#include "vm_lib.h"

struct um {
	int fd;
	const uint64_t *counter;
	uint64_t first;		/* what that was: other files move it, too */
};

/* The news that a drain brought. */
struct news {
	unsigned int cnt;	/* events of INVAL */
	uint64_t start, end;	/* of all their hints, as one range */
	uint64_t cookie;	/* of the latest */
	uint64_t last;		/* what the LAST carried; 0 if there was none */
};

/*
 * A request as the running kernel knows it: the device of the patch series has
 * another magic than the module.
 */
unsigned long um_request(int fd, unsigned long request);

/* Fails the test where the node cannot be opened or mapped. */
void um_open(struct um *u, int flags);
void um_close(struct um *u);
uint64_t um_counter(const struct um *u);
/* Its increase since um_open(). */
uint64_t um_moved(const struct um *u);
/* 0, a count, or a negative errno. */
int um_features(struct um *u, uint32_t features);
int um_watch(struct um *u, const void *start, size_t len, uint64_t cookie,
	     uint32_t flags);
int um_unwatch(struct um *u, uint64_t cookie);
int um_end_quiet(struct um *u, uint64_t cookie);
ssize_t um_read(struct um *u, struct ummunot_event *ev, size_t max);
/* UMMUNOT_SWAP_PAGES by any file: 0 or a negative errno. */
int um_swap(int fd, void *a, void *b, size_t len);
int um_swap_with(int fd, void *a, void *b, size_t len, uint64_t flags);
/* Reads until nothing is left. */
void um_drain(struct um *u, struct news *n);

#endif /* UMMUNOT_LIB_H */
