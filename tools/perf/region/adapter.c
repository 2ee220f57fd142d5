// SPDX-License-Identifier: BSD-2-Clause
/* A region that is reached by an adapter, beside what the adapter does by itself. */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/perf/region/region.h"

#define LEASE_NS UINT64_C(10000000000)
#define NAP_US	 1000

static int read_raw(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = raw_verbs_read(s->verbs, bytes);
	return rc;
}

static int write_raw(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = raw_verbs_write(s->verbs, bytes, false);
	return rc;
}

static int write_and_read_raw(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = raw_verbs_write(s->verbs, bytes, true);
	return rc;
}

/* Without a lease the owner's thread does the accesses, and they would be measured. */
static bool is_leased(struct region_side *s)
{
	struct kedge_remote_info i = { .size = sizeof(i) };

	return !kedge_remote_query(s->remote, &i) && i.way == KEDGE_REMOTE_RDMA;
}

static int wait_for_lease(struct region_side *s)
{
	const uint64_t until = clock_ns() + LEASE_NS;

	while (!is_leased(s)) {
		if (clock_ns() >= until)
			return util_fail(-ETIMEDOUT, "the region is not reached by the adapter "
					 "at %s: is RLIMIT_MEMLOCK (ulimit -l) used up?",
					 s->res->opt->node);
		usleep(NAP_US);
	}
	return 0;
}

int region_measure_rdma(struct region_side *s)
{
	static const struct region_row rows[] = {
		{ .name = "rdma_get", .text = "get", .beside = "RDMA read" },
		{ .name = "rdma_put_acked", .text = "put",
		  .beside = "RDMA write, acknowledged" },
		{ .name = "rdma_put", .text = "put", .beside = "RDMA write, read behind it" },
	};
	static region_op_fn *const ours[] = { region_get, region_put, region_put };
	static region_op_fn *const beside[] = { read_raw, write_raw, write_and_read_raw };
	const struct perf_opts *opt = s->res->opt;
	struct region_row row;
	size_t i;
	int rc = wait_for_lease(s);

	for (i = 0; i < opt->size_cnt * ARRAY_SIZE(rows) && !rc; i++) {
		row = rows[i % ARRAY_SIZE(rows)];
		row.bytes = opt->sizes[i / ARRAY_SIZE(rows)];
		rc = region_compare(s, &row, ours[i % ARRAY_SIZE(rows)],
				    beside[i % ARRAY_SIZE(rows)]);
		if (!rc && !is_leased(s))
			rc = util_fail(-EIO, "the adapter has failed: accesses of the region went "
				       "by its owner's thread");
	}
	return rc;
}
