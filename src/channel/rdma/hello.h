/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ends of a connection tell each other this of themselves. The end of
 * internal.h.
 */
#ifndef CHANNEL_RDMA_HELLO_H
#define CHANNEL_RDMA_HELLO_H

/* In the private data of the connection, of which verbs has 48 bytes. */
#define HELLO_MAGIC   UINT64_C(0x6b6564676563686e)
#define HELLO_VERSION 1u

struct rdma_hello {
	uint64_t magic; /* shows another byte order, too */
	uint16_t version;
	uint16_t rx_cnt;
	uint32_t pid;
	uint32_t eager_max;
	uint32_t unexpected_cnt;
	uint64_t unexpected_bytes;
	int32_t status; /* of a refusal: a negative errno */
	uint32_t zero;
};

void kedge__rdma_hello(struct rdma_hello *hello,
		       const struct kedge_channel_opts *opts);
/* Copy what came in private data; all zero if it is not of our length. */
void kedge__rdma_hello_take(struct rdma_hello *hello, const void *data,
			    size_t len);
/* 0 or -EPROTO, or what the peer says of itself. */
int kedge__rdma_hello_check(const struct rdma_hello *hello, size_t len);
int kedge__rdma_agree(struct rdma *r, const struct kedge_channel_opts *opts,
		      const struct rdma_hello *hello,
		      struct transport_peer *peer);

#endif /* CHANNEL_RDMA_HELLO_H */
