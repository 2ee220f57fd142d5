/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of an owner and a peer that has not the region mapped: over TCP, or over a local
 * stream where the owner is another user's, or wants it so.
 *
 *	owner: stream_hello
 *	peer:  stream_ask	which handle; a tag shows that it has the handle's key
 *	owner: stream_welcome	or why not; a tag shows that the owner has it, too
 *	peer:  stream_req	and the bytes of a put, behind a table where it has several ranges
 *	owner: stream_reply	and the bytes of a get
 *
 * The key itself is not sent, and both sides choose 256 random bits for each connection: what
 * is heard on one opens no other. Requests are answered in their order; a peer may send some
 * before it has the first answer. Numbers are little-endian. What comes after the greeting is
 * neither encrypted nor signed.
 */
#ifndef REGION_STREAM_H
#define REGION_STREAM_H

#include <endian.h>
#include <netinet/in.h>

#include "region/fabric/fabric.h"
#include "region/gaps.h"
#include "region/wire.h"

#define STREAM_MAGIC   0x6b737472u
#define STREAM_VERSION 3u
#define NONCE_LEN      32
#define TAG_LEN	       32
/* An access of more is made in pieces of that. */
#define PIECE_LEN ((uint64_t)256 << 10)

/* @version 0: the owner has no descriptor or no memory for the peer; the first four bytes of
 * @nonce are the negative errno. */
struct stream_hello {
	uint32_t magic;
	uint32_t version;
	unsigned char nonce[NONCE_LEN];
};

struct stream_ask {
	uint32_t magic;
	uint32_t version;
	uint32_t slot;
	uint32_t generation;
	uint64_t name;
	unsigned char nonce[NONCE_LEN];
	unsigned char tag[TAG_LEN];
};

/* @rc: a negative errno, without a tag then; or REGION_MOVED, with one, and @to says where. The
 * rest as in struct region_answer. */
struct stream_welcome {
	uint32_t magic;
	int32_t rc;
	uint32_t access;
	uint32_t pid;
	uint64_t max_len;
	uint64_t len;
	struct owner_place to;
	unsigned char tag[TAG_LEN];
};

/*
 * A query asks for @has alone. A lease is of the region's memory, by adapters (share/lease.c): it
 * brings a struct fabric_end, and the answer a struct stream_lease. It is over with
 * STREAM_LEASE_OVER, which the peer sends, also when REGION_RECALLED asks for that.
 */
enum stream_op {
	STREAM_PUT = 1, STREAM_GET, STREAM_ADD, STREAM_SWAP, STREAM_QUERY,
	STREAM_LEASE, STREAM_LEASE_OVER,
	STREAM_PUT_PARTS, STREAM_GET_PARTS, STREAM_OPS,
};

/* Of several ranges, one; of the handle's bytes. */
struct stream_range {
	uint64_t offset;
	uint64_t len;
};

/* @len bytes from the handle's first one on; little-endian. */
struct stream_lease {
	struct fabric_end end;
	uint64_t at;
	uint64_t len;
	uint32_t key;
	uint32_t zero;
};

/*
 * @timeout_ms: time for a resumption; -1: no limit
 * @first: @seq of the access's first piece; when one has failed the others do, and all have the
 *         time of the first
 * @len:   bytes of this piece; 8 of a number
 * @end:   where the access ends that it is a piece of
 * @value: added, or expected; @other: put in its place
 *
 * STREAM_PUT_PARTS and STREAM_GET_PARTS are of @value ranges: a table of as many struct
 * stream_range follows, and of a put the bytes of all, one after the other; @len is all that
 * follows, and @offset 0. The bytes of a get stand so in the answer. The table and the bytes are
 * PIECE_LEN at most, also where one goes this way and the other that. All ranges are stored, or
 * loaded, at once, or the answer is an error.
 */
struct stream_req {
	uint32_t op;
	int32_t timeout_ms;
	uint64_t seq;
	uint64_t first;
	uint64_t offset;
	uint64_t len;
	uint64_t end;
	uint64_t value;
	uint64_t other;
};

/*
 * @seq: 0 is no answer: the region was closed, or is another owner's, as @rc says, and this is the
 *         last word; or REGION_RECALLED, to a peer that has a lease
 * @rc:    a negative errno; with REGION_MOVED a struct owner_place follows
 * @has:   bytes that the handle gives access to now
 * @value: the number that was there
 * @len:   bytes that follow
 * @gap:   with -ENODATA: there are bytes missing from @value on, of the handle's, as many as that
 *         times STREAM_GAP_UNIT, or more with UINT32_MAX
 */
#define STREAM_GAP_UNIT 8u

struct stream_reply {
	uint64_t seq;
	int32_t rc;
	uint32_t gap;
	uint64_t has;
	uint64_t value;
	uint64_t len;
};

static inline void stream_req_swap(struct stream_req *q)
{
	q->op = htole32(q->op);
	q->timeout_ms = (int32_t)htole32((uint32_t)q->timeout_ms);
	q->seq = htole64(q->seq);
	q->first = htole64(q->first);
	q->offset = htole64(q->offset);
	q->len = htole64(q->len);
	q->end = htole64(q->end);
	q->value = htole64(q->value);
	q->other = htole64(q->other);
}

static inline void stream_reply_swap(struct stream_reply *a)
{
	a->seq = htole64(a->seq);
	a->rc = (int32_t)htole32((uint32_t)a->rc);
	a->gap = htole32(a->gap);
	a->has = htole64(a->has);
	a->value = htole64(a->value);
	a->len = htole64(a->len);
}

/* Of an answer of -ENODATA. */
static inline struct gap stream_gap(const struct stream_reply *a)
{
	return (struct gap){ a->value, a->value + a->gap * (uint64_t)STREAM_GAP_UNIT };
}

/* ---- stream.c ---- */

/* Of the peer, and of the owner: each over all that it has said and heard until then. */
void stream_ask_tag(const unsigned char key[KEY_LEN], const struct stream_hello *h,
		    const struct stream_ask *q, unsigned char tag[TAG_LEN]);
void stream_welcome_tag(const unsigned char key[KEY_LEN], const struct stream_hello *h,
			const struct stream_ask *q, const struct stream_welcome *w,
			unsigned char tag[TAG_LEN]);
/* The key of what is secret on a connection of two owners, which have an invitation's key. */
void stream_seal(const unsigned char key[KEY_LEN], const struct stream_hello *h,
		 const struct stream_ask *q, unsigned char seal[TAG_LEN]);
/* A host that is not heard of for so many milliseconds is gone; at least 2,000. TCP counts them in
 * real time, which a test cannot move: it may set less before there is a connection. */
extern uint32_t stream_host_ms;
/* Keepalive, and no delay. */
void stream_prepare(int fd);
/* True: its host does not answer any more. */
bool stream_host_is_gone(int fd);
union place {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};
/* As in a handle. */
void stream_place(const union place *a, unsigned char place[16]);
/* A handle's, as the system has it: its length. */
socklen_t place_address(const unsigned char place[16], uint16_t port, union place *a);

#endif /* REGION_STREAM_H */
