// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region that this process cannot map: the owner is on another host, or another user's, or keeps
 * its memory to itself. It does the accesses; here they are requests over one connection, one
 * access at a time, the pieces of a large one several at a time (pieces.h).
 *
 * The owner knows how long an access may wait for a resumption, so it says itself that this was
 * too short, and then it was not done. If no answer comes for GRACE_MS beyond that, it is not known
 * whether it was: the connection is given up, so that what is still under way in it does not
 * arrive after the program has gone on, but for what the owner's host has already.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "region/peer/pieces.h"
#include "region/peer/state.h"
#include "region/peer/turn.h"
#include "region/stream.h"

#define ASK_MS	 1000 /* for a question how much there is, on which no connection depends */
#define WINDOW	 4 /* pieces; their requests, or answers, find room in any socket */
#define NAP_NS	 1000000
#define SLICE_NS (SLICE_MS * 1000000u)

static uint64_t until_of(uint64_t begun, int timeout_ms, int more_ms)
{
	return timeout_ms < 0 ? UINT64_MAX
			      : begun + ((uint64_t)timeout_ms + (uint64_t)more_ms) * 1000000u;
}

/* ---- bytes ---- */

static int wait_for(const struct link *l, short what, uint64_t until)
{
	struct pollfd p = { .fd = l->sock.fd, .events = what };

	while (clock_ns() < until) {
		if (clock_poll_ms(&p, 1, clock_wait_ms(clock_sooner(until, SLICE_NS))) > 0)
			return 0;
		if (stream_host_is_gone(l->sock.fd))
			return -ECONNRESET;
	}
	return -ETIMEDOUT;
}

/* A call that waits for a slice itself; or poll() does, where that is too long. One call of the
 * system's is what an access waits by, not three. */
static int waiting(uint64_t until)
{
	return clock_left_ns(until) > SLICE_NS && clock_slice_ns(SLICE_NS) == SLICE_NS
		       ? 0 : MSG_DONTWAIT;
}

/* A program that closes what it does not know may have another under the number, also while a
 * thread is in here: so it is looked before each call of the system's but those that follow one
 * directly. The number is a high one, which is not the next to be given out. */
static int is_ours(const struct link *l)
{
	return fd_same(l->sock.fd, &l->sock.id) ? 0 : -ECONNRESET;
}

/* Some bytes: how many, or a negative errno. */
static ssize_t move_some(const struct link *l, short what, struct iovec *v, size_t cnt, int *how,
			 uint64_t until)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = cnt };
	ssize_t n;
	int rc;

	for (;;) {
		n = what == POLLIN ? recvmsg(l->sock.fd, &m, *how)
				   : sendmsg(l->sock.fd, &m, *how | MSG_NOSIGNAL);
		if (n > 0)
			return n;
		if (!n || (errno != EAGAIN && errno != EINTR))
			return n && errno == EFAULT ? -EFAULT : -ECONNRESET;
		/* A profiler's signals may come more often than a slice is over. */
		if (errno == EINTR)
			rc = stream_host_is_gone(l->sock.fd) ? -ECONNRESET : 0;
		else
			rc = wait_for(l, what, until);
		if (!rc)
			rc = is_ours(l);
		if (rc)
			return rc;
		*how = waiting(until);
	}
}

/* -ETIMEDOUT: not a byte of it. */
static int failed(ssize_t rc, uint64_t done)
{
	return rc == -ETIMEDOUT && done ? -ECONNRESET : (int)rc;
}

/* All of it: 0, or a negative errno. */
static int transfer(const struct link *l, short what, void *data, size_t len, uint64_t until)
{
	int how = waiting(until);
	size_t done = 0;
	struct iovec v;
	ssize_t n = is_ours(l);

	if (n < 0)
		return (int)n;
	while (done < len) {
		v = (struct iovec){ (char *)data + done, len - done };
		n = move_some(l, what, &v, 1, &how, until);
		if (n < 0)
			return failed(n, done);
		done += (size_t)n;
	}
	return 0;
}

/* ---- to the owner ---- */

static int no_connection(int err)
{
	switch (err) {
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
		return kedge_reason(-ECONNREFUSED, "the region's owner has ended, or does not "
				    "listen where the handle says");
	case ETIMEDOUT:
	case EAGAIN:
		return kedge_reason(-ETIMEDOUT, "the region's owner does not answer: is it "
				    "stopped, or its host gone?");
	case ENETUNREACH:
	case EHOSTUNREACH:
		return kedge_reason(-EHOSTUNREACH, "there is no way to the region's owner: error "
				    "%d", err);
	}
	return kedge_reason(-err, "the region's owner cannot be asked: error %d", err);
}

