// SPDX-License-Identifier: BSD-2-Clause
/*
 * KEDGE_VERIFY=1: on every get, compare the page frames that were mapped when
 * the region was registered (those the device has) with those that are mapped
 * now. A difference is a failure of the contract, and ends the process with both
 * frames in the message: better than data that is wrong. And each get has a
 * pointer of its own, by which a put too many is known (ticket.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/internal.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#endif

#define FRAME_MASK ((1ull << 55) - 1)
#define BATCH	   64

static bool read_frames(const struct kedge_cache *c, uint64_t addr,
			uint64_t *frames, size_t cnt)
{
	size_t page = kedge__page_size(), i;
	ssize_t got = pread(c->pagemap_fd, frames, cnt * 8,
			    (off_t)(addr / page * 8));

	if (got != (ssize_t)(cnt * 8))
		return false;
	for (i = 0; i < cnt; i++)
		frames[i] &= FRAME_MASK;
	return true;
}

int verify_open(struct kedge_cache *c)
{
	const char *v = kedge__env("KEDGE_VERIFY");
	volatile char here = 1;
	uint64_t frame;
	int rc;

	c->pagemap_fd = -1;
	if (!v || strcmp(v, "1"))
		return 0;
	rc = tickets_open(c);
	if (rc)
		return rc;
	c->pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (c->pagemap_fd >= 0 &&
	    read_frames(c, (uintptr_t)&here, &frame, 1) && frame && here) {
		add_mode(c, MODE_VERIFY);
		return 0;
	}
	kedge__log(KEDGE_LOG_WARN, "KEDGE_VERIFY compares no pages: the kernel "
				   "shows page frames only with CAP_SYS_ADMIN");
	return 0;
}

void verify_record(struct kedge_cache *c, struct region *r)
{
	size_t page = kedge__page_size(), cnt = r->mr.len / page;
	uint64_t *frames;

	/* A region not of whole pages is lent, and found by no other get. */
	if (!(modes_of(c) & MODE_VERIFY) || r->mr.addr % page || r->mr.len % page)
		return;
	frames = malloc(cnt * sizeof(*frames));
	if (frames && !read_frames(c, r->mr.addr, frames, cnt)) {
		free(frames);
		frames = NULL;
	}
	cold_of(c, r)->frames = frames;
}

void verify_follow(struct kedge_cache *c, struct region *r, uint64_t skip)
{
	size_t page = kedge__page_size();
	uint64_t *frames = cold_of(c, r)->frames;

	if (frames)
		memmove(frames, frames + skip / page,
			r->mr.len / page * sizeof(*frames));
}

static void fail(const struct region *r, uint64_t addr, uint64_t was,
		 uint64_t now)
{
	fprintf(stderr,
		"kedge: KEDGE_VERIFY: stale registration: at 0x%llx (region "
		"0x%llx + %llu) the device has frame 0x%llx, the CPU frame "
		"0x%llx\n",
		(unsigned long long)addr, (unsigned long long)r->mr.addr,
		(unsigned long long)r->mr.len, (unsigned long long)was,
		(unsigned long long)now);
	abort();
}

/*
 * True if a get would return the region now. If not, the range was changed while
 * this one was under way, which is the application's own affair; so it is where
 * the registration was never kept, because a change was under way already.
 */
static bool still_good(const struct kedge_cache *c, const struct region *r,
		       uint64_t addr, uint64_t end)
{
	return kedge_notifier_generation(c->nf) ==
		       atomic_load_explicit(&c->seen, memory_order_acquire) &&
	       region_serves(c, r, addr, end, 0, TRUST_ALL);
}

#define PATIENCE_MS 1000

/*
 * A difference. Another thread may be in the middle of the call that changes
 * the range, which takes the pages first and tells afterwards; or the kernel is
 * about to put the page back. Only what stays different and is not told is a
 * failure.
 */
static void judge(const struct kedge_cache *c, const struct region *r,
		  uint64_t addr, uint64_t end, uint64_t was)
{
	uint64_t now;
	int ms;

	for (ms = 0; ms < PATIENCE_MS; ms++) {
		/* A page of shared memory may be there, and not mapped here. */
		madvise((void *)(uintptr_t)addr, kedge__page_size(), MADV_POPULATE_READ);
		if (!read_frames(c, addr, &now, 1) || now == was ||
		    !still_good(c, r, addr, end))
			return;
		usleep(1000);
	}
	fail(r, addr, was, now);
}

static void check(const struct kedge_cache *c, const struct region *r,
		  uint64_t addr, uint64_t end)
{
	size_t page = kedge__page_size(), i, cnt;
	const uint64_t *was = cold_of(c, r)->frames;
	uint64_t now[BATCH], at;

	for (at = round_down(addr, page); was && at < end; at += cnt * page) {
		cnt = (round_up(end, page) - at) / page;
		if (cnt > BATCH)
			cnt = BATCH;
		if (!read_frames(c, at, now, cnt))
			return;
		for (i = 0; i < cnt; i++) {
			uint64_t w = was[(at - r->mr.addr) / page + i];

			if (w != now[i])
				judge(c, r, at + i * page, end, w);
		}
	}
}

void verify_hit(struct kedge_cache *c, const struct region *r, uint64_t addr,
		uint64_t end)
{
	int saved = cancel_disable();

	check(c, r, addr, end);
	cancel_restore(saved);
}
