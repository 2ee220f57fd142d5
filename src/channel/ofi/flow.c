// SPDX-License-Identifier: BSD-2-Clause
/* Flows: messages with data under way. */
#include <stdlib.h>
#include "channel/ofi/internal.h"

struct flow *kedge__ofi_flow_new(struct bulk *b, uint32_t id)
{
	struct flow *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	list_init(&f->node);
	f->bulk = b;
	f->id = id;
	f->len = b->len;
	f->read_op.kind = OFI_READ;
	return f;
}

void kedge__ofi_flow_free(struct flow *f)
{
	list_remove(&f->node);
	free(f->target);
	free(f->mr);
	free(f);
}

struct flow *kedge__ofi_flow_find(struct list *flows, uint32_t id)
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

int kedge__ofi_stop_wait(struct ofi *o, struct flow *f)
{
	if (!f->deadline)
		f->deadline = clock_ns() + STOP_NS;
	if (clock_ns() < f->deadline)
		return -EBUSY;
	/* The one way left to be sure. */
	kedge__log(KEDGE_LOG_WARN, "the peer did not let go of a message in "
				   "time: the connection is closed");
	kedge__ofi_die(o, -ECONNRESET);
	return 0;
}
