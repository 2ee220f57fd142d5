// SPDX-License-Identifier: BSD-2-Clause
#include "uring_device.h"

/* What is near the pages is present, too. */
static char around[8 * PAGE] __attribute__((aligned(PAGE)));
char *const page = around + 2 * PAGE;
struct kedge_device *dev;

int setup(void **state)
{
	memset(around, 'x', sizeof(around));
	fake_log_start();
	return fake_reset();
}

void close_dev(void)
{
	kedge_device_close(dev);
	dev = NULL;
}

int teardown(void **state)
{
	close_dev();
	return fake_close(state);
}

void open_with(uint32_t flags, uint32_t first, uint32_t slots)
{
	const struct kedge_uring_opts opts = { .size = sizeof(opts),
					       .flags = flags,
					       .first_slot = first,
					       .slots = slots };

	close_dev();
	assert_int_equal(kedge_device_open_uring(&fake_ring, &opts, &dev), 0);
}

int reg(struct kedge_device_mr *mr)
{
	return device_reg(dev, page, PAGE, KEDGE_ACCESS_LOCAL_WRITE, mr);
}

uint64_t at(size_t n)
{
	return (uintptr_t)page + n * PAGE;
}
