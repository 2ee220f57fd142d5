// SPDX-License-Identifier: BSD-2-Clause
/*
 * The transport over TCP: its table, waiting, memory, and the peer that is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel/internal.h"
#include "channel/tcp/internal.h"

/* ---- waiting ---- */

static int tcp_check(void *ctx)
{
	struct tcp *t = ctx;

	if (!clofork_ours(&t->sock))
		tcp_die(t, -ECONNRESET, "this process has closed the channel's "
			"descriptor");
	tcp_alive_look(t);
	/* Packets that came before the end are still received. */
	if (!t->err || t->in.packet)
		return 0;
	if (t->err == -EPROTO)
		return kedge_reason(-EPROTO, "the peer broke the protocol (%s): "
				    "it is no kedge of this version, or broken",
				    t->why);
	return kedge_reason(t->err, "the peer is gone: %s", t->why);
}

static int tcp_fd(void *ctx)
{
	return ((struct tcp *)ctx)->epoll.fd;
}

/* The socket is always watched for what comes, and for room where something
 * waits for that. */
static void watch(struct tcp *t)
{
	bool out = !t->err && (tcp_out_pending(t) || !list_empty(&t->sending));
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };

	if (out == t->wants_out)
		return;
	if (out)
		ev.events |= EPOLLOUT;
	if (!epoll_ctl(t->epoll.fd, EPOLL_CTL_MOD, t->fd, &ev))
		t->wants_out = out;
}

static int tcp_arm(void *ctx)
{
	struct tcp *t = ctx;

	if (t->in.packet || t->finished_cnt)
		return 1;
	t->armed = true;
	return 0;
}

static void tcp_flush(void *ctx)
{
	struct tcp *t = ctx;

	tcp_pump(t, false);
	t->polling = false;
	if (likely(!t->armed))
		return;
	t->armed = false;
	watch(t);
	tcp_shrink(t);
	tcp_alive_arm(t);
}

/* ---- memory ---- */

static uint32_t tcp_ready(void *ctx, const void *buf, size_t len, const void *rts,
			  size_t rts_len)
{
	(void)ctx;
	(void)buf;
	(void)len;
	(void)rts;
	(void)rts_len;
	return READY_DIRECT | READY_REGISTER | READY_ANYWHERE;
}

static void *tcp_heap_alloc(void *ctx, size_t len)
{
	size_t page = kedge__page_size();
	struct tcp_block *b;
	struct tcp *t = ctx;

	if (len > t->heap_max - t->heap_used ||
	    round_up(len, page) > t->heap_max - t->heap_used)
		return NULL;
	b = malloc(sizeof(*b));
	if (!b)
		return NULL;
	b->len = round_up(len, page);
	b->at = mmap(NULL, b->len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->at == MAP_FAILED) {
		free(b);
		return NULL;
	}
	/* As over shared memory: it is the channel's, not a child's. */
	madvise(b->at, b->len, MADV_DONTFORK);
	list_add_tail(&t->heap, &b->node);
	t->heap_used += b->len;
	return b->at;
}

static void tcp_heap_free(void *ctx, void *p)
{
	struct tcp *t = ctx;
	struct list *l, *tmp;
	struct tcp_block *b;

	list_for_each_safe(l, tmp, &t->heap) {
		b = list_entry(l, struct tcp_block, node);
		if (b->at != p)
			continue;
		list_remove(l);
		t->heap_used -= b->len;
		munmap(b->at, b->len);
		free(b);
		return;
	}
}

static const char *tcp_explain(void *ctx)
{
	(void)ctx;
	return "";
}

/* ---- the table ---- */

static const struct transport_ops tcp_ops = {
	.name = "tcp",
	.ways = 1u << KEDGE_WAY_EAGER | 1u << KEDGE_WAY_DIRECT |
		1u << KEDGE_WAY_SWAP | 1u << KEDGE_WAY_COPY |
		1u << KEDGE_WAY_REGISTER,
	.posts = true,
	.reserve = tcp_reserve,
	.commit = tcp_commit,
	.next = tcp_next,
	.release = tcp_release,
	.flush = tcp_flush,
	.check = tcp_check,
	.fd = tcp_fd,
	.arm = tcp_arm,
	.ready = tcp_ready,
	.offer = tcp_offer,
	.accept = tcp_accept,
	.start = tcp_start,
	.step = tcp_step,
	.stop = tcp_stop,
	.end = tcp_end,
	.heap_alloc = tcp_heap_alloc,
	.heap_free = tcp_heap_free,
	.explain = tcp_explain,
	.close = tcp_close,
	.leave = tcp_leave,
};

static int tcp_init(struct tcp *t, int fd,
		    const struct kedge_channel_opts *opts)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	int rc;

	t->fd = fd;
	clofork_init(&t->sock);
	clofork_init(&t->epoll);
	clofork_init(&t->timer);
	t->host_timeout_ms = opts->host_timeout_ms;
	t->heap_max = opts->heap_bytes;
	tcp_out_init(t);
	list_init(&t->sending);
	list_init(&t->landing);
	list_init(&t->heap);
	rc = clofork_keep(&t->epoll, epoll_create1(EPOLL_CLOEXEC));
	if (rc)
		return channel_no_fd(rc);
	if (epoll_ctl(t->epoll.fd, EPOLL_CTL_ADD, fd, &ev)) {
		rc = -errno;
		clofork_close(&t->epoll);
		return rc;
	}
	return 0;
}

int tcp_channel(struct clofork *sock, const struct kedge_channel_opts *opts,
		const struct transport_peer *peer,
		struct kedge_channel **channel)
{
	struct tcp *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	rc = tcp_open_buffers(t, peer);
	if (rc)
		goto free_tcp;
	rc = tcp_init(t, sock->fd, opts);
	if (rc)
		goto free_buffers;
	rc = kedge__channel_open(&tcp_ops, t, opts, peer, channel);
	if (rc)
		goto close_epoll;
	clofork_move(&t->sock, sock);
	return 0;

close_epoll:
	clofork_close(&t->epoll);
free_buffers:
	tcp_free_buffers(t);
free_tcp:
	free(t);
	return rc;
}
