// SPDX-License-Identifier: BSD-2-Clause
/*
 * The io_uring device's reading of /proc to explain a refusal:
 * hostile text does no harm, and ends in one of the errors that are documented.
 */
#include "maps_text.h"

#include "device/proc.h"
#include "device/uring/internal.h"

static void try_maps(struct bytes *in, struct bytes *range)
{
	const struct uring u = { .fd = -1 };
	enum proc_fault fault;
	struct proc_vma v;
	uint64_t start, end;
	struct maps m;
	int rc;

	maps_feed(&m, in);
	if (!maps_range(&m, range, &start, &end))
		return;
	fault = kedge__proc_fault(start, end, true, &v);
	CHECK(fault != PROC_NO_READ);
	rc = kedge__uring_reg_refused(&u, -EFAULT, start, end - start);
	CHECK(feed_is_closed());
	CHECK(rc == (fault == PROC_SHARED_FILE ? -EOPNOTSUPP : -EFAULT));
}

static void try_status(struct bytes *in, struct bytes *control)
{
	const struct uring u = { .fd = -1 };

	feed_set(in->at, in->left, (size_t)take_number(control, 2),
		 take(control) & 1);
	CHECK(kedge__uring_reg_refused(&u, -ENOMEM, 0, PAGE) == -ENOMEM);
	CHECK(feed_is_closed());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in, control;

	if (!take_control(data, len, &control, &in))
		return 0;
	if (take(&control) & 1)
		try_status(&in, &control);
	else
		try_maps(&in, &control);
	return 0;
}
