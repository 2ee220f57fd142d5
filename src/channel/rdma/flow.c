// SPDX-License-Identifier: BSD-2-Clause
/* Flows: messages with data under way. */
#include <stdlib.h>
#include "channel/rdma/internal.h"

struct flow *kedge__rdma_flow_new(struct bulk *b, uint32_t id)
{
	struct flow *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	list_init(&f->node);
	f->bulk = b;
	f->id = id;
	f->len = b->len;
	f->read_op.kind = RDMA_READ;
	return f;
}

void kedge__rdma_flow_free(struct flow *f)
{
	list_remove(&f->node);
	free(f->target);
	free(f->mr);
	free(f->edge);
	free(f);
}

struct flow *kedge__rdma_flow_find(struct list *flows, uint32_t id)
{
	struct list *l, *tmp;
	struct flow *f;

	list_for_each_safe(l, tmp, flows) {
		f = list_entry(l, struct flow, node);
		if (f->id == id)
			return f;
	}
	return NULL;
}

int kedge__rdma_stop_wait(struct rdma *r, struct flow *f)
{
	if (!f->deadline)
		f->deadline = clock_after_ns(STOP_NS);
	if (clock_ns() < f->deadline)
		return -EBUSY;
	/* The one way left to be sure. */
	kedge__log(KEDGE_LOG_WARN, "the peer did not let go of a message in "
				   "time: the connection is closed");
	kedge__rdma_die(r, -ECONNRESET);
	return 0;
}
