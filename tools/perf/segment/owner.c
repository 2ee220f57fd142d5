// SPDX-License-Identifier: BSD-2-Clause
/* The process whose memory is attached. It sleeps but while it is asked. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "tools/perf/segment/segment.h"

#define HUGE ((size_t)2 << 20)

static struct kedge_segment_opts opts_of(uint32_t backend)
{
	return (struct kedge_segment_opts){ .size = sizeof(struct kedge_segment_opts),
					    .backend = backend };
}

/* Why @rc: what the segment says that is had instead, or the error. */
static void ask_why(int rc, char *mem, size_t len, char why[128])
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment *s;

	snprintf(why, 128, "%s", kedge_strerror(rc));
	if (kedge_segment_make(mem, len, NULL, &s))
		return;
	if (!kedge_segment_info(s, &i) && *i.reason)
		snprintf(why, 128, "%s", i.reason);
	kedge_segment_remove(s);
}

static char *new_memory(size_t len)
{
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return NULL;
	madvise(mem, len, MADV_NOHUGEPAGE);
	return mem;
}

/* The segment that is measured, until this process ends. */
static char *share(const struct seg_owner *o, struct seg_rep *rep)
{
	const struct kedge_segment_opts opts = opts_of(o->backend);
	struct kedge_segment *s;
	char *mem = new_memory(o->len);

	if (!mem) {
		rep->rc = -ENOMEM;
		return NULL;
	}
	memset(mem, 1, o->len);
	seg_chain(mem);
	memset(mem + o->len - SEG_LINES, 0, SEG_LINES);
	rep->rc = kedge_segment_make(mem, o->len, &opts, &s);
	if (!rep->rc)
		rep->rc = kedge_segment_id(s, &rep->id);
	else
		ask_why(rep->rc, mem, o->len, rep->why);
	return mem;
}

/* ---- what it is asked for ---- */

/* Memory of its own each time: a second conversion would find what the first has
 * left, and no huge pages. */
static int make(const struct seg_owner *o, const struct seg_req *req,
		struct seg_rep *rep)
{
	const struct kedge_segment_opts opts = opts_of(o->backend);
	const size_t len = 2 * SEG_MADE + HUGE;
	char *raw = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *mem = raw == MAP_FAILED ? NULL : (char *)round_up((uintptr_t)raw, HUGE);
	struct kedge_segment *s;
	uint64_t start;
	int rc;

	if (!mem)
		return -errno;
	madvise(mem, 2 * SEG_MADE, req->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(mem, 1, 2 * SEG_MADE);
	start = clock_ns();
	memcpy(mem + SEG_MADE, mem, SEG_MADE);
	rep->copy_ns = (double)(clock_ns() - start);
	start = clock_ns();
	rc = kedge_segment_make(mem, SEG_MADE, &opts, &s);
	rep->make_ns = (double)(clock_ns() - start);
	if (!rc) {
		start = clock_ns();
		kedge_segment_remove(s);
		rep->remove_ns = (double)(clock_ns() - start);
	}
	munmap(raw, len);
	return rc;
}

static int echo(int fd, const struct seg_owner *o, const struct seg_req *req,
		struct seg_rep *rep, char *lines)
{
	const struct seg_wait how = { .fd = fd, .yield = o->yield };
	uint64_t n, next = req->first;
	int rc;

	for (n = 0; n < req->cnt; n++, next++) {
		rc = seg_line_take(lines, next, &how);
		if (rc < 0)
			return rc;
		rep->wrong += (uint64_t)rc;
		seg_line_put(lines + SEG_LINES / 2, next);
	}
	return 0;
}

static void serve(int fd, const struct seg_owner *o, char *mem)
{
	struct seg_req req;
	struct seg_rep rep;
	long before;

	while (!proc_recv(fd, &req, sizeof(req))) {
		before = seg_preempted();
		memset(&rep, 0, sizeof(rep));
		if (req.kind == SEG_MAKE)
			rep.rc = make(o, &req, &rep);
		else
			rep.rc = echo(fd, o, &req, &rep,
				      req.shared ? o->lines : mem + o->len - SEG_LINES);
		rep.preempted = seg_preempted() != before;
		if (proc_send(fd, &rep, sizeof(rep)))
			return;
	}
}

void seg_owner_child(int fd, void *arg)
{
	const struct seg_owner *o = arg;
	struct seg_rep rep;
	char *mem;

	memset(&rep, 0, sizeof(rep));
	proc_pin(1);
	mem = share(o, &rep);
	if (!proc_send(fd, &rep, sizeof(rep)) && !rep.rc)
		serve(fd, o, mem);
}
