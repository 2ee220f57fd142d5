// SPDX-License-Identifier: BSD-2-Clause
/* See leased.h. */
#include "leased.h"

unsigned int puts_done(void)
{
	return atomic_load(&fake_fabric()->puts);
}

bool put_is_leased(uint64_t at)
{
	const unsigned int puts = puts_done();

	assert_int_equal(kedge_remote_put(remote, at, "x", 1, SOON_MS), 0);
	return puts_done() == puts + 1;
}

int lease_said(int fd, struct stream_lease *got)
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

int lease_by_hand(int fd)
{
	struct stream_lease unused;

	return lease_said(fd, &unused);
}
