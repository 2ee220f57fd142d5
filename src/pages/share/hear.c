// SPDX-License-Identifier: BSD-2-Clause
/*
 * One address for each page of a chunk, as the kernel tells of moves. munmap() is not heard:
 * this thread itself replaces mappings, and would wait for itself; what was unmapped is
 * found by looking (share.c).
 */
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pages/share/hear.h"

/* In the place of an address. */
#define EMPTIED 0u
#define TOLD	1u /* likewise, and hear_emptied() has told it */

static void take(struct swap_context *ctx, uintptr_t start, uintptr_t end, bool emptied,
		 uintptr_t by)
{
	const size_t cnt = ctx->heard_len / kedge__page_size();
	uintptr_t *p;

	for (p = ctx->place; p < ctx->place + cnt; p++) {
		if (*p <= TOLD || *p < start || *p >= end)
			continue;
		*p = emptied ? EMPTIED : *p + by;
		ctx->emptied |= emptied;
		ctx->moved |= !emptied;
	}
}

void hear_begin(struct swap_context *ctx, uintptr_t at, size_t len)
{
	const size_t page = kedge__page_size();
	size_t i;

	ctx->heard_len = len;
	ctx->moved = ctx->emptied = false;
	for (i = 0; i < len / page; i++)
		ctx->place[i] = at + i * page;
}

void hear(struct swap_context *ctx)
{
	struct uffd_msg m;

	while (read(ctx->uffd, &m, sizeof(m)) == (ssize_t)sizeof(m)) {
		if (m.event == UFFD_EVENT_REMAP)
			take(ctx, m.arg.remap.from, m.arg.remap.from + m.arg.remap.len, false,
			     m.arg.remap.to - m.arg.remap.from);
		else if (m.event == UFFD_EVENT_REMOVE)
			take(ctx, m.arg.remove.start, m.arg.remove.end, true, 0);
	}
}

/* It is refused in any case: as what it is, if no thread is about to wait. */
static bool is_waited_for(const struct swap_context *ctx)
{
	struct uffdio_continue c = { .range = { ctx->small[0], kedge__page_size() } };

	return ioctl(ctx->uffd, UFFDIO_CONTINUE, &c) && errno == EAGAIN;
}

void hear_end(struct swap_context *ctx)
{
	while (is_waited_for(ctx)) {
		hear(ctx);
		sched_yield();
	}
}

uintptr_t hear_place(const struct swap_context *ctx, size_t pos, size_t most, size_t *len)
{
	const size_t page = kedge__page_size(), first = pos / page;
	const uintptr_t *p = ctx->place + first;
	size_t i = 1;

	while (i * page < most && (p[0] <= TOLD ? p[i] <= TOLD : p[i] == p[0] + i * page))
		i++;
	*len = i * page < most ? i * page : most;
	return p[0] <= TOLD ? 0 : p[0];
}

bool hear_emptied(struct swap_context *ctx, size_t *pos, size_t *len)
{
	const size_t page = kedge__page_size(), cnt = ctx->heard_len / page;
	size_t i = 0, first;

	if (!ctx->emptied)
		return false;
	while (i < cnt && ctx->place[i] != EMPTIED)
		i++;
	for (first = i; i < cnt && ctx->place[i] == EMPTIED; i++)
		ctx->place[i] = TOLD;
	ctx->emptied = i < cnt;
	*pos = first * page;
	*len = (i - first) * page;
	return i > first;
}

void hear_wake(struct swap_context *ctx, uintptr_t at, size_t len)
{
	struct uffdio_range r = { .start = at, .len = len };

	if (ioctl(ctx->uffd, UFFDIO_WAKE, &r))
		ctx->broken = true;
}

/* Memory that has been moved is registered elsewhere: the descriptor's end ends that, too. */
void hear_unregister(struct swap_context *ctx, uintptr_t at, size_t len)
{
	if (ctx->moved) {
		ctx->broken = true;
		return;
	}
	context_unregister(ctx, at, len);
	hear_end(ctx);
}

/* The kernel unmaps the place that a mapping goes to before the last that may fail. */
static bool map_again(uintptr_t at, size_t len, int flags, int fd, uint64_t off)
{
	unsigned char resident;

	if (!mincore((void *)at, kedge__page_size(), &resident) ||
	    mmap((void *)at, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, fd,
		 (off_t)off) == MAP_FAILED)
		return false;
	if (flags & MAP_SHARED)
		madvise((void *)at, len, MADV_DONTFORK);
	return true;
}

bool hear_map_again(const struct swap_context *ctx, uintptr_t at, size_t len, int fd,
		    uint64_t off)
{
	const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	size_t pos, n;
	uintptr_t to;
	bool any = false;

	for (pos = 0; pos < len; pos += n) {
		to = hear_place(ctx, pos, len - pos, &n);
		if (!to || to == at + pos)
			any |= map_again(at + pos, n, flags, fd, off + pos);
	}
	return any;
}
