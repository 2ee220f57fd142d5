/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers with a lease, by the fake of adapters; and those that ask for one by hand. */
#ifndef TESTS_REGION_LEASED_H
#define TESTS_REGION_LEASED_H

#include "by_hand.h"
#include "fake_fabric.h"

static inline unsigned int way(struct kedge_remote *r)
{
	struct kedge_remote_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_remote_query(r, &info), 0);
	return info.way;
}

static inline void wait_for_lease(struct kedge_remote *r)
{
	WAIT_FOR(way(r) == KEDGE_REMOTE_RDMA);
}

static inline void begin_leased(const struct kedge_handle_opts *o)
{
	begin(o);
	wait_for_lease(remote);
}

static inline unsigned int puts_done(void)
{
	return atomic_load(&fake_fabric()->puts);
}

static inline bool put_is_leased(uint64_t at)
{
	const unsigned int puts = puts_done();

	assert_int_equal(kedge_remote_put(remote, at, "x", 1, SOON_MS), 0);
	return puts_done() == puts + 1;
}

/* By a question of the peer's, as one cannot wait for what does not come. */
static inline int lease_said(int fd, struct stream_lease *got)
{
	struct stream_req q = { .op = STREAM_LEASE, .seq = 1, .first = 1,
				.len = sizeof(struct fabric_end),
				.end = sizeof(struct fabric_end) };
	struct {
		struct stream_req q;
		struct fabric_end end;
	} all = { q, { .zero = 0 } };
	struct stream_reply a;

	stream_req_swap(&all.q);
	if (send(fd, &all, sizeof(all), MSG_NOSIGNAL) != sizeof(all) ||
	    recv(fd, &a, sizeof(a), MSG_WAITALL) != sizeof(a))
		return -ECONNRESET;
	if (!a.rc)
		assert_int_equal(recv(fd, got, sizeof(*got), MSG_WAITALL), sizeof(*got));
	return a.rc;
}

static inline int lease_by_hand(int fd)
{
	struct stream_lease unused;

	return lease_said(fd, &unused);
}

static inline int dial_by_tcp(void)
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

#endif /* TESTS_REGION_LEASED_H */
