// SPDX-License-Identifier: BSD-2-Clause
/*
 * Operations by a connection, several under way at once: the thread "kedge-remote" has the
 * connection as long as there are any, makes requests of the operations in the line, and gives each
 * its answers. An owner answers in the order of requests, so the next answer is always to the first
 * operation in the line that has requests under way, and operations complete in their order.
 *
 * Sending and receiving do not wait for each other: an owner reads no request while an answer of
 * its own does not go out, so a peer that read no answer while a put does not go out would wait for
 * ever.
 *
 * The requests of an operation (pieces.h) are one access to the owner: it ends with the first that
 * fails, and all have the time of the first. An operation is not interrupted by accesses of other
 * threads, as the owner would take its rest for another access.
 */
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/base.h"
#include "region/peer/later/later.h"
#include "region/peer/turn.h"

#define FLYING	 64		 /* requests without an answer */
#define BYTES	 (4 * PIECE_LEN) /* of data in those */
#define OUT	 16		 /* requests in one message */
#define NO_BELL_MS 5		 /* a look for operations, where no descriptor is left for a bell */
#define PASS_MS	 1000
#define MS	 UINT64_C(1000000)

/* @q is as it is sent, and @len bytes of the piece @p, if it is of any, behind it. */
struct request {
	struct stream_req q;
	struct piece p;
	bool put;
	uint64_t len;
};

/*
 * @making: the last operation that has requests, or NULL: the first in the line is next
 * @cnt:    requests that were made in this turn; @flying of them have no answer
 * @bytes:  of data in those
 * @out:    those that are not sent, but for @out_done bytes of the first; @batch goes out next
 * @sent, @heard: the numbers of the last request that is sent, and of the last answer
 * @since:  that came, or the first request was made
 * @mute:   no more can be sent; what the owner has said is still heard
 * @in:     answers that were not looked at
 * @a:      the answer; of the data behind it, which is @into's, @left bytes are to be received
 * @place:  it is the place of the region, as one @part
 */
struct pipeline {
	struct later *w;
	struct link *l;
	struct op *making;
	unsigned int cnt;
	unsigned int flying;
	uint64_t bytes;
	struct request out[OUT];
	unsigned int out_cnt;
	uint64_t out_done;
	struct batch batch;
	uint64_t sent;
	uint64_t heard;
	uint64_t since;
	bool mute;
	char in[FLYING * sizeof(struct stream_reply)];
	size_t in_len;
	struct stream_reply a;
	bool receiving;
	struct piece into;
	uint64_t left;
	struct owner_place place;
	struct kedge_remote_part part;
};

static bool stops(const struct pipeline *p)
{
	return atomic_load(&p->w->stop);
}

/* ---- requests ---- */

static bool is_copy(const struct op *o)
{
	return o->what.op <= KEDGE_REMOTE_GET;
}

/* A number is without a part. False: there is no more. */
static bool find(const struct op *o, struct place_in *at, struct piece *piece)
{
	*piece = (struct piece){ .len = sizeof(uint64_t) };
	return !is_copy(o) || piece_find(o->part, o->cnt, at, piece);
}

/* It may fail without the owner's doing. */
static void prepare(struct pipeline *p, struct op *o)
{
	struct access a;
	struct piece first;
	int rc = op_check(p->w->remote, o);

	if (!rc) {
		a = op_access(p->w->remote, o);
		if (a.offset > p->l->max_len || a.len > p->l->max_len - a.offset)
			rc = remote_beyond(a.offset, a.len, stream_had(p->l));
	}
	if (rc)
		op_fail(o, rc);
	o->made = rc || !find(o, &o->at, &first);
}

static uint64_t deadline_of(const struct op *o, uint64_t more_ms)
{
	return o->what.timeout_ms < 0
		       ? CLOCK_NEVER
		       : o->begun + ((uint64_t)o->what.timeout_ms + more_ms) * MS;
}

static struct stream_req request_of(struct op *o, uint64_t seq, const struct piece *piece)
{
	static const uint32_t as[] = {
		[KEDGE_REMOTE_PUT] = STREAM_PUT,
		[KEDGE_REMOTE_GET] = STREAM_GET,
		[KEDGE_REMOTE_FETCH_ADD] = STREAM_ADD,
		[KEDGE_REMOTE_COMPARE_SWAP] = STREAM_SWAP,
	};
	struct stream_req q = { .op = as[o->what.op], .seq = seq, .first = o->first,
				.offset = o->what.offset, .len = piece->len,
				.value = o->what.value };

