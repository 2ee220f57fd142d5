// SPDX-License-Identifier: BSD-2-Clause
/* In the place of what needs libibverbs, in a build without it. */
#include <errno.h>

#include "tools/bench/reg.h"
#include "tools/demo/demo.h"
#include "tools/info/info.h"
#include "tools/migrate/migrate.h"
#include "tools/perf/region/region.h"
#include "tools/torture/dio.h"

void info_verbs(struct info *info)
{
	struct info_line *l =
		info_add(info, INFO_DEVICES, "verbs", INFO_MISSING);

	info_text(l, "not built: this kedge has no RDMA device");
	info_todo(l, "build it where libibverbs-dev is installed");
}

static int no_demo(struct demo_device *d, const struct demo_file *file,
		   const char *name)
{
	return kedge_reason(-EOPNOTSUPP, "this kedge was built without "
			    "libibverbs: install libibverbs-dev and build it "
			    "again");
}

const struct demo_device_ops demo_device_verbs = {
	.name = "verbs",
	.max_bytes = 1,
	.chunks = 1,
	.open = no_demo,
};

int demo_verbs_find(char *name, size_t size, unsigned int *port)
{
	return no_demo(NULL, NULL, NULL);
}

int reg_verbs_open(const char *model, struct reg_dev *d)
{
	util_error("verbs: this kedge was built without libibverbs");
	return CMD_CANNOT;
}

static int no_rig(struct rig *rig, const char *name)
{
	return kedge_reason(-EOPNOTSUPP, "this kedge was built without "
			    "libibverbs: install libibverbs-dev and build it "
			    "again");
}

const struct dio_ops dio_verbs = { .name = "verbs", .rig_open = no_rig };

static int not_built(void)
{
	return kedge_reason(-EOPNOTSUPP, "this kedge was built without libibverbs: install "
			    "libibverbs-dev and build it again");
}

int migrate_use_rdma(void)
{
	return not_built();
}

int raw_verbs_use(void)
{
	return not_built();
}

int raw_verbs_open(const char *node, int fd, void *memory, size_t len, struct raw_verbs **raw)
{
	return not_built();
}

void raw_verbs_close(struct raw_verbs *raw)
{
}

int raw_verbs_read(struct raw_verbs *raw, size_t len)
{
	return not_built();
}

int raw_verbs_write(struct raw_verbs *raw, size_t len, bool flush)
{
	return not_built();
}
