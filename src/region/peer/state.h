/* SPDX-License-Identifier: BSD-2-Clause */
/* A region of another process, as a peer has it. */
#ifndef REGION_STATE_H
#define REGION_STATE_H

#include <sys/types.h>

#include <kedge/remote.h>

#include "base/process/clofork.h"
#include "region/gate.h"
#include "region/wire.h"

struct lease;
struct later;
struct remote_stream;
struct stream_req;

/*
 * The way to the region now. A region that migrates ends a link, and another takes its place.
 *
 * @former:   the one before it
 * @users:    threads that use its descriptors, or are about to; link_use()
 * @retired:  another has taken its place, and its descriptors are closed once it has no user
 * @closed:   that is done; guarded by @following
 * @handle:   the remote's
 * @sock:     its end is the owner's
 * @file:     the region's memfd, to see how large that is
 * @ahead:    how far the clock that the gate has times of is ahead of this process's
 * @stream:   the owner does accesses (stream.c): there is no gate and no mapping
 * @lease:    accesses go past the owner's processor where they can; or NULL
 * @base:     the mapping; @at: the handle's first byte in it
 * @file_off: of that byte in the memfd
 * @sure:     bytes from there on that the memfd has: its owner cannot make it shorter
 * @looked:   when the connection was looked at last, of clock_coarse_ns()
 * @ended:    a positive errno: the owner has ended, or the handle's time; or EREMCHG, and the
 *            region is at @to, which was stored before (release)
 * @epoch:    which pages the mapping has
 * @renewing: a thread is about to replace it; guards @seq, the number of the last question, and
 *            @asked: there is no answer to that yet
 */
struct link {
	struct link *former;
	_Atomic uint32_t users;
	_Atomic bool retired;
	bool closed;
	pid_t owner;
	uint32_t access;
	const struct kedge_handle *handle;
	struct clofork sock;
	struct clofork file;
	struct gate *gate;
	uint64_t ahead;
	struct remote_stream *stream;
	struct lease *lease;
	char *base;
	size_t base_len;
	char *at;
	uint64_t max_len;
	uint64_t file_off;
	_Atomic uint64_t sure;
	_Atomic uint64_t looked;
	_Atomic int ended;
	struct owner_place to;
	_Atomic uint32_t epoch;
	_Atomic bool renewing;
	uint32_t seq;
	bool asked;
};

/*
 * @words:     of the handle
 * @directory: knows where the region is, or NULL
 * @where:     its owner is; guarded by @following, which a thread sets that looks for the region
 *             where it is now
 * @later:     operations that wait (later.h); NULL: there was none yet
 */
struct kedge_remote {
	pid_t pid;
	struct kedge_handle handle;
	struct handle_words words;
	struct kedge_directory *directory;
	struct link *_Atomic link;
	_Atomic bool following;
	struct owner_place where;
	struct later *_Atomic later;
};

struct reply {
	struct region_answer a;
	int fd[2]; /* the gate's, and the region's */
};

/*
 * A thread adds itself to @users, then loads @retired; that which retires the link stores @retired,
 * then loads @users; all four are seq_cst, so of two that meet one finds the other, as at a gate
 * (region/gate.h). False: another link has taken its place.
 */
static inline bool link_use(struct link *l)
{
	atomic_fetch_add(&l->users, 1);
	if (!atomic_load(&l->retired))
		return true;
	atomic_fetch_sub(&l->users, 1);
	return false;
}

static inline void link_leave(struct link *l)
{
	atomic_fetch_sub_explicit(&l->users, 1, memory_order_release);
}

/* ---- link.c ---- */

/* To the owner at @where: 0, or a negative errno with its reason; REGION_MOVED: @l->to says where
 * else. @until: of clock_ns(), or UINT64_MAX. */
int link_reach(struct link *l, const struct handle_words *w, const struct owner_place *where,
	       uint64_t until);
/* NULL: no memory. */
struct link *link_make(const struct kedge_handle *h);
/* Give up what it has, but the gate and itself, at which threads may still look. */
void link_close(struct link *l);
/* Free it, in a child that has inherited it as well. */
void link_free(struct link *l, bool child);

/* 0 or a negative errno, each with its reason. */
int remote_ask(const struct link *l, uint64_t until);
int remote_receive(int sock, uint64_t until, struct reply *reply);
/* Those that were not taken. */
void remote_close_fds(struct reply *reply);
/* Map the memfd @l->file, in the place of a former mapping if there is one. */
int remote_map(struct link *l, const struct region_answer *a);
/* The length of the memfd from the handle's first byte on. */
uint64_t remote_size(const struct link *l);

/* ---- follow.c ---- */

/* @r->where is as the directory says, if there is one and it says so: 0 or a negative errno with
 * its reason. */
int remote_look_up(struct kedge_remote *r, uint64_t until);

/* A link to where the region is, from @r->where on, which is set: 0 or a negative errno with its
 * reason. */
int remote_find(struct kedge_remote *r, uint64_t until, struct link **out);
/* @seen does not lead to the region any more: 0, and @r->link is another one, or a negative errno
 * with its reason. It takes FOLLOW_MS, if @until is sooner. */
int remote_follow(struct kedge_remote *r, struct link *seen, uint64_t until);
/* An access, or a question, ended with @rc by @seen: true: it was not done, and there is another
 * link now; or *rc is why there is none. */
bool remote_again(struct kedge_remote *r, struct link *seen, uint64_t until, int *rc);

/* ---- reason.c: negative errnos, each with its reason ---- */

/* The owner's answer to a handle, or to an access, is @rc. */
int remote_refused(int rc);
/* -ECONNRESET: its descriptor is another's now. */
int remote_closed_here(void);
/* There are no more accesses, as @err, positive, says. */
int remote_over(const struct link *l, int err);
/* The same if the owner is not there any more, else 0. */
int remote_ended(struct link *l);
/* -EFAULT. */
int remote_beyond(uint64_t offset, uint64_t len, uint64_t has);
/* -ENODATA: [@from, @to) are not there. */
int remote_missing(uint64_t from, uint64_t to);

/* ---- stream.c ---- */

/* 0 or a negative errno with its reason, and it has no stream then; REGION_MOVED as above. */
int stream_open(struct link *l, const struct handle_words *w, const struct sockaddr *a,
		socklen_t len, uint64_t until);
/* In a @child its memory alone. */
void stream_close(struct link *l, bool child);
/* Bytes that may be accessed: the owner is asked, a second at most. 0, or REGION_MOVED. */
int stream_has(struct link *l, uint64_t *has);
/* Of @q the operation, range, time and numbers are set. @value: what was there, or NULL.
 * REGION_MOVED: it was not done. */
int stream_access(struct link *l, const struct stream_req *q, uint64_t *value);
/* Likewise a STREAM_PUT or STREAM_GET of the parts, which end at @q->offset + @q->len. Those of one
 * request (pieces.h) are all put, or got, or none of them is. */
int stream_copy(struct link *l, const struct stream_req *q, const struct kedge_remote_part *part,
		size_t cnt);

/* ---- renew.c ---- */

/* The mapping has the pages that the gate says, up to @until (UINT64_MAX: no limit): 0, or
 * a negative errno with its reason. */
int remote_renew(struct link *l, uint64_t until);

#endif /* REGION_STATE_H */
