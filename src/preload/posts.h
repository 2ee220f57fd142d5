/* SPDX-License-Identifier: BSD-2-Clause */
/* Work requests of the program's, which kedge doctor wants to see. */
#ifndef PRELOAD_POSTS_H
#define PRELOAD_POSTS_H

#include <stdint.h>

#include <infiniband/verbs.h>

/* From now on those that are posted to queues of the device go by table_use(). */
void posts_follow(struct ibv_context *context);
/* The number of posts so far. */
uint64_t posts_cnt(void);

#endif /* PRELOAD_POSTS_H */
