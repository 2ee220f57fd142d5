/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The demo's peer: another process, which knows the application's buffers by
 * address and rkey alone. It writes chunks of the file there and reads them
 * back into the copy.
 */
#ifndef TOOLS_DEMO_PEER_H
#define TOOLS_DEMO_PEER_H

#include <sys/types.h>

#include "tools/common/rdma/rdma.h"
#include "tools/demo/demo.h"

#define DEMO_PEER_TIMEOUT_MS 20000

struct demo_peer {
	int sock;
	pid_t pid;
};

/* The questions to it. @slot and @tag come back with the answer. */
struct demo_ask {
	struct demo_chunk chunk;
	uint64_t addr;
	uint64_t tag;
	uint32_t rkey;
	int32_t slot;
	uint32_t writing;
	uint32_t reserved;
};

/* @res: bytes or a negative errno */
struct demo_answer {
	uint64_t tag;
	int32_t slot;
	int32_t res;
};

/* Start it and connect @end with it. 0 or a negative errno. */
int demo_peer_start(struct demo_peer *p, struct rdma_end *end,
		    const struct demo_file *file);
void demo_peer_stop(struct demo_peer *p);

#endif /* TOOLS_DEMO_PEER_H */
