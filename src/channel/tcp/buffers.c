// SPDX-License-Identifier: BSD-2-Clause
/* The buffers that a connection reads into and writes from: small ones always, longer
 * ones while something is under way. */
#include <stdlib.h>

#include "channel/internal.h"
#include "channel/tcp/internal.h"

static char *small_out(const struct tcp *t)
{
	return t->small;
}

static char *small_in(const struct tcp *t)
{
	return t->small + t->small_len;
}

static bool is_small(const struct tcp *t, const char *buf)
{
	return buf == small_out(t) || buf == small_in(t);
}

void tcp_grow(const struct tcp *t, char **buf, size_t *cap, size_t len,
	      size_t used)
{
	char *more;

	if (!is_small(t, *buf))
		return;
	more = malloc(len);
	if (!more)
		return;
	memcpy(more, *buf, used);
	*buf = more;
	*cap = len;
}

void tcp_shrink(struct tcp *t)
{
	if (t->out.at == t->out.end && !is_small(t, t->out.buf)) {
		free(t->out.buf);
		t->out.buf = small_out(t);
		t->out.cap = t->small_len;
		t->out.at = t->out.end = 0;
	}
	if (t->in.at == t->in.end && !t->in.packet &&
	    !is_small(t, t->in.buf)) {
		free(t->in.buf);
		t->in.buf = small_in(t);
		t->in.cap = t->small_len;
		t->in.at = t->in.end = 0;
		t->in.full = false;
	}
}

void tcp_free_buffers(struct tcp *t)
{
	if (!is_small(t, t->out.buf))
		free(t->out.buf);
	if (!is_small(t, t->in.buf))
		free(t->in.buf);
	free(t->small);
}

/*
 * No packet of this channel is longer: what both sides have agreed on. In: it,
 * and the next frame's head. Out: it alone; behind what is left of another there
 * may be no room until the socket has taken that.
 */
int tcp_open_buffers(struct tcp *t, const struct transport_peer *peer)
{
	t->packet_max = PACKET_OF(peer->eager_max);
	t->small_len = 2 * sizeof(struct tcp_head) +
		       round_up(t->packet_max, 8) + 8;
	t->small = malloc(2 * t->small_len);
	if (!t->small)
		return kedge_reason(-ENOMEM, "no memory for a channel");
	t->out.buf = small_out(t);
	t->in.buf = small_in(t);
	t->out.cap = t->in.cap = t->small_len;
	return 0;
}
