// SPDX-License-Identifier: BSD-2-Clause
/* Why an access, or a handle, is refused. */
#include <inttypes.h>

#include "base/base.h"
#include "region/peer/state.h"

int remote_refused(int rc)
{
	switch (rc) {
	case -EKEYREJECTED:
		return kedge_reason(rc, "the owner has no such handle");
	case -EKEYREVOKED:
		return kedge_reason(rc, "the owner has revoked the handle, or closed the region");
	case -EKEYEXPIRED:
		return kedge_reason(rc, "the handle's time is over: ask the owner for another");
	case -EACCES:
		return kedge_reason(rc, "the region's owner is of another user");
	case -EOPNOTSUPP:
		return kedge_reason(rc, "the owner cannot look whether its memory is there still: "
				    "it needs userfaultfd, or /proc");
	case REGION_BY_STREAM:
		return kedge_reason(rc, "the owner gives no peer the memory");
	case -ENOMEM:
		return kedge_reason(rc, "the region's owner has no memory, no addresses "
				    "(RLIMIT_AS), or as many mappings as it may: raise its "
				    "vm.max_map_count");
	case -EFBIG:
		return kedge_reason(rc, "the region's owner may make no file: raise its ulimit -f");
	case -EMFILE:
	case -ENFILE:
		return kedge_reason(rc, "the region's owner has no descriptor left: raise its "
				    "ulimit -n");
	}
	return kedge_reason(rc < 0 && rc > -4096 ? rc : -EPROTO, "the region's owner refuses: "
			    "error %d", -rc);
}

int remote_closed_here(void)
{
	return kedge_reason(-ECONNRESET, "the program has closed the connection to the region's "
			    "owner");
}

int remote_over(const struct link *l, int err)
{
	switch (err) {
	case -REGION_MOVED:
	case -REGION_BY_STREAM:
		return REGION_MOVED;
	case ECONNRESET:
		return kedge_reason(-err, "the connection to the region's owner, process %d, was "
				    "closed: it has ended, or this process has closed what it "
				    "does not know", (int)l->owner);
	case ETIMEDOUT:
		return kedge_reason(-ECONNRESET, "the region's owner, process %d, did not answer "
				    "an access, so the connection was given up: open the handle "
				    "again", (int)l->owner);
	case EKEYEXPIRED:
		return kedge_reason(-err, "the handle's time is over: ask the owner for another");
	case EKEYREVOKED:
		return kedge_reason(-err, "the owner has revoked the handle, or closed the region");
	}
	return kedge_reason(-EPROTO, "the region's owner ends it with error %d", err);
}

/* An owner that has closed the region has said so before the connection ended. */
int remote_ended(struct link *l)
{
	const int err = atomic_load_explicit(&l->ended, memory_order_relaxed);

	if (!err)
		return 0;
	return remote_over(l, l->gate && atomic_load(&l->gate->state) & GATE_ENDED
			       ? (int)atomic_load(&l->gate->why) : err);
}

int remote_beyond(uint64_t offset, uint64_t len, uint64_t has)
{
	return kedge_reason(-EFAULT, "%" PRIu64 " bytes from %" PRIu64 " on are not all there: "
			    "the region has %" PRIu64 " of what the handle gives", len, offset,
			    has);
}

int remote_missing(uint64_t from, uint64_t to)
{
	return kedge_reason(-ENODATA, "bytes %" PRIu64 " to %" PRIu64 " of what the handle gives "
			    "are not there: the region's owner has unmapped, replaced or dropped "
			    "them; kedge_region_recommit() there repairs that", from, to);
}
