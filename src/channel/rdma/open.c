// SPDX-License-Identifier: BSD-2-Clause
/* A connection's buffers and lists: made, waited for, freed. */
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/rdma/internal.h"

#define ROUND_MS 20

/* In rounds: what a provider does in between needs no event. */
int kedge__rdma_wait(int fd, uint64_t deadline)
{
	return kedge__wait_for(fd, POLLIN, deadline, ROUND_MS);
}

void kedge__rdma_init(struct rdma *r, const struct rdma_port *port)
{
	uint32_t i;

	r->port = port;
	r->fd = -1;
	r->pid = getpid();
	r->rx_cnt = RX_CNT + RX_SPARE;
	list_init(&r->free_tx);
	list_init(&r->ready);
	list_init(&r->posted);
	list_init(&r->came);
	list_init(&r->unposted);
	list_init(&r->sending);
	list_init(&r->landing);
	list_init(&r->idle_writes);
	list_init(&r->staged);
	list_init(&r->written);
	list_init(&r->heap);
	list_init(&r->spare_windows);
	list_init(&r->areas);
	for (i = 0; i < WRITE_CNT; i++) {
		r->writes[i].op.kind = RDMA_WRITE;
		list_add_tail(&r->idle_writes, &r->writes[i].node);
	}
}

int kedge__rdma_bufs(struct rdma *r)
{
	uint32_t i;
	int rc;

	r->buf_cnt = r->rx_cnt + TX_CNT;
	r->slab_len = (size_t)r->buf_cnt * BUF_LEN;
	r->bufs = calloc(r->buf_cnt, sizeof(*r->bufs));
	r->slab = mmap(NULL, r->slab_len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->slab == MAP_FAILED)
		r->slab = NULL;
	if (!r->slab || !r->bufs)
		return kedge_reason(-ENOMEM, "no memory for packets");
	/* Pages that are pinned would be copied for a child. */
	if (madvise(r->slab, r->slab_len, MADV_DONTFORK)) {
		munmap(r->slab, r->slab_len);
		r->slab = NULL;
		return kedge_reason(-ENOMEM, "no mapping for packets");
	}
	if (r->local_desc) {
		rc = r->port->reg(r, r->slab, r->slab_len,
				  KEDGE_ACCESS_LOCAL_WRITE, &r->slab_reg);
		if (rc)
			return rc;
		r->slab_desc = r->port->desc(r->slab_reg);
	}
	for (i = 0; i < r->buf_cnt; i++) {
		r->bufs[i].data = r->slab + (size_t)i * BUF_LEN;
		r->bufs[i].op.kind = i < r->rx_cnt ? RDMA_RX : RDMA_TX;
		list_init(&r->bufs[i].node);
		if (i >= r->rx_cnt)
			list_add_tail(&r->free_tx, &r->bufs[i].node);
	}
	r->free_cnt = TX_CNT;
	return 0;
}

int kedge__rdma_post_all(struct rdma *r)
{
	uint32_t i;
	int rc;

	for (i = 0; i < r->rx_cnt; i++) {
		rc = kedge__rdma_repost(r, &r->bufs[i]);
		if (rc)
			return rc;
	}
	return 0;
}

void kedge__rdma_free(struct rdma *r)
{
	bool ours = r->pid == getpid();

	/* In a forked child they are the parent's. */
	if (ours) {
		if (!r->err)
			r->port->halt(r);
		kedge__rdma_flows_free(r);
		kedge__rdma_areas_free(r);
		kedge__rdma_mem_fini(r);
		if (r->slab_reg)
			r->port->dereg(r, r->slab_reg);
	}
	/* A child has none. */
	if (r->slab && ours)
		munmap(r->slab, r->slab_len);
	free(r->bufs);
	r->port->close(r, ours);
}
