// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region that its program has unmapped or emptied a part of is made whole. First it is looked
 * whether anything else is there, which ends it. Missing pages are had in the file; then
 * the file is mapped where there is no mapping, by a call that replaces no mapping, so what another
 * thread has mapped there in between stays; then all is locked, and watched. At the end the
 * gaps are taken out, if no change was told of since the beginning.
 */
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kedge/recommit.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "region/keeper.h"
#include "region/watch/look.h"
#include "region/watch/watch.h"

#ifndef MADV_GUARD_REMOVE
#define MADV_GUARD_REMOVE 103
#endif

#define BLOCK_LEN 512u /* of st_blocks */
#define INFO_V1	  STRUCT_END(struct kedge_recommit_info, lost)

struct repair {
	struct kedge_region *r;
	uint64_t from;
	uint64_t to;
	uint64_t changes;
	struct kedge_recommit_info info;
};

static int in_the_way(uint64_t from, uint64_t to)
{
	return kedge_reason(-EEXIST, "at bytes %" PRIu64 " to %" PRIu64 " of the region is other "
			    "memory, which is not touched: unmap it, and call this again", from,
			    to);
}

static int check_free(void *arg, enum look is, uint64_t from, uint64_t to)
{
	(void)arg;
	return is == LOOK_OTHER || is == LOOK_KEPT ? in_the_way(from, to) : 0;
}

/* ---- pages ---- */

static uint64_t allocated(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (uint64_t)st.st_blocks * BLOCK_LEN;
}

static int have_pages(struct repair *w)
{
	const uint64_t before = allocated(w->r->fd);
	uint64_t had = 0;
	/* By a child if some are missing, as there may be too few; a daemon cannot have one. */
	int rc = region_fill(w->r->fd, w->from, w->to - w->from, before < w->r->len, &had);
	const uint64_t after = allocated(w->r->fd);

	if (!rc) {
		w->info.lost = after > before ? after - before : 0;
		return 0;
	}
	if (rc == -ENOMEM)
		return kedge_reason(rc, "%" PRIu64 " KiB of the pages that were dropped could be "
				    "had, and not all: the control group's limit (MemoryMax=) or "
				    "the machine's memory is used up", had >> 10);
	return region_not_filled(rc);
}

/* ---- mappings ---- */

static int make_usable(struct kedge_region *r, uint64_t from, uint64_t to)
{
	if (!mprotect(r->at + from, to - from, PROT_READ | PROT_WRITE))
		return 0;
	return kedge_reason(-errno, "mprotect: error %d; with ENOMEM the process has too many "
			    "mappings: raise vm.max_map_count", errno);
}

static int put_back(void *arg, enum look is, uint64_t from, uint64_t to)
{
	struct repair *w = arg;
	int rc = 0;

	if (is == LOOK_SHUT)
		return make_usable(w->r, from, to);
	if (is == LOOK_NONE) {
		rc = region_map_gap(w->r, from, to);
		w->info.mapped += rc ? 0 : to - from;
	}
	if (rc == -EEXIST || is == LOOK_OTHER || is == LOOK_KEPT)
		return in_the_way(from, to);
	return rc;
}

static int lock_own(void *arg, enum look is, uint64_t from, uint64_t to)
{
	struct repair *w = arg;

	if (is != LOOK_OWN)
		return kedge_reason(-EAGAIN, "the program changes the mapping of bytes %" PRIu64
				    " to %" PRIu64 " of the region meanwhile", from, to);
	/* A guard is no page. Kernels without guards refuse that, and it does not matter. */
	madvise(w->r->at + from, to - from, MADV_GUARD_REMOVE);
	return region_lock_in(w->r, from, to);
}

static int repair(void *arg)
{
	struct repair *w = arg;
	struct kedge_region *r = w->r;
	int rc = look_through(r, w->from, w->to, check_free, w);

	if (!rc)
		rc = have_pages(w);
	if (!rc)
		rc = look_through(r, w->from, w->to, put_back, w);
	if (!rc)
		rc = look_through(r, w->from, w->to, lock_own, w);
	if (!rc && r->on_node)
		rc = region_to_node(r, w->from, w->to);
	return rc;
}

static int finish(void *arg)
{
	struct repair *w = arg;
	/* A change between the repair and the watch was not told of. */
	int rc = look_is_whole(w->r, w->from, w->to);

	if (rc && rc != -ENODATA)
		return rc;
	if (!rc)
		rc = watch_repaired(w->r, w->from, w->to, w->changes);
	else
		rc = -EAGAIN;
	return rc ? kedge_reason(rc, "the program has changed the region's mapping meanwhile: call "
				 "this again") : 0;
}

static int recommit(struct repair *w)
{
	struct kedge_region *r = w->r;
	/* Where it could not be watched it is tried again; what can be seen is a gap then. */
	int rc = r->watched && look_is_needed(r) ? watch_begin(r) : 0;

	if (rc)
		return rc;
	sig_lock(&gaps_lock);
	w->changes = r->changes;
	sig_unlock(&gaps_lock);
	rc = keeper_call(repair, w);
	if (rc)
		return rc;
	watch_again(r, w->from, w->to);
	return keeper_call(finish, w);
}

static int check(const struct kedge_region *r, uint64_t offset, uint64_t len, struct repair *w)
{
	if (offset >= r->len || len > r->len - offset)
		return kedge_reason(-EINVAL, "the region has %" PRIu64 " bytes, and the range is "
				    "not within them", r->len);
	w->from = round_down(offset, r->page_size);
	w->to = len ? round_up(offset + len, r->page_size) : r->len;
	return 0;
}

KEDGE_API int kedge_region_recommit(struct kedge_region *r, size_t offset, size_t len,
				    struct kedge_recommit_info *user)
{
	struct repair w = { .r = r, .info.size = sizeof(w.info) };
	int rc;

	NO_CANCEL();
	if (user && user->size < INFO_V1)
		return kedge_reason(-EINVAL, "info->size is too small");
	rc = region_lock(r);
	if (rc)
		return rc;
	rc = check(r, offset, len, &w);
	if (!rc)
		rc = recommit(&w);
	sig_unlock(&r->lock);
	return rc || !user ? rc : kedge__info_copy(user, INFO_V1, &w.info, sizeof(w.info));
}
