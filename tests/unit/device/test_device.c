// SPDX-License-Identifier: BSD-2-Clause
/* The device table: what open accepts of an ops table, and what goes through.
 */
#include "cases.h"
#include "base/base.h"
#include "device/device.h"
#include "wrap.h"

static int closed, deregs, query_rc;
static bool no_memory;
static void *const ctx = (void *)0x1234;
static struct kedge_device *const before = (struct kedge_device *)0x1;

WRAP(void *, malloc, size_t size)
{
	return no_memory ? NULL : __real_malloc(size);
}

static int reg(void *c, void *addr, size_t len, uint32_t access,
	       struct kedge_device_mr *mr)
{
	assert_ptr_equal(c, ctx);
	if (!len)
		return -ENOSPC;
	mr->handle = (uintptr_t)addr + len + access;
	return 0;
}

static void dereg(void *c, const struct kedge_device_mr *mr)
{
	assert_ptr_equal(c, ctx);
	assert_int_equal(mr->handle, 7);
	deregs++;
}

static int query(void *c, struct kedge_device_attr *attr)
{
	assert_ptr_equal(c, ctx);
	assert_int_equal(attr->size, sizeof(*attr));
	attr->flags = KEDGE_DEVICE_PINS;
	attr->max_len = 11;
	attr->max_regions = 12;
	attr->chunk_len = 13;
	attr->access = KEDGE_ACCESS_REMOTE_READ;
	return query_rc;
}

static int bind_window(void *c, const struct kedge_device_mr *mr, void *addr,
		       size_t len, uint32_t access,
		       struct kedge_device_mr *window)
{
	return -EOPNOTSUPP;
}

static void on_close(void *c)
{
	assert_ptr_equal(c, ctx);
	closed++;
}

static const struct kedge_device_ops good = {
	.size = sizeof(good),
	.name = "fake",
	.reg = reg,
	.dereg = dereg,
	.query = query,
	.close = on_close,
};

static int setup(void **state)
{
	closed = 0;
	deregs = 0;
	query_rc = 0;
	no_memory = false;
	return 0;
}

static struct kedge_device *open_good(void)
{
	struct kedge_device *dev = NULL;

	assert_int_equal(kedge_device_open(&good, ctx, &dev), 0);
	assert_non_null(dev);
	return dev;
}

/* The errno comes back, *dev is left alone and ctx stays the caller's. */
static void expect_refusal(const struct kedge_device_ops *ops, int rc)
{
	struct kedge_device *dev = before;

	assert_int_equal(kedge_device_open(ops, ctx, &dev), rc);
	assert_ptr_equal(dev, before);
	assert_int_equal(closed, 0);
	assert_true(strlen(kedge_strerror(rc)) > 0);
}

static void ops_reach_their_context(void **state)
{
	struct kedge_device *dev = open_good();
	struct kedge_device_mr mr;

	memset(&mr, 0xff, sizeof(mr));
	assert_int_equal(device_reg(dev, (void *)0x1000, 0x2000, 1, &mr), 0);
	assert_int_equal(mr.handle, 0x3001);
	/* A field that the device did not fill is 0, not the caller's stack. */
	assert_int_equal(mr.offset, 0);
	assert_int_equal(mr.priv, 0);
	assert_int_equal(device_reg(dev, NULL, 0, 0, &mr), -ENOSPC);
	mr.handle = 7;
	device_dereg(dev, &mr);
	assert_int_equal(deregs, 1);
	assert_string_equal(kedge_device_name(dev), "fake");
	kedge_device_close(dev);
	assert_int_equal(closed, 1);
}

static void null_pointers_are_refused(void **state)
{
	struct kedge_device_attr attr = { .size = sizeof(attr) };
	struct kedge_device *dev = open_good();

	expect_refusal(NULL, -EINVAL);
	assert_int_equal(kedge_device_open(&good, ctx, NULL), -EINVAL);
	assert_int_equal(kedge_device_query(NULL, &attr), -EINVAL);
	assert_int_equal(kedge_device_query(dev, NULL), -EINVAL);
	assert_string_equal(kedge_device_name(NULL), "");
	kedge_device_close(NULL);
	kedge_device_close(dev);
}