static void set_slices(int fd)
{
	const struct timeval slice = { .tv_usec = SLICE_MS * 1000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof(slice));
	fcntl(fd, F_SETFL, 0);
}

static int connect_to(struct link *l, const struct sockaddr *a, socklen_t a_len,
		      uint64_t until)
{
	const struct timespec nap = { 0, NAP_NS };
	socklen_t len = sizeof(int);
	int err, rc = clofork_begin();

	if (!rc)
		rc = clofork_end(&l->sock, fd_move_up(socket(a->sa_family, SOCK_STREAM |
							     SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
	if (rc)
		return rc;
	stream_prepare(l->sock.fd);
	/* A local socket says EAGAIN as long as too many ask. */
	while (connect(l->sock.fd, a, a_len)) {
		if (errno == EINPROGRESS)
			break;
		if ((errno != EINTR && errno != EAGAIN) || clock_ns() >= until)
			return no_connection(errno);
		nanosleep(&nap, NULL);
	}
	rc = wait_for(l, POLLOUT, until);
	if (rc)
		return no_connection(-rc);
	set_slices(l->sock.fd);
	if (getsockopt(l->sock.fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return no_connection(errno);
	return err ? no_connection(err) : 0;
}

static int check_welcome(struct link *l, const struct handle_words *w,
			 const struct stream_hello *h, const struct stream_ask *q,
			 const struct stream_welcome *got)
{
	const int32_t said = (int32_t)le32toh((uint32_t)got->rc);
	unsigned char tag[TAG_LEN];

	if (le32toh(got->magic) != STREAM_MAGIC)
		return kedge_reason(-EPROTO, "the region's owner is of another version of kedge");
	if (said && said != REGION_MOVED)
		return remote_refused(said);
	stream_welcome_tag(w->key, h, q, got, tag);
	if (sodium_memcmp(tag, got->tag, sizeof(tag)) != 0)
		return kedge_reason(-EPROTO, "who answers has not the handle's key: it is not the "
				    "region's owner");
	l->to = got->to;
	if (said)
		return said;
	l->access = le32toh(got->access);
	l->owner = (pid_t)le32toh(got->pid);
	l->max_len = le64toh(got->max_len);
	atomic_store(&l->stream->has, le64toh(got->len));
	return 0;
}

static uint32_t refusal(const struct stream_hello *h)
{
	uint32_t rc;

	memcpy(&rc, h->nonce, sizeof(rc));
	return rc;
}

static int greet(struct link *l, const struct handle_words *w, uint64_t until)
{
	struct stream_hello h;
	struct stream_ask q = { .magic = htole32(STREAM_MAGIC),
				.version = htole32(STREAM_VERSION),
				.slot = htole32(w->slot),
				.generation = htole32(w->generation),
				.name = w->name };
	struct stream_welcome got;
	int rc = transfer(l, POLLIN, &h, sizeof(h), until);

	if (!rc && le32toh(h.magic) == STREAM_MAGIC && !h.version)
		return remote_refused((int32_t)le32toh(refusal(&h)));
	if (!rc && (le32toh(h.magic) != STREAM_MAGIC || le32toh(h.version) != STREAM_VERSION))
		return kedge_reason(-EPROTO, "the region's owner is of another version of kedge");
	if (!rc) {
		randombytes_buf(q.nonce, sizeof(q.nonce));
		stream_ask_tag(w->key, &h, &q, q.tag);
		rc = transfer(l, POLLOUT, &q, sizeof(q), until);
	}
	if (!rc)
		rc = transfer(l, POLLIN, &got, sizeof(got), until);
	return rc ? no_connection(-rc) : check_welcome(l, w, &h, &q, &got);
}

/* An owner that is flooded turns the oldest away that it has not heard yet, without a word: it
 * is asked again, as long as it listens. */
static int connect_and_greet(struct link *l, const struct handle_words *w,
			     const struct sockaddr *a, socklen_t len, uint64_t until)
{
	const struct timespec nap = { 0, NAP_NS };
	int rc;

	for (;;) {
		rc = connect_to(l, a, len, until);
		if (rc)
			return rc;
		rc = greet(l, w, until);
		if (rc != -ECONNREFUSED)
			return rc;
		clofork_close(&l->sock);
		if (clock_ns() >= until)
			return no_connection(ETIMEDOUT);
		nanosleep(&nap, NULL);
	}
}

int stream_open(struct link *l, const struct handle_words *w, const struct sockaddr *a,
		socklen_t len, uint64_t until)
{
	int rc;

	l->stream = calloc(1, sizeof(*l->stream));
	if (!l->stream)
		return kedge_reason(-ENOMEM, "no memory for a remote region");
	turn_init(l->stream);
	rc = connect_and_greet(l, w, a, len, until);
	if (rc) {
		clofork_close(&l->sock);
		stream_close(l, false);
	}
	return rc;
}

void stream_close(struct link *l, bool child)
{
	/* Threads of the parent's that waited for their turn would be waited for in a child. */
	if (l->stream && !child)
		turn_fini(l->stream);
	free(l->stream);
	l->stream = NULL;
}

/* ---- accesses ---- */

/*
 * @what:     of all; @part: of a copy, @cnt ranges, or NULL
 * @deadline: the owner's; @until: with the grace
 * @next:     what the next request is of, if there are @more; they are made up to @sent
 * @got:      those before it are answered, but for @flying
 */
struct job {
	struct link *l;
	const struct stream_req *what;
	const struct kedge_remote_part *part;
	size_t cnt;
	uint64_t deadline;
	uint64_t until;
	struct piece next;
	bool more;
	struct place_in sent;
	struct place_in got;
	unsigned int flying;
	uint64_t first_seq;
	uint64_t heard;
	uint64_t value;
	struct gap gap;
	bool asked;
};

/* With what stands behind it. */
static int send_request(struct job *j, struct stream_req *q)
{
	const bool put = j->what->op == STREAM_PUT;
	const uint64_t len = sizeof(*q) + piece_sends(q);
	int how = waiting(j->until);
	uint64_t done = 0;
	struct batch b;
	ssize_t n;

	stream_req_swap(q);
	while (done < len) {
		b.cnt = b.range_cnt = 0;
		if (done < sizeof(*q))
			batch_add(&b, (char *)q + done, sizeof(*q) - done);
		if (j->part)
			batch_add_request(&b, &j->next, put,
					  done < sizeof(*q) ? 0 : done - sizeof(*q));
		n = move_some(j->l, POLLOUT, b.v, b.cnt, &how, j->until);
		if (n < 0)
			return failed(n, done);
		done += (uint64_t)n;
	}
	return 0;
}

static int send_next(struct job *j)
{
	struct stream_req q = *j->what;
	int rc;

	q.seq = ++j->l->stream->seq;
	q.first = j->first_seq;
	q.timeout_ms = clock_left_ms(j->deadline);
	q.end = q.offset + q.len;
	if (j->part)
		piece_ask(&j->next, &q);
	j->flying++;
	rc = send_request(j, &q);
	if (j->part)
		piece_pass(&j->next, &j->sent);
	j->more = j->part && piece_find(j->part, j->cnt, &j->sent, &j->next);
	return rc;
}

static int hear(struct job *j, struct stream_reply *a)
{
	int rc = transfer(j->l, POLLIN, a, sizeof(*a), j->until);

	if (!rc)
		stream_reply_swap(a);
	return rc;
}

static int hear_data(struct job *j, const struct piece *p)
{
	int how = waiting(j->until);
	uint64_t done = 0;
	struct batch b;
	ssize_t n;

	while (done < p->len) {
		b.cnt = 0;
		batch_add_data(&b, p, done);
		n = move_some(j->l, POLLIN, b.v, b.cnt, &how, j->until);
		if (n < 0)
			return failed(n, done);
		done += (uint64_t)n;
	}
	return 0;
}

/* The region is not this owner's any more. */
static int hear_place(struct job *j, const struct stream_reply *a)
{
	struct owner_place to;
	int rc = a->len == sizeof(to) ? 0 : -EPROTO;

	if (!rc)
		rc = transfer(j->l, POLLIN, &to, sizeof(to), j->until);
	if (rc)
		return rc;
	j->l->to = to;
	return REGION_MOVED;
}

/* *@said: what the owner says of it. REGION_MOVED: this one and those behind it are not done. */
static int hear_reply(struct job *j, int *said)
{
	const bool get = j->what->op == STREAM_GET;
	struct remote_stream *s = j->l->stream;
	struct piece p = { .len = 0 };
	struct stream_reply a;
	int rc = hear(j, &a);

	/* Some of a question's are late. */
	while (!rc && s->owed && a.seq && a.seq < j->first_seq && !a.len) {
		s->owed--;
		rc = hear(j, &a);
	}
	if (rc)
		return rc;
	if (!a.seq && a.rc == -EKEYREVOKED)
		return a.rc;
	if (a.rc == REGION_MOVED)
		return hear_place(j, &a);
	if (j->part)
		piece_find(j->part, j->cnt, &j->got, &p);
	if (a.seq != j->first_seq + j->heard || a.rc > 0 || a.len != (get && !a.rc ? p.len : 0))
		return -EPROTO;
	atomic_store_explicit(&j->l->stream->has, a.has, memory_order_relaxed);
	if (a.len)
		rc = hear_data(j, &p);
	*said = a.rc;
	if (a.rc == -ENODATA && j->gap.from == j->gap.to)
		j->gap = stream_gap(&a);
	j->value = a.value;
	if (j->part)
		piece_pass(&p, &j->got);
	j->heard++;
	j->flying--;
	return rc;
}

/* Nothing more can be said to the owner; but it may have said why, before. */
static int hear_last(struct job *j, int rc)
{
	int unused, last = 0;

	j->until = 0;
	while (!last && j->flying)
		last = hear_reply(j, &unused);
	return last == -EKEYREVOKED || last == REGION_MOVED ? last : rc;
}

/* A table may find no room where the owner reads no more before its answer is read. */
static bool may_send(const struct job *j)
{
	const bool table = j->what->op == STREAM_GET && j->next.cnt > 1;

	return j->more && j->flying < (table ? 1 : WINDOW);
}

/* Every request is answered before the next access begins, whatever became of it. */
static int do_job(struct job *j, int *said)
{
	int rc, one;

	j->first_seq = j->l->stream->seq + 1;
	rc = send_next(j);
	j->asked = !rc;
	do {
		while (!rc && !*said && may_send(j))
			rc = send_next(j);
		rc = rc ? hear_last(j, rc) : hear_reply(j, &one);
		if (!rc && !*said)
			*said = one;
	} while (!rc && (j->flying || (j->more && !*said)));
	return rc;
}

static int access_in_turn(struct job *j, bool asks)
{
	struct link *l = j->l;
	int none = 0, said = 0, rc;

	if (!fd_same(l->sock.fd, &l->sock.id))
		atomic_compare_exchange_strong(&l->ended, &none, ECONNRESET);
	rc = remote_ended(l);
	if (rc)
		return rc;
	rc = do_job(j, &said);
	if (rc != -ETIMEDOUT || !asks)
		return rc ? stream_give_up(l, rc) : stream_said(l, j->what, said, &j->gap);
	/* It was asked, and answers later; or it was not. */
	l->stream->owed += j->asked;
	return rc;
}

static int access_it(struct job *j)
{
	const struct stream_req *q = j->what;
	struct link *l = j->l;
	const bool asks = q->op == STREAM_QUERY;
	const uint64_t now = clock_ns(), soon = now + TURN_MS * UINT64_C(1000000);
	int rc;

	NO_CANCEL();
	j->deadline = until_of(now, q->timeout_ms, 0);
	j->until = until_of(now, q->timeout_ms, asks ? ASK_MS : GRACE_MS);
	if (q->offset > l->max_len || q->len > l->max_len - q->offset)
		return remote_beyond(q->offset, q->len, stream_had(l));
	if (!link_use(l))
		return REGION_MOVED;
	rc = turn_take(l->stream, j->deadline > soon ? j->deadline : soon);
	if (!rc) {
		rc = access_in_turn(j, asks);
		turn_end(l->stream);
	}
	link_leave(l);
	return rc;
}

int stream_access(struct link *l, const struct stream_req *q, uint64_t *value)
{
	struct job j = { .l = l, .what = q };
	int rc = access_it(&j);

	if (value)
		*value = j.value;
	return rc;
}

int stream_copy(struct link *l, const struct stream_req *q, const struct kedge_remote_part *part,
		size_t cnt)
{
	struct job j = { .l = l, .what = q, .part = part, .cnt = cnt };

	return piece_find(part, cnt, &j.sent, &j.next) ? access_it(&j) : 0;
}

/* An owner that does not answer has what it had. */
int stream_has(struct link *l, uint64_t *len)
{
	const struct stream_req q = { .op = STREAM_QUERY };
	int rc = remote_ended(l);

	if (!rc)
		rc = stream_access(l, &q, NULL);
	*len = stream_had(l);
	return rc == REGION_MOVED ? rc : 0;
}
