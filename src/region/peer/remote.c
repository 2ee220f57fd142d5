// SPDX-License-Identifier: BSD-2-Clause
/*
 * A handle is shown to its owner, which sends the gate and the memory. Both are checked: the
 * owner is of this user, or this is root, and the files cannot be made shorter under the
 * mapping.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "base/process/own.h"
#include "region/peer/state.h"
#include "region/stream.h"
#include "region/wire.h"

#define INFO_V1 STRUCT_END(struct kedge_remote_info, way)

/* ---- asking ---- */

static int no_owner(int err)
{
	switch (err) {
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
		return kedge_reason(-ECONNREFUSED, "the region's owner has ended, or is in another "
				    "network namespace");
	case EAGAIN:
	case EINPROGRESS:
		return kedge_reason(-ETIMEDOUT, "the region's owner does not answer: is it "
				    "stopped?");
	}
	return kedge_reason(-err, "the region's owner cannot be asked: error %d", err);
}

static int connect_to(struct kedge_remote *r, uint64_t name, int timeout_ms)
{
	struct timeval wait = { 0, 0 }; /* which is no limit */
	struct ucred owner = { 0 };
	socklen_t len = sizeof(owner), a_len;
	struct sockaddr_un a;
	int rc = clofork_begin();

	if (!rc)
		rc = clofork_end(&r->sock, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (rc)
		return rc;
	if (timeout_ms >= 0)
		wait = (struct timeval){ .tv_sec = timeout_ms / 1000,
					 .tv_usec = timeout_ms % 1000 * 1000 + 1 };
	setsockopt(r->sock.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(r->sock.fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	a_len = handle_address(name, false, &a);
	while (connect(r->sock.fd, (const struct sockaddr *)&a, a_len))
		if (errno != EINTR)
			return no_owner(errno);
	if (getsockopt(r->sock.fd, SOL_SOCKET, SO_PEERCRED, &owner, &len))
		return kedge_reason(-errno, "SO_PEERCRED: error %d", errno);
	if (geteuid() && owner.uid != geteuid())
		return kedge_reason(-EACCES, "the region's owner is of user %u", owner.uid);
	r->owner = owner.pid;
	return 0;
}

int remote_receive(int sock, struct reply *reply)
{
	char space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { &reply->a, sizeof(reply->a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = space, .msg_controllen = sizeof(space) };
	const struct cmsghdr *c;
	ssize_t n;

	while ((n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	/* An owner that turned this one away unheard: what it said is behind that. */
	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return no_owner(errno);
	/* Also with a packet that has nothing else in it. */
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(reply->fd, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	if (!n)
		return no_owner(ECONNRESET);
	if (m.msg_flags & MSG_CTRUNC)
		return error_no_fd(EMFILE);
	if (n != (ssize_t)sizeof(reply->a) || reply->a.magic != REGION_MAGIC ||
	    reply->a.version != REGION_VERSION)
		return kedge_reason(-EPROTO, "the region's owner is of another version of kedge");
	return 0;
}

void remote_close_fds(struct reply *reply)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (reply->fd[i] >= 0)
			close(reply->fd[i]);
		reply->fd[i] = -1;
	}
}

int remote_ask(const struct kedge_remote *r)
{
	const struct region_ask q = { REGION_MAGIC, REGION_VERSION, r->seq, 0, r->handle };
	ssize_t n;

	while ((n = send(r->sock.fd, &q, sizeof(q), MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	/* One that turned this peer away has said why. */
	return n < 0 && errno != EPIPE && errno != ECONNRESET ? no_owner(errno) : 0;
}

static int ask(const struct kedge_remote *r, struct reply *reply)
{
	int rc = remote_ask(r);

	if (!rc)
		rc = remote_receive(r->sock.fd, reply);
	return rc || !reply->a.rc ? rc : remote_refused(reply->a.rc);
}

/* ---- what it sends ---- */

static int strange(void)
{
	return kedge_reason(-EPROTO, "what the region's owner sends is no region");
}

static bool cannot_shrink(int fd)
{
	const int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_SHRINK;
}

static int map_gate(struct kedge_remote *r, int fd)
{
	struct stat st;

	if (!cannot_shrink(fd) || fstat(fd, &st) || st.st_size < (off_t)sizeof(struct gate))
		return strange();
	r->gate = own_map_file(kedge__page_size(), fd, 0);
	if (!r->gate)
		return kedge_reason(-ENOMEM, "no memory for the page that is shared with the "
				    "owner: error %d", errno);
	if (madvise(r->gate, kedge__page_size(), MADV_DONTFORK))
		return kedge_reason(-errno, "madvise: error %d", errno);
	return 0;
}

/* All that it may become, from the page on that has the first byte. */
int remote_map(struct kedge_remote *r, const struct region_answer *a)
{
	const int prot = a->access & ~KEDGE_HANDLE_READ ? PROT_READ | PROT_WRITE : PROT_READ;
	const uint64_t page = a->page_size;
	uint64_t skip;
	char *base;

	if (page < kedge__page_size() || page & (page - 1) || a->offset > INT64_MAX / 2 ||
	    !a->max_len || a->max_len > INT64_MAX / 2 || a->offset % 8 ||
	    !cannot_shrink(r->file.fd))
		return strange();
	skip = a->offset & (page - 1);
	if (r->base && r->base_len != round_up(skip + a->max_len, page))
		return strange();
	r->base_len = round_up(skip + a->max_len, page);
	/* Not readable before a child cannot have it. */
	base = mmap(r->base, r->base_len, PROT_NONE,
		    MAP_SHARED | MAP_NORESERVE | (r->base ? MAP_FIXED : 0), r->file.fd,
		    (off_t)(a->offset - skip));
	if (base == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no %llu MiB of addresses for the region: RLIMIT_AS "
				    "(ulimit -v) may be lower",
				    (unsigned long long)r->base_len >> 20);
	r->base = base;
	if (madvise(r->base, r->base_len, MADV_DONTFORK) || mprotect(r->base, r->base_len, prot))
		return kedge_reason(-errno, "the region cannot be mapped: error %d", errno);
	r->at = r->base + skip;
	r->access = a->access;
	r->max_len = a->max_len;
	r->file_off = a->offset;
	return 0;
}

uint64_t remote_size(const struct kedge_remote *r)
{
	struct stat st;

	if (r->file.fd < 0 || !fd_same(r->file.fd, &r->file.id) || fstat(r->file.fd, &st) ||
	    (uint64_t)st.st_size < r->file_off)
		return atomic_load_explicit(&r->sure, memory_order_relaxed);
	return (uint64_t)st.st_size - r->file_off;
}

static int take(struct kedge_remote *r)
{
	struct reply reply = { .fd = { -1, -1 } };
	int rc = ask(r, &reply);

	if (!rc && (reply.fd[0] < 0 || reply.fd[1] < 0))
		rc = strange();
	if (!rc && !clofork_begin()) {
		rc = clofork_end(&r->file, fd_move_up(reply.fd[1]));
		reply.fd[1] = -1;
	} else if (!rc) {
		rc = kedge_reason(-ENOMEM, "no memory for a descriptor's entry");
	}
	if (!rc)
		rc = map_gate(r, reply.fd[0]);
	if (!rc)
		rc = remote_map(r, &reply.a);
	if (!rc)
		atomic_store(&r->sure, remote_size(r));
	atomic_store(&r->epoch, reply.a.epoch);
	remote_close_fds(&reply);
	return rc;
}

/*
 * An owner that has many that ask, or is flooded, turns the oldest away that it has not heard
 * yet, without a word. Its socket is there: it is asked again.
 */
static int connect_and_take(struct kedge_remote *r, uint64_t name, int timeout_ms)
{
	const uint64_t begun = clock_ns();
	const struct timespec nap = { 0, 1000000 };
	int rc, left = timeout_ms;

	for (;;) {
		rc = connect_to(r, name, left);
		if (rc)
			return rc;
		rc = take(r);
		if (rc != -ECONNREFUSED)
			return rc;
		clofork_close(&r->sock);
		nanosleep(&nap, NULL);
		if (timeout_ms >= 0)
			left = timeout_ms - (int)((clock_ns() - begun) / 1000000u);
		if (timeout_ms >= 0 && left <= 0)
			return no_owner(EAGAIN);
	}
}

/* ---- calls ---- */

/*
 * On one host the memory is asked for, and where that cannot be had a stream: also with what
 * listens under the name for another user, as the key decides. Then, or from another host, the
 * handle's address.
 */
static int reach(struct kedge_remote *r, const struct handle_words *w, int timeout_ms)
{
	const uint64_t until = timeout_ms < 0 ? UINT64_MAX
					      : clock_ns() + (uint64_t)timeout_ms * 1000000u;
	struct sockaddr_un local;
	union place a;
	const socklen_t len = w->port ? place_address(w->place, w->port, &a) : 0;
	uint64_t host;
	int rc = handle_host(&host);

	if (rc)
		return rc;
	if (host == w->host) {
		rc = connect_and_take(r, w->name, timeout_ms);
		if (rc == REGION_BY_STREAM || rc == -EACCES) {
			clofork_close(&r->sock);
			return stream_open(r, w, (struct sockaddr *)&local,
					   handle_address(w->name, true, &local), until);
		}
		if (rc != -ECONNREFUSED || !len)
			return rc;
		clofork_close(&r->sock);
	} else if (!len) {
		return kedge_reason(-EHOSTUNREACH, "the region is on another host, or that was "
				    "started anew since; and the handle names no address of it");
	}
	return stream_open(r, w, &a.any, len, until);
}

static void end(struct kedge_remote *r)
{
	if (r->pid == getpid()) {
		clofork_close(&r->sock);
		clofork_close(&r->file);
		if (r->base)
			munmap(r->base, r->base_len);
		if (r->gate)
			own_unmap(r->gate, kedge__page_size());
	}
	stream_close(r);
	free(r);
}

KEDGE_API int kedge_remote_open(const struct kedge_handle *h, int timeout_ms,
				struct kedge_remote **out)
{
	struct handle_words w;
	struct kedge_remote *r;
	int rc;

	NO_CANCEL();
	if (!h || !out)
		return kedge_reason(-EINVAL, "an argument is NULL");
	if (!handle_read(h, &w))
		return kedge_reason(-EINVAL, "it is no handle");
	rc = clofork_ready();
	if (rc)
		return rc;
	r = calloc(1, sizeof(*r));
	if (!r)
		return kedge_reason(-ENOMEM, "no memory for a remote region");
	r->pid = getpid();
	r->handle = *h;
	clofork_init(&r->sock);
	clofork_init(&r->file);
	rc = reach(r, &w, timeout_ms);
	if (rc)
		end(r);
	else
		*out = r;
	return rc;
}

KEDGE_API void kedge_remote_close(struct kedge_remote *r)
{
	NO_CANCEL();
	if (r)
		end(r);
}

KEDGE_API int kedge_remote_query(struct kedge_remote *r, struct kedge_remote_info *user)
{
	struct kedge_remote_info info = { .size = sizeof(info) };

	if (!r || !user)
		return kedge_reason(-EINVAL, "an argument is NULL");
	if (r->pid != getpid())
		return kedge_reason(-ECHILD, "it was opened by the process that this one was "
				    "forked from: open the handle here");
	info.access = r->access;
	info.len = r->stream ? stream_has(r) : atomic_load(&r->gate->len);
	info.way = r->stream ? KEDGE_REMOTE_SERVED : KEDGE_REMOTE_MAPPED;
	info.max_len = r->max_len;
	info.pid = (uint32_t)r->owner;
	return kedge__info_copy(user, INFO_V1, &info, sizeof(info));
}
