// SPDX-License-Identifier: BSD-2-Clause
/* The sides' descriptions of themselves (see hello.h) are checked here. */
#include <unistd.h>

#include "channel/rdma/internal.h"

#define EAGER_DEFAULT (8u * 1024)

void kedge__rdma_hello(struct rdma_hello *hello,
		      const struct kedge_channel_opts *opts)
{
	*hello = (struct rdma_hello){
		.magic = HELLO_MAGIC,
		.version = HELLO_VERSION,
		.rx_cnt = RX_CNT,
		.pid = (uint32_t)getpid(),
		.eager_max = eager_or(opts, EAGER_DEFAULT, RDMA_EAGER_MAX),
		.unexpected_cnt = opts->unexpected_cnt,
		.unexpected_bytes = opts->unexpected_bytes,
	};
}

void kedge__rdma_hello_take(struct rdma_hello *hello, const void *data,
			    size_t len)
{
	memset(hello, 0, sizeof(*hello));
	if (len >= sizeof(*hello))
		memcpy(hello, data, sizeof(*hello));
}

int kedge__rdma_hello_check(const struct rdma_hello *h, size_t len)
{
	if (len < sizeof(*h) || h->magic != HELLO_MAGIC)
		return kedge_reason(-EPROTO, "what answers is no kedge, or of "
					     "another byte order");
	if (h->version != HELLO_VERSION)
		return kedge_reason(-EPROTO, "the peer's kedge speaks version "
				    "%u of the protocol, this one %u",
				    h->version, HELLO_VERSION);
	if (h->status)
		return kedge_reason(h->status < -4095 || h->status > 0
					    ? -EPROTO : h->status,
				    "the peer turned this side away");
	if (h->rx_cnt < 8 || h->rx_cnt > 4096 || h->zero || !h->eager_max ||
	    h->eager_max > RDMA_EAGER_MAX || !h->unexpected_cnt ||
	    h->unexpected_cnt > UNEXPECTED_CNT_MAX ||
	    h->unexpected_bytes < h->eager_max ||
	    h->unexpected_bytes > 1u << 30)
		return kedge_reason(-EPROTO, "the peer names limits that no "
				    "channel has: it is no kedge of this "
				    "version, or broken");
	return 0;
}

int kedge__rdma_agree(struct rdma *r, const struct kedge_channel_opts *opts,
		     const struct rdma_hello *hello, struct transport_peer *peer)
{
	uint32_t eager = least(eager_or(opts, EAGER_DEFAULT, RDMA_EAGER_MAX),
			       hello->eager_max);
	int rc = kedge__rdma_hello_check(hello, sizeof(*hello));

	if (rc)
		return rc;
	*peer = (struct transport_peer){
		.eager_max = eager,
		.unexpected_cnt = hello->unexpected_cnt,
		.unexpected_bytes = hello->unexpected_bytes,
	};
	r->credit = r->credit_max = hello->rx_cnt;
	r->heap_max = opts->heap_bytes;
	r->areas_max = opts->pool_bytes;
	return 0;
}

