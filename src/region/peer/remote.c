// SPDX-License-Identifier: BSD-2-Clause
/* A handle is opened, closed, and asked about. */
#include <stdlib.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "base/process/page.h"
#include "region/peer/lease.h"
#include "region/peer/later/later.h"

#define INFO_V1 STRUCT_END(struct kedge_remote_info, way)

static int open_it(const struct kedge_handle *h, struct kedge_directory *d, int timeout_ms,
		   struct kedge_remote **out)
{
	const uint64_t until = clock_deadline(timeout_ms);
	struct kedge_remote *r;
	struct link *l;
	int rc;

	if (!h || !out)
		return kedge_reason(-EINVAL, "an argument is NULL");
	rc = clofork_ready();
	if (rc)
		return rc;
	r = calloc(1, sizeof(*r));
	if (!r)
		return kedge_reason(-ENOMEM, "no memory for a remote region");
	r->pid = process_pid();
	r->handle = *h;
	r->directory = d;
	if (!handle_read(h, &r->words))
		rc = kedge_reason(-EINVAL, "it is no handle");
	else if (r->words.slot == INVITE_SLOT)
		rc = kedge_reason(-EINVAL, "it is an invitation, for kedge_region_migrate()");
	handle_place(&r->words, &r->where);
	if (!rc)
		rc = remote_look_up(r, until);
	if (!rc)
		rc = remote_find(r, until, &l);
	if (rc) {
		free(r);
		return rc;
	}
	atomic_store(&r->link, l);
	*out = r;
	return 0;
}

KEDGE_API int kedge_remote_open(const struct kedge_handle *h, int timeout_ms,
				struct kedge_remote **out)
{
	NO_CANCEL();
	return open_it(h, NULL, timeout_ms, out);
}

KEDGE_API int kedge_remote_open_in(const struct kedge_handle *h, struct kedge_directory *d,
				   int timeout_ms, struct kedge_remote **out)
{
	NO_CANCEL();
	return d ? open_it(h, d, timeout_ms, out)
		 : kedge_reason(-EINVAL, "the directory is NULL");
}

KEDGE_API void kedge_remote_close(struct kedge_remote *r)
{
	struct link *l, *former;
	bool child;

	NO_CANCEL();
	if (!r)
		return;
	child = r->pid != process_pid();
	later_end(r, child);
	for (l = atomic_load(&r->link); l; l = former) {
		former = l->former;
		link_free(l, child);
	}
	free(r);
}

static int ask(struct link *l, struct kedge_remote_info *info)
{
	int rc = 0;

	info->access = l->access;
	info->way = lease_is_open(l->lease) ? KEDGE_REMOTE_RDMA
		    : l->stream ? KEDGE_REMOTE_SERVED : KEDGE_REMOTE_MAPPED;
	info->max_len = l->max_len;
	info->pid = (uint32_t)l->owner;
	if (l->stream) {
		rc = stream_has(l, &info->len);
	} else if (atomic_load(&l->gate->state) & GATE_ENDED) {
		rc = -(int)atomic_load(&l->gate->why);
		rc = rc == REGION_MOVED || rc == REGION_BY_STREAM ? REGION_MOVED : 0;
	}
	if (!l->stream)
		info->len = atomic_load(&l->gate->len);
	return rc;
}

KEDGE_API int kedge_remote_query(struct kedge_remote *r, struct kedge_remote_info *user)
{
	struct kedge_remote_info info = { .size = sizeof(info) };
	struct link *l;
	int rc;

	if (!r || !user)
		return kedge_reason(-EINVAL, "an argument is NULL");
	if (r->pid != process_pid())
		return kedge_reason(-ECHILD, "it was opened by the process that this one was "
				    "forked from: open the handle here");
	/* A region that cannot be found where it has moved to has what it had. */
	do {
		l = atomic_load(&r->link);
		rc = ask(l, &info);
	} while (remote_again(r, l, 0, &rc));
	return kedge__info_copy(user, INFO_V1, &info, sizeof(info));
}