	if (o->what.op == KEDGE_REMOTE_COMPARE_SWAP) {
		q.value = o->what.expected;
		q.other = o->what.value;
	}
	if (is_copy(o)) {
		piece_ask(piece, &q);
		q.end = o->end;
	}
	if (o->first == seq)
		o->sent_ms = clock_left_ms(deadline_of(o, 0));
	q.timeout_ms = o->sent_ms;
	return q;
}

static void make_request(struct pipeline *p, struct op *o)
{
	struct request *r = &p->out[p->out_cnt++];
	const uint64_t seq = ++p->l->stream->seq;
	struct piece next;

	if (!o->first)
		o->first = seq;
	find(o, &o->at, &r->p);
	r->q = request_of(o, seq, &r->p);
	r->put = o->what.op == KEDGE_REMOTE_PUT;
	r->len = piece_sends(&r->q);
	piece_pass(&r->p, &o->at);
	o->made = !is_copy(o) || !find(o, &o->at, &next);
	o->flying++;
	if (!p->flying++)
		p->since = clock_ns();
	p->cnt++;
	p->bytes += r->p.len;
	stream_req_swap(&r->q);
}

/* Another thread that waits has its turn in between, once enough was done in this one. */
static bool takes_more(const struct pipeline *p)
{
	return !p->mute && (p->cnt < FLYING || !atomic_load(&p->l->stream->waiting));
}

static bool has_room(const struct pipeline *p)
{
	return p->flying < FLYING && p->bytes < BYTES;
}

static void complete(struct pipeline *p, int rc)
{
	if (p->making == line_first(p->w))
		p->making = NULL;
	line_complete(p->w, rc);
}

/* Those that are over, from the first on. */
static void complete_first(struct pipeline *p)
{
	struct op *o;

	while (p->making && (o = line_first(p->w)) && o->made && !o->flying)
		complete(p, o->status);
}

static void make_requests(struct pipeline *p)
{
	struct op *o;

	while (p->out_cnt < OUT && has_room(p) && !p->mute) {
		if (p->making && !p->making->made) {
			make_request(p, p->making);
			continue;
		}
		o = takes_more(p) ? line_behind(p->w, p->making) : NULL;
		if (!o)
			break;
		p->making = o;
		prepare(p, o);
	}
	complete_first(p);
}

/* ---- bytes ---- */

static uint64_t len_of(const struct request *r)
{
	return sizeof(r->q) + r->len;
}

static void has_gone(struct pipeline *p, size_t n)
{
	unsigned int gone = 0;

	p->out_done += n;
	while (gone < p->out_cnt && p->out_done >= len_of(&p->out[gone]))
		p->out_done -= len_of(&p->out[gone++]);
	p->sent += gone;
	p->out_cnt -= gone;
	memmove(p->out, p->out + gone, p->out_cnt * sizeof(p->out[0]));
}

/* False: there is no room for all of it. */
static bool add_request(struct batch *b, struct request *r, uint64_t skip)
{
	const uint64_t head = skip < sizeof(r->q) ? sizeof(r->q) - skip : 0;

	if (!batch_add(b, (char *)&r->q + skip, head))
		return false;
	return !r->len || batch_add_request(b, &r->p, r->put, skip + head - sizeof(r->q));
}

static void put_together(struct pipeline *p)
{
	uint64_t skip = p->out_done;
	unsigned int i;

	p->batch.cnt = p->batch.range_cnt = 0;
	for (i = 0; i < p->out_cnt && add_request(&p->batch, &p->out[i], skip); i++)
		skip = 0;
}

/* As much as goes out: 0, or a negative errno. */
static int send_some(struct pipeline *p)
{
	struct msghdr m = { .msg_iov = p->batch.v };
	ssize_t n;

	while (p->out_cnt && !p->mute) {
		put_together(p);
		m.msg_iovlen = p->batch.cnt;
		n = sendmsg(p->l->sock.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0)
			has_gone(p, (size_t)n);
		else if (n < 0 && errno == EAGAIN)
			break;
		else if (n < 0 && errno == EFAULT)
			return -EFAULT;
		else if (!n || errno != EINTR)
			p->mute = true;
	}
	return 0;
}

