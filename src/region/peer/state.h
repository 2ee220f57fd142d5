/* SPDX-License-Identifier: BSD-2-Clause */
/* A region of another process, as a peer has it. */
#ifndef REGION_STATE_H
#define REGION_STATE_H

#include <sys/types.h>

#include <kedge/remote.h>

#include "base/process/clofork.h"
#include "region/gate.h"
#include "region/wire.h"

/*
 * @sock:     its end is the owner's
 * @file:     the region's memfd, to see how large that is
 * @stream:   the owner does accesses (stream.c): there is no gate and no mapping
 * @base:     the mapping; @at: the handle's first byte in it
 * @file_off: of that byte in the memfd
 * @sure:     bytes from there on that the memfd has: its owner cannot make it shorter
 * @looked:   when the connection was looked at last, of clock_coarse_ns()
 * @ended:    a positive errno: the owner has ended
 * @handle:   as it was opened
 * @epoch:    which pages the mapping has
 * @renewing: a thread is about to replace it; guards @seq, the number of the last question, and
 *            @asked: there is no answer to that yet
 */
struct remote_stream;
struct stream_req;

struct kedge_remote {
	pid_t pid;
	pid_t owner;
	uint32_t access;
	struct clofork sock;
	struct clofork file;
	struct gate *gate;
	struct remote_stream *stream;
	char *base;
	size_t base_len;
	char *at;
	uint64_t max_len;
	uint64_t file_off;
	_Atomic uint64_t sure;
	_Atomic uint64_t looked;
	_Atomic int ended;
	struct kedge_handle handle;
	_Atomic uint32_t epoch;
	_Atomic bool renewing;
	uint32_t seq;
	bool asked;
};

struct reply {
	struct region_answer a;
	int fd[2]; /* the gate's, and the region's */
};

/* ---- remote.c ---- */

/* 0 or a negative errno, each with its reason. */
int remote_ask(const struct kedge_remote *r);
int remote_receive(int sock, struct reply *reply);
/* Those that were not taken; then it has none. */
void remote_close_fds(struct reply *reply);
/* Map the memfd @r->file, in the place of a former mapping if there is one. */
int remote_map(struct kedge_remote *r, const struct region_answer *a);
/* How much of the memfd there is, from the handle's first byte on. */
uint64_t remote_size(const struct kedge_remote *r);

/* ---- reason.c: negative errnos, each with its reason ---- */

/* The owner's answer to a handle, or to an access, is @rc. */
int remote_refused(int rc);
/* There are no more accesses, as @err, positive, says. */
int remote_over(const struct kedge_remote *r, int err);
/* The same if the owner is not there any more, else 0. */
int remote_ended(struct kedge_remote *r);
/* -EFAULT. */
int remote_beyond(uint64_t offset, uint64_t len, uint64_t has);

/* ---- stream.c ---- */

/* 0 or a negative errno with its reason, and it has no stream then. */
int stream_open(struct kedge_remote *r, const struct handle_words *w, const struct sockaddr *a,
		socklen_t len, uint64_t until);
void stream_close(struct kedge_remote *r);
/* Bytes that may be accessed: the owner is asked, a second at most. */
uint64_t stream_has(struct kedge_remote *r);
/* Of @q the operation, range, time and numbers are set; @end: where the last of several ends, or 0.
 * @value: what was there, or NULL. */
int stream_access(struct kedge_remote *r, const struct stream_req *q, void *data,
		  uint64_t *value);

/* ---- renew.c ---- */

/* The mapping has the pages that the gate says, up to @until (UINT64_MAX: no limit): 0, or
 * a negative errno with its reason. */
int remote_renew(struct kedge_remote *r, uint64_t until);

#endif /* REGION_STATE_H */
