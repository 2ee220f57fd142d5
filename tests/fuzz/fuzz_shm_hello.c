// SPDX-License-Identifier: BSD-2-Clause
/*
 * The handshake on this host, with a peer that sends anything and any
 * descriptors. It ends, and of a failure nothing is left.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "channel/connect/wait.h"
#include "channel/shm/handshake.h"
#include "channel/shm/internal.h"
#include "feed.h"

#define HEAP  (64u << 10)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static unsigned int fds_now(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* An area that is right, or not quite. */
static int area(uint8_t how)
{
	int fd = memfd_create("fuzz", MFD_ALLOW_SEALING);

	CHECK(fd >= 0);
	CHECK(!ftruncate(fd, (off_t)(HEAP_AT + HEAP + (how & 1 ? 4096 : 0))));
	if (how & 2)
		return fd;
	CHECK(!fcntl(fd, F_ADD_SEALS, how & 4 ? F_SEAL_GROW : SEALS));
	return fd;
}

static void send_with(int sock, const void *msg, size_t len, const int *fds,
		      size_t cnt)
{
	union {
		char buf[CMSG_SPACE(20 * sizeof(int))];
		struct cmsghdr align;
	} u = { { 0 } };
	struct iovec iov = { (void *)(uintptr_t)msg, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (cnt) {
		m.msg_control = u.buf;
		m.msg_controllen = CMSG_SPACE(cnt * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(cnt * sizeof(int));
		memcpy(CMSG_DATA(c), fds, cnt * sizeof(int));
	}
	sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A hello that is right but for what the input says. */
static size_t hello(struct bytes *in, uint8_t *raw)
{
	struct hello h = { .head = { HELLO_MAGIC, HELLO_VERSION, 0 },
			   .eager_max = 8192,
			   .unexpected_cnt = 16,
			   .unexpected_bytes = 1 << 20,
			   .heap_len = HEAP,
			   .ring_cells = RING_SHORT };
	uint8_t changes = take(in) % 16;
	size_t len = sizeof(h), at;

	memcpy(raw, &h, sizeof(h));
	while (changes--) {
		at = take(in) % (sizeof(h) + 8);
		raw[at] = take(in);
	}
	at = take(in);
	if (at > 128)
		len = at - 128 < sizeof(h) + 8 ? at - 128 : sizeof(h);
	return len;
}

static void send_hellos(int sock, struct bytes *in)
{
	uint8_t raw[sizeof(struct hello) + 8] = { 0 };
	struct verdict v = { { HELLO_MAGIC, HELLO_VERSION, 0 }, 1, 8192 };
	int fds[20];
	size_t cnt = take(in), i, len;
	uint8_t how = take(in);

	cnt = cnt < 200 ? 1 : cnt - 200 < 20 ? cnt - 200 : 20;
	for (i = 0; i < cnt; i++)
		fds[i] = area(how);
	len = hello(in, raw);
	if (how & 8)
		send_with(sock, raw, len, NULL, 0);
	send_with(sock, raw, len, fds, cnt);
	for (i = 0; i < cnt; i++)
		close(fds[i]);
	if (how & 16)
		v.can_cross = take(in);
	if (how & 32)
		v.head.status = -take(in);
	if (how & 128)
		v.eager_max = (uint32_t)take(in) << (take(in) % 32);
	len = how & 64 ? take(in) % sizeof(v) : sizeof(v);
	send_with(sock, &v, len, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.eager_max = 8192,
					.unexpected_cnt = 16,
					.unexpected_bytes = 1 << 20,
					.heap_bytes = HEAP };
	struct bytes in = { data, len };
	unsigned int before = fds_now();
	struct transport_peer peer;
	struct shm s = { 0 };
	int sv[2], one = 1, rc;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	/* Our credentials go along only if the other side asks for them first. */
	CHECK(!setsockopt(sv[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)));
	send_hellos(sv[1], &in);
	if (!in.left)
		shutdown(sv[1], SHUT_WR);
	rc = shm_hello(&s, sv[0], &o, clock_deadline(10), &peer);
	CHECK(rc <= 0);
	if (!rc) {
		CHECK(s.peers.len == HEAP_AT + s.peers_heap_len);
		CHECK(peer.eager_max && peer.eager_max <= EAGER_LIMIT);
		CHECK(peer.unexpected_cnt &&
		      peer.unexpected_cnt <= UNEXPECTED_CNT_MAX);
		memset(s.peers.base, 1, s.peers.base_len);
		*area_slots(&s.peers, SLOTS_LEN - 1, 1) = 1;
		*area_heap(&s.peers, s.peers_heap_len - 1, 1) = 1;
		/* Bytes that come over the socket from then on. */
		send_hellos(sv[1], &in);
		rc = shm_ops.arm(&s);
		CHECK(rc <= 1);
		shm_fini(&s);
	}
	/* The socket is ours until it is handed to the channel. */
	close(sv[0]);
	close(sv[1]);
	CHECK(fds_now() == before);
	return 0;
}
