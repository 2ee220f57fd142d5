// SPDX-License-Identifier: BSD-2-Clause
/*
 * Bytes between two owners, by the system calls themselves: ThreadSanitizer knows one table of
 * descriptors, and takes a number of the keeper's for the program's.
 */
#include <endian.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "base/base.h"
#include "region/migrate/wire.h"
#include "region/stream.h"

#define SLICE_NS 250000000

_Static_assert(SEAL_LEN == crypto_secretbox_KEYBYTES, "a seal is a key of a secret box");
_Static_assert(SEALED_LEN(0) == crypto_secretbox_MACBYTES, "and that is what it takes");

void wire_begin(struct wire *w, int fd, bool tcp, const unsigned char seal[SEAL_LEN])
{
	*w = (struct wire){ .fd = fd, .tcp = tcp, .whole = true };
	memcpy(w->seal, seal, SEAL_LEN);
}

void wire_end(struct wire *w)
{
	if (w->fd >= 0)
		syscall(SYS_close, w->fd);
	w->fd = -1;
	sodium_memzero(w->seal, sizeof(w->seal));
}

void wire_break(struct wire *w)
{
	const struct linger now = { .l_onoff = 1 };

	if (w->fd >= 0)
		syscall(SYS_setsockopt, w->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	wire_end(w);
}

static bool wait_for(const struct wire *w, short what, uint64_t until)
{
	struct pollfd p = { .fd = w->fd, .events = what };
	const struct timespec ts = clock_wait_ts(clock_sooner(until, SLICE_NS));

	return syscall(SYS_ppoll, &p, 1, &ts, NULL, 0) > 0;
}

/* 0: it may go on. */
static int wait_long(const struct wire *w, short what, uint64_t until)
{
	while (!wait_for(w, what, until))
		if (clock_ns() >= until || stream_host_is_gone(w->fd))
			return -ETIMEDOUT;
	return 0;
}

bool wire_wait(struct wire *w, uint64_t until)
{
	return wait_for(w, POLLIN, until);
}

/* A local socket says that it was reset if its other end was closed with bytes unread, and has all
 * that was said before. TCP may have thrown that away. */
static int lost(struct wire *w, int err)
{
	w->lost = w->tcp;
	return (err == ECONNRESET || err == EPIPE) && !w->tcp ? -EPIPE : -ECONNRESET;
}

static void advance(struct msghdr *m, size_t n)
{
	size_t part;

	while (n && m->msg_iovlen) {
		part = n < m->msg_iov->iov_len ? n : m->msg_iov->iov_len;
		m->msg_iov->iov_base = (char *)m->msg_iov->iov_base + part;
		m->msg_iov->iov_len -= part;
		n -= part;
		if (!m->msg_iov->iov_len) {
			m->msg_iov++;
			m->msg_iovlen--;
		}
	}
}

static int send_all(struct wire *w, struct iovec *v, size_t cnt, uint64_t until)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = cnt };
	size_t left = 0, i;
	int rc = 0;
	long n;

	for (i = 0; i < cnt; i++)
		left += v[i].iov_len;
	while (left && !rc) {
		n = syscall(SYS_sendmsg, w->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return lost(w, errno);
		if (n < 0) {
			rc = wait_long(w, POLLOUT, until);
			continue;
		}
		left -= (size_t)n;
		advance(&m, (size_t)n);
	}
	return rc;
}

int wire_write(struct wire *w, const void *data, uint64_t len, uint64_t until)
{
	struct iovec v[2] = { { (void *)(uintptr_t)data, len }, { NULL, 0 } };

	return send_all(w, v, 2, until);
}

static struct msg swapped(const struct msg *m)
{
	return (struct msg){ htole32(m->op), (int32_t)htole32((uint32_t)m->rc), htole64(m->id),
			     htole64(m->off), htole64(m->len) };
}

int wire_send(struct wire *w, const struct msg *m, const void *data, uint64_t until)
{
	struct msg out = swapped(m);
	struct iovec v[2] = { { &out, sizeof(out) }, { (void *)(uintptr_t)data, m->len } };

	return send_all(w, v, 2, until);
}

int wire_send_runs(struct wire *w, uint64_t id, const char *base, const struct msg_run *run,
		   uint32_t cnt, uint64_t until)
{
	struct msg m = { .op = MSG_DATA, .id = id, .off = cnt, .len = cnt * sizeof(*run) };
	struct iovec v[2 + MSG_RUNS_MAX];
	struct msg_run out[MSG_RUNS_MAX];
	uint32_t i;

	for (i = 0; i < cnt; i++) {
		out[i] = (struct msg_run){ htole64(run[i].off), htole64(run[i].len) };
		v[2 + i] = (struct iovec){ (void *)(uintptr_t)(base + run[i].off), run[i].len };
		m.len += run[i].len;
	}
	m = swapped(&m);
	v[0] = (struct iovec){ &m, sizeof(m) };
	v[1] = (struct iovec){ out, cnt * sizeof(*out) };
	return send_all(w, v, 2 + cnt, until);
}