/* Returns the number of bytes; 0: not yet; or a negative errno. */
static ssize_t receive(struct pipeline *p, struct iovec *v, size_t cnt)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = cnt };
	ssize_t n;

	if (!fd_same(p->l->sock.fd, &p->l->sock.id))
		return -ECONNRESET;
	while ((n = recvmsg(p->l->sock.fd, &m, MSG_DONTWAIT)) < 0 && errno == EINTR)
		;
	if (n > 0)
		return n;
	if (n < 0 && errno == EAGAIN)
		return p->mute ? -ECONNRESET : 0;
	return n < 0 && errno == EFAULT ? -EFAULT : -ECONNRESET;
}

/* ---- answers ---- */

/* The number that follow one another with no data in between, the last one's apart. */
static size_t answers_ahead(struct pipeline *p)
{
	const struct op *o = line_first(p->w);
	size_t n = 0;

	for (; o && n < p->flying; o = line_behind(p->w, o)) {
		if (o->what.op == KEDGE_REMOTE_GET && o->flying)
			return n + 1;
		n += o->flying;
		if (o == p->making)
			break;
	}
	return n;
}

/* The memory that the data goes to: @p->batch. */
static void find_room(struct pipeline *p)
{
	p->batch.cnt = 0;
	batch_add_data(&p->batch, &p->into, p->into.len - p->left);
}

static void take_in(struct pipeline *p, size_t len)
{
	p->in_len -= len;
	memmove(p->in, p->in + len, p->in_len);
}

/* Some of it may be there. */
static void expect_data(struct pipeline *p, const struct piece *into)
{
	const struct iovec *v = p->batch.v;
	size_t len;

	p->into = *into;
	p->left = into->len;
	while (p->left && p->in_len) {
		find_room(p);
		len = v->iov_len < p->in_len ? v->iov_len : p->in_len;
		memcpy(v->iov_base, p->in, len);
		take_in(p, len);
		p->left -= len;
	}
}

static int expect_place(struct pipeline *p)
{
	const struct piece all = { .part = &p->part, .cnt = 1, .span = 1,
				   .len = sizeof(p->place) };

	p->part = (struct kedge_remote_part){ 0, &p->place, sizeof(p->place) };
	expect_data(p, &all);
	return p->a.len == all.len ? 0 : -EPROTO;
}

/* Some answers to questions are late. */
static bool is_late(struct pipeline *p)
{
	if (!p->l->stream->owed || !p->a.seq || p->a.seq > p->heard || p->a.len)
		return false;
	p->l->stream->owed--;
	return true;
}

static int begin_answer(struct pipeline *p)
{
	struct op *o = line_first(p->w);
	const bool get = o->what.op == KEDGE_REMOTE_GET;
	struct piece piece;

	memcpy(&p->a, p->in, sizeof(p->a));
	take_in(p, sizeof(p->a));
	stream_reply_swap(&p->a);
	if (is_late(p))
		return 0;
	if (!p->a.seq && p->a.rc == -EKEYREVOKED)
		return p->a.rc;
	p->receiving = true;
	if (p->a.rc == REGION_MOVED)
		return expect_place(p);
	find(o, &o->got, &piece);
	if (p->a.seq != p->heard + 1 || p->a.seq > p->sent || p->a.rc > 0 ||
	    p->a.len != (get && !p->a.rc ? piece.len : 0))
		return -EPROTO;
	p->left = 0;
	if (p->a.len)
		expect_data(p, &piece);
	return 0;
}

static void end_answer(struct pipeline *p)
{
	struct op *o = line_first(p->w);
	const struct access a = op_access(p->w->remote, o);
	const struct stream_req q = { .offset = a.offset, .len = a.len };
	const struct gap gap = stream_gap(&p->a);
	struct piece piece;

	find(o, &o->got, &piece);
	atomic_store_explicit(&p->l->stream->has, p->a.has, memory_order_relaxed);
	p->receiving = false;
	p->heard++;
	p->since = clock_ns();
	p->flying--;
	p->bytes -= piece.len;
	o->flying--;
	piece_pass(&piece, &o->got);
	o->old = p->a.value;
	if (p->a.rc && !o->status)
		op_fail(o, stream_said(p->l, &q, p->a.rc, &gap));
	o->made |= o->status != 0;
	complete_first(p);
}

