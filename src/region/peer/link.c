// SPDX-License-Identifier: BSD-2-Clause
/*
 * A handle is shown to its owner, which sends the gate and the memory. Both are checked: the
 * owner is of this user, and the files cannot be made shorter under the mapping.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock/sock.h"
#include "base/process/own.h"
#include "region/peer/lease.h"
#include "region/peer/state.h"
#include "region/stream.h"
#include "region/wire.h"

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
	case EBADF:
	case ENOTSOCK:
		return remote_closed_here();
	}
	return kedge_reason(-err, "the region's owner cannot be asked: error %d", err);
}

static int connect_to(struct link *l, uint64_t name, uint64_t until)
{
	struct ucred owner = { 0 };
	socklen_t len = sizeof(owner), a_len;
	struct sockaddr_un a;
	int rc = clofork_begin();

	if (!rc)
		rc = clofork_end(&l->sock, fd_move_up(socket(AF_UNIX, SOCK_SEQPACKET |
							     SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
	if (rc)
		return rc;
	a_len = handle_address(name, false, &a);
	if (clock_connect(l->sock.fd, &a, a_len, until))
		return no_owner(errno);
	if (getsockopt(l->sock.fd, SOL_SOCKET, SO_PEERCRED, &owner, &len))
		return kedge_reason(-errno, "SO_PEERCRED: error %d", errno);
	/* Another user may have taken the name of an owner that has ended, and would be shown the
	 * key: also root goes by a stream then, which does not send it. */
	if (owner.uid != geteuid())
		return kedge_reason(-EACCES, "the region's owner is of user %u", owner.uid);
	l->owner = owner.pid;
	return 0;
}

