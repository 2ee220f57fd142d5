// SPDX-License-Identifier: BSD-2-Clause
/*
 * The transport without regions: a request of the same length as kedge's over a local stream, with
 * the bytes of a put, and an answer, with those of a get. A thread of the other process answers,
 * which waits in recv() and does nothing else.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/base.h"
#include "tools/perf/region/region.h"

#define PIECE ((size_t)256 << 10) /* as kedge's */

struct raw_req {
	uint64_t put;
	uint64_t len;
	uint64_t pad[4];
};

struct raw_rep {
	uint64_t pad[5];
};

static int send_both(int fd, const void *head, size_t head_len, const void *data, size_t len)
{
	struct iovec v[2] = { { (void *)(uintptr_t)head, head_len },
			      { (void *)(uintptr_t)data, len } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)(head_len + len) ? 0 : -EIO;
}

static int receive(int fd, void *to, size_t len)
{
	return recv(fd, to, len, MSG_WAITALL) == (ssize_t)len ? 0 : -EIO;
}

/* Half of the window is sent before the first answer is heard. */
static int transfer(int fd, bool put, char *data, size_t len)
{
	struct raw_req q = { .put = put };
	struct raw_rep a;
	size_t sent = 0, got = 0, part;
	int rc = 0;

	while (!rc && got < len) {
		while (!rc && sent < len && sent - got < 4 * PIECE) {
			q.len = len - sent < PIECE ? len - sent : PIECE;
			rc = send_both(fd, &q, sizeof(q), data + sent, put ? q.len : 0);
			sent += q.len;
		}
		part = len - got < PIECE ? len - got : PIECE;
		if (!rc)
			rc = receive(fd, &a, sizeof(a));
		if (!rc && !put)
			rc = receive(fd, data + got, part);
		got += part;
	}
	return rc;
}

int raw_get(int fd, void *data, size_t len)
{
	return transfer(fd, false, data, len);
}

int raw_put(int fd, const void *data, size_t len)
{
	return transfer(fd, true, (char *)(uintptr_t)data, len);
}

struct answerer {
	int fd;
	char *memory;
};

static void *answer(void *arg)
{
	struct answerer *a = arg;
	struct raw_rep rep = { { 0 } };
	struct raw_req q;

	while (!receive(a->fd, &q, sizeof(q))) {
		if (q.put && receive(a->fd, a->memory, q.len))
			break;
		if (send_both(a->fd, &rep, sizeof(rep), a->memory, q.put ? 0 : q.len))
			break;
	}
	free(a->memory);
	free(a);
	return NULL;
}

int raw_answer(int fd, size_t len)
{
	struct answerer *a = calloc(1, sizeof(*a));
	pthread_t t;

	if (!a)
		return -ENOMEM;
	a->fd = fd;
	a->memory = calloc(1, len > PIECE ? len : PIECE);
	if (a->memory && !pthread_create(&t, NULL, answer, a))
		return pthread_detach(t);
	free(a->memory);
	free(a);
	return -ENOMEM;
}
