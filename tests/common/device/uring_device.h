/* SPDX-License-Identifier: BSD-2-Clause */
/* The io_uring device on the fake kernel: the fixture of its tests. */
#ifndef TESTS_URING_DEVICE_H
#define TESTS_URING_DEVICE_H

#include <kedge/uring.h>

#include "cases.h"
#include "base/base.h"
#include "device/device.h" /* before this dev */
#include "fakes/uring.h"

#define PAGE 4096u

extern char *const page; /* three of them, which are present */
extern struct kedge_device *dev;

/* A new kernel; teardown() closes the device, if it is open. */
int setup(void **state);
int teardown(void **state);

/* The device, in the place of any before. */
void open_with(uint32_t flags, uint32_t first, uint32_t slots);
void close_dev(void);
/* Of the first page. */
int reg(struct kedge_device_mr *mr);
uint64_t at(size_t n);

#endif /* TESTS_URING_DEVICE_H */