/* All of them are within the region, and as long as the message says. */
static bool runs_fit(struct msg_run *run, uint64_t cnt, uint64_t bytes, uint64_t len)
{
	uint64_t i, sum = 0;

	for (i = 0; i < cnt; i++) {
		run[i] = (struct msg_run){ le64toh(run[i].off), le64toh(run[i].len) };
		if (run[i].off > len || run[i].len > len - run[i].off || run[i].len > bytes - sum)
			return false;
		sum += run[i].len;
	}
	return sum == bytes;
}

int wire_read_runs(struct wire *w, const struct msg *m, char *base, uint64_t len, uint64_t until)
{
	const uint64_t heads = m->off * sizeof(struct msg_run);
	struct msg_run run[MSG_RUNS_MAX];
	uint64_t i;
	int rc;

	if (!m->off || m->off > MSG_RUNS_MAX || m->len < heads)
		return -EPROTO;
	rc = wire_read(w, run, heads, until);
	if (!rc && !runs_fit(run, m->off, m->len - heads, len))
		rc = -EPROTO;
	for (i = 0; !rc && i < m->off; i++)
		rc = wire_read(w, base + run[i].off, run[i].len, until);
	return rc;
}

int wire_read(struct wire *w, void *data, uint64_t len, uint64_t until)
{
	uint64_t got = 0;
	int rc;
	long n;

	while (got < len) {
		n = syscall(SYS_recvfrom, w->fd, (char *)data + got, len - got, MSG_DONTWAIT, NULL,
			    0);
		if (n > 0) {
			got += (uint64_t)n;
			w->whole = false;
			continue;
		}
		if (!n)
			return w->lost ? -ECONNRESET : -EPIPE;
		if (errno != EAGAIN && errno != EINTR)
			return lost(w, errno);
		rc = wait_long(w, POLLIN, until);
		if (rc)
			return rc;
	}
	return 0;
}

int wire_hear(struct wire *w, struct msg *m, uint64_t until)
{
	struct msg in;
	int rc;

	w->whole = true;
	rc = wire_read(w, &in, sizeof(in), until);
	if (rc)
		return rc == -EPIPE && !w->whole ? -ECONNRESET : rc;
	*m = (struct msg){ le32toh(in.op), (int32_t)le32toh((uint32_t)in.rc), le64toh(in.id),
			   le64toh(in.off), le64toh(in.len) };
	w->whole = !m->len;
	return 0;
}

/* ---- handles ---- */

static void nonce_of(uint64_t number, unsigned char nonce[crypto_secretbox_NONCEBYTES])
{
	memset(nonce, 0, crypto_secretbox_NONCEBYTES);
	number = htole64(number);
	memcpy(nonce, &number, sizeof(number));
}

static void swap_handle(struct msg_handle *h)
{
	h->slot = htole32(h->slot);
	h->generation = htole32(h->generation);
	h->offset = htole64(h->offset);
	h->len = htole64(h->len);
	h->left_ms = htole64(h->left_ms);
	h->access = htole32(h->access);
	h->served = htole32(h->served);
}

int wire_send_handles(struct wire *w, uint64_t id, const struct msg_handle *h, uint32_t cnt,
		      uint64_t until)
{
	const struct msg m = { .op = MSG_HANDLES, .id = id, .off = cnt, .len = SEALED_LEN(cnt) };
	unsigned char nonce[crypto_secretbox_NONCEBYTES];
	struct msg_handle *copy = malloc(cnt * sizeof(*h));
	unsigned char *box = malloc(m.len);
	uint32_t i;
	int rc = -ENOMEM;

	if (box && copy) {
		memcpy(copy, h, cnt * sizeof(*h));
		for (i = 0; i < cnt; i++)
			swap_handle(&copy[i]);
		nonce_of(w->sealed++, nonce);
		crypto_secretbox_easy(box, (unsigned char *)copy, cnt * sizeof(*h), nonce, w->seal);
		sodium_memzero(copy, cnt * sizeof(*h));
		rc = wire_send(w, &m, box, until);
	}
	free(copy);
	free(box);
	return rc;
}

int wire_read_handles(struct wire *w, const struct msg *m, struct msg_handle *h, uint64_t until)
{
	unsigned char nonce[crypto_secretbox_NONCEBYTES];
	unsigned char *box;
	uint64_t i;
	int rc;

	if (!m->off || m->off > HANDLES_MAX || m->len != SEALED_LEN(m->off))
		return -EPROTO;
	box = malloc(m->len);
	if (!box)
		return -ENOMEM;
	rc = wire_read(w, box, m->len, until);
	nonce_of(w->opened++, nonce);
	if (!rc && crypto_secretbox_open_easy((unsigned char *)h, box, m->len, nonce, w->seal))
		rc = -EPROTO;
	for (i = 0; !rc && i < m->off; i++)
		swap_handle(&h[i]);
	free(box);
	return rc;
}
