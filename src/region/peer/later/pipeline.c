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
 * The parts and pieces of an operation are one access to the owner: it ends with the first that
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

/* @q is as it is sent. */
struct request {
	struct stream_req q;
	char *data;
	size_t len;
};

/*
 * @making: the last operation that has requests, or NULL: the first in the line is next
 * @cnt:    requests that were made in this turn; @flying of them have no answer
 * @bytes:  of data in those
 * @out:    those that are not sent, but for @out_done bytes of the first
 * @sent, @heard: the numbers of the last request that is sent, and of the last answer
 * @since:  that came, or the first request was made
 * @mute:   no more can be sent; what the owner has said is still heard
 * @in:     answers that were not looked at
 * @a:      the answer; of the data behind it @left bytes are to be received, to @data
 * @place:  it is the place of the region
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
	size_t out_done;
	uint64_t sent;
	uint64_t heard;
	uint64_t since;
	bool mute;
	char in[FLYING * sizeof(struct stream_reply)];
	size_t in_len;
	struct stream_reply a;
	bool receiving;
	char *data;
	size_t left;
	struct owner_place place;
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

/* Behind parts that are empty; false: it is the end. */
static bool find_part(const struct op *o, struct place_in *at)
{
	while (at->part < o->cnt && at->off == o->part[at->part].len)
		*at = (struct place_in){ at->part + 1, 0 };
	return at->part < o->cnt;
}

static uint64_t piece(const struct op *o, const struct place_in *at)
{
	const uint64_t left = is_copy(o) ? o->part[at->part].len - at->off : sizeof(uint64_t);

	return left < PIECE_LEN ? left : PIECE_LEN;
}

/* It may fail without the owner's doing. */
static void prepare(struct pipeline *p, struct op *o)
{
	struct access a;
	int rc = op_check(p->w->remote, o);

	if (!rc) {
		a = op_access(p->w->remote, o);
		if (a.offset > p->l->max_len || a.len > p->l->max_len - a.offset)
			rc = remote_beyond(a.offset, a.len, stream_had(p->l));
	}
	if (rc)
		op_fail(o, rc);
	o->made = rc || (is_copy(o) && !find_part(o, &o->at));
}

static int left_ms(const struct op *o)
{
	const uint64_t now = clock_ns();
	uint64_t until;

	if (o->what.timeout_ms < 0)
		return -1;
	until = o->begun + (uint64_t)o->what.timeout_ms * MS;
	return until > now ? (int)((until - now + MS - 1) / MS) : 0;
}

static struct stream_req request_of(struct op *o, uint64_t seq)
{
	static const uint32_t as[] = {
		[KEDGE_REMOTE_PUT] = STREAM_PUT,
		[KEDGE_REMOTE_GET] = STREAM_GET,
		[KEDGE_REMOTE_FETCH_ADD] = STREAM_ADD,
		[KEDGE_REMOTE_COMPARE_SWAP] = STREAM_SWAP,
	};
	struct stream_req q = { .op = as[o->what.op], .seq = seq, .first = o->first,
				.offset = o->what.offset, .len = piece(o, &o->at),
				.value = o->what.value };

	if (o->what.op == KEDGE_REMOTE_COMPARE_SWAP) {
		q.value = o->what.expected;
		q.other = o->what.value;
	}
	if (is_copy(o)) {
		q.offset = o->part[o->at.part].offset + o->at.off;
		q.end = o->end;
	}
	if (o->first == seq)
		o->sent_ms = left_ms(o);
	q.timeout_ms = o->sent_ms;
	return q;
}

