/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Changes that other threads make to memory while its pages are away. The kernel has a thread that
 * moves such memory (mremap()) or empties it (MADV_DONTNEED) wait until it has been heard,
 * and refuses most of what the context is asked for until then (EAGAIN).
 */
#ifndef PAGES_SHARE_HEAR_H
#define PAGES_SHARE_HEAR_H

#include "pages/internal.h"

/* From now on it is about [@at, @at + @len), at most the context's cap. */
void hear_begin(struct swap_context *ctx, uintptr_t at, size_t len);
/* All that there is to hear now: those threads go on. */
void hear(struct swap_context *ctx);
/* Nothing is registered any more: until no thread waits. */
void hear_end(struct swap_context *ctx);

/*
 * Where the page is now that was at byte @pos of the range, or 0 if it was emptied; so are
 * *@len bytes from there on, no more than @most.
 */
uintptr_t hear_place(const struct swap_context *ctx, size_t pos, size_t most, size_t *len);
/* A part of the range that was emptied, which has not been told yet, or false. */
bool hear_emptied(struct swap_context *ctx, size_t *pos, size_t *len);

void hear_wake(struct swap_context *ctx, uintptr_t at, size_t len);
void hear_unregister(struct swap_context *ctx, uintptr_t at, size_t len);
/* Looks for pages that should be there, after an exchange that failed half-way: private, or of
 * @fd if there is one. False: all of it is there. */
bool hear_map_again(const struct swap_context *ctx, uintptr_t at, size_t len, int fd,
		    uint64_t off);

#endif /* PAGES_SHARE_HEAR_H */
