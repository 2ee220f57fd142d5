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
	bool within; /* the addresses stay taken when it ends: it is a part of another one */
	struct kedge_attachment *whole; /* with lock: that one, not valid without it; or NULL */
	/* Of one that has parts: */
	struct kedge_attachment **part;
	uint32_t part_cnt;
	uint32_t part_room;
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

/* ---- grant.c ---- */

/* Given back; its parts have been. */
void grant_free(struct kedge_grant *g);

/*
 * Of a segment that is converted in parts: what has the owner's address @start, as a grant of
 * its own, in which there is all up to *@until at the moment, at most @end. -EFAULT: nothing
 * is mapped up to *@until; or another negative errno with a reason.
 */
int grant_part(struct kedge_grant *g, uint64_t start, uint64_t end, struct kedge_grant **part,
	       uint64_t *until);

/* ---- attach.c ---- */

/* Whole pages of @g's memfd, from @off on; within addresses that are taken, @at, or NULL. */
int attach_pages(struct kedge_grant *g, uint64_t off, size_t len, uint32_t flags, char *at,
		 struct kedge_attachment **out);
void detach_pages(struct kedge_attachment *a);
/* As kedge_segment_valid_slow(), of one in this process that has no parts. */
bool attached_valid(struct kedge_attachment *a);

/* ---- parts.c ---- */

/* Whole pages at the owner's address @start, of a grant in parts. */
int parts_attach(struct kedge_grant *g, uint64_t start, size_t len, uint32_t flags,
		 struct kedge_attachment **out);
/* The same within addresses that are taken. */
int parts_attach_at(struct kedge_grant *g, uint64_t start, size_t len, uint32_t flags, char *at,
		    struct kedge_attachment **out);
/* One with parts. */
void parts_detach(struct kedge_attachment *a);
bool parts_valid(struct kedge_attachment *a);
/* An attachment of that part is no more. */
void parts_unuse(struct kedge_grant *part);
/* With its grant. */
void parts_free(struct kedge_grant *g);

#endif /* SEGMENT_PEER_ATTACHED_H */
