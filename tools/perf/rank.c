// SPDX-License-Identifier: BSD-2-Clause
/* One end of a pair: a process that opens its side, then serves requests. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/perf/perf.h"

void perf_rank_prepare(void)
{
	/*
	 * glibc raises the threshold to the size of what is freed, after which
	 * a "fresh" buffer is the one before, pages and all. Setting it keeps
	 * it where it is.
	 */
	mallopt(M_MMAP_THRESHOLD, (int)PERF_MAP_BYTES);
}

static void perf_rank_settle(struct perf_rank *r)
{
	r->yield = proc_cpus() < 2;
	/* After the side's own threads, which shall not inherit a CPU. A
	 * failure costs precision alone. */
	proc_pin(r->rank);
}

void perf_rank_fini(struct perf_rank *r)
{
	/* A side that failed may still write into the buffers. */
	if (!r->broken)
		perf_buffers_free(r);
	if (r->ctx)
		r->side->close(r->ctx);
	r->ctx = NULL;
	perf_buffers_free(r);
}

static void serve(struct perf_rank *r, int fd)
{
	struct perf_req req;
	struct perf_rep rep;

	while (!proc_recv(fd, &req, sizeof(req))) {
		perf_rank_run(r, &req, &rep);
		if (proc_send(fd, &rep, sizeof(rep)) || r->broken)
			return;
	}
}

void perf_rank_child(int fd, void *arg)
{
	const struct perf_child *c = arg;
	struct perf_rep hello = { 0 };
	struct perf_rank *r = calloc(1, sizeof(*r));

	close(c->ends[!c->rank]);
	perf_rank_prepare();
	if (!r) {
		hello.rc = -ENOMEM;
		snprintf(hello.why, sizeof(hello.why), "no memory");
		proc_send(fd, &hello, sizeof(hello));
		return;
	}
	r->side = c->cfg->side;
	r->rank = c->rank;
	r->moved = c->moved;
	hello.rc = r->side->open(c->cfg, c->rank, c->ends[c->rank], &r->ctx,
				 &hello.facts, hello.why);
	if (!hello.rc)
		perf_rank_settle(r);
	if (!proc_send(fd, &hello, sizeof(hello)) && !hello.rc)
		serve(r, fd);
	perf_rank_fini(r);
	free(r);
}
