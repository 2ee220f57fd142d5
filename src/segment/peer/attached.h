/* SPDX-License-Identifier: BSD-2-Clause */
/* Attachments, and those of a grant that the thread takes when their owner does. */
#ifndef SEGMENT_PEER_ATTACHED_H
#define SEGMENT_PEER_ATTACHED_H

#include "segment/internal.h"

enum attachment_state { SPARE, LIVE, BUSY };

struct kedge_attachment {
	struct kedge_attachment_head head; /* first */
	struct list node; /* in grant->attachments; of others: */
	struct kedge_attachment *next; /* in grant->chain */
	struct kedge_attachment *spare;
	_Atomic uint32_t state;
	struct kedge_grant *grant;
	char *at; /* whole pages */
	size_t len;
	uint64_t file_off;
	uint32_t flags;
	bool gone;
};

/* No generation is either: they count from 0, by two. */
#define NEVER	UINT64_MAX
#define PENDING (UINT64_MAX - 2)

/* A record of @g, or NULL; and it is not used any more. */
struct kedge_attachment *attached_get(struct kedge_grant *g);
void attached_put(struct kedge_attachment *a);
/* With the grant. */
void attached_free(struct kedge_grant *g);
/* It is mapped: from now on the thread takes it, until attached_leave(). */
void attached_enter(struct kedge_attachment *a);
/* It is valid as of @generation, or false: the thread has taken it. */
bool attached_confirm(struct kedge_attachment *a, uint64_t generation);
void attached_leave(struct kedge_attachment *a);
/* The thread's, after it has noted what has gone: @take all that is mapped. */
void attached_take(struct kedge_grant *g, void (*take)(struct kedge_attachment *a,
						       uint64_t start, uint64_t end),
		   uint64_t start, uint64_t end);

#endif /* SEGMENT_PEER_ATTACHED_H */
