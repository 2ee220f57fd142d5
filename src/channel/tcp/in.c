// SPDX-License-Identifier: BSD-2-Clause
/*
 * Receiving. While a flow lands no byte is read beyond the next head: what
 * follows a data frame's head is read into the flow's pieces, with the tail and
 * the next head behind it, in one call. So bytes that are in the buffer are never
 * data of a flow that is awaited here; if they are, the peer has sent them before
 * it was told to.
 */
#include <sys/socket.h>

#include "channel/protocol/packet.h"
#include "channel/tcp/internal.h"

#define HEAD_LEN sizeof(struct tcp_head)
#define TAIL_LEN sizeof(struct tcp_tail)
/* So old may the name of a flow be that was given up. */
#define NAMES_PAST ((uint64_t)1 << 31)
_Static_assert(HEAD_LEN + PACKET_OF(TCP_EAGER_MAX) + 8 + HEAD_LEN <= IN_LEN, "fits");

static size_t have(const struct tcp_in *in)
{
	return in->end - in->at;
}

static struct tcp_flow *landing_of(struct tcp *t, uint32_t id)
{
	struct list *l, *tmp;
	struct tcp_flow *f;

	list_for_each_safe(l, tmp, &t->landing) {
		f = list_entry(l, struct tcp_flow, node);
		if (f->id == id)
			return f;
	}
	return NULL;
}

static int nonsense(struct tcp *t, const char *what)
{
	tcp_die(t, -EPROTO, what);
	return -EPROTO;
}

/* ---- what is in the buffer ---- */

/* A frame of data: of a flow that lands, or of one that was given up here. */
static int data_head(struct tcp *t, const struct tcp_head *h)
{
	struct tcp_in *in = &t->in;
	struct tcp_flow *f = landing_of(t, h->id);

	if (!h->len || h->len > FRAME_MAX)
		return nonsense(t, "length of a frame");
	/* Names are given in turn, and go round. */
	if (!f && t->next_id - h->id >=
			  (t->flow_cnt < NAMES_PAST ? t->flow_cnt : NAMES_PAST))
		return nonsense(t, "data for no message");
	if (f && (f->broken || h->len > f->len - f->done))
		return nonsense(t, "data beyond the end of a message");
	in->flow = f;
	in->id = h->id;
	in->left = h->len;
	in->state = IN_DATA;
	in->at += HEAD_LEN;
	return 0;
}

/* 1: a whole packet, 0: more is needed or was taken, -EPROTO. */
static int take_head(struct tcp *t)
{
	struct tcp_in *in = &t->in;
	struct tcp_head h;
	size_t len;

	memcpy(&h, in->buf + in->at, HEAD_LEN);
	if (h.id)
		return data_head(t, &h);
	if (h.len < sizeof(struct packet_head) || h.len > t->packet_max)
		return nonsense(t, "length of a packet");
	len = HEAD_LEN + round_up(h.len, 8);
	if (have(in) < len)
		return 0;
	in->packet = len;
	return 1;
}

static int take_tail(struct tcp *t)
{
	struct tcp_in *in = &t->in;
	struct tcp_flow *f = in->flow;
	struct tcp_tail tail;

	memcpy(&tail, in->buf + in->at, TAIL_LEN);
	in->at += TAIL_LEN;
	in->state = IN_HEAD;
	in->flow = NULL;
	if (tail.whole ? tail.whole != TAIL_WHOLE || tail.id != in->id
		       : tail.id)
		return nonsense(t, "end of a frame");
	if (!f)
		return 0;
	if (!tail.whole) {
		f->broken = true;
	} else if (f->done == f->len) {
		f->finished = true;
		f->bulk->flags |= BULK_FIN;
		list_remove(&f->node);
		list_init(&f->node);
	}
	return 0;
}

/* Data of a flow that is not awaited. */
static int skip_data(struct tcp *t)
{
	struct tcp_in *in = &t->in;
	uint64_t n = have(in) < in->left ? have(in) : in->left;

	if (in->flow)
		return nonsense(t, "data before it was asked for");
	in->at += n;
	in->left -= n;
	if (!in->left)
		in->state = IN_TAIL;
	return 0;
}

/* 1: a packet; 0: all that can be made of what is there is made; -EPROTO. */
static int parse(struct tcp *t)
{
	struct tcp_in *in = &t->in;
	size_t before;
	int rc;

	for (;;) {
		before = in->at;
		rc = 0;
		if (in->state == IN_HEAD && have(in) >= HEAD_LEN)
			rc = take_head(t);
		else if (in->state == IN_DATA && have(in))
			rc = skip_data(t);
		else if (in->state == IN_TAIL && have(in) >= TAIL_LEN)
			rc = take_tail(t);
		if (rc || in->at == before)
			return rc;
	}
}

