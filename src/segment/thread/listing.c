// SPDX-License-Identifier: BSD-2-Clause
/*
 * Segments of this process, told to its user and to root: what they are, and no word of
 * their ids. So a list gives no right that a segment's mode does not give.
 *
 * Each question is answered by one packet, which is not waited for: a peer that asks again
 * and again has its turn among the others, and one that does not read is cut off. Segments
 * are in the order of their serial numbers, so a page begins where the last one ended, no
 * matter what was made and removed between the two.
 */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "segment/thread/thread.h"

/* Root, or what this process is now: a set-user-ID program may have changed that. */
static bool may_ask(const struct ucred *peer)
{
	return !peer->uid || peer->uid == (uid_t)syscall(SYS_geteuid);
}

/* A segment made under another user id is that user's. */
static bool may_know(const struct ucred *peer, const struct kedge_segment *s)
{
	return !peer->uid || peer->uid == s->uid;
}

static void describe(const struct kedge_segment *s, struct seg_item *i)
{
	*i = (struct seg_item){ .serial = s->serial, .addr = s->addr, .len = s->len,
				.backend = s->backend, .mode = s->mode,
				.grants = s->grants };
	if (s->extent >= 0)
		i->changes = atomic_load_explicit(&seg->check->changes[s->extent],
						  memory_order_relaxed) - s->changes;
	memcpy(i->reason, s->reason, sizeof(i->reason));
}

static void fill(struct seg_page *p, const struct ucred *peer, uint64_t before)
{
	const struct kedge_segment *s;

	for (s = seg->segments; s && p->cnt < SEG_ITEMS; s = s->next)
		if (s->serial < before && may_know(peer, s))
			describe(s, &p->item[p->cnt++]);
}

bool listing_answer(int fd, const struct seg_list *q)
{
	struct seg_page p = { .head = seg_head(SEG_PAGE) };
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t len = sizeof(peer);
	size_t size;

	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) ||
	    !may_ask(&peer))
		p.rc = -EACCES;
	else
		fill(&p, &peer, q->before);
	size = offsetof(struct seg_page, item) + p.cnt * sizeof(p.item[0]);
	return syscall(SYS_sendto, fd, &p, size, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) ==
	       (long)size && !p.rc;
}
