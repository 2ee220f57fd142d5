// SPDX-License-Identifier: BSD-2-Clause
/*
 * The descriptor of a peer that receives over libfabric: what passes describes
 * ranges that hold the message, and nothing else passes.
 */
#include <stdbool.h>

#include "feed.h"

#include "channel/rdma/desc.h"

/* The same in wide numbers. */
static bool holds(const struct rdma_target *t, uint32_t cnt, uint64_t len)
{
	unsigned __int128 sum = 0;
	uint32_t i;

	for (i = 0; i < cnt; i++) {
		if (!t[i].len || (unsigned __int128)t[i].addr + t[i].len >
					 (unsigned __int128)UINT64_MAX + 1)
			return false;
		sum += t[i].len;
	}
	return sum == len;
}

static void check(const struct rdma_desc *d, size_t raw_len, uint64_t len)
{
	uint32_t cnt = d->kind == DESC_DIRECT ? d->cnt : 1;

	CHECK(raw_len == sizeof(*d) + cnt * sizeof(struct rdma_target));
	CHECK(d->len == len && !d->zero);
	switch (d->kind) {
	case DESC_DIRECT:
		CHECK(cnt <= DESC_TARGETS && holds(d->target, cnt, len));
		return;
	case DESC_TABLE:
		CHECK(d->cnt && d->cnt <= TABLE_TARGETS);
		CHECK(holds(d->target, 1,
			    d->cnt * (uint64_t)sizeof(struct rdma_target)));
		return;
	}
	CHECK(d->kind == DESC_STREAM && d->slot_len && d->slot_cnt);
	CHECK((unsigned __int128)d->slot_len * d->slot_cnt ==
	      d->target[0].len);
	CHECK(len / d->slot_len < UINT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	union {
		struct rdma_desc d;
		char room[DESC_MAX];
	} d;
	struct bytes in = { data, len };
	uint64_t msg_len, *own;
	uint8_t *raw;

	msg_len = take_number(&in, 8);
	raw = exact_copy(in.at, in.left);
	own = (uint64_t *)(void *)(raw + offsetof(struct rdma_desc, len));
	if (in.left >= sizeof(d.d) && msg_len & 1)
		memcpy(own, &msg_len, sizeof(msg_len));
	if (!kedge__rdma_desc_parse(raw, in.left, msg_len, &d.d)) {
		CHECK(in.left <= DESC_MAX && !memcmp(&d, raw, in.left));
		check(&d.d, in.left, msg_len);
	}
	free(raw);
	return 0;
}
