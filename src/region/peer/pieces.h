/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of an access to several ranges (pieces.c): as many ranges as fit go by one, which the
 * owner does as a whole. So they are the fewest that keep the order of ranges and break none
 * that fits.
 */
#ifndef REGION_PIECES_H
#define REGION_PIECES_H

#include <sys/uio.h>

#include <kedge/remote.h>

#include "region/stream.h"

/* In parts: byte @off of one. */
struct place_in {
	size_t part;
	uint64_t off;
};

/*
 * A piece of an access: one request is of it.
 *
 * @part: its first range, from byte @off on
 * @cnt:  ranges in it; a single one, or a piece of it, has no table
 * @span: parts from the first to the last, with those between them that are empty
 * @len:  bytes in all
 */
struct piece {
	const struct kedge_remote_part *part;
	uint64_t off;
	uint64_t cnt;
	size_t span;
	uint64_t len;
};

/* Some bytes of messages, for one system call; @range: tables in it, as they are sent. */
#define BATCH 128u

struct batch {
	struct iovec v[BATCH];
	size_t cnt;
	struct stream_range range[BATCH];
	size_t range_cnt;
};

/* The one that begins at @at, or behind it where a part ends there; false: there is no more. */
bool piece_find(const struct kedge_remote_part *part, size_t cnt, struct place_in *at,
		struct piece *p);
/* @at is behind it. */
void piece_pass(const struct piece *p, struct place_in *at);
/* @q, a STREAM_PUT or STREAM_GET, is of it. */
void piece_ask(const struct piece *p, struct stream_req *q);
/* Bytes that are sent behind @q then. */
uint64_t piece_sends(const struct stream_req *q);

/* Add bytes. False: there is no room for all of them. */
bool batch_add(struct batch *b, void *data, uint64_t len);
/* Add what follows a request, from byte @skip on; of a put the data as well. */
bool batch_add_request(struct batch *b, const struct piece *p, bool put, uint64_t skip);
/* Add the memory of the data. */
bool batch_add_data(struct batch *b, const struct piece *p, uint64_t skip);

#endif /* REGION_PIECES_H */