/* ---- the socket ---- */

/* Bytes to have in the buffer for the next step, and the head after it. */
static size_t needed(const struct tcp_in *in)
{
	struct tcp_head h;

	if (in->state == IN_TAIL)
		return TAIL_LEN + HEAD_LEN;
	if (have(in) < HEAD_LEN)
		return HEAD_LEN;
	/* It was looked at: a packet. */
	memcpy(&h, in->buf + in->at, HEAD_LEN);
	return HEAD_LEN + round_up(h.len, 8) + HEAD_LEN;
}

static void move_down(struct tcp_in *in)
{
	if (in->at && in->end > in->at)
		memmove(in->buf, in->buf + in->at, have(in));
	in->end -= in->at;
	in->at = 0;
}

/* Set @v to where the next bytes are read to; returns its elements. */
static size_t plan(struct tcp *t, struct iovec *v, uint8_t *scratch, size_t len)
{
	struct tcp_in *in = &t->in;
	size_t n = 0, want, i;
	uint64_t left = in->left;

	move_down(in);
	if (in->state == IN_DATA) {
		if (in->flow) {
			n = flow_iov(in->flow, left, v, IOV_CNT - 1);
			for (i = 0; i < n; i++)
				left -= v[i].iov_len;
		} else {
			want = left < len ? left : len;
			v[n++] = (struct iovec){ scratch, want };
			left -= want;
		}
		want = left ? 0 : TAIL_LEN + HEAD_LEN;
	} else if (list_empty(&t->landing)) {
		want = in->cap - in->end;
	} else {
		want = needed(in) - have(in);
	}
	if (want)
		v[n++] = (struct iovec){ in->buf + in->end, want };
	return n;
}

static void came(struct tcp *t, uint64_t n)
{
	struct tcp_in *in = &t->in;
	uint64_t data = 0;

	t->may_read -= t->may_read < n ? t->may_read : n;
	if (in->state == IN_DATA) {
		data = n < in->left ? n : in->left;
		in->left -= data;
		if (in->flow)
			flow_advance(in->flow, data);
		if (!in->left)
			in->state = IN_TAIL;
	}
	in->end += n - data;
}

/* The pieces cannot be written: the rest of the frame is thrown away. */
static void target_fails(struct tcp *t)
{
	struct tcp_flow *f = t->in.flow;

	f->err = -EFAULT;
	list_remove(&f->node);
	list_init(&f->node);
	t->in.flow = NULL;
}

/* False: no more in this poll. */
static bool fill(struct tcp *t)
{
	uint8_t scratch[16384];
	struct iovec v[IOV_CNT];
	struct msghdr m = { .msg_iov = v };
	uint64_t all = 0;
	ssize_t n;
	size_t i;

	if (t->err || t->dry || !t->may_read)
		return false;
	if (t->in.full)
		tcp_grow(t, &t->in.buf, &t->in.cap, IN_LEN, t->in.end);
	m.msg_iovlen = plan(t, v, scratch, sizeof(scratch));
	for (i = 0; i < m.msg_iovlen; i++)
		all += v[i].iov_len;
	n = recvmsg(t->fd, &m, MSG_DONTWAIT);
	if (n > 0) {
		came(t, (uint64_t)n);
		t->dry = (uint64_t)n < all;
		t->in.full = !t->dry;
		return true;
	}
	if (n < 0 && errno == EFAULT && t->in.flow) {
		target_fails(t);
		return true;
	}
	t->dry = true;
	if (!n)
		tcp_die(t, -ECONNRESET, "it has closed the connection");
	else if (errno != EAGAIN && errno != EINTR && errno != ENOMEM &&
		 errno != ENOBUFS)
		tcp_die(t, -ECONNRESET, strerror(errno));
	return false;
}

const void *tcp_next(void *ctx, size_t *len)
{
	struct tcp *t = ctx;
	struct tcp_in *in = &t->in;
	struct tcp_head h;
	int rc;

	if (!t->polling) {
		t->polling = true;
		t->full = t->dry = false;
		t->may_read = t->may_write = POLL_LEN;
	}
	while (!in->packet) {
		rc = t->err == -EPROTO ? -EPROTO : parse(t);
		if (rc < 0 || (!rc && !fill(t)))
			return NULL;
	}
	memcpy(&h, in->buf + in->at, sizeof(h));
	*len = h.len;
	return in->buf + in->at + sizeof(h);
}

void tcp_release(void *ctx, const void *packet)
{
	struct tcp *t = ctx;

	(void)packet;
	t->in.at += t->in.packet;
	t->in.packet = 0;
}
