// SPDX-License-Identifier: BSD-2-Clause
/* The bytes of a message that are left to read or to write. */
#include "channel/tcp/internal.h"

size_t flow_iov(const struct tcp_flow *f, uint64_t len, struct iovec *v,
		size_t max)
{
	const struct bulk *b = f->bulk;
	uint64_t off = f->piece_off, part;
	size_t n = 0;
	uint32_t i;

	for (i = f->piece; i < b->piece_cnt && len && n < max; i++, off = 0) {
		part = b->piece[i].len - off;
		if (part > len)
			part = len;
		if (!part)
			continue;
		v[n++] = (struct iovec){
			(void *)(uintptr_t)(b->piece[i].addr + off), part
		};
		len -= part;
	}
	return n;
}

void flow_advance(struct tcp_flow *f, uint64_t len)
{
	uint64_t part;

	f->done += len;
	while (len) {
		part = f->bulk->piece[f->piece].len - f->piece_off;
		if (part > len) {
			f->piece_off += len;
			return;
		}
		len -= part;
		f->piece++;
		f->piece_off = 0;
	}
}
