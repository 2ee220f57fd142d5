// SPDX-License-Identifier: BSD-2-Clause
/*
 * New pages with contents (UFFDIO_COPY): one that is not cleared before it is
 * written, nor faulted in by itself, costs half of one that is. A thread that reads
 * there meanwhile waits, as with a swap.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "notify/inflight.h"
#include "pages/internal.h"

/* Bytes done, until something was there already, or there is no memory. */
static size_t copy_in(struct swap_context *ctx, uintptr_t dst, uintptr_t src,
		      size_t len)
{
	struct uffdio_copy c = { .dst = dst, .src = src, .len = len };

	while (ioctl(ctx->uffd, UFFDIO_COPY, &c)) {
		if (c.copy <= 0)
			return c.dst - dst;
		c.dst += (uint64_t)c.copy;
		c.src += (uint64_t)c.copy;
		c.len -= (uint64_t)c.copy;
		c.copy = 0;
	}
	return len;
}

static size_t fill(uintptr_t dst, uintptr_t src, size_t len)
{
	struct swap_context *ctx;
	size_t done = 0;

	if (context_get(len, &ctx))
		return 0;
	/* The kernel fills pages of mappings that may not be written, too. */
	if (!context_writable(ctx, dst, len) &&
	    !context_register(ctx, dst, len)) {
		done = copy_in(ctx, dst, src, len);
		context_unregister(ctx, dst, len);
	}
	context_put(ctx);
	return done;
}

size_t pages_fill(void *dst, const void *src, size_t len)
{
	sigset_t saved;
	size_t done;

	if (swap_begin(&saved))
		return 0;
	inflight_begin(&kedge__swaps);
	done = fill((uintptr_t)dst, (uintptr_t)src, len);
	inflight_end(&kedge__swaps);
	swap_end(&saved);
	return done;
}
