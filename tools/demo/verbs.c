// SPDX-License-Identifier: BSD-2-Clause
/*
 * The demo's device: RDMA memory regions. Another process moves the data, and
 * knows of the buffers no more than their addresses and rkeys.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <kedge/verbs.h>

#include "tools/demo/peer.h"

#define REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* A raw registration. @busy: transfers under way; @doomed: to be deregistered
 * after them, as the peer could not go on otherwise */
struct slot {
	struct ibv_mr *mr;
	uint32_t busy;
	bool doomed;
};

struct link {
	struct rdma_dev dev;
	struct rdma_end end;
	struct demo_peer peer;
	struct slot slot[DEMO_SLOTS];
};

static int verbs_open(struct demo_device *d, const struct demo_file *file,
		      const char *name)
{
	struct link *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return kedge_reason(-ENOMEM, "no memory");
	rc = rdma_dev_open(&l->dev, name);
	if (rc)
		goto free_link;
	rc = rdma_end_open(&l->end, &l->dev, 1);
	if (rc)
		goto close_dev;
	rc = demo_peer_start(&l->peer, &l->end, file);
	if (rc)
		goto close_end;
	snprintf(d->label, sizeof(d->label), "RDMA device %s", l->dev.name);
	d->ctx = l;
	return 0;

close_end:
	rdma_end_close(&l->end);
close_dev:
	rdma_dev_close(&l->dev);
free_link:
	free(l);
	return rc;
}

static void verbs_close(struct demo_device *d)
{
	struct link *l = d->ctx;

	demo_peer_stop(&l->peer);
	rdma_end_close(&l->end);
	rdma_dev_close(&l->dev);
	free(l);
}

static int verbs_table_open(struct demo_device *d)
{
	struct link *l = d->ctx;

	memset(l->slot, 0, sizeof(l->slot));
	return 0;
}

static void drop(struct slot *s)
{
	if (s->mr)
		ibv_dereg_mr(s->mr);
	memset(s, 0, sizeof(*s));
}

static void verbs_table_close(struct demo_device *d)
{
	struct link *l = d->ctx;
	size_t i;

	for (i = 0; i < DEMO_SLOTS; i++)
		drop(&l->slot[i]);
}

static int verbs_reg(struct demo_device *d, int slot, void *buf)
{
	struct link *l = d->ctx;
	struct slot *s = &l->slot[slot];

	/* Free again, but its last transfer is still under way. */
	if (s->mr)
		return -ENOSPC;
	errno = ENOMEM;
	s->mr = ibv_reg_mr(l->dev.pd, buf, DEMO_CHUNK,
			   IBV_ACCESS_LOCAL_WRITE | REMOTE);
	return s->mr ? 0 : -errno;
}

static void verbs_dereg(struct demo_device *d, int slot)
{
	struct link *l = d->ctx;
	struct slot *s = &l->slot[slot];

	s->doomed = true;
	if (!s->busy)
		drop(s);
}

static int verbs_kedge_open(struct demo_device *d, struct kedge_device **dev)
{
	struct link *l = d->ctx;

	return kedge_device_open_verbs(l->dev.pd, NULL, dev);
}

static int verbs_queue(struct demo_device *d, const struct demo_io *io)
{
	struct link *l = d->ctx;
	const struct kedge_mr *mr = io->reg->mr;
	struct demo_ask ask = {
		.chunk = io->chunk,
		.tag = (uintptr_t)io->tag,
		.slot = mr ? -1 : io->reg->slot,
		.writing = io->writing,
	};
	ssize_t n;

	if (mr) {
		ask.addr = kedge_verbs_iova(mr, io->buf);
		ask.rkey = kedge_verbs_rkey(mr);
	} else {
		ask.addr = (uintptr_t)io->buf;
		ask.rkey = l->slot[ask.slot].mr->rkey;
	}
	do
		n = send(l->peer.sock, &ask, sizeof(ask), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return kedge_reason(-errno, "the peer process is gone: %s",
				    strerror(errno));
	if (!mr)
		l->slot[ask.slot].busy++;
	return 0;
}

static void verbs_submit(struct demo_device *d)
{
}

static int verbs_wait(struct demo_device *d)
{
	struct link *l = d->ctx;
	struct pollfd p = { .fd = l->peer.sock, .events = POLLIN };
	int rc = poll(&p, 1, DEMO_PEER_TIMEOUT_MS);

	if (rc < 0 && errno != EINTR)
		return kedge_reason(-errno, "cannot wait for the peer: %s",
				    strerror(errno));
	if (!rc)
		return kedge_reason(-ETIMEDOUT, "the peer process does not "
				    "answer");
	if (rc > 0 && !(p.revents & POLLIN))
		return kedge_reason(-EPIPE, "the peer process is gone");
	return 0;
}

static bool verbs_next(struct demo_device *d, void **tag, int *res)
{
	struct link *l = d->ctx;
	struct demo_answer answer;
	struct slot *s;

	if (recv(l->peer.sock, &answer, sizeof(answer), MSG_DONTWAIT) !=
	    sizeof(answer))
		return false;
	if (answer.slot >= 0) {
		s = &l->slot[answer.slot];
		s->busy--;
		if (s->doomed && !s->busy)
			drop(s);
	}
	*tag = (void *)(uintptr_t)answer.tag;
	*res = answer.res;
	return true;
}

int demo_verbs_find(char *name, size_t size, unsigned int *port)
{
	struct rdma_dev dev;
	int rc = rdma_dev_open(&dev, NULL);

	if (rc)
		return rc;
	snprintf(name, size, "%s", dev.name);
	*port = dev.port;
	rdma_dev_close(&dev);
	return 0;
}

const struct demo_device_ops demo_device_verbs = {
	.name = "verbs",
	.access = KEDGE_ACCESS_LOCAL_WRITE | KEDGE_ACCESS_REMOTE_READ |
		  KEDGE_ACCESS_REMOTE_WRITE,
	.chunks = 16,
	.max_bytes = 16ull << 20,
	.open = verbs_open,
	.close = verbs_close,
	.table_open = verbs_table_open,
	.table_close = verbs_table_close,
	.reg = verbs_reg,
	.dereg = verbs_dereg,
	.kedge_open = verbs_kedge_open,
	.queue = verbs_queue,
	.submit = verbs_submit,
	.wait = verbs_wait,
	.next = verbs_next,
};
