// SPDX-License-Identifier: BSD-2-Clause
/* Calls that take a message of several pieces. */
#include <stdlib.h>

#include "channel/internal.h"

#define MESSAGE_V1 STRUCT_END(struct kedge_message, reserved)

/* Room for @len bytes, and for the pieces of a receive. */
static struct packed *packed_new(const struct kedge_message *m, size_t len,
				 bool is_recv)
{
	size_t head = sizeof(struct packed), pieces;
	struct packed *p;

	pieces = is_recv ? m->cnt * sizeof(*m->pieces) : 0;
	p = malloc(head + pieces + len);
	if (!p)
		return NULL;
	p->cnt = m->cnt;
	p->piece = is_recv ? (struct iovec *)(void *)(p + 1) : NULL;
	p->data = (char *)(p + 1) + pieces;
	if (is_recv)
		memcpy(p->piece, m->pieces, pieces);
	return p;
}

/* The message as far as it is known here, and its length. */
static int check(struct kedge_message *m, const struct kedge_message *user,
		 size_t *len)
{
	int rc = kedge__opts_copy(m, sizeof(*m), MESSAGE_V1, user);
	size_t i;

	*len = 0;
	if (rc)
		return rc;
	if (m->flags || m->cnt > KEDGE_PIECES_MAX || (!m->pieces && m->cnt))
		return kedge_reason(-EINVAL, "a message has at most %u pieces "
				    "and no flags", KEDGE_PIECES_MAX);
	if (m->reserved)
		return kedge_reason(-EINVAL, ".reserved of a message is not 0");
	for (i = 0; i < m->cnt; i++)
		if ((!m->pieces[i].iov_base && m->pieces[i].iov_len) ||
		    __builtin_add_overflow(*len, m->pieces[i].iov_len, len) ||
		    *len > INT64_MAX)
			return kedge_reason(-EINVAL, "piece %zu of a message is "
					    "no memory, or too long", i);
	return 0;
}

static int act(struct kedge_channel *ch, const struct kedge_message *message,
	       uint64_t *op, bool is_recv)
{
	struct packed *p = NULL;
	struct kedge_message m;
	void *buf = NULL;
	size_t len;
	int rc;

	if (!ch || !message)
		return channel_invalid("the channel or the message is NULL");
	rc = check(&m, message, &len);
	if (rc)
		return rc;
	if (m.cnt == 1)
		buf = m.pieces[0].iov_base;
	if (m.cnt > 1) {
		p = packed_new(&m, len, is_recv);
		if (!p)
			return -ENOMEM;
		buf = p->data;
		rc = is_recv ? 0 : packed_gather(ch, p, m.pieces);
	}
	if (!rc)
		rc = is_recv ? recv_message(ch, buf, &m, len, p, op)
			     : send_message(ch, buf, &m, len, p, op);
	/* An operation that goes on has it. */
	if (rc && p)
		packed_free(p);
	return rc;
}

KEDGE_API int kedge_channel_sendmsg(struct kedge_channel *ch,
				    const struct kedge_message *message,
				    uint64_t *op)
{
	NO_CANCEL();
	return act(ch, message, op, false);
}

KEDGE_API int kedge_channel_recvmsg(struct kedge_channel *ch,
				    const struct kedge_message *message,
				    uint64_t *op)
{
	NO_CANCEL();
	return act(ch, message, op, true);
}
