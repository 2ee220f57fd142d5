// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions, as the program has them. A change asks the budget first, which is exact, then
 * looks at the limits, which others use up as well: to know that there is not enough costs
 * nothing then, and the reason names what is short.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "region/internal.h"
#include "region/keeper.h"
#include "region/limits.h"
#include "region/share/share.h"
#include "region/watch/watch.h"

/* Page tables and what the kernel has for itself, beside the pages. */
#define TABLES_PART 256
#define SPARE_LEN   ((uint64_t)4 << 20)
/* The process takes pages itself, without a child, where so many times as much is free. */
#define PLENTY 8

#define MiB 20

#define OPTS_V1 STRUCT_END(struct kedge_region_opts, page_size)
#define INFO_V1 STRUCT_END(struct kedge_region_info, page_size)

/* ---- how much there is ---- */

static int short_of_locks(const struct limit *l, uint64_t more)
{
	return kedge_reason(-ENOMEM, "RLIMIT_MEMLOCK is %" PRIu64 " KiB, %" PRIu64 " KiB are "
			    "left, and %" PRIu64 " KiB were asked for: raise it with ulimit -l "
			    "or LimitMEMLOCK=", l->limit >> 10, l->free >> 10, more >> 10);
}

static int short_of_memory(const struct limit *l, uint64_t had, uint64_t more)
{
	return kedge_reason(-ENOMEM, "%s has %" PRIu64 " MiB, about %" PRIu64 " MiB can be had, "
			    "and %" PRIu64 " MiB were asked for: %s",
			    l->bound == KEDGE_BOUND_CGROUP ? "the control group"
							   : "this machine",
			    l->limit >> MiB, had >> MiB, more >> MiB,
			    l->bound == KEDGE_BOUND_CGROUP ? "raise its memory limit (MemoryMax=)"
							   : "end what uses it");
}

static int short_of_huge(const struct kedge_region *r, const struct limit *l, uint64_t more)
{
	return kedge_reason(-ENOMEM, "%" PRIu64 " of %" PRIu64 " huge pages of %" PRIu64 " KiB "
			    "are free, and %" PRIu64 " were asked for: raise vm.nr_hugepages",
			    l->free / r->page_size, l->limit / r->page_size, r->page_size >> 10,
			    more / r->page_size);
}

/* Of the kernel's files, which are read by descriptors: by the keeper. */
static int read_memory(void *l)
{
	limit_memory(l);
	return 0;
}

static int read_memlock(void *l)
{
	limit_memlock(l);
	return 0;
}

struct huge {
	uint64_t page_size;
	struct limit l;
};

static int read_huge(void *huge)
{
	struct huge *h = huge;

	return limit_huge(h->page_size, &h->l) ? 0 : -EINVAL;
}

static uint64_t beside(const struct limit *l, uint64_t len)
{
	/* All of the group would be ended, with the child that is to be alone. */
	return len / TABLES_PART + SPARE_LEN + (l->kills ? len / 8 + 4 * SPARE_LEN : 0);
}

static int check_huge(const struct kedge_region *r, uint64_t more)
{
	struct huge h = { .page_size = r->page_size };
	int rc = keeper_call(read_huge, &h);

	if (rc == -EINVAL)
		return kedge_reason(rc, "there are no pages of %" PRIu64 " bytes here: "
				    "/sys/kernel/mm/hugepages lists the sizes", r->page_size);
	return !rc && more > h.l.free ? short_of_huge(r, &h.l, more) : rc;
}

/* 0, and whether it takes care to get @more bytes; or what there is too little of. */
static int check_limits(const struct kedge_region *r, uint64_t more, bool *careful)
{
	struct limit l;
	int rc;

	*careful = true;
	if (r->page_size != kedge__page_size())
		return check_huge(r, more);
	rc = keeper_call(read_memlock, &l);
	if (!rc && more > l.free)
		return short_of_locks(&l, more);
	if (!rc)
		rc = keeper_call(read_memory, &l);
	if (rc)
		return rc;
	if (more > UINT64_MAX / 4 || more + beside(&l, more) > l.free)
		return short_of_memory(&l, l.free > beside(&l, l.free)
					       ? l.free - beside(&l, l.free) : 0, more);
	*careful = l.free / PLENTY < more;
	return 0;
}

/* ---- changes ---- */

