/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations, and the queue of their completions, as the case that runs has them. */
#ifndef TESTS_REGION_SUBMIT_H
#define TESTS_REGION_SUBMIT_H

#include "remote.h"

extern struct kedge_queue *queue;

struct kedge_queue *make_queue(uint32_t depth);
void begin_queue(uint32_t depth);
void end_queue(void);
/* A case between the two. */
int with_queue(void **state);
int without_queue(void **state);
#define queue_case(f) queue_case_for(FOR_ALL, f)
#define queue_case_for(which, f) case_with(which, f, with_queue, without_queue)

struct kedge_remote_op op_of(uint32_t op, uint64_t offset, void *data, size_t len, uint64_t user);
struct kedge_remote_op put_of(uint64_t offset, void *data, size_t len, uint64_t user);
struct kedge_remote_op get_of(uint64_t offset, void *data, size_t len, uint64_t user);
struct kedge_remote_op add_of(uint64_t offset, uint64_t value, uint64_t user);

void submit(struct kedge_remote *r, const struct kedge_remote_op *o, int cnt);
/* The next completion, which comes; and that it is of @user's operation, with @status. */
struct kedge_remote_completion next(void);
struct kedge_remote_completion ends(uint64_t user, int status);
int read_now(void);

#endif /* TESTS_REGION_SUBMIT_H */
