// SPDX-License-Identifier: BSD-2-Clause
/*
 * The parser of a receiver's descriptor. Wrong ones could only make this side
 * write where the peer's provider refuses it, and read beyond the message: the
 * lengths are what matters.
 */
#include "channel/rdma/desc.h"

static int refuse(const char *what)
{
	return kedge_reason(-EPROTO, "the peer sent a bad descriptor (%s): it "
			    "is no kedge of this version, or broken", what);
}

int kedge__rdma_desc_targets(const struct rdma_target *target, uint32_t cnt,
			    uint64_t len)
{
	uint64_t sum = 0, end;
	uint32_t i;

	for (i = 0; i < cnt; i++) {
		if (!target[i].len ||
		    __builtin_add_overflow(target[i].addr, target[i].len - 1,
					   &end) ||
		    __builtin_add_overflow(sum, target[i].len, &sum))
			return refuse("range");
	}
	return sum == len ? 0 : refuse("length of the ranges");
}

static int parse_table(const struct rdma_desc *d, uint32_t inline_cnt)
{
	if (inline_cnt != 1 || !d->cnt || d->cnt > TABLE_TARGETS)
		return refuse("size of a table");
	return kedge__rdma_desc_targets(d->target, 1,
				       d->cnt * sizeof(struct rdma_target));
}

static int parse_stream(const struct rdma_desc *d, uint32_t inline_cnt)
{
	uint64_t window;

	if (inline_cnt != 1 || d->cnt != 1)
		return refuse("window");
	if (!d->slot_cnt || d->slot_cnt > UINT8_MAX || !d->slot_len ||
	    __builtin_mul_overflow(d->slot_len, d->slot_cnt, &window) ||
	    d->len / d->slot_len >= UINT32_MAX)
		return refuse("slots");
	return kedge__rdma_desc_targets(d->target, 1, window);
}

int kedge__rdma_desc_parse(const void *raw, size_t raw_len, uint64_t len,
			  struct rdma_desc *desc)
{
	size_t rest = raw_len - sizeof(*desc);
	uint32_t cnt;

	if (raw_len < sizeof(*desc) || raw_len > DESC_MAX ||
	    rest % sizeof(struct rdma_target))
		return refuse("size");
	memcpy(desc, raw, raw_len);
	cnt = (uint32_t)(rest / sizeof(struct rdma_target));
	if (desc->zero)
		return refuse("head");
	if (desc->len != len)
		return refuse("length of the message");
	switch (desc->kind) {
	case DESC_DIRECT:
		if (desc->slot_cnt || desc->slot_len || desc->cnt != cnt)
			return refuse("number of ranges");
		return kedge__rdma_desc_targets(desc->target, cnt, len);
	case DESC_TABLE:
		if (desc->slot_cnt || desc->slot_len)
			return refuse("table");
		return parse_table(desc, cnt);
	case DESC_STREAM:
		return parse_stream(desc, cnt);
	}
	return refuse("kind");
}