int region_grow_to(struct kedge_region *r, uint64_t len)
{
	const uint64_t more = len - r->len;
	struct huge h = { .page_size = r->page_size };
	struct limit l = { .free = 0 };
	uint64_t had;
	bool careful;
	int rc;

	if (!budget_take(more))
		return budget_refuses(more);
	rc = check_limits(r, more, &careful);
	if (rc)
		goto give;
	rc = region_commit(r, len, careful, &had);
	if (!rc && r->on_node) {
		rc = region_to_node(r, len - more, len);
		if (rc) {
			region_release(r, len - more);
			goto give;
		}
	}
	if (!rc) {
		watch_again(r, len - more, len);
		gates_set_len(r, len);
		return 0;
	}
	if (rc == -ENOMEM && r->page_size != kedge__page_size() && !keeper_call(read_huge, &h)) {
		short_of_huge(r, &h.l, more);
	} else if (rc == -ENOMEM && had != UINT64_MAX) {
		keeper_call(read_memory, &l);
		short_of_memory(&l, had, more);
	} else if (had != UINT64_MAX) {
		region_not_filled(rc);
	}

give:
	budget_give(more);
	return rc;
}

static int check_opts(const struct kedge_region_opts *o, size_t len, struct kedge_region *r)
{
	r->page_size = o->page_size ? o->page_size : kedge__page_size();
	if (o->flags & ~KEDGE_REGION_NODE)
		return kedge_reason(-EINVAL, "a flag is unknown");
	if (o->flags & KEDGE_REGION_NODE ? o->node >= REGION_NODES : o->node)
		return kedge_reason(-EINVAL, "there is no NUMA node %u", o->node);
	r->on_node = o->flags & KEDGE_REGION_NODE;
	r->node = o->node;
	if (r->page_size & (r->page_size - 1) || r->page_size < kedge__page_size())
		return kedge_reason(-EINVAL, "pages of %" PRIu64 " bytes: no power of 2, or "
				    "less than the system's", r->page_size);
	if (!len || len > SIZE_MAX / 4 || o->max_len > SIZE_MAX / 4 ||
	    r->page_size > SIZE_MAX / 4)
		return kedge_reason(-EINVAL, "the length is 0 or beyond all addresses");
	if (o->max_len && o->max_len < len)
		return kedge_reason(-EINVAL, "max_len is less than the length");
	r->max_len = round_up(o->max_len, r->page_size);
	return 0;
}

KEDGE_API int kedge_region_create(size_t len, const struct kedge_region_opts *user,
				  struct kedge_region **out)
{
	struct kedge_region_opts opts;
	struct kedge_region *r;
	int rc;

	NO_CANCEL();
	if (!out)
		return kedge_reason(-EINVAL, "the result is NULL");
	rc = kedge__opts_copy(&opts, sizeof(opts), OPTS_V1, user);
	if (rc)
		return rc;
	region_adopt();
	r = calloc(1, sizeof(*r));
	if (!r)
		return kedge_reason(-ENOMEM, "no memory for a region");
	r->fd = r->uffd = -1;
	r->pid = getpid();
	list_init(&r->slots);
	list_init(&r->conns);
	rc = check_opts(&opts, len, r);
	if (!rc)
		rc = sig_lock_init(&r->lock);
	if (rc)
		goto free_region;
	len = round_up(len, r->page_size);
	rc = keeper_use();
	if (rc)
		goto fini_lock;
	/* Before any address is taken: there may be no such pages. */
	if (r->page_size != kedge__page_size())
		rc = check_huge(r, len);
	if (!rc)
		rc = region_reserve(r, len);
	if (rc)
		goto unuse_keeper;
	sig_lock(&r->lock);
	rc = region_grow_to(r, len);
	sig_unlock(&r->lock);
	if (rc)
		goto end_region;
	regions_add(r);
	*out = r;
	return 0;

end_region:
	region_end(r);
unuse_keeper:
	keeper_unuse();
fini_lock:
	sig_lock_fini(&r->lock);
free_region:
	free(r);
	return rc;
}

KEDGE_API void kedge_region_close(struct kedge_region *r)
{
	NO_CANCEL();
	if (!r)
		return;
	/* A child has neither addresses nor descriptor, nor a share of the budget. */
	if (r->pid == getpid()) {
		shares_close(r);
		watch_end(r);
		if (r->from)
			invite_drop(r->from);
		regions_remove(r);
		region_end(r);
		budget_give(r->len);
		keeper_unuse();
		departures_expire();
	}
	sig_lock_fini(&r->lock);
	free(r);
}

