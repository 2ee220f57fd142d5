// SPDX-License-Identifier: BSD-2-Clause
/* In the place of what needs libfabric's headers, in a build without them. */
#include <errno.h>

#include <kedge/base.h>

#include "tools/bench/reg.h"
#include "tools/demo/demo.h"
#include "tools/info/info.h"
#include "tools/perf/perf.h"
#include "tools/torture/dio.h"
#include "tools/torture/rig.h"

void info_ofi(struct info *info)
{
	struct info_line *l =
		info_add(info, INFO_MESSAGES, "libfabric", INFO_MISSING);

	info_text(l, "this kedge was built without it: between hosts there is "
		  "TCP alone");
	info_todo(l, "for RDMA install libfabric's headers (Debian's "
		  "libfabric-dev) and build kedge again");
}

const struct perf_side *perf_libfabric(void)
{
	return NULL;
}

int reg_ofi_open(const char *provider, struct reg_dev *d)
{
	(void)provider, (void)d;
	util_error("ofi: this kedge was built without libfabric's headers");
	return CMD_CANNOT;
}

int libfabric_open(struct rig *rig, struct libfabric **f)
{
	(void)rig;
	(void)f;
	return kedge_reason(-EOPNOTSUPP, "this kedge was built without libfabric's headers");
}

void libfabric_close(struct libfabric *f)
{
	(void)f;
}

int libfabric_get(struct libfabric *f, const void *addr, size_t len, struct fid_mr **mr,
		  uint64_t *handle)
{
	(void)f, (void)addr, (void)len, (void)mr, (void)handle;
	return -EOPNOTSUPP;
}

void libfabric_put(struct fid_mr *mr)
{
	(void)mr;
}

void libfabric_stats(struct libfabric *f, struct kedge_cache_stats *stats)
{
	(void)f, (void)stats;
}

static int no_ofi(struct rig *rig, const char *name)
{
	(void)name;
	return libfabric_open(rig, NULL);
}

static int no_demo(struct demo_device *d, const struct demo_file *file, const char *name)
{
	(void)d, (void)file, (void)name;
	return libfabric_open(NULL, NULL);
}

const struct demo_device_ops demo_device_ofi = {
	.name = "ofi",
	.max_bytes = 1,
	.chunks = 1,
	.open = no_demo,
};

const struct dio_ops dio_ofi = { .name = "ofi", .rig_open = no_ofi };
