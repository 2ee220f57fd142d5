/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An owner of segments in another process, and what is taken of its words. All of it comes from
 * outside, so it is checked here before anything else looks at it.
 */
#ifndef SEGMENT_OWNERS_H
#define SEGMENT_OWNERS_H

#include <sys/socket.h>

#include "segment/internal.h"

enum owner_state { WAITS, ASKED, DONE };

struct owner {
	struct clofork sock;
	enum owner_state state;
	uint32_t name;
	struct ucred cred;
	int tries;
	int status; /* what is wrong with it */
	bool silent; /* it is left out */
	struct seg_item *item;
	size_t cnt;
};

/* True if a line of /proc/net/unix shows an owner's socket that listens: its @name. */
bool segment_owner_name(const char *line, uint32_t *name);
/* A page of @len bytes, of which the whole @p can be read. 0: it was the last one; -EAGAIN: there
 * are more to be asked for; or what is wrong with the owner, or -ENOMEM. */
int segment_owner_take(struct owner *o, const struct seg_page *p, size_t len);
/* Call @add for each segment, or once for an owner with a status. */
int segment_owner_tell(const struct owner *o, found_fn *add, void *to);
void segment_owner_forget(struct owner *o);

#endif /* SEGMENT_OWNERS_H */
