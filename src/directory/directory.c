// SPDX-License-Identifier: BSD-2-Clause
/*
 * Directories: the place of a region's owner, behind the table of functions of their author. The
 * table is copied and checked once, at open. All directories have in common, here, the checks of
 * arguments and of the process, and that a result stays as it was on failure.
 */
#include <stdlib.h>
#include <unistd.h>

#include <kedge/directory.h>

#include "base/base.h"
#include "base/process/cancel.h"

#define OPS_V1 STRUCT_END(struct kedge_directory_ops, close)

struct kedge_directory {
	struct kedge_directory_ops ops;
	void *ctx;
	pid_t pid; /* of the process that opened it */
};

static int check_ops(const struct kedge_directory_ops *ops)
{
	if (ops->flags)
		return kedge_reason(-EINVAL, "the directory's ops have unknown flags %#x",
				    ops->flags);
	if (!ops->find || !ops->replace)
		return kedge_reason(-EINVAL, "the directory's ops have no .%s",
				    ops->find ? "replace" : "find");
	return 0;
}

int kedge_directory_open(const struct kedge_directory_ops *user, void *ctx,
			 struct kedge_directory **out)
{
	struct kedge_directory_ops ops;
	struct kedge_directory *d;
	int rc;

	if (!user || !out)
		return kedge_reason(-EINVAL, "%s is NULL",
				    user ? "the result" : "the directory's table of ops");
	rc = kedge__opts_copy(&ops, sizeof(ops), OPS_V1, user);
	if (!rc)
		rc = check_ops(&ops);
	if (rc)
		return rc;
	d = malloc(sizeof(*d));
	if (!d)
		return kedge_reason(-ENOMEM, "no memory for a directory");
	*d = (struct kedge_directory){ ops, ctx, getpid() };
	*out = d;
	return 0;
}

static int check(const struct kedge_directory *d)
{
	if (!d)
		return kedge_reason(-EINVAL, "the directory is NULL");
	if (d->pid != getpid())
		return kedge_reason(-ECHILD, "the directory belongs to the parent process: a child "
				    "opens its own");
	return 0;
}

/* A table of another author is not trusted to keep to "0 or a negative errno". */
static int result(int rc)
{
	return rc <= 0 ? rc : kedge_reason(-EPROTO, "the directory's op returned %d", rc);
}

int kedge_directory_find(struct kedge_directory *d, uint64_t region,
			 struct kedge_place *place, int timeout_ms)
{
	struct kedge_place found = { { 0 } };
	NO_CANCEL();
	int rc = check(d);

	if (rc)
		return rc;
	if (!place)
		return kedge_reason(-EINVAL, "the result is NULL");
	rc = result(d->ops.find(d->ctx, region, &found, timeout_ms));
	if (!rc)
		*place = found;
	return rc;
}

int kedge_directory_replace(struct kedge_directory *d, uint64_t region,
			    const struct kedge_place *from, const struct kedge_place *to,
			    int timeout_ms)
{
	NO_CANCEL();
	int rc = check(d);

	if (rc)
		return rc;
	if (!from && !to)
		return kedge_reason(-EINVAL, "neither a place that is there nor one that "
				    "replaces it is given");
	return result(d->ops.replace(d->ctx, region, from, to, timeout_ms));
}

void kedge_directory_close(struct kedge_directory *d)
{
	NO_CANCEL();

	if (!d)
		return;
	if (d->ops.close)
		d->ops.close(d->ctx);
	free(d);
}