int remote_receive(int sock, uint64_t until, struct reply *reply)
{
	char space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { &reply->a, sizeof(reply->a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = space, .msg_controllen = sizeof(space) };
	const struct cmsghdr *c;
	ssize_t n;

	n = clock_recvmsg(sock, &m, until);
	/* An owner that turned this one away unheard: what it said is behind that. */
	if (n < 0 && errno == ECONNRESET)
		n = clock_recvmsg(sock, &m, until);
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

int remote_ask(const struct link *l, uint64_t until)
{
	const struct region_ask q = { REGION_MAGIC, REGION_VERSION, l->seq, 0, *l->handle };
	const ssize_t n = clock_send(l->sock.fd, &q, sizeof(q), until);

	/* One that turned this peer away has said why. */
	return n < 0 && errno != EPIPE && errno != ECONNRESET ? no_owner(errno) : 0;
}

static int ask(const struct link *l, uint64_t until, struct reply *reply)
{
	int rc = remote_ask(l, until);

	if (!rc)
		rc = remote_receive(l->sock.fd, until, reply);
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

static int map_gate(struct link *l, int fd)
{
	struct stat st;

	if (!cannot_shrink(fd) || fstat(fd, &st) || st.st_size < (off_t)sizeof(struct gate))
		return strange();
	l->gate = own_map_file(kedge__page_size(), fd, 0);
	if (!l->gate)
		return kedge_reason(-ENOMEM, "no memory for the page that is shared with the "
				    "owner, or too many mappings (vm.max_map_count): error %d",
				    errno);
	if (madvise(l->gate, kedge__page_size(), MADV_DONTFORK))
		return kedge_reason(-errno, "madvise: error %d", errno);
	return 0;
}

/* All that it may become, from the page on that has the first byte. */
int remote_map(struct link *l, const struct region_answer *a)
{
	const int prot = a->access & ~KEDGE_HANDLE_READ ? PROT_READ | PROT_WRITE : PROT_READ;
	const uint64_t page = a->page_size;
	uint64_t skip;
	char *base;
	bool again;

	if (page < kedge__page_size() || page & (page - 1) || a->offset > INT64_MAX / 2 ||
	    !a->max_len || a->max_len > INT64_MAX / 2 || a->offset % 8 ||
	    !cannot_shrink(l->file.fd))
		return strange();
	skip = a->offset & (page - 1);
	/* A region that was moved is as it was: others may be reading that. */
	if (l->base && (l->base_len != round_up(skip + a->max_len, page) ||
			l->file_off != a->offset || l->max_len != a->max_len))
		return strange();
	again = l->base;
	if (!again)
		l->base_len = round_up(skip + a->max_len, page);
	/* Not readable before a child cannot have it. */
	base = mmap(l->base, l->base_len, PROT_NONE,
		    MAP_SHARED | MAP_NORESERVE | (l->base ? MAP_FIXED : 0), l->file.fd,
		    (off_t)(a->offset - skip));
	if (base == MAP_FAILED)
		return error_no_addresses(l->base_len, "for the region");
	if (!again)
		l->base = base;
	if (madvise(l->base, l->base_len, MADV_DONTFORK) || mprotect(l->base, l->base_len, prot))
		return kedge_reason(-errno, "the region cannot be mapped: error %d", errno);
	if (again)
		return 0;
	l->at = l->base + skip;
	l->access = a->access;
	l->max_len = a->max_len;
	l->file_off = a->offset;
	return 0;
}

uint64_t remote_size(const struct link *l)
{
	struct stat st;

	if (l->file.fd < 0 || !fd_same(l->file.fd, &l->file.id) || fstat(l->file.fd, &st) ||
	    (uint64_t)st.st_size < l->file_off)
		return atomic_load_explicit(&l->sure, memory_order_relaxed);
	return (uint64_t)st.st_size - l->file_off;
}

/* The owner's time was between the question and the answer; or it is of another time namespace, and
 * is taken for that of the question: the handle's time is over too soon then rather than late. */
static void look_at_clock(struct link *l, uint64_t asked)
{
	const uint64_t opened = atomic_load(&l->gate->opened);

	l->ahead = opened < asked || opened > clock_ns() ? opened - asked : 0;
}

static int take(struct link *l, uint64_t until)
{
	struct reply reply = { .fd = { -1, -1 } };
	const uint64_t asked = clock_ns();
	int rc = ask(l, until, &reply);

	if (!rc && (reply.fd[0] < 0 || reply.fd[1] < 0))
		rc = strange();
	if (!rc && !clofork_begin()) {
		rc = clofork_end(&l->file, fd_move_up(reply.fd[1]));
		reply.fd[1] = -1;
	} else if (!rc) {
		rc = kedge_reason(-ENOMEM, "no memory for a descriptor's entry");
	}
	if (!rc)
		rc = map_gate(l, reply.fd[0]);
	if (!rc)
		look_at_clock(l, asked);
	if (!rc)
		rc = remote_map(l, &reply.a);
	if (!rc)
		atomic_store(&l->sure, remote_size(l));
	atomic_store(&l->epoch, reply.a.epoch);
	remote_close_fds(&reply);
	return rc;
}

/*
 * An owner that has many that ask, or is flooded, turns the oldest away that it has not heard
 * yet, without a word. Its socket is there: it is asked again.
 */
static int connect_and_take(struct link *l, uint64_t name, uint64_t until)
{
	const struct timespec nap = { 0, 1000000 };
	int rc;

	for (;;) {
		rc = connect_to(l, name, until);
		if (rc)
			return rc;
		rc = take(l, until);
		if (rc != -ECONNREFUSED)
			return rc;
		clofork_close(&l->sock);
		nanosleep(&nap, NULL);
		if (clock_ns() >= until)
			return no_owner(EAGAIN);
	}
}

/* ---- links ---- */

/* Without one the owner does all accesses. */
static void begin_lease(struct link *l, const struct handle_words *w, const union place *a,
			socklen_t len)
{
	struct link *ctl = link_make(l->handle);

	if (ctl)
		l->lease = lease_start(ctl, w, a, len);
	if (ctl && !l->lease)
		link_free(ctl, false);
}

static void end_lease(struct link *l, bool child)
{
	if (l->lease)
		link_free(lease_stop(l->lease, child), child);
	l->lease = NULL;
}

/*
 * On one host the memory is asked for, and where that cannot be had a stream: also with what
 * listens under the name for another user, as the key decides. Then, or from another host, the
 * address.
 */
int link_reach(struct link *l, const struct handle_words *w, const struct owner_place *where,
	       uint64_t until)
{
	const uint16_t port = le16toh(where->port);
	struct sockaddr_un local;
	union place a;
	const socklen_t len = port ? place_address(where->place, port, &a) : 0;
	uint64_t host;
	int rc = handle_host(&host);

	if (rc)
		return rc;
	if (host == where->host) {
		rc = connect_and_take(l, where->name, until);
		if (rc == REGION_BY_STREAM || rc == -EACCES) {
			clofork_close(&l->sock);
			return stream_open(l, w, (struct sockaddr *)&local,
					   handle_address(where->name, true, &local), until);
		}
		if (rc != -ECONNREFUSED || !len)
			return rc;
		clofork_close(&l->sock);
	} else if (!len) {
		return kedge_reason(-EHOSTUNREACH, "the region is on another host, or that was "
				    "started anew since; and the handle names no address of it");
	}
	rc = stream_open(l, w, &a.any, len, until);
	if (!rc && fabric())
		begin_lease(l, w, &a, len);
	return rc;
}

struct link *link_make(const struct kedge_handle *h)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->handle = h;
	clofork_init(&l->sock);
	clofork_init(&l->file);
	return l;
}

void link_close(struct link *l)
{
	end_lease(l, false);
	clofork_close(&l->sock);
	clofork_close(&l->file);
	if (l->base)
		munmap(l->base, l->base_len);
	l->base = NULL;
	l->closed = true;
}

void link_free(struct link *l, bool child)
{
	end_lease(l, child);
	if (!child) {
		link_close(l);
		if (l->gate)
			own_unmap(l->gate, kedge__page_size());
	}
	stream_close(l, child);
	free(l);
}