int region_check(const struct kedge_region *r)
{
	if (!r)
		return kedge_reason(-EINVAL, "the region is NULL");
	if (r->pid != getpid())
		return kedge_reason(-ECHILD, "the region is of the process that this one was "
				    "forked from: make another one");
	return 0;
}

int region_refused(int rc)
{
	switch (rc) {
	case -EBUSY:
		return kedge_reason(rc, "the region migrates: wait until kedge_region_migrate() "
				    "has returned");
	case -EREMCHG:
		return kedge_reason(rc, "the region has migrated to another owner: close it here");
	}
	return kedge_reason(rc, "it is not known whether the region has migrated: call "
			    "kedge_region_migrate() again with the same invitation");
}

int region_lock(struct kedge_region *r)
{
	int rc = region_check(r);

	if (rc)
		return rc;
	sig_lock(&r->lock);
	rc = r->refuses;
	if (!rc)
		return 0;
	sig_unlock(&r->lock);
	return region_refused(rc);
}

KEDGE_API int kedge_region_grow(struct kedge_region *r, size_t len)
{
	int rc;

	NO_CANCEL();
	rc = region_lock(r);
	if (rc)
		return rc;
	if (len > r->max_len) {
		rc = kedge_reason(-ERANGE, "%zu bytes are more than max_len (%" PRIu64 ")", len,
				  r->max_len);
		sig_unlock(&r->lock);
		return rc;
	}
	len = round_up(len, r->page_size);
	if (len < r->len)
		rc = kedge_reason(-EINVAL, "the region has %" PRIu64 " bytes: "
				  "kedge_region_trim() makes it smaller", r->len);
	else if (len > r->len)
		rc = gates_empty(r);
	if (!rc && len > r->len)
		rc = region_grow_to(r, len);
	sig_unlock(&r->lock);
	return rc;
}

/* Peers first: what they store there would be pages again. */
static int trim_to(struct kedge_region *r, uint64_t len)
{
	const uint64_t was = r->len;
	int rc = watch_is_whole(r, len, was);

	if (rc)
		return rc;
	gates_set_len(r, len);
	rc = watch_leave_out(r, len, was);
	if (!rc)
		rc = region_release(r, len);
	if (rc) {
		watch_as_before(r);
		gates_set_len(r, was);
	}
	return rc;
}

KEDGE_API int kedge_region_trim(struct kedge_region *r, size_t len)
{
	uint64_t was;
	int rc;

	NO_CANCEL();
	rc = region_lock(r);
	if (rc)
		return rc;
	was = r->len;
	if (!len || len > was)
		rc = kedge_reason(-EINVAL, "the region has %" PRIu64 " bytes, and keeps at "
				  "least one page", was);
	else if (round_up(len, r->page_size) < was)
		rc = trim_to(r, round_up(len, r->page_size));
	was -= r->len;
	sig_unlock(&r->lock);
	budget_give(was);
	return rc;
}

void region_leave(struct kedge_region *r)
{
	uint64_t was;

	sig_lock(&r->lock);
	was = r->len;
	region_release(r, 0);
	was -= r->len;
	sig_unlock(&r->lock);
	budget_give(was);
}

KEDGE_API int kedge_region_query(struct kedge_region *r, struct kedge_region_info *user)
{
	struct kedge_region_info info = { .size = sizeof(info) };
	int rc = region_check(r);

	NO_CANCEL();
	if (rc)
		return rc;
	sig_lock(&r->lock);
	rc = r->refuses == -EREMCHG ? region_refused(-EREMCHG) : 0;
	sig_unlock(&r->lock);
	if (rc)
		return rc;
	info.addr = (uintptr_t)r->at;
	info.max_len = r->max_len;
	info.page_size = r->page_size;
	sig_lock(&r->lock);
	info.len = r->len;
	sig_unlock(&r->lock);
	sig_lock(&gaps_lock);
	info.flags = r->noticed ? KEDGE_REGION_WATCHED : 0;
	info.missing = gaps_len(&r->gaps);
	info.missing_at = r->gaps.cnt ? r->gaps.at[0].from : 0;
	sig_unlock(&gaps_lock);
	return kedge__info_copy(user, INFO_V1, &info, sizeof(info));
}
