// SPDX-License-Identifier: BSD-2-Clause
/* See by_hand.h. */
#include <sys/socket.h>

#include "base/base.h"
#include "by_hand.h"

int dial(void)
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

struct stream_hello greeted(int fd)
{
	struct stream_hello h;

	assert_int_equal(recv(fd, &h, sizeof(h), MSG_WAITALL), sizeof(h));
	assert_int_equal(h.magic, STREAM_MAGIC);
	return h;
}

struct stream_ask question(const struct stream_hello *h)
{
	struct handle_words w;
	struct stream_ask q = { .magic = STREAM_MAGIC, .version = STREAM_VERSION };

	assert_true(handle_read(&handle, &w));
	q.slot = w.slot;
	q.generation = w.generation;
	stream_ask_tag(w.key, h, &q, q.tag);
	return q;
}

int answer_to(int fd, const struct stream_ask *q)
{
	struct stream_welcome w;

	if (send(fd, q, sizeof(*q), MSG_NOSIGNAL) != sizeof(*q) ||
	    recv(fd, &w, sizeof(w), MSG_WAITALL) != sizeof(w))
		return -ECONNRESET;
	return w.rc;
}

int open_by_hand(void)
{
	int fd = dial();
	struct stream_hello h = greeted(fd);
	struct stream_ask q = question(&h);

	assert_int_equal(answer_to(fd, &q), 0);
	return fd;
}

int dial_by_tcp(void)
{
	struct handle_words w;
	union place a;
	socklen_t len;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stream_hello h;
	struct stream_ask q;

	assert_true(handle_read(&handle, &w));
	len = place_address(w.place, w.port, &a);
	assert_int_equal(connect(fd, &a.any, len), 0);
	h = greeted(fd);
	q = question(&h);
	q.name = w.name;
	stream_ask_tag(w.key, &h, &q, q.tag);
	assert_int_equal(answer_to(fd, &q), 0);
	return fd;
}

int ask(int fd, struct stream_req q)
{
	struct stream_reply a;

	stream_req_swap(&q);
	if (send(fd, &q, sizeof(q), MSG_NOSIGNAL) != sizeof(q) ||
	    recv(fd, &a, sizeof(a), MSG_WAITALL) != sizeof(a))
		return -ECONNRESET;
	return a.rc;
}
