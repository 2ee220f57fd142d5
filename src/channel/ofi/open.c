// SPDX-License-Identifier: BSD-2-Clause
/*
 * An endpoint of a channel: its domain, queues, buffers and the one descriptor
 * that waits for all of them.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "channel/ofi/internal.h"

static int failed(int rc, const char *what)
{
	return kedge_reason(kedge__ofi_errno(rc), "%s: %s", what,
			    fi_strerror(-rc));
}

/* Take the provider's demands on us. */
static void take_attr(struct ofi *o, const struct fi_info *info)
{
	const int mode = info->domain_attr->mr_mode;
	const uint64_t order = info->tx_attr->msg_order &
			       info->rx_attr->msg_order;
	size_t key_len = info->domain_attr->mr_key_size;

	o->r.pins = mode & (FI_MR_LOCAL | FI_MR_ALLOCATED);
	o->r.local_desc = mode & FI_MR_LOCAL;
	o->r.virt = mode & FI_MR_VIRT_ADDR;
	o->own_key = !(mode & FI_MR_PROV_KEY);
	o->bind_mr = mode & FI_MR_ENDPOINT;
	o->rdm = o->r.torn = info->ep_attr->type == FI_EP_RDM;
	o->r.ordered = !o->rdm && order & FI_ORDER_SAW;
	/* Only where such a write takes no buffer of those that are posted. */
	o->r.tells = o->r.ordered && info->domain_attr->cq_data_size >= 4 &&
		   !((info->mode | info->rx_attr->mode) & FI_RX_CQ_DATA);
	o->r.batch = o->r.tells && !o->r.pins &&
		   info->tx_attr->comp_order & FI_ORDER_STRICT;
	o->key_mask = key_len && key_len < 8
			      ? (UINT64_C(1) << key_len * 8) - 1
			      : UINT64_MAX;
	o->r.inject_len = info->tx_attr->inject_size;
	o->r.chunk_len = CHUNK_LEN;
	if (info->ep_attr->max_msg_size < o->r.chunk_len)
		o->r.chunk_len = info->ep_attr->max_msg_size;
}

static int open_cq(struct ofi *o, int *fd)
{
	struct fi_cq_attr attr = {
		.size = 2 * (RX_CNT + RX_SPARE + TX_CNT + WRITE_CNT),
		.format = FI_CQ_FORMAT_DATA,
		.wait_obj = FI_WAIT_FD,
	};
	int rc;

	rc = fi_cq_open(o->domain, &attr, &o->cq, NULL);
	if (!rc)
		rc = fi_control(&o->cq->fid, FI_GETWAIT, fd);
	if (!rc || !o->rdm)
		return rc ? failed(rc, "fi_cq_open") : 0;
	/* "shm" has no such descriptor: a waiter looks every millisecond. */
	if (o->cq)
		fi_close(&o->cq->fid);
	o->cq = NULL;
	attr.wait_obj = FI_WAIT_NONE;
	rc = fi_cq_open(o->domain, &attr, &o->cq, NULL);
	if (rc)
		return failed(rc, "fi_cq_open");
	*fd = o->tick_fd = timerfd_create(CLOCK_MONOTONIC,
					  TFD_CLOEXEC | TFD_NONBLOCK);
	return 0;
}

static int open_queues(struct ofi *o)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int rc, cq_fd = -1, eq_fd = -1;

	if (!o->rdm) {
		rc = kedge__ofi_eq_open(o->fabric->fid, &o->eq, &eq_fd);
		if (rc)
			return rc;
	}
	rc = open_cq(o, &cq_fd);
	if (rc)
		return rc;
	o->r.fd = epoll_create1(EPOLL_CLOEXEC);
	if (cq_fd < 0 || o->r.fd < 0 ||
	    epoll_ctl(o->r.fd, EPOLL_CTL_ADD, cq_fd, &ev) ||
	    (o->eq && epoll_ctl(o->r.fd, EPOLL_CTL_ADD, eq_fd, &ev))) {
		rc = -errno;
		return kedge_reason(rc, "no descriptor to wait on: error %d",
				    -rc);
	}
	return 0;
}

static int open_av(struct ofi *o, const struct fi_info *info)
{
	struct fi_av_attr attr = { .type = info->domain_attr->av_type,
				   .count = 1 };
	int rc = fi_av_open(o->domain, &attr, &o->av, NULL);

	return rc ? failed(rc, "fi_av_open") : 0;
}

static int open_endpoint(struct ofi *o, struct fi_info *info)
{
	struct fid *where;
	int rc;

	if (o->rdm) {
		rc = open_av(o, info);
		if (rc)
			return rc;
	}
	where = o->rdm ? &o->av->fid : &o->eq->fid;
	rc = fi_endpoint(o->domain, info, &o->ep, NULL);
	if (rc)
		return failed(rc, "fi_endpoint");
	rc = fi_ep_bind(o->ep, where, 0);
	if (!rc)
		rc = fi_ep_bind(o->ep, &o->cq->fid, FI_RECV);
	if (!rc)
		rc = fi_ep_bind(o->ep, &o->cq->fid, FI_TRANSMIT |
				(o->r.batch ? FI_SELECTIVE_COMPLETION : 0));
	if (!rc)
		rc = fi_enable(o->ep);
	return rc ? failed(rc, "fi_enable") : 0;
}

static struct ofi *ofi_new(struct ofi_fabric *fabric)
{
	struct ofi *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	kedge__rdma_init(&o->r, &kedge__ofi_port);
	o->tick_fd = o->ctl_fd = -1;
	/* Relaxed: whoever calls this holds a reference. */
	__atomic_add_fetch(&fabric->refs, 1, __ATOMIC_RELAXED);
	o->fabric = fabric;
	return o;
}

int kedge__ofi_open(struct ofi_fabric *fabric, struct fi_info *info,
		    struct ofi **out)
{
	struct ofi *o = ofi_new(fabric);
	int rc;

	if (!o)
		return kedge_reason(-ENOMEM, "no memory for a channel");
	take_attr(o, info);
	rc = fi_domain(fabric->fid, info, &o->domain, NULL);
	if (rc) {
		rc = failed(rc, "fi_domain");
		goto free_ofi;
	}
	rc = open_queues(o);
	if (!rc)
		rc = open_endpoint(o, info);
	if (!rc)
		rc = kedge__rdma_bufs(&o->r);
	if (!rc && !o->rdm)
		rc = kedge__rdma_post_all(&o->r);
	if (!rc) {
		*out = o;
		return 0;
	}

free_ofi:
	/* It knows what there is. */
	kedge__rdma_free(&o->r);
	return rc;
}
