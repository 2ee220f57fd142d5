/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A channel over libfabric: the port (channel/rdma/port.h), and finding peers.
 *
 * The order of a connection is FI_ORDER_SAW; reliable datagrams complete a write
 * when it has landed (FI_DELIVERY_COMPLETE). Fabrics are shared by a listener and
 * its channels and are counted; each channel has a domain of its own.
 */
#ifndef CHANNEL_OFI_INTERNAL_H
#define CHANNEL_OFI_INTERNAL_H

/* First: libfabric defines container_of() itself unless it is defined. */
#include "base/base.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <kedge/ofi.h>

#include "channel/rdma/internal.h"

#define OFI_API FI_VERSION(1, 17)

_Static_assert(sizeof(struct fi_context2) <=
		       sizeof(((struct rdma_op *)NULL)->room),
	       "a provider's room");

struct ofi_fabric {
	struct fid_fabric *fid;
	unsigned int refs; /* atomic: channels may be of other threads */
};

/*
 * @r:       first
 * @own_key: the provider wants keys of ours
 * @bind_mr: a registration is of the endpoint
 * @rdm:     the endpoint is not connected: @peer, in @av, is the one that it
 *           speaks to, and @ctl_fd the connection that ends with the peer, or -1
 * @tick_fd: in the place of a descriptor of the provider's, or -1
 */
struct ofi {
	struct rdma r;
	struct ofi_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_eq *eq; /* of a connection */
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t peer;
	int tick_fd, ctl_fd;
	bool own_key, bind_mr, rdm;
	uint64_t key_mask;
	uint64_t keys[32];
	uint32_t key_cnt;
};

static inline struct ofi *ofi_of(struct rdma *r)
{
	return container_of(r, struct ofi, r);
}

extern const struct rdma_port kedge__ofi_port;

/* ---- mem.c: registrations ---- */

int kedge__ofi_reg(struct rdma *r, void *at, size_t len, uint32_t access,
		   void **reg);
int kedge__ofi_dereg(struct rdma *r, void *reg);

/* ---- cq.c: completions ---- */

void kedge__ofi_poll(struct rdma *r);

#include "channel/ofi/connect/conn.h"

#endif /* CHANNEL_OFI_INTERNAL_H */
