// SPDX-License-Identifier: BSD-2-Clause
/* A connection that is at its end: nothing of it touches memory any more. */
#include "channel/rdma/internal.h"

void kedge__rdma_write_idle(struct rdma *r, struct rdma_write *w)
{
	struct flow *f = w->flow;

	if (w->cached)
		kedge_cache_put(r->cache, w->cached);
	w->cached = NULL;
	w->flow = NULL;
	f->in_flight--;
	r->flight_len -= w->len;
	list_remove(&w->node);
	list_add_tail(&r->idle_writes, &w->node);
}

void kedge__rdma_die(struct rdma *r, int why)
{
	uint32_t i;

	if (r->err)
		return;
	/* Torn bytes: the connection beside this one tells that the peer has died. */
	if (why == -EPROTO && r->torn && r->port->over(r))
		why = -ECONNRESET;
	r->err = why;
	r->port->halt(r);
	/* From here on no memory of ours is touched and no write completes. */
	for (i = 0; i < WRITE_CNT; i++)
		if (r->writes[i].flow)
			kedge__rdma_write_idle(r, &r->writes[i]);
}
