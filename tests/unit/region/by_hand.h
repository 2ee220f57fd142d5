/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers whose accesses the owner does, as they are without the library's calls. */
#ifndef TESTS_REGION_BY_HAND_H
#define TESTS_REGION_BY_HAND_H

#include <string.h>
#include <sys/socket.h>

#include "region/stream.h"
#include "remote.h"

static inline int dial(void)
{
	struct handle_words w;
	struct sockaddr_un a;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && handle_read(&handle, &w));
	len = handle_address(w.name, true, &a);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, len), 0);
	return fd;
}

static inline struct stream_hello greeted(int fd)
{
	struct stream_hello h;

	assert_int_equal(recv(fd, &h, sizeof(h), MSG_WAITALL), sizeof(h));
	assert_int_equal(h.magic, STREAM_MAGIC);
	return h;
}

static inline struct stream_ask question(const struct stream_hello *h)
{
	struct handle_words w;
	struct stream_ask q = { .magic = STREAM_MAGIC, .version = STREAM_VERSION };

	assert_true(handle_read(&handle, &w));
	q.slot = w.slot;
	q.generation = w.generation;
	stream_ask_tag(w.key, h, &q, q.tag);
	return q;
}

/* The owner's answer to it, or -ECONNRESET where the connection ends. */
static inline int answer_to(int fd, const struct stream_ask *q)
{
	struct stream_welcome w;

	if (send(fd, q, sizeof(*q), MSG_NOSIGNAL) != sizeof(*q) ||
	    recv(fd, &w, sizeof(w), MSG_WAITALL) != sizeof(w))
		return -ECONNRESET;
	return w.rc;
}

/* One that has opened it with what it likes to say. */
static inline int open_by_hand(void)
{
	int fd = dial();
	struct stream_hello h = greeted(fd);
	struct stream_ask q = question(&h);

	assert_int_equal(answer_to(fd, &q), 0);
	return fd;
}

static inline int ask(int fd, struct stream_req q)
{
	struct stream_reply a;

	stream_req_swap(&q);
	if (send(fd, &q, sizeof(q), MSG_NOSIGNAL) != sizeof(q) ||
	    recv(fd, &a, sizeof(a), MSG_WAITALL) != sizeof(a))
		return -ECONNRESET;
	return a.rc;
}

static inline void works(void)
{
	struct kedge_remote *r = open_it();
	char c = 1;

	assert_int_equal(kedge_remote_put(r, 0, &c, 1, SOON_MS), 0);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	kedge_remote_close(r);
}

#endif /* TESTS_REGION_BY_HAND_H */
