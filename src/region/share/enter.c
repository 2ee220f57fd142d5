// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region in a directory: its number, and the address that a handle of this process names. An
 * entry of an owner before this one is replaced if it is still what was found: of two that enter
 * the region at once one is told so.
 */
#include <string.h>

#include <kedge/directory.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "region/share/share.h"

#define TRIES 8

static int put(struct kedge_directory *d, uint64_t id, const struct kedge_place *to,
	       uint64_t until)
{
	struct kedge_place is;
	int rc = kedge_directory_find(d, id, &is, clock_left_ms(until));

	if (rc && rc != -ENOENT)
		return rc;
	/* Also if it is there: the entry is this process's then, and ends with it. */
	return kedge_directory_replace(d, id, rc ? NULL : &is, to, clock_left_ms(until));
}

static int enter(struct kedge_directory *d, uint64_t id, const struct kedge_place *to,
		 int timeout_ms)
{
	const uint64_t until = clock_deadline(timeout_ms);
	int try, rc = -ESTALE;

	for (try = 0; rc == -ESTALE && try < TRIES; try++)
		rc = put(d, id, to, until);
	return rc;
}

/* Its own handle: an adopted one names another owner. */
static bool is_ours(struct kedge_region *r, const struct handle_words *w)
{
	struct slot *s;
	bool is;

	sig_lock(&shares_lock);
	is = !slot_find(w, &s) && s->region == r && !s->alias && w->region == r->id;
	sig_unlock(&shares_lock);
	return is;
}

KEDGE_API int kedge_region_enter(struct kedge_region *r, const struct kedge_handle *h,
				 struct kedge_directory *d, int timeout_ms)
{
	struct owner_place here;
	struct kedge_place place;
	struct handle_words w;
	int rc = region_check(r);

	NO_CANCEL();
	if (!rc && (!d || !h || !handle_read(h, &w)))
		rc = kedge_reason(-EINVAL, "the directory is NULL, or it is no handle");
	if (!rc)
		rc = region_lock(r);
	if (rc)
		return rc;
	sig_unlock(&r->lock);
	if (!is_ours(r, &w))
		return kedge_reason(-ENOENT, "the region has no such handle that was made here");
	handle_place(&w, &here);
	place_write(&here, &place);
	return enter(d, w.region, &place, timeout_ms);
}
