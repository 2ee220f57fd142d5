// SPDX-License-Identifier: BSD-2-Clause
/*
 * An endpoint of a channel: its domain, queues, buffers and the one descriptor
 * that waits for all of them.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
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

	o->pins = mode & (FI_MR_LOCAL | FI_MR_ALLOCATED);
	o->local_desc = mode & FI_MR_LOCAL;
	o->virt = mode & FI_MR_VIRT_ADDR;
	o->own_key = !(mode & FI_MR_PROV_KEY);
	o->bind_mr = mode & FI_MR_ENDPOINT;
	o->rdm = info->ep_attr->type == FI_EP_RDM;
	o->ordered = !o->rdm && order & FI_ORDER_SAW;
	/* Only where such a write takes no buffer of those that are posted. */
	o->tells = o->ordered && info->domain_attr->cq_data_size >= 4 &&
		   !((info->mode | info->rx_attr->mode) & FI_RX_CQ_DATA);
	o->batch = o->tells && !o->pins &&
		   info->tx_attr->comp_order & FI_ORDER_STRICT;
	o->key_mask = key_len && key_len < 8
			      ? (UINT64_C(1) << key_len * 8) - 1
			      : UINT64_MAX;
	o->inject_len = info->tx_attr->inject_size;
	o->chunk_len = CHUNK_LEN;
	if (info->ep_attr->max_msg_size < o->chunk_len)
		o->chunk_len = info->ep_attr->max_msg_size;
	o->rx_cnt = RX_CNT + RX_SPARE;
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
	o->fd = epoll_create1(EPOLL_CLOEXEC);
	if (cq_fd < 0 || o->fd < 0 ||
	    epoll_ctl(o->fd, EPOLL_CTL_ADD, cq_fd, &ev) ||
	    (o->eq && epoll_ctl(o->fd, EPOLL_CTL_ADD, eq_fd, &ev))) {
		rc = -errno;
		return kedge_reason(rc, "no descriptor to wait on: error %d",
				    -rc);
	}
	return 0;
}

static int make_bufs(struct ofi *o)
{
	uint32_t i;
	int rc;

	o->buf_cnt = o->rx_cnt + TX_CNT;
	o->slab_len = (size_t)o->buf_cnt * BUF_LEN;
	o->bufs = calloc(o->buf_cnt, sizeof(*o->bufs));
	o->slab = mmap(NULL, o->slab_len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (o->slab == MAP_FAILED)
		o->slab = NULL;
	if (!o->slab || !o->bufs)
		return kedge_reason(-ENOMEM, "no memory for packets");
	if (o->local_desc) {
		rc = kedge__ofi_reg(o, o->slab, o->slab_len, FI_SEND | FI_RECV,
				    &o->slab_mr);
		if (rc)
			return rc;
		o->slab_desc = fi_mr_desc(o->slab_mr);
	}
	for (i = 0; i < o->buf_cnt; i++) {
		o->bufs[i].data = o->slab + (size_t)i * BUF_LEN;
		o->bufs[i].op.kind = i < o->rx_cnt ? OFI_RX : OFI_TX;
		list_init(&o->bufs[i].node);
		if (i >= o->rx_cnt)
			list_add_tail(&o->free_tx, &o->bufs[i].node);
	}
	o->free_cnt = TX_CNT;
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
				(o->batch ? FI_SELECTIVE_COMPLETION : 0));
	if (!rc)
		rc = fi_enable(o->ep);
	return rc ? failed(rc, "fi_enable") : 0;
}

int kedge__ofi_post_all(struct ofi *o)
{
	uint32_t i;
	int rc;

	for (i = 0; i < o->rx_cnt; i++) {
		rc = kedge__ofi_repost(o, &o->bufs[i]);
		if (rc)
			return rc;
	}
	return 0;
}

static struct ofi *ofi_new(struct ofi_fabric *fabric)
{
	struct ofi *o = calloc(1, sizeof(*o));
	uint32_t i;

	if (!o)
		return NULL;
	o->fd = o->tick_fd = o->ctl_fd = -1;
	o->pid = getpid();
	list_init(&o->free_tx);
	list_init(&o->ready);
	list_init(&o->posted);
	list_init(&o->came);
	list_init(&o->unposted);
	list_init(&o->sending);
	list_init(&o->landing);
	list_init(&o->idle_writes);
	list_init(&o->staged);
	list_init(&o->written);
	list_init(&o->heap);
	list_init(&o->spare_windows);
	for (i = 0; i < WRITE_CNT; i++) {
		o->writes[i].op.kind = OFI_WRITE;
		list_add_tail(&o->idle_writes, &o->writes[i].node);
	}
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
		rc = make_bufs(o);
	if (!rc && !o->rdm)
		rc = kedge__ofi_post_all(o);
	if (!rc) {
		*out = o;
		return 0;
	}

free_ofi:
	/* It knows what there is. */
	kedge__ofi_free(o);
	return rc;
}

static void close_fids(struct ofi *o)
{
	if (o->ep)
		fi_close(&o->ep->fid);
	kedge__ofi_flows_free(o);
	kedge__ofi_mem_fini(o);
	if (o->slab_mr)
		fi_close(&o->slab_mr->fid);
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

void kedge__ofi_free(struct ofi *o)
{
	/* In a forked child they are the parent's. */
	if (o->pid == getpid())
		close_fids(o);
	if (o->ctl_fd >= 0) {
		/* A child that was forked since has it open, too. */
		if (o->pid == getpid())
			shutdown(o->ctl_fd, SHUT_RDWR);
		close(o->ctl_fd);
	}
	if (o->fd >= 0)
		close(o->fd);
	if (o->tick_fd >= 0)
		close(o->tick_fd);
	if (o->slab)
		munmap(o->slab, o->slab_len);
	free(o->bufs);
	free(o);
}
