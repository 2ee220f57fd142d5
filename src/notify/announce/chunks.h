/* SPDX-License-Identifier: BSD-2-Clause */
/* The chunks of an allocator that are handed out: for all notifiers of a process. */
#ifndef NOTIFY_ANNOUNCE_CHUNKS_H
#define NOTIFY_ANNOUNCE_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

/* [start, start + len) is handed out. A chunk that chunks.c has no room for is not noted. */
void chunks_add(uint64_t start, uint64_t len);
/* The chunk that begins at @start is about to be freed. */
void chunks_remove(uint64_t start);
/* All chunks that have a part in [start, end): its mapping goes. */
void chunks_remove_in(uint64_t start, uint64_t end);
/*
 * @at is a page's first byte: the end of the pages, from that one on, that hold a part of one
 * chunk; @at if that page holds no chunk.
 */
uint64_t chunks_cover(uint64_t at);
/* A byte of [start, end) is in a chunk. */
bool chunks_in(uint64_t start, uint64_t end);

#endif /* NOTIFY_ANNOUNCE_CHUNKS_H */
