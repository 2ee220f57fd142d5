// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages of several pieces. What carries messages knows one piece, so a send is
 * packed before it goes and a receive is scattered when it is there, in memory
 * that lives as long as the operation: a peer may still write to it when the
 * caller has been told that it is over.
 */
#include <stdlib.h>

#include "channel/internal.h"

void packed_free(struct packed *p)
{
	free(p);
}

#define PIECE_SHORT (32u << 10)

/* 0 or -EFAULT. */
static int check_piece(struct kedge_channel *ch, const void *p, size_t len,
		       bool write)
{
	struct bulk_piece piece = { (uintptr_t)p, len };
	struct bulk b = { .flags = write ? BULK_RECV : 0,
			  .piece = &piece,
			  .piece_cnt = 1,
			  .len = len };

	return len > PIECE_SHORT ? kedge__bulk_check(&b)
				 : access_check(&ch->access, p, len, write);
}

int packed_scatter(struct kedge_channel *ch, const struct packed *p, size_t len)
{
	const char *from = p->data;
	size_t i, n;
	int rc = 0;

	if (!p->piece)
		return 0;
	for (i = 0; i < p->cnt && len && !rc; i++) {
		n = p->piece[i].iov_len < len ? p->piece[i].iov_len : len;
		rc = check_piece(ch, p->piece[i].iov_base, n, true);
		if (n && !rc)
			copy_bytes(p->piece[i].iov_base, from, n);
		from += n;
		len -= n;
	}
	return rc;
}

int packed_gather(struct kedge_channel *ch, const struct packed *p,
		  const struct iovec *v)
{
	char *to = p->data;
	int rc = 0;
	size_t i;

	for (i = 0; i < p->cnt && !rc; i++) {
		rc = check_piece(ch, v[i].iov_base, v[i].iov_len, false);
		if (v[i].iov_len && !rc)
			copy_bytes(to, v[i].iov_base, v[i].iov_len);
		to += v[i].iov_len;
	}
	return rc;
}
