/* SPDX-License-Identifier: BSD-2-Clause */
/* An io_uring with its fixed buffers as a device. Reasons are as in shim.h. */
#ifndef GO_RING_H
#define GO_RING_H

#include <liburing.h>
#include <stdint.h>
#include <stdlib.h>

#include <kedge/uring.h>

struct go_ring {
	struct io_uring ring;
	struct kedge_device *dev;
};

struct go_ring_opened {
	struct go_ring *r;
	char *why;
	int rc;
};

struct go_ring_opened go_ring_open(unsigned int entries, uint32_t slots, uint32_t flags);
void go_ring_close(struct go_ring *r);
/* Bytes, or a negative errno. One thread at a time. */
int go_ring_transfer(struct go_ring *r, int write, int fd, uintptr_t addr, size_t len,
		     int64_t offset, int index);

#endif /* GO_RING_H */
