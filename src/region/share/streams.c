// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peer that comes by a stream (stream.h): a handshake, then requests, one after the other. No
 * step waits: what is not there yet, or does not go out yet, is gone on with when the socket is
 * ready, and while an answer has not gone out no request is taken, so a peer that does not read
 * costs no more than one that does.
 *
 * No number that it sends is believed: lengths are checked, and there is memory for data only once
 * it has shown that it has a handle.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <sodium.h>

#include "base/base.h"
#include "region/share/share.h"
#include "region/stream.h"

#define TURN 16 /* requests, before another peer has its turn */

/*
 * @known:  it has shown a handle
 * @invite: it has shown that invitation's number, and the key; @seal is the connection's then
 * @ends:   it has not, and goes once it is told
 * @parked: a request waits, up to @until
 * @more:   the last one was a piece, and not an access's last
 * @access: the last one's number: its first piece's; and its error, if a piece has @failed
 * @in:     bytes of the message, and of the data behind it, that are there
 * @data:   PIECE_LEN bytes, of which those of an answer begin at @skip: behind the table that was
 *          asked with
 * @out:    of an answer, and the data behind it, how much has gone; of @out_len
 */
struct stream {
	bool known;
	uint32_t invite;
	unsigned char seal[SEAL_LEN];
	bool ends;
	bool parked;
	bool more;
	uint64_t until;
	uint64_t access;
	int failed;
	struct stream_hello hello;
	size_t in;
	union {
		struct stream_ask ask;
		struct stream_req req;
	} msg;
	char *data;
	size_t skip;
	size_t out;
	size_t out_head;
	size_t out_len;
	union {
		struct stream_hello hello;
		struct stream_welcome welcome;
		struct stream_reply reply;
	} answer;
};

/* ---- bytes ---- */

static void queue(struct stream *s, size_t head, size_t data)
{
	s->out = 0;
	s->out_head = head;
	s->out_len = head + data;
}

