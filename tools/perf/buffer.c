// SPDX-License-Identifier: BSD-2-Clause
/*
 * The buffers of a rank. It has a window of them to send from or to receive
 * into, as its part in the stream has it, and one for the other direction.
 * Those that are used again are touched when they are made; fresh ones to
 * receive into are made for each message (pattern.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/rank.h"

static void *make(struct perf_rank *r, bool heap, size_t len)
{
	void *p = heap ? r->side->alloc(r->ctx, len + PERF_GUARD)
		       : malloc(len + PERF_GUARD);

	if (!p)
		return NULL;
	memset(p, 1, len);
	perf_fill_guard(p, len);
	return p;
}

static void drop(struct perf_rank *r, void **p)
{
	/* Memory of a side that is closed is gone. */
	if (r->req.buffers != PERF_HEAP)
		free(*p);
	else if (*p && r->ctx)
		r->side->free(r->ctx, *p);
	*p = NULL;
}

void perf_buffers_free(struct perf_rank *r)
{
	uint32_t i;

	for (i = 0; i < r->send_slots; i++)
		drop(r, &r->send[i]);
	for (i = 0; i < r->recv_slots; i++)
		drop(r, &r->recv[i]);
	r->send_slots = 0;
	r->recv_slots = 0;
}

static bool same(const struct perf_req *a, const struct perf_req *b)
{
	return a->bytes == b->bytes && a->buffers == b->buffers &&
	       a->window == b->window;
}

int perf_buffers_make(struct perf_rank *r, const struct perf_req *req)
{
	const bool heap = req->buffers == PERF_HEAP;
	uint32_t i;

	if (r->send_slots && same(&r->req, req))
		return 0;
	perf_buffers_free(r);
	r->req = *req;
	r->send_slots = r->rank ? 1 : req->window;
	r->recv_slots = r->rank ? req->window : 1;
	for (i = 0; i < r->send_slots; i++) {
		r->send[i] = make(r, heap, req->bytes);
		if (!r->send[i])
			goto free_buffers;
	}
	for (i = 0; i < r->recv_slots && req->buffers != PERF_FRESH; i++) {
		r->recv[i] = make(r, heap, req->bytes);
		if (!r->recv[i])
			goto free_buffers;
	}
	return 0;

free_buffers:
	perf_buffers_free(r);
	return -ENOMEM;
}
