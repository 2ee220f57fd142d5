// SPDX-License-Identifier: BSD-2-Clause
/* An end of a connection: its queues, buffers, and the descriptor to wait on. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "channel/rc/internal.h"

/* Bytes in the work request of a send, where the device takes them. */
#define INLINE_MAX 128u

int kedge__rc_open(struct rdma_cm_id *id, struct rc **out)
{
	struct rc *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return kedge_reason(-ENOMEM, "no memory for a channel");
	kedge__rdma_init(&c->r, &kedge__rc_port);
	c->r.pins = c->r.local_desc = c->r.virt = true;
	c->r.ordered = c->r.tells = c->r.tells_takes = c->r.batch = true;
	c->r.chunk_len = CHUNK_LEN;
	list_init(&c->bound);
	list_init(&c->idle);
	list_init(&c->dropped);
	rc = kedge__rc_events_open(&c->events);
	if (!rc && !id && rdma_create_id(c->events, &c->id, c, RDMA_PS_TCP))
		rc = kedge__rc_failed("rdma_create_id");
	if (!rc && id && rdma_migrate_id(id, c->events))
		rc = kedge__rc_failed("rdma_migrate_id");
	if (rc) {
		kedge__rdma_free(&c->r);
		return rc;
	}
	if (id)
		c->id = id;
	*out = c;
	return 0;
}

static int open_cq(struct rc *c)
{
	c->pd = ibv_alloc_pd(c->id->verbs);
	if (!c->pd)
		return kedge__rc_failed("ibv_alloc_pd");
	c->comp = ibv_create_comp_channel(c->id->verbs);
	if (!c->comp)
		return kedge__rc_failed("ibv_create_comp_channel");
	if (fcntl(c->comp->fd, F_SETFL,
		  fcntl(c->comp->fd, F_GETFL) | O_NONBLOCK))
		return kedge__rc_failed("a descriptor");
	c->cq = ibv_create_cq(c->id->verbs, SEND_WR + RECV_WR, c, c->comp, 0);
	return c->cq ? 0 : kedge__rc_failed("ibv_create_cq");
}

static int open_qp(struct rc *c)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = SEND_WR,
			.max_recv_wr = RECV_WR,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_MAX,
		},
	};

	if (rdma_create_qp(c->id, c->pd, &attr)) {
		/* A device that has none of that. */
		attr.cap.max_inline_data = 0;
		if (rdma_create_qp(c->id, c->pd, &attr))
			return kedge__rc_failed("rdma_create_qp");
	}
	c->inline_max = attr.cap.max_inline_data;
	return 0;
}

static int open_fd(struct rc *c)
{
	struct epoll_event ev = { .events = EPOLLIN };

	c->r.fd = epoll_create1(EPOLL_CLOEXEC);
	if (c->r.fd < 0 ||
	    epoll_ctl(c->r.fd, EPOLL_CTL_ADD, c->comp->fd, &ev) ||
	    epoll_ctl(c->r.fd, EPOLL_CTL_ADD, c->events->fd, &ev))
		return kedge__rc_failed("a descriptor to wait on");
	return 0;
}

static void take_limits(struct rc *c)
{
	struct ibv_port_attr attr;

	if (!ibv_query_port(c->id->verbs, c->id->port_num, &attr) &&
	    attr.max_msg_sz && attr.max_msg_sz < c->r.chunk_len)
		c->r.chunk_len = attr.max_msg_sz;
}

int kedge__rc_ready(struct rc *c)
{
	int rc;

	errno = 0;
	rc = open_cq(c);
	if (!rc)
		rc = open_qp(c);
	if (!rc)
		kedge__rc_windows_init(c);
	if (!rc)
		rc = open_fd(c);
	if (!rc)
		kedge__rc_note(c);
	if (!rc)
		rc = kedge__rdma_bufs(&c->r);
	if (!rc)
		rc = kedge__rdma_post_all(&c->r);
	if (!rc)
		take_limits(c);
	return rc;
}
