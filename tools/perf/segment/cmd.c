// SPDX-License-Identifier: BSD-2-Clause
/* kedge perf --segment: the processes, and what is said where there are none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/perf/segment/segment.h"

#define DEVICE "/dev/kedge-segment"

static const uint32_t backends[SEG_BACKENDS] = { KEDGE_SEGMENT_CONVERT,
						 KEDGE_SEGMENT_MODULE };

/* ---- an owner, and its memory here ---- */

/* The longest copy, or what is touched, and a block with the lines. */
static size_t segment_len(const struct perf_opts *opt)
{
	size_t i, len = SEG_TOUCHED;

	for (i = 0; i < opt->size_cnt; i++)
		if (opt->sizes[i] > len)
			len = opt->sizes[i];
	return round_up(len, SEG_LINES) + SEG_LINES;
}

/* Says the remedy for an owner that cannot make a segment. */
static void say_why(char why[256], enum seg_place place, const struct seg_rep *rep)
{
	if (place == SEG_CONVERT)
		snprintf(why, 256, "%s; it takes userfaultfd and Linux 6.8 or later",
			 rep->why);
	else if (access(DEVICE, R_OK | W_OK))
		snprintf(why, 256, "%s: %s; load the module kedge_segment "
			 "(docs/segments.md)", DEVICE, strerror(errno));
	else
		snprintf(why, 256, "%s", rep->why);
}

/* Before anything of kedge in this process: it has no threads yet. */
static int side_start(struct seg_side *s)
{
	s->owner.backend = backends[s->place];
	s->owner.yield = s->res->cpus < 2;
	s->owner.len = segment_len(s->res->opt);
	s->owner.lines = mmap(NULL, SEG_LINES, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->owner.lines == MAP_FAILED) {
		s->owner.lines = NULL;
		return -errno;
	}
	return proc_start(&s->proc, seg_owner_child, &s->owner);
}

static int open_own(struct seg_side *s)
{
	char *p;

	s->own = mmap(NULL, s->owner.len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->own == MAP_FAILED) {
		s->own = NULL;
		return -ENOMEM;
	}
	madvise(s->own, s->owner.len, MADV_NOHUGEPAGE);
	memset(s->own, 1, s->owner.len);
	seg_chain(s->own);
	s->memfd = memfd_create("kedge-perf", MFD_CLOEXEC);
	if (s->memfd < 0 || ftruncate(s->memfd, (off_t)SEG_TOUCHED))
		return -errno;
	p = mmap(NULL, SEG_TOUCHED, PROT_READ | PROT_WRITE, MAP_SHARED, s->memfd, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	memset(p, 1, SEG_TOUCHED);
	munmap(p, SEG_TOUCHED);
	return 0;
}

static int open_there(struct seg_side *s, const struct kedge_segment_id *id)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	int rc = kedge_segment_get(id, KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE,
				   &s->grant);

	if (!rc)
		rc = kedge_grant_info(s->grant, &i);
	if (!rc)
		rc = kedge_segment_attach(s->grant, 0, s->owner.len, 0, &s->whole);
	if (rc)
		return rc;
	s->there = kedge_segment_addr(s->whole);
	s->remote = i.addr;
	return 0;
}

static void side_stop(struct seg_side *s)
{
	kedge_segment_detach(s->whole);
	kedge_segment_release(s->grant);
	proc_stop(&s->proc);
	if (s->own)
		munmap(s->own, s->owner.len);
	if (s->owner.lines)
		munmap(s->owner.lines, SEG_LINES);
	if (s->memfd >= 0)
		close(s->memfd);
}

static int side_run(struct seg_side *s, struct util_progress *progress)
{
	struct seg_rep hello;
	int rc = proc_recv(s->proc.fd, &hello, sizeof(hello));

	if (!rc && hello.rc == -ENOMEM)
		return util_fail(-ENOMEM, "cannot have %zu bytes: lower --sizes",
				 s->owner.len);
	if (!rc && hello.rc) {
		say_why(s->res->why[s->place], s->place, &hello);
		return 0;
	}
	if (!rc)
		rc = open_there(s, &hello.id);
	if (!rc)
		rc = open_own(s);
	if (rc)
		return util_fail(rc, "cannot attach the memory of another process");
	s->res->used[s->place] = true;
	return seg_measure(s, progress);
}

/* ---- all of them ---- */

static int run_sides(struct seg_result *res, struct seg_side *side)
{
	const uint64_t rows = res->opt->size_cnt + SEG_BENCHES - 1;
	struct util_progress progress;
	unsigned int i;
	int rc = 0;

	for (i = 0; i < SEG_BACKENDS && !rc; i++) {
		side[i] = (struct seg_side){ .res = res, .place = (enum seg_place)i,
					     .memfd = -1 };
		if (!res->opt->backends || res->opt->backends & (1u << i))
			rc = side_start(&side[i]);
	}
	if (rc)
		return util_fail(rc, "cannot start another process");
	proc_pin(0);
	util_progress_start(&progress, "rows", rows * SEG_BACKENDS, false);
	for (i = 0; i < SEG_BACKENDS && !rc; i++)
		if (side[i].proc.pid > 0)
			rc = side_run(&side[i], &progress);
	util_progress_stop(&progress);
	return rc;
}

/* One that was asked for, or any: 0, or CMD_CANNOT with a message that says what
 * to do. */
static int missing(const struct seg_result *res)
{
	bool any = false;
	unsigned int i;

	for (i = 0; i < SEG_BACKENDS; i++)
		any |= res->used[i];
	for (i = 0; i < SEG_BACKENDS; i++)
		if (*res->why[i] && (!any || res->opt->backends))
			util_error("no segments by %s: %s", seg_backend_names[i],
				   res->why[i]);
	for (i = 0; i < SEG_BACKENDS && res->opt->backends; i++)
		any &= !*res->why[i];
	return any ? 0 : CMD_CANNOT;
}

static int report(const struct seg_result *res)
{
	const struct perf_opts *opt = res->opt;
	int rc = seg_report(res);

	if (!rc && opt->plot)
		rc = seg_plot(res, opt->plot);
	if (!res->wrong)
		return rc;
	util_error("%llu lines came with other contents than were sent",
		   (unsigned long long)res->wrong);
	return rc ? rc : CMD_FINDING;
}

int seg_perf(const struct perf_opts *opt)
{
	struct seg_result *res = calloc(1, sizeof(*res));
	struct seg_side side[SEG_BACKENDS];
	unsigned int i;
	int rc;

	if (!res)
		return util_fail(-ENOMEM, "cannot keep the figures");
	memset(side, 0, sizeof(side));
	for (i = 0; i < SEG_BACKENDS; i++)
		side[i].memfd = -1;
	res->opt = opt;
	res->cpus = proc_cpus();
	rc = run_sides(res, side);
	for (i = 0; i < SEG_BACKENDS; i++)
		side_stop(&side[i]);
	if (!rc)
		rc = missing(res);
	if (!rc)
		rc = report(res);
	free(res);
	return rc;
}
