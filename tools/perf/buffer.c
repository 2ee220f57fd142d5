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
#include <unistd.h>

#include <kedge/segment.h>

#include "tools/perf/rank.h"

static void *memory(struct perf_rank *r, size_t len)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	switch (r->req.buffers) {
	case PERF_HEAP:
		return r->side->alloc(r->ctx, len);
	case PERF_SEGMENT:
		return aligned_alloc(page, (len + page - 1) & ~(page - 1));
	}
	return malloc(len);
}

static void drop(struct perf_rank *r, struct perf_buffer *b)
{
	kedge_segment_remove(b->segment);
	/* Memory of a side that is closed is gone. */
	if (r->req.buffers != PERF_HEAP)
		free(b->p);
	else if (b->p && r->ctx)
		r->side->free(r->ctx, b->p);
	b->p = NULL;
	b->segment = NULL;
}

static int make(struct perf_rank *r, struct perf_buffer *b)
{
	const size_t len = r->req.bytes;
	int rc = 0;

	b->p = memory(r, len + PERF_GUARD);
	if (!b->p)
		return -ENOMEM;
	memset(b->p, 1, len);
	perf_fill_guard(b->p, len);
	if (r->req.buffers == PERF_SEGMENT && r->side->segments)
		rc = kedge_segment_make(b->p, len + PERF_GUARD, NULL, &b->segment);
	if (rc)
		drop(r, b);
	return rc;
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
	uint32_t i;
	int rc = 0;

	if (r->send_slots && same(&r->req, req))
		return 0;
	perf_buffers_free(r);
	r->req = *req;
	r->send_slots = r->rank ? 1 : req->window;
	r->recv_slots = r->rank ? req->window : 1;
	for (i = 0; i < r->send_slots && !rc; i++)
		rc = make(r, &r->send[i]);
	for (i = 0; i < r->recv_slots && req->buffers != PERF_FRESH && !rc; i++)
		rc = make(r, &r->recv[i]);
	if (rc)
		perf_buffers_free(r);
	return rc;
}
