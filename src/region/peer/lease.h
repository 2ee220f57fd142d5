/* SPDX-License-Identifier: BSD-2-Clause */
/* A lease of a region's memory, as a peer has it (lease.c). */
#ifndef REGION_LEASE_H
#define REGION_LEASE_H

#include "region/peer/state.h"
#include "region/stream.h"

struct lease;

/* Ask for one at the address by which the region is reached, with @ctl for its connection, until it
 * is stopped. NULL: there is no memory or thread for it, and accesses go by the stream. */
struct lease *lease_start(struct link *ctl, const struct handle_words *w, const union place *at,
			  socklen_t len);
/*
 * A put or get of the parts, which end at @q->offset + @q->len: all of them within one lease, as a
 * recall is before or after them.
 * 1: the access is done. 0: it is not for that, or has failed in it, and the adapters carry nothing
 * of it any more: the owner is to do all of it. -ECONNRESET: it has failed, and what the adapters
 * carry still may arrive later. @has: what the owner has said that there is.
 */
int lease_access(struct lease *l, const struct stream_req *q,
		 const struct kedge_remote_part *part, size_t cnt, uint64_t has);
/* True: accesses go by it now. */
bool lease_is_open(struct lease *l);
/* No access is under way. Or free it, in a child that has inherited it. Returns @ctl. */
struct link *lease_stop(struct lease *l, bool child);

#endif /* REGION_LEASE_H */
