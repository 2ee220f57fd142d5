/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The packets on the wire. Both ends are of one byte order: the handshake of a
 * transport sees to that. Every field that comes in is checked by packet_parse()
 * before anything looks at it.
 */
#ifndef CHANNEL_PROTOCOL_PACKET_H
#define CHANNEL_PROTOCOL_PACKET_H

#include "channel/transport.h"

enum packet_type {
	PACKET_EAGER = 1, /* a whole message */
	PACKET_RTS,	  /* sender: a message waits to be fetched */
	PACKET_CTS,	  /* receiver: it may land there */
	PACKET_FIN,	  /* sender: all of it has landed */
	PACKET_REFUSE,	  /* receiver: it does not fit, the sender is done */
	PACKET_ABORT,	  /* either: give it up */
	PACKET_ABORTED,	  /* the answer: this side touches it no more */
	PACKET_CREDIT,	  /* the head alone */
	PACKET_BYE,	  /* no packet follows */
	PACKET_DATA,	  /* sender: a short message that was announced */
	PACKET_TYPES
};

/*
 * @credit_cnt and @credit_bytes: messages and bytes of eager messages that this
 * side has matched since it began, modulo 2^32: the peer may send as many again.
 */
struct packet_head {
	uint8_t type;
	uint8_t zero[3];
	uint32_t len; /* bytes that follow */
	uint64_t tag;
	uint32_t credit_cnt;
	uint32_t credit_bytes;
};

/* An operation: a place in its owner's table and how often it was used, so that
 * what comes late or twice finds no operation. */
struct op_name {
	uint32_t index;
	uint32_t gen;
};

struct packet_rts {
	uint64_t len;
	struct op_name sender;
	uint32_t desc_len;
	uint32_t zero;
	uint8_t desc[DESC_MAX];
};

struct packet_cts {
	struct op_name sender;
	struct op_name receiver;
	uint32_t way;
	uint32_t desc_len;
	uint8_t desc[DESC_MAX];
};

/*
 * FIN, REFUSE, ABORT, ABORTED. @op is the addressee's; its generation is 0 in
 * the ABORT of a sender that has seen no CTS: then @from says which message.
 */
struct packet_op {
	struct op_name op;
	struct op_name from; /* ABORT: the addressee of the answer */
	int32_t status;
	uint32_t flags;
};

/* DATA: the message follows, whole. */
struct packet_data {
	struct op_name receiver;
	const void *bytes; /* in place */
};

#define PACKET_OP_TO_SENDER (1u << 0) /* the addressee is the message's sender */

/* A control message, copied out of the peer's reach. */
struct packet {
	struct packet_head head;
	union {
		struct packet_rts rts;
		struct packet_cts cts;
		struct packet_op op;
		struct packet_data data;
		const void *eager; /* EAGER: in place */
	};
};

int packet_refused(const char *what);

/*
 * Read the head of the packet of @len bytes at @raw, which the peer may change
 * while it is read: once, into @h. 0, or -EPROTO with a reason. Here, because
 * every short message goes through it.
 */
static inline int packet_parse_head(const void *raw, size_t len,
				    struct packet_head *h)
{
	if (unlikely(len < sizeof(*h)))
		return packet_refused("no head");
	memcpy(h, raw, sizeof(*h));
	compiler_fence();
	if (unlikely(h->len != len - sizeof(*h)))
		return packet_refused("length");
	if (unlikely(h->zero[0] | h->zero[1] | h->zero[2]))
		return packet_refused("head");
	return 0;
}

/* Parse what follows it, of any type but EAGER, into @p: 0 or -EPROTO. */
int packet_parse_body(const void *raw, struct packet *p);

#endif /* CHANNEL_PROTOCOL_PACKET_H */
