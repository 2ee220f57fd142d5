// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sending: packets gather in a buffer, data is taken from where it lies, and one
 * sendmsg() has both. The socket is asked until it takes less than it is given,
 * then not before the next poll.
 */
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "channel/tcp/internal.h"

static const uint8_t zeros[16384];

static uint64_t frame_len(const struct tcp_out *o)
{
	return sizeof(o->head) + o->head.len + sizeof(o->tail);
}

/* ---- frames ---- */

/*
 * The earliest flow has every second frame, the others have the rest in turn: a
 * short message does not wait for a long one, and the ends of long ones are
 * spread out, so that the next are agreed on while the others move.
 */
static struct tcp_flow *choose(struct tcp *t)
{
	struct list *l = t->sending.next;
	struct tcp_flow *f;

	t->second = !t->second;
	if (t->second && l->next != &t->sending)
		l = l->next;
	f = list_entry(l, struct tcp_flow, node);
	if (l != t->sending.next) {
		list_remove(l);
		list_add_tail(&t->sending, l);
	}
	return f;
}

void tcp_out_init(struct tcp *t)
{
	char name[16] = "";
	socklen_t len = sizeof(name) - 1;

	t->out.frame_max = FRAME_MIN;
	getsockopt(t->fd, IPPROTO_TCP, TCP_CONGESTION, name, &len);
	/* And its successors. */
	t->out.frame_top = strncmp(name, "bbr", 3) ? FRAME_MAX : FRAME_MIN;
}

/* Its last byte was taken: how long the next may be. */
static void frame_learn(struct tcp_out *o)
{
	if (o->stuck && o->frame_max > FRAME_MIN)
		o->frame_max /= 2;
	else if (!o->stuck && o->frame_max < o->frame_top &&
		 o->head.len == o->frame_max)
		o->frame_max *= 2;
}

static void frame_begin(struct tcp *t)
{
	struct tcp_out *o = &t->out;
	struct tcp_flow *f;
	uint64_t len;

	if (o->flow || list_empty(&t->sending) || !t->may_write)
		return;
	f = choose(t);
	len = f->len - f->done;
	if (len > o->frame_max)
		len = o->frame_max;
	t->may_write -= t->may_write < len ? t->may_write : len;
	o->flow = f;
	o->head = (struct tcp_head){ (uint32_t)len, f->id };
	o->tail = (struct tcp_tail){ TAIL_WHOLE, f->id };
	o->sent = 0;
	o->stuck = false;
}

static void frame_end(struct tcp *t)
{
	struct tcp_flow *f = t->out.flow;

	frame_learn(&t->out);
	t->out.flow = NULL;
	if (f->done < f->len)
		return;
	list_remove(&f->node);
	list_init(&f->node);
	f->finished = true;
	t->finished_cnt++;
}

void tcp_out_drop(struct tcp *t, struct tcp_flow *f)
{
	const uint64_t head = sizeof(struct tcp_head);
	struct tcp_out *o = &t->out;
	uint64_t data = head + o->head.len, skip;

	if (o->flow != f)
		return;
	o->flow = NULL;
	if (!o->sent)
		return;
	if (o->sent >= data + 1) {
		/* Its tail is on the way, and says that the frame is whole. */
		skip = o->sent - data;
		o->owed_len = (uint32_t)(sizeof(o->tail) - skip);
		memcpy(o->owed, (char *)&o->tail + skip, o->owed_len);
		f->finished |= f->done == f->len;
		return;
	}
	o->zeros = data + sizeof(o->tail) - o->sent;
	if (o->sent >= head)
		return;
	o->owed_len = (uint32_t)(head - o->sent);
	o->zeros -= o->owed_len;
	memcpy(o->owed, (char *)&o->head + o->sent, o->owed_len);
}

/* ---- what sendmsg() is given ---- */

static size_t add(struct iovec *v, size_t n, const void *at, size_t len)
{
	if (!len || n >= IOV_CNT)
		return n;
	v[n] = (struct iovec){ (void *)(uintptr_t)at, len };
	return n + 1;
}

static size_t add_frame(const struct tcp_out *o, struct iovec *v, size_t n)
{
	const uint64_t head = sizeof(o->head), data = head + o->head.len;
	const char *tail = (const char *)&o->tail;
	uint64_t at = o->sent, left;
	size_t i;

	if (at < head) {
		n = add(v, n, (const char *)&o->head + at, head - at);
		at = head;
	}
	if (at < data) {
		left = data - at;
		/* One is left for the tail. */
		i = flow_iov(o->flow, left, v + n, IOV_CNT - 1 - n);
		while (i--)
			left -= v[n++].iov_len;
		if (left)
			return n;
		at = data;
	}
	return add(v, n, tail + (at - data), sizeof(o->tail) - (at - data));
}