static void incomplete_ops_are_refused(void **state)
{
	struct kedge_device_ops ops;

	ops = good;
	ops.name = NULL;
	expect_refusal(&ops, -EINVAL);
	ops = good;
	ops.reg = NULL;
	expect_refusal(&ops, -EINVAL);
	assert_non_null(strstr(kedge_strerror(-EINVAL), ".reg"));
	ops = good;
	ops.dereg = NULL;
	expect_refusal(&ops, -EINVAL);
	assert_non_null(strstr(kedge_strerror(-EINVAL), ".dereg"));
	ops = good;
	ops.bind = bind_window;
	expect_refusal(&ops, -EINVAL);
	assert_non_null(strstr(kedge_strerror(-EINVAL), ".unbind"));
	ops = good;
	ops.unbind = dereg;
	expect_refusal(&ops, -EINVAL);
	ops = good;
	ops.reserved = 1;
	expect_refusal(&ops, -E2BIG);
}

static void query_and_close_may_be_missing(void **state)
{
	struct kedge_device_attr attr = { .size = sizeof(attr), .max_len = 99 };
	struct kedge_device_ops ops = good;
	struct kedge_device *dev;

	ops.query = NULL;
	ops.close = NULL;
	assert_int_equal(kedge_device_open(&ops, ctx, &dev), 0);
	assert_int_equal(kedge_device_query(dev, &attr), 0);
	assert_int_equal(attr.max_len, 0);
	assert_int_equal(attr.max_regions, 0);
	assert_int_equal(attr.access, KEDGE_ACCESS_ALL);
	kedge_device_close(dev);
	assert_int_equal(closed, 0);
}

static void sizes_of_other_versions(void **state)
{
	struct {
		struct kedge_device_ops ops;
		uint64_t later[2];
	} newer = { .ops = good };
	struct kedge_device_ops ops = good;
	struct kedge_device *dev;

	/* The first version ended with close. */
	ops.size = offsetof(struct kedge_device_ops, replace);
	ops.bind = bind_window;
	assert_int_equal(kedge_device_open(&ops, ctx, &dev), 0);
	assert_null(dev->ops.bind);
	kedge_device_close(dev);
	assert_int_equal(closed, 1);
	closed = 0;
	ops.size--;
	expect_refusal(&ops, -EINVAL);
	ops.size = 0;
	expect_refusal(&ops, -EINVAL);

	newer.ops.size = sizeof(newer);
	assert_int_equal(kedge_device_open(&newer.ops, ctx, &dev), 0);
	/* The table is a copy, of the version that we know. */
	newer.ops.reg = NULL;
	assert_ptr_equal(dev->ops.reg, reg);
	assert_int_equal(dev->ops.size, sizeof(ops));
	kedge_device_close(dev);
	assert_int_equal(closed, 1);
	closed = 0;

	newer.ops.reg = reg;
	newer.later[1] = 1;
	expect_refusal(&newer.ops, -E2BIG);
}

static void query_fills_any_version(void **state)
{
	struct {
		struct kedge_device_attr attr;
		uint64_t later;
	} newer = { .attr.size = sizeof(newer), .later = 5 };
	struct kedge_device_attr attr = { .size = sizeof(attr) };
	struct kedge_device *dev = open_good();

	assert_int_equal(kedge_device_query(dev, &attr), 0);
	assert_int_equal(attr.size, sizeof(attr));
	assert_int_equal(attr.flags, KEDGE_DEVICE_PINS);
	assert_int_equal(attr.max_len, 11);
	assert_int_equal(attr.max_regions, 12);
	assert_int_equal(attr.chunk_len, 13);
	assert_int_equal(attr.access, KEDGE_ACCESS_REMOTE_READ);

	assert_int_equal(kedge_device_query(dev, &newer.attr), 0);
	assert_int_equal(newer.attr.size, sizeof(newer));
	assert_int_equal(newer.attr.max_len, 11);
	assert_int_equal(newer.later, 0);

	attr.size--;
	attr.max_len = 1;
	assert_int_equal(kedge_device_query(dev, &attr), -EINVAL);
	assert_int_equal(attr.max_len, 1);
	kedge_device_close(dev);
}

static void a_failing_query_leaves_the_result_alone(void **state)
{
	struct kedge_device_attr attr = { .size = sizeof(attr), .max_len = 1 };
	struct kedge_device *dev = open_good();

	query_rc = -EBADF;
	assert_int_equal(kedge_device_query(dev, &attr), -EBADF);
	assert_int_equal(attr.max_len, 1);
	kedge_device_close(dev);
}

static void no_memory_leaves_the_context_alone(void **state)
{
	no_memory = true;
	expect_refusal(&good, -ENOMEM);
	no_memory = false;
	assert_non_null(strstr(kedge_strerror(-ENOMEM), "fake"));
}

#define LISTED(f) cmocka_unit_test_setup(f, setup)
#include "test_device.cases.h"