static void make_request(struct pipeline *p, struct op *o)
{
	struct request *r = &p->out[p->out_cnt++];
	const uint64_t seq = ++p->l->stream->seq;

	if (!o->first)
		o->first = seq;
	r->q = request_of(o, seq);
	r->data = NULL;
	r->len = 0;
	if (o->what.op == KEDGE_REMOTE_PUT) {
		r->data = (char *)o->part[o->at.part].data + o->at.off;
		r->len = r->q.len;
	}
	o->at.off += r->q.len;
	o->made = !is_copy(o) || !find_part(o, &o->at);
	o->flying++;
	if (!p->flying++)
		p->since = clock_ns();
	p->cnt++;
	p->bytes += r->q.len;
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

static size_t len_of(const struct request *r)
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

static size_t put_together(struct pipeline *p, struct iovec *v)
{
	size_t skip = p->out_done, n = 0;
	unsigned int i;

	for (i = 0; i < p->out_cnt; i++) {
		if (skip < sizeof(p->out[i].q))
			v[n++] = (struct iovec){ (char *)&p->out[i].q + skip,
						 sizeof(p->out[i].q) - skip };
		skip = skip > sizeof(p->out[i].q) ? skip - sizeof(p->out[i].q) : 0;
		if (p->out[i].len)
			v[n++] = (struct iovec){ p->out[i].data + skip, p->out[i].len - skip };
		skip = 0;
	}
	return n;
}

/* As much as goes out: 0, or a negative errno. */
static int send_some(struct pipeline *p)
{
	struct iovec v[2 * OUT];
	struct msghdr m = { .msg_iov = v };
	ssize_t n;

	while (p->out_cnt && !p->mute) {
		m.msg_iovlen = put_together(p, v);
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

/* 1: some; 0: not yet; or a negative errno. */
static int receive(struct pipeline *p, char *to, size_t len, size_t *had)
{
	ssize_t n;

	while ((n = recv(p->l->sock.fd, to, len, MSG_DONTWAIT)) < 0 && errno == EINTR)
		;
	if (n > 0) {
		*had += (size_t)n;
		return 1;
	}
	if (n < 0 && errno == EAGAIN)
		return p->mute ? -ECONNRESET : 0;
	return n < 0 && errno == EFAULT ? -EFAULT : -ECONNRESET;
}

/* ---- answers ---- */

/* How many follow one another with no data in between, the last one's apart. */
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

static void expect_data(struct pipeline *p, void *to, size_t len)
{
	const size_t here = len < p->in_len ? len : p->in_len;

	memcpy(to, p->in, here);
	p->in_len -= here;
	memmove(p->in, p->in + here, p->in_len);
	p->data = (char *)to + here;
	p->left = len - here;
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
	uint64_t len;

	memcpy(&p->a, p->in, sizeof(p->a));
	p->in_len -= sizeof(p->a);
	memmove(p->in, p->in + sizeof(p->a), p->in_len);
	stream_reply_swap(&p->a);
	if (is_late(p))
		return 0;
	if (!p->a.seq && p->a.rc == -EKEYREVOKED)
		return p->a.rc;
	p->receiving = true;
	if (p->a.rc == REGION_MOVED) {
		expect_data(p, &p->place, sizeof(p->place));
		return p->a.len == sizeof(p->place) ? 0 : -EPROTO;
	}
	if (is_copy(o))
		find_part(o, &o->got);
	len = piece(o, &o->got);
	if (p->a.seq != p->heard + 1 || p->a.seq > p->sent || p->a.rc > 0 ||
	    p->a.len != (get && !p->a.rc ? len : 0))
		return -EPROTO;
	p->left = 0;
	if (p->a.len)
		expect_data(p, (char *)o->part[o->got.part].data + o->got.off, len);
	return 0;
}

static void end_answer(struct pipeline *p)
{
	struct op *o = line_first(p->w);
	const uint64_t len = piece(o, &o->got);
	struct stream_req q = { .offset = o->what.offset, .len = len };
	const struct gap gap = stream_gap(&p->a);

	if (is_copy(o))
		q.offset = o->part[o->got.part].offset + o->got.off;
	atomic_store_explicit(&p->l->stream->has, p->a.has, memory_order_relaxed);
	p->receiving = false;
	p->heard++;
	p->since = clock_ns();
	p->flying--;
	p->bytes -= len;
	o->flying--;
	o->got.off += len;
	o->old = p->a.value;
	if (p->a.rc && !o->status)
		op_fail(o, stream_said(p->l, &q, p->a.rc, &gap));
	o->made |= o->status != 0;
	complete_first(p);
}

/* Those that are there: 0, or a negative errno. */
static int hear_some(struct pipeline *p)
{
	size_t had;
	int rc = 1;

	while (rc > 0 && p->flying) {
		had = 0;
		if (p->receiving && p->left) {
			rc = receive(p, p->data, p->left, &had);
			p->data += had;
			p->left -= had;
		} else if (p->receiving) {
			if (p->a.rc == REGION_MOVED)
				return REGION_MOVED;
			end_answer(p);
		} else if (p->in_len >= sizeof(p->a)) {
			rc = begin_answer(p);
			rc = rc ? rc : 1;
		} else {
			rc = receive(p, p->in + p->in_len,
				     answers_ahead(p) * sizeof(p->a) - p->in_len, &had);
			p->in_len += had;
		}
	}
	return rc < 0 ? rc : 0;
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
	n = poll(fd, bell ? 2 : 1, bell ? SLICE_MS : NO_BELL_MS);
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
	/* What is in the line is cancelled by the one that stops. */
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

	while (!turn_claim(s, clock_ns() + SLICE_MS * MS)) {
		if (stops(p))
			return false;
		if (o->what.timeout_ms < 0 ||
		    clock_ns() < o->begun + ((uint64_t)o->what.timeout_ms + TURN_MS) * MS)
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
		until = clock_ns() + PASS_MS * MS;
	}
	turn_pass(l->stream, until);
	link_leave(l);
}
