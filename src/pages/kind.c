// SPDX-License-Identifier: BSD-2-Clause
/*
 * The kind of a range's pages: huge ones, every one mapped whole, or an empty
 * range; and whether its mappings may be written.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages/internal.h"

#define PIECES_MAX 64u

enum pages_kind pages_kind(const void *at, size_t len)
{
	size_t unit = pages_huge_len(), cnt = len / unit, i;
	uint8_t kind[PIECES_MAX];
	struct swap_context *ctx;

	if (unit == kedge__page_size() || (uintptr_t)at % unit || len % unit ||
	    !cnt || cnt > PIECES_MAX || context_get(unit, &ctx))
		return PAGES_OTHER;
	move_classify(ctx, (uintptr_t)at, len, kind);
	context_put(ctx);
	for (i = 1; i < cnt; i++)
		if (kind[i] != kind[0])
			return PAGES_OTHER;
	return kind[0] == PIECE_HUGE ? PAGES_HUGE
	       : kind[0] == PIECE_EMPTY ? PAGES_NONE : PAGES_OTHER;
}

static int writable(int fd, uintptr_t at, size_t len)
{
	uintptr_t end = at + len, from = at;
	struct vma_info v = { .end = at };
	bool plain = true;
	int rc = 0;

	for (; !rc && at < end; at = v.end) {
		rc = vma_at(fd, at, &v);
		if (rc == -ENOENT || (!rc && !(v.prot & PROT_WRITE)))
			return kedge_reason(-EFAULT, "the buffer at 0x%llx + %zu "
					    "may not be written",
					    (unsigned long long)from, len);
		plain = plain && v.plain;
	}
	return rc || !plain ? -EOPNOTSUPP : 0;
}

int context_writable(struct swap_context *ctx, uintptr_t at, size_t len)
{
	return writable(fd_same(ctx->maps, &ctx->maps_id) ? ctx->maps : -1, at,
			len);
}

/* Where userfaultfd moves no pages, mremap() may. */
static int writable_alone(uintptr_t at, size_t len)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps",
			      O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return -EOPNOTSUPP;
	rc = writable(fd, at, len);
	syscall(SYS_close, fd);
	return rc;
}

int pages_writable(const void *at, size_t len)
{
	struct swap_context *ctx;
	sigset_t saved;
	int rc;

	if (swap_begin(&saved))
		return -EOPNOTSUPP;
	if (context_get(pages_huge_len(), &ctx)) {
		rc = writable_alone((uintptr_t)at, len);
	} else {
		rc = context_writable(ctx, (uintptr_t)at, len);
		context_put(ctx);
	}
	swap_end(&saved);
	return rc;
}
