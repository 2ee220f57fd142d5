// SPDX-License-Identifier: BSD-2-Clause
/* To the process that an invitation is of: on one host by its local stream, else by TCP. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "base/base.h"
#include "region/migrate/wire.h"
#include "region/stream.h"

#define NAP_NS 1000000

static int unreachable(int err)
{
	switch (err) {
	case ECONNREFUSED:
		return kedge_reason(-err, "the process that the invitation is of has ended, or is "
				    "in another network namespace");
	case ETIMEDOUT:
	case EAGAIN:
		return kedge_reason(-ETIMEDOUT, "the process that the invitation is of does not "
				    "answer: is it stopped, or its host gone?");
	case ENETUNREACH:
	case EHOSTUNREACH:
		return kedge_reason(-EHOSTUNREACH, "there is no way to the process that the "
				    "invitation is of: error %d", err);
	case EMFILE:
	case ENFILE:
		return error_no_fd(err);
	case EPIPE:
	case ECONNRESET:
		return kedge_reason(-ECONNRESET, "the connection to the process that the "
				    "invitation is of ended");
	}
	return kedge_reason(-err, "the process that the invitation is of cannot be reached: error "
			    "%d", err);
}

static int connect_to(int *out, const struct sockaddr *a, socklen_t a_len, uint64_t until)
{
	const struct timespec nap = { 0, NAP_NS };
	struct pollfd p = { .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err, fd = (int)syscall(SYS_socket, a->sa_family,
				   SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	*out = fd;
	if (fd < 0)
		return -errno;
	stream_prepare(fd);
	while (syscall(SYS_connect, fd, a, a_len)) {
		if (errno == EINPROGRESS)
			break;
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
		if (clock_ns() >= until)
			return -ETIMEDOUT;
		nanosleep(&nap, NULL);
	}
	p.fd = fd;
	while (syscall(SYS_ppoll, &p, 1, &nap, NULL, 0) <= 0)
		if (clock_ns() >= until)
			return -ETIMEDOUT;
	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	return -err;
}

/* A local stream may be in a namespace of its own: then by TCP. */
static int connect_any(const struct handle_words *to, uint64_t until, int *fd, bool *tcp)
{
	struct sockaddr_un local;
	union place a;
	uint64_t host;
	int rc = handle_host(&host);

	*fd = -1;
	*tcp = false;
	if (rc)
		return rc;
	rc = -EHOSTUNREACH;
	if (host == to->host)
		rc = connect_to(fd, (struct sockaddr *)&local,
				handle_address(to->name, true, &local), until);
	if (!rc || !to->port)
		return rc;
	if (*fd >= 0)
		syscall(SYS_close, *fd);
	*tcp = true;
	return connect_to(fd, &a.any, place_address(to->place, to->port, &a), until);
}

static int hear_hello(struct wire *w, struct stream_hello *h, uint64_t until)
{
	uint32_t why;
	int rc = wire_read(w, h, sizeof(*h), until);

	if (rc)
		return unreachable(-rc);
	if (le32toh(h->magic) == STREAM_MAGIC && le32toh(h->version) == STREAM_VERSION)
		return 0;
	if (le32toh(h->magic) != STREAM_MAGIC || h->version)
		return kedge_reason(-EPROTO, "what answers for the invitation is of another "
				    "version of kedge");
	memcpy(&why, h->nonce, sizeof(why));
	rc = (int32_t)le32toh(why);
	return kedge_reason(rc < 0 && rc > -4096 ? rc : -EPROTO, "the process that the invitation "
			    "is of has no descriptor or memory left: error %d", -rc);
}

static int hear_welcome(struct wire *w, const unsigned char key[KEY_LEN],
			const struct stream_hello *h, const struct stream_ask *q, uint64_t until,
			struct stream_welcome *got)
{
	unsigned char tag[TAG_LEN];
	int rc = wire_read(w, got, sizeof(*got), until);

	if (rc)
		return unreachable(-rc);
	if (got->rc)
		return kedge_reason(-EKEYREJECTED, "there is no such invitation (any more)");
	stream_welcome_tag(key, h, q, got, tag);
	if (sodium_memcmp(tag, got->tag, sizeof(tag)) != 0)
		return kedge_reason(-EPROTO, "what answers for the invitation has not its key");
	return 0;
}

static int greet(struct wire *w, const struct handle_words *to, uint64_t until,
		 struct stream_welcome *got)
{
	struct stream_ask q = { .magic = htole32(STREAM_MAGIC),
				.version = htole32(STREAM_VERSION),
				.slot = htole32(to->slot),
				.generation = htole32(to->generation),
				.name = to->name };
	struct stream_hello h;
	int rc = hear_hello(w, &h, until);

	if (rc)
		return rc;
	randombytes_buf(q.nonce, sizeof(q.nonce));
	stream_ask_tag(to->key, &h, &q, q.tag);
	rc = wire_write(w, &q, sizeof(q), until);
	if (rc)
		return unreachable(-rc);
	stream_seal(to->key, &h, &q, w->seal);
	return hear_welcome(w, to->key, &h, &q, until, got);
}

int wire_dial(struct wire *w, const struct handle_words *to, uint64_t until,
	      enum invite_state *state, uint64_t *id)
{
	const unsigned char none[SEAL_LEN] = { 0 };
	struct stream_welcome got;
	bool tcp;
	int fd, rc;

	rc = connect_any(to, until, &fd, &tcp);
	wire_begin(w, fd, tcp, none);
	rc = rc ? unreachable(-rc) : greet(w, to, until, &got);
	if (rc) {
		wire_end(w);
		return rc;
	}
	w->whole = true;
	*state = (enum invite_state)le32toh(got.access);
	*id = le64toh(got.max_len);
	return 0;
}
