// SPDX-License-Identifier: BSD-2-Clause
/* See by_hand.h. */
#include "base/base.h"
#include "by_hand.h"

int stranger(const struct kedge_handle *h)
{
	struct handle_words w;
	struct sockaddr_un a;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (!handle_read(h, &w))
		return -1;
	len = handle_address(w.name, false, &a);
	return connect(fd, (struct sockaddr *)&a, len) ? -1 : fd;
}

int answer_of(int fd)
{
	struct region_answer a = { .rc = 0 };
	ssize_t n = recv(fd, &a, sizeof(a), 0);

	/* It was refused before it was heard: the answer is behind that. */
	if (n < 0 && errno == ECONNRESET)
		n = recv(fd, &a, sizeof(a), 0);
	close(fd);
	if (n != (ssize_t)sizeof(a))
		return -ECONNRESET;
	return a.magic == REGION_MAGIC ? a.rc : 0;
}

int answer_to_packet(const void *p, size_t len)
{
	int fd = stranger(&handle);

	assert_true(fd >= 0);
	send(fd, p, len, MSG_NOSIGNAL);
	return answer_of(fd);
}

bool is_cut_off(int fd)
{
	static char room[1 << 16];
	ssize_t n;

	do
		n = recv(fd, room, sizeof(room), 0);
	while (n > 0 || (n < 0 && errno == ECONNRESET && recv(fd, room, sizeof(room), 0) > 0));
	close(fd);
	return !n || errno == ECONNRESET;
}

void open_as_many_as_can_be(void)
{
	struct kedge_remote *r[256] = { NULL };
	int n, rc = 0;
	char c;

	for (n = 0; n < 256 && !rc; n++)
		rc = kedge_remote_open(&handle, SOON_MS, &r[n]);
	assert_int_equal(rc, -EMFILE);
	assert_true(!way->served || reason_says(rc, "owner"));
	/* Those that were there go on. */
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, way->served ? SOON_MS : 0), 0);
	while (--n >= 0)
		kedge_remote_close(r[n]);
	/* Once the owner has heard of that. */
	while ((rc = kedge_remote_open(&handle, SOON_MS, &r[0])) == -EMFILE)
		usleep(1000);
	assert_int_equal(rc, 0);
	kedge_remote_close(r[0]);
}

int make_owner(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct handle_words w = { .port = 1, .key = "the only key" };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, len) && !listen(fd, 8) &&
		    !getsockname(fd, (struct sockaddr *)&a, &len));
	w.port = ntohs(a.sin_port);
	memset(w.place + 10, 0xff, 2);
	memcpy(w.place + 12, &a.sin_addr, 4);
	handle_write(&w, &handle);
	return fd;
}

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
