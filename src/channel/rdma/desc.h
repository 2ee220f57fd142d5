/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receiver's description of the place where a message may land. It comes from
 * the peer, so it is checked before anything looks at it.
 */
#ifndef CHANNEL_RDMA_DESC_H
#define CHANNEL_RDMA_DESC_H

#include "channel/transport.h"

/* A range of the peer's, as it wants it named in a write. */
struct rdma_target {
	uint64_t addr;
	uint64_t len;
	uint64_t key;
};

enum rdma_desc_kind {
	DESC_DIRECT = 1, /* the targets take the message, one after the other */
	DESC_TABLE,	 /* the one target is read: it holds the targets */
	DESC_STREAM,	 /* the one target is a window of slots */
};

/*
 * @id:       the flow
 * @kind:     enum rdma_desc_kind
 * @cnt:      targets, here or in the table
 * @len:      bytes of the message
 * @slot_len: DESC_STREAM: of each slot but the last one of the message
 */
struct rdma_desc {
	uint32_t id;
	uint16_t kind;
	uint16_t zero;
	uint32_t cnt;
	uint32_t slot_cnt;
	uint64_t len;
	uint64_t slot_len;
	struct rdma_target target[];
};

/* As long as one may be. */
union rdma_desc_room {
	struct rdma_desc desc;
	char room[DESC_MAX];
};

#define DESC_TARGETS \
	((DESC_MAX - sizeof(struct rdma_desc)) / sizeof(struct rdma_target))
/* In a table. */
#define TABLE_TARGETS 4096u

/*
 * Copy the descriptor of @raw_len bytes at @raw, for a message of @len bytes,
 * to @desc, which has room for DESC_MAX bytes. 0, or -EPROTO with a reason.
 */
int kedge__rdma_desc_parse(const void *raw, size_t raw_len, uint64_t len,
			  struct rdma_desc *desc);

/* Check that @cnt targets are ranges that hold @len bytes together; -EPROTO. */
int kedge__rdma_desc_targets(const struct rdma_target *target, uint32_t cnt,
			    uint64_t len);

#endif /* CHANNEL_RDMA_DESC_H */
