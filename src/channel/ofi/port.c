// SPDX-License-Identifier: BSD-2-Clause
/* A provider's endpoint as a port. */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "channel/ofi/internal.h"

#define TICK_NS 1000000

/* The result of a post, as a port's calls return it. */
static int posted(ssize_t rc, const char *call)
{
	if (!rc)
		return 0;
	return rc == -FI_EAGAIN ? -EAGAIN
				: kedge_reason(kedge__ofi_errno(rc), "%s: %s",
					       call, fi_strerror((int)-rc));
}

static int port_send(struct rdma *r, struct rdma_buf *b, bool inject)
{
	struct ofi *o = ofi_of(r);
	const struct iovec iov = { .iov_base = b->data, .iov_len = b->len };
	const struct fi_msg msg = { .msg_iov = &iov, .desc = &r->slab_desc,
				    .iov_count = 1, .addr = o->peer,
				    .context = &b->op };

	if (inject)
		return posted(fi_inject(o->ep, b->data, b->len, o->peer),
			      "fi_inject");
	return posted(fi_sendmsg(o->ep, &msg, FI_COMPLETION), "fi_sendmsg");
}

static int port_recv(struct rdma *r, struct rdma_buf *b)
{
	struct ofi *o = ofi_of(r);

	return posted(fi_recv(o->ep, b->data, BUF_LEN, r->slab_desc, o->peer,
			      &b->op), "fi_recv");
}

static int port_write(struct rdma *r, struct rdma_write *w, bool asked)
{
	struct ofi *o = ofi_of(r);
	const struct fi_rma_iov to = { w->to.addr, w->to.len, w->to.key };
	const struct fi_msg_rma msg = {
		.msg_iov = &w->from, .desc = &w->desc, .iov_count = 1,
		.addr = o->peer,
		.rma_iov = &to, .rma_iov_count = 1,
		.context = &w->op,
		.data = w->flow->id,
	};
	uint64_t flags = asked ? FI_COMPLETION : 0;

	if (w->tells)
		flags |= FI_REMOTE_CQ_DATA;
	if (!r->ordered)
		flags |= FI_DELIVERY_COMPLETE;
	return posted(fi_writemsg(o->ep, &msg, flags), "fi_writemsg");
}

static int port_read(struct rdma *r, struct flow *f)
{
	struct ofi *o = ofi_of(r);
	const size_t len = f->target_cnt * sizeof(*f->target);
	const struct iovec to = { .iov_base = f->target, .iov_len = len };
	const struct fi_rma_iov from = { f->table.addr, len, f->table.key };
	void *desc = f->table_reg ? fi_mr_desc(f->table_reg) : NULL;
	const struct fi_msg_rma msg = {
		.msg_iov = &to, .desc = &desc, .iov_count = 1,
		.addr = o->peer,
		.rma_iov = &from, .rma_iov_count = 1,
		.context = &f->read_op,
	};

	return posted(fi_readmsg(o->ep, &msg, FI_COMPLETION), "fi_readmsg");
}

int kedge__ofi_ctl_check(struct ofi *o)
{
	char byte;
	ssize_t n;

	if (o->ctl_fd < 0)
		return 0;
	n = recv(o->ctl_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	/* No byte is due there: it is the end, or the peer is no kedge. */
	return -ECONNRESET;
}

static bool port_over(struct rdma *r)
{
	struct ofi *o = ofi_of(r);
	struct rdma_hello ignored;
	struct fi_info *info;
	uint32_t event;

	if (o->rdm)
		return kedge__ofi_ctl_check(o);
	return kedge__ofi_eq_read(o->eq, &event, &info, &ignored) != -EAGAIN;
}

static int port_arm(struct rdma *r)
{
	const struct itimerspec soon = { .it_value = { .tv_nsec = TICK_NS } };
	struct ofi *o = ofi_of(r);
	struct fid *fids[2];
	int cnt = 0;

	if (o->tick_fd >= 0) {
		timerfd_settime(o->tick_fd, 0, &soon, NULL);
		return 0;
	}
	fids[cnt++] = &o->cq->fid;
	if (o->eq)
		fids[cnt++] = &o->eq->fid;
	return fi_trywait(o->fabric->fid, fids, cnt) ? 1 : 0;
}

/* The provider lets go of memory when its endpoint is closed. */
static void port_halt(struct rdma *r)
{
	struct ofi *o = ofi_of(r);

	if (o->ctl_fd >= 0)
		shutdown(o->ctl_fd, SHUT_RDWR);
	if (o->ep)
		fi_close(&o->ep->fid);
	o->ep = NULL;
}

static void close_fids(struct ofi *o)
{
	if (o->av)
		fi_close(&o->av->fid);
	if (o->cq)
		fi_close(&o->cq->fid);
	if (o->eq)
		fi_close(&o->eq->fid);
	if (o->domain)
		fi_close(&o->domain->fid);
	kedge__ofi_fabric_put(o->fabric);
}

static void port_close(struct rdma *r, bool ours)
{
	struct ofi *o = ofi_of(r);

	if (ours)
		close_fids(o);
	if (o->ctl_fd >= 0)
		close(o->ctl_fd);
	if (r->fd >= 0)
		close(r->fd);
	if (o->tick_fd >= 0)
		close(o->tick_fd);
	free(o);
}

static void *port_desc(void *reg)
{
	return fi_mr_desc(reg);
}

static uint64_t port_key(void *reg)
{
	return fi_mr_key(reg);
}

const struct rdma_port kedge__ofi_port = {
	.send = port_send,
	.recv = port_recv,
	.write = port_write,
	.read = port_read,
	.poll = kedge__ofi_poll,
	.over = port_over,
	.arm = port_arm,
	.halt = port_halt,
	.close = port_close,
	.reg = kedge__ofi_reg,
	.dereg = kedge__ofi_dereg,
	.desc = port_desc,
	.key = port_key,
};