static size_t gather(const struct tcp *t, struct iovec *v)
{
	const struct tcp_out *o = &t->out;
	uint64_t left = o->zeros;
	size_t n = 0, len;

	n = add(v, n, o->owed, o->owed_len);
	while (left && n < IOV_CNT / 2) {
		len = left < sizeof(zeros) ? left : sizeof(zeros);
		n = add(v, n, zeros, len);
		left -= len;
	}
	if (left)
		return n;
	if (o->flow && o->sent)
		return add_frame(o, v, n);
	n = add(v, n, o->buf + o->at, o->end - o->at);
	return o->flow ? add_frame(o, v, n) : n;
}

/* ---- what it took, in the same order ---- */

static uint64_t took_frame(struct tcp *t, uint64_t n)
{
	const uint64_t head = sizeof(struct tcp_head);
	struct tcp_out *o = &t->out;
	uint64_t from = o->sent, to, data = head + o->head.len;
	uint64_t left = frame_len(o) - from;

	if (left > n)
		left = n;
	to = o->sent = from + left;
	from = from < head ? head : from;
	to = to > data ? data : to;
	if (to > from)
		flow_advance(o->flow, to - from);
	if (o->sent == frame_len(o))
		frame_end(t);
	return n - left;
}

static uint64_t took_packets(struct tcp_out *o, uint64_t n)
{
	uint64_t len = o->end - o->at;

	if (len > n)
		len = n;
	o->at += len;
	if (o->at == o->end)
		o->at = o->end = 0;
	return n - len;
}

static void took(struct tcp *t, uint64_t n)
{
	struct tcp_out *o = &t->out;
	uint64_t len = o->owed_len < n ? o->owed_len : n;

	memmove(o->owed, o->owed + len, o->owed_len - len);
	o->owed_len -= (uint32_t)len;
	n -= len;
	len = o->zeros < n ? o->zeros : n;
	o->zeros -= len;
	n -= len;
	if (n && o->flow && o->sent) {
		took_frame(t, n);
		return;
	}
	n = took_packets(o, n);
	if (n)
		took_frame(t, n);
}

/* The caller's buffer cannot be read; the call that failed sent no bytes at all. */
static void source_fails(struct tcp *t)
{
	struct tcp_flow *f = t->out.flow;

	f->err = -EFAULT;
	tcp_out_drop(t, f);
	list_remove(&f->node);
	list_init(&f->node);
}

/* 1: go on, 0: not now. */
static int send_once(struct tcp *t)
{
	struct iovec v[IOV_CNT];
	struct msghdr m = { .msg_iov = v, .msg_iovlen = gather(t, v) };
	uint64_t all = 0;
	ssize_t n;
	size_t i;

	if (!m.msg_iovlen)
		return 0;
	for (i = 0; i < m.msg_iovlen; i++)
		all += v[i].iov_len;
	n = sendmsg(t->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n >= 0) {
		took(t, (uint64_t)n);
		t->full = (uint64_t)n < all;
		t->out.stuck |= t->full;
		return !t->full;
	}
	if (errno == EFAULT && t->out.flow) {
		source_fails(t);
		return 1;
	}
	if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS ||
	    errno == ENOMEM)
		t->full = t->out.stuck = true;
	else
		tcp_die(t, -ECONNRESET, strerror(errno));
	return 0;
}

void tcp_pump(struct tcp *t, bool data)
{
	do {
		if (t->err || t->full)
			return;
		if (data)
			frame_begin(t);
	} while (send_once(t));
}

/* ---- the channel's packets ---- */

/* The same bytes at the beginning, where there is more room behind them. */
static void move_down(struct tcp_out *o)
{
	if (!o->at)
		return;
	memmove(o->buf, o->buf + o->at, o->end - o->at);
	o->end -= o->at;
	o->at = 0;
	/* The part of a packet that has left is no multiple of 8, its end was. */
	if (o->end % 8) {
		size_t by = 8 - o->end % 8;

		memmove(o->buf + by, o->buf, o->end);
		o->at = by;
		o->end += by;
	}
}

void *tcp_reserve(void *ctx, size_t len)
{
	size_t need = sizeof(struct tcp_head) + round_up(len, 8);
	struct tcp *t = ctx;
	struct tcp_out *o = &t->out;

	if (len > t->packet_max || t->err)
		return NULL;
	if (unlikely(o->end + need > o->cap))
		tcp_grow(t, &o->buf, &o->cap, OUT_LEN, o->end);
	if (unlikely(o->end + need > o->cap)) {
		tcp_pump(t, false);
		move_down(o);
		if (t->err || o->end + need > o->cap)
			return NULL;
	}
	return o->buf + o->end + sizeof(struct tcp_head);
}

void tcp_commit(void *ctx, void *packet, size_t len)
{
	const struct tcp_head head = { (uint32_t)len, 0 };
	struct tcp *t = ctx;
	struct tcp_out *o = &t->out;
	bool wait = t->polling || t->later;

	t->later = false;
	if (t->err)
		return;
	assert((char *)packet == o->buf + o->end + sizeof(head));
	memcpy(o->buf + o->end, &head, sizeof(head));
	/* Bytes that were there before must not leave with it. */
	memset((char *)packet + len, 0, round_up(len, 8) - len);
	o->end += sizeof(head) + round_up(len, 8);
	if (!wait)
		tcp_pump(t, false);
}