/* -EAGAIN: not yet. */
static int send_rest(struct conn *c)
{
	struct stream *s = c->stream;
	struct iovec v[2];
	struct msghdr m = { .msg_iov = v };
	size_t done;
	long n;

	while (s->out < s->out_len) {
		m.msg_iovlen = 0;
		done = s->out;
		if (done < s->out_head) {
			v[m.msg_iovlen++] = (struct iovec){ (char *)&s->answer + done,
							    s->out_head - done };
			done = s->out_head;
		}
		if (done < s->out_len)
			v[m.msg_iovlen++] =
				(struct iovec){ s->data + s->skip + (done - s->out_head),
						s->out_len - done };
		n = syscall(SYS_sendmsg, c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		s->out += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Have @len bytes at @to, of which the first is the message's @from. */
static int receive(struct conn *c, void *to, size_t from, size_t len)
{
	struct stream *s = c->stream;
	long n;

	while (s->in < from + len) {
		n = syscall(SYS_recvfrom, c->fd, (char *)to + (s->in - from), from + len - s->in,
			    MSG_DONTWAIT, NULL, 0);
		if (!n)
			return -ECONNRESET;
		if (n < 0 && errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		s->in += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* ---- the handshake ---- */

/* With shares_lock. */
static int let_in(struct conn *c, const struct stream_ask *q)
{
	struct stream *s = c->stream;
	struct stream_welcome *w = &s->answer.welcome;
	unsigned char tag[TAG_LEN];
	struct slot *slot;
	int rc = slot_look(q->name, le32toh(q->slot), le32toh(q->generation), &slot);

	if (rc)
		return rc;
	stream_ask_tag(slot->key, &s->hello, q, tag);
	if (sodium_memcmp(tag, q->tag, sizeof(tag)) != 0)
		return -EKEYREJECTED;
	rc = slot_state(slot);
	if (rc && rc != REGION_MOVED)
		return rc;
	if (rc) {
		*w = (struct stream_welcome){ .magic = htole32(STREAM_MAGIC),
					      .rc = (int32_t)htole32((uint32_t)rc),
					      .to = slot->left->to };
		stream_welcome_tag(slot->key, &s->hello, q, w, w->tag);
		return rc;
	}
	*w = (struct stream_welcome){
		.magic = htole32(STREAM_MAGIC),
		.access = htole32(slot->access),
		.pid = htole32((uint32_t)getpid()),
		.max_len = htole64(slot->len),
		.len = htole64(part_of(slot, slot->region->open_len)),
	};
	stream_welcome_tag(slot->key, &s->hello, q, w, w->tag);
	conn_join(c, slot);
	return 0;
}

/* With shares_lock. Likewise, but for a region that comes. */
static int invite_in(struct conn *c, const struct stream_ask *q)
{
	struct stream *s = c->stream;
	struct stream_welcome *w = &s->answer.welcome;
	const struct invite *i = invite_find(le32toh(q->generation));
	unsigned char tag[TAG_LEN];

	if (!i)
		return -EKEYREJECTED;
	stream_ask_tag(i->key, &s->hello, q, tag);
	if (sodium_memcmp(tag, q->tag, sizeof(tag)) != 0)
		return -EKEYREJECTED;
	*w = (struct stream_welcome){
		.magic = htole32(STREAM_MAGIC),
		.access = htole32(i->state),
		.pid = htole32((uint32_t)getpid()),
		.max_len = htole64(i->id),
	};
	stream_welcome_tag(i->key, &s->hello, q, w, w->tag);
	stream_seal(i->key, &s->hello, q, s->seal);
	s->invite = i->number;
	return 0;
}

static int hear_ask(struct conn *c)
{
	struct stream *s = c->stream;
	const struct stream_ask *q = &s->msg.ask;
	int rc = receive(c, &s->msg, 0, sizeof(*q));

	if (rc)
		return rc;
	if (le32toh(q->magic) != STREAM_MAGIC || le32toh(q->version) != STREAM_VERSION)
		return -EPROTO;
	s->in = 0;
	sig_lock_blocked(&shares_lock);
	rc = le32toh(q->slot) == INVITE_SLOT ? invite_in(c, q) : let_in(c, q);
	sig_unlock_blocked(&shares_lock);
	if (!rc && !s->invite)
		s->data = malloc(PIECE_LEN);
	if (!rc && !s->invite && !s->data)
		rc = -ENOMEM;
	s->known = !rc;
	s->ends = rc;
	if (rc && rc != REGION_MOVED)
		s->answer.welcome = (struct stream_welcome){
			.magic = htole32(STREAM_MAGIC), .rc = (int32_t)htole32((uint32_t)rc)
		};
	queue(s, sizeof(s->answer.welcome), 0);
	return 0;
}

/* ---- requests ---- */

static void answer(struct stream *s, const struct stream_reply *a)
{
	s->parked = false;
	s->in = 0;
	s->skip = s->msg.req.op == STREAM_GET_PARTS && !a->rc ? s->msg.req.len : 0;
	s->answer.reply = *a;
	stream_reply_swap(&s->answer.reply);
	queue(s, sizeof(*a), a->len);
}

/* Behind the answer. */
static void add_place(struct conn *c, struct stream_reply *a)
{
	a->len = sizeof(c->to);
	memcpy(c->stream->data, &c->to, sizeof(c->to));
	c->told = true;
}

static void lease_over(struct conn *c, const struct stream_req *q, struct stream_reply *a)
{
	*a = (struct stream_reply){ .seq = q->seq };
	sig_lock_blocked(&shares_lock);
	lease_end(c);
	sig_lock_blocked(&gaps_lock);
	c->recalled = false;
	sig_unlock_blocked(&gaps_lock);
	sig_unlock_blocked(&shares_lock);
}

/* False: it waits still. */
static bool try(struct conn *c)
{
	struct stream *s = c->stream;
	struct stream_reply a;

	if (s->msg.req.op == STREAM_LEASE) {
		lease_give(c, &s->msg.req, s->data, &a);
	} else if (s->msg.req.op == STREAM_LEASE_OVER) {
		lease_over(c, &s->msg.req, &a);
	} else if (s->failed) {
		a = (struct stream_reply){ .seq = s->msg.req.seq, .rc = s->failed };
	} else if (served_do(c, &s->msg.req, s->data, &a) == -EAGAIN) {
		if (clock_ns() < s->until)
			return false;
		a.rc = -ETIMEDOUT;
	}
	s->failed = a.rc;
	if (a.rc == REGION_MOVED)
		add_place(c, &a);
	answer(s, &a);
	return true;
}

static void begin_access(struct stream *s, const struct stream_req *q)
{
	s->access = q->first;
	s->failed = 0;
	s->until = clock_deadline(q->timeout_ms);
}

/* Behind the request. */
static bool has_data(uint32_t op)
{
	return op == STREAM_PUT || op == STREAM_LEASE || op == STREAM_PUT_PARTS ||
	       op == STREAM_GET_PARTS;
}

static int hear_request(struct conn *c)
{
	struct stream *s = c->stream;
	struct stream_req *q = &s->msg.req;
	const bool heard = s->in >= sizeof(*q);
	int rc = receive(c, q, 0, heard ? 0 : sizeof(*q));

	if (rc)
		return rc;
	if (!heard)
		stream_req_swap(q);
	if (q->op < STREAM_PUT || q->op >= STREAM_OPS || q->len > PIECE_LEN)
		return -EPROTO;
	if (has_data(q->op))
		rc = receive(c, s->data, sizeof(*q), q->len);
	if (rc)
		return rc;
	s->more = q->op < STREAM_PUT_PARTS && q->offset + q->len < q->end;
	if (q->first != s->access || q->first == q->seq)
		begin_access(s, q);
	s->parked = !try(c);
	return 0;
}

/* ---- for serve.c ---- */

int stream_begin(struct conn *c)
{
	struct stream *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	c->stream = s;
	s->hello.magic = htole32(STREAM_MAGIC);
	s->hello.version = htole32(STREAM_VERSION);
	randombytes_buf(s->hello.nonce, sizeof(s->hello.nonce));
	s->answer.hello = s->hello;
	queue(s, sizeof(s->hello), 0);
	rc = send_rest(c);
	return rc == -EAGAIN ? 0 : rc;
}

/* An access that has waited here is not done for a process that has ended meanwhile, as others may
 * have heard of that, and put since. */
static bool is_over(const struct conn *c)
{
	struct pollfd p = { c->fd, POLLRDHUP, 0 };
	const struct timespec now = { 0, 0 };

	return syscall(SYS_ppoll, &p, 1, &now, NULL, 0) > 0;
}

int stream_go_on(struct conn *c)
{
	struct stream *s = c->stream;
	bool more = true;
	int n, rc = 0;

	for (n = 0; !rc && n < TURN; n++) {
		rc = send_rest(c);
		if (!rc && s->ends)
			return -ECONNRESET;
		if (!rc && s->invite)
			return 0;
		/* The next request has its own event; pieces of one access have not. */
		if (!rc && !more)
			return 0;
		if (!rc && s->parked && is_over(c))
			return -ECONNRESET;
		if (!rc && s->parked && !try(c))
			return 0;
		if (!rc && s->out == s->out_len) {
			rc = s->known ? hear_request(c) : hear_ask(c);
			more = s->more;
		}
		if (!rc && s->parked)
			return 0;
	}
	return rc == -EAGAIN ? 0 : rc;
}

/* The last word is not said in the middle of an answer, as the peer would take it for data. */
void stream_say_closed(struct conn *c)
{
	struct stream *s = c->stream;
	const struct stream_reply a = { .rc = -EKEYREVOKED };

	if (!s->known || s->out < s->out_len)
		return;
	answer(s, &a);
	send_rest(c);
}

/* One that has a request on its way, or an answer, hears it as the answer to the next. */
void stream_say_moved(struct conn *c)
{
	struct stream *s = c->stream;
	struct stream_reply a = { .rc = REGION_MOVED };

	if (!s->known || s->out < s->out_len || s->in || s->parked)
		return;
	add_place(c, &a);
	answer(s, &a);
	send_rest(c);
}

void stream_say_recalled(struct conn *c)
{
	struct stream *s = c->stream;
	const struct stream_reply a = { .rc = REGION_RECALLED };

	if (s->out < s->out_len || s->in || s->parked)
		return;
	sig_lock_blocked(&gaps_lock);
	c->recall_said = true;
	sig_unlock_blocked(&gaps_lock);
	answer(s, &a);
	send_rest(c);
}

bool stream_has_said_moved(const struct conn *c)
{
	return c->told && c->stream->out == c->stream->out_len;
}

void stream_turn_away(int fd, int rc)
{
	const uint32_t code = htole32((uint32_t)rc);
	struct stream_hello h = { .magic = htole32(STREAM_MAGIC) };

	memcpy(h.nonce, &code, sizeof(code));
	syscall(SYS_sendto, fd, &h, sizeof(h), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

void stream_end(struct conn *c)
{
	if (c->stream)
		free(c->stream->data);
	free(c->stream);
	c->stream = NULL;
}

bool stream_is_arrival(const struct conn *c)
{
	return c->stream->invite && c->stream->out == c->stream->out_len;
}

void stream_hand_over(struct conn *c)
{
	struct invite *i;

	sig_lock_blocked(&shares_lock);
	i = invite_find(c->stream->invite);
	if (i)
		invite_arrive(i, c->fd, !c->local, c->stream->seal);
	sig_unlock_blocked(&shares_lock);
	if (!i)
		syscall(SYS_close, c->fd);
}

bool stream_is_known(const struct conn *c)
{
	return c->stream->known;
}

bool stream_waits(const struct conn *c)
{
	return c->stream && c->stream->parked;
}

uint32_t stream_wants(const struct conn *c)
{
	const struct stream *s = c->stream;

	if (s->out < s->out_len)
		return EPOLLOUT | EPOLLRDHUP;
	return s->parked ? EPOLLRDHUP : EPOLLIN | EPOLLRDHUP;
}