/* Those that are there: 0, or a negative errno. */
static int hear_some(struct pipeline *p)
{
	struct iovec v;
	ssize_t rc = 1;

	while (rc > 0 && p->flying) {
		if (p->receiving && p->left) {
			find_room(p);
			rc = receive(p, p->batch.v, p->batch.cnt);
			p->left -= rc > 0 ? (uint64_t)rc : 0;
		} else if (p->receiving) {
			if (p->a.rc == REGION_MOVED)
				return REGION_MOVED;
			end_answer(p);
		} else if (p->in_len >= sizeof(p->a)) {
			rc = begin_answer(p);
			rc = rc ? rc : 1;
		} else {
			v.iov_base = p->in + p->in_len;
			v.iov_len = answers_ahead(p) * sizeof(p->a) - p->in_len;
			rc = receive(p, &v, 1);
			p->in_len += rc > 0 ? (size_t)rc : 0;
		}
	}
	return rc < 0 ? (int)rc : 0;
}

/* ---- turns ---- */

static int check_time(struct pipeline *p)
{
	const int ms = line_first(p->w)->sent_ms;

	if (ms < 0 || clock_ns() < p->since + ((uint64_t)ms + GRACE_MS) * MS)
		return 0;
	return -ETIMEDOUT;
}

/* Until there is something to do, a slice at most. */
static int wait_for_it(struct pipeline *p)
{
	const bool bell = bell_works(&p->w->bell);
	struct pollfd fd[2] = { { .fd = p->l->sock.fd, .events = POLLIN },
				{ .fd = p->w->bell.in.fd, .events = POLLIN } };
	int n, rc = check_time(p);

	if (rc)
		return rc;
	if (p->out_cnt)
		fd[0].events |= POLLOUT;
	if (has_room(p) && takes_more(p) && !line_polls(p->w, p->making))
		return 0;
	n = clock_poll_ms(fd, bell ? 2 : 1, clock_slice_ms(bell ? SLICE_MS : NO_BELL_MS));
	line_polled(p->w);
	return !n && stream_host_is_gone(p->l->sock.fd) ? -ECONNRESET : 0;
}

static int go_on(struct pipeline *p)
{
	int rc;

	for (;;) {
		/* The program may have closed it. */
		if (!fd_same(p->l->sock.fd, &p->l->sock.id))
			return -ECONNRESET;
		make_requests(p);
		if (!p->flying)
			return 0;
		rc = send_some(p);
		if (!rc)
			rc = hear_some(p);
		if (!rc && p->flying)
			rc = wait_for_it(p);
		if (rc)
			return rc;
		if (stops(p))
			return -ECANCELED;
	}
}

/* The region is another owner's, which is asked anew. */
static void begin_anew(struct op *o)
{
	o->flying = 0;
	o->first = 0;
	o->at = o->got = (struct place_in){ 0, 0 };
	o->made = o->status != 0;
}

/* Requests that are under way have no answer any more. */
static void end_all(struct pipeline *p, int rc)
{
	struct op *o = line_first(p->w);

	if (rc == REGION_MOVED) {
		for (; p->making; o = line_behind(p->w, o)) {
			begin_anew(o);
			if (o == p->making)
				p->making = NULL;
		}
		return;
	}
	for (; p->making && (o->made || o->first); o = line_first(p->w))
		complete(p, o->flying || !o->made ? rc : o->status);
}

static void end_badly(struct pipeline *p, int rc)
{
	if (rc == REGION_MOVED)
		p->l->to = p->place;
	/* Accesses in the line are cancelled by the one that stops. */
	if (rc == -ECANCELED)
		stream_give_up(p->l, -ECONNRESET);
	else
		end_all(p, stream_give_up(p->l, rc));
}

/* Others may have it for as long as the first operation may take. */
static bool get_turn(struct pipeline *p)
{
	struct remote_stream *s = p->l->stream;
	const struct op *o = line_first(p->w);

	while (!turn_claim(s, clock_after_ms(SLICE_MS))) {
		if (stops(p))
			return false;
		if (clock_ns() < deadline_of(o, TURN_MS))
			continue;
		line_complete(p->w, kedge_reason(-ETIMEDOUT, "accesses of other threads by this "
						 "remote region take too long"));
		return false;
	}
	return true;
}

void pipeline_run(struct later *w, struct link *l)
{
	struct pipeline p = { .w = w, .l = l };
	uint64_t until = 0;
	int rc;

	if (!link_use(l))
		return;
	line_open_bell(w);
	if (get_turn(&p)) {
		p.sent = p.heard = l->stream->seq;
		rc = remote_ended(l) ? 0 : go_on(&p);
		if (rc)
			end_badly(&p, rc);
		turn_end(l->stream);
		until = clock_after_ms(PASS_MS);
	}
	turn_pass(l->stream, until);
	link_leave(l);
}
