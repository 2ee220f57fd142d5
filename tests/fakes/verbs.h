/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An RDMA device made of paper, for the verbs device: regions, windows, one
 * queue pair and its completions, any of whose calls can be refused. What
 * libibverbs exports is replaced at link time; what its header calls through a
 * table, by a table. It is strict: what the verbs forbid fails the test or, on
 * the queue pair, puts that into error.
 */
#ifndef TESTS_VERBS_PAPER_H
#define TESTS_VERBS_PAPER_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include <kedge/verbs.h>

enum paper_op {
	PAPER_NONE,
	PAPER_REG,
	PAPER_DEREG,
	PAPER_QUERY,
	PAPER_QUERY_QP,
	PAPER_ADVISE,
	PAPER_ALLOC_MW,
	PAPER_DEALLOC_MW,
	PAPER_POST,
	PAPER_BIND,       /* the work request itself */
	PAPER_INVALIDATE, /* the same */
	PAPER_POLL,
	PAPER_OPS,
};

/*
 * @attr:       what the device says of itself
 * @old:        it is one without the extended verbs
 * @lacks:      IBV_ACCESS_* that it refuses, all together in one call
 * @lacks_err:  with this
 * @readonly:   no page is writable
 * @removed:    it was unplugged
 * @fork:       what libibverbs says of fork
 * @state:      of the queue pair
 * @silent:     work requests are taken and never completed
 * @late:       completions are held back
 * @op, @err, @skip, @times: the next @times calls of @op after @skip fail; -1
 *              is a call that returns that, with errno
 * @also_op, @also_err: so does one of @also_op
 * @calls:      of each op
 * @regs, @mws: alive
 * @access:     IBV_ACCESS_* of the last region
 * @advised:    bytes, and
 * @advice:     what for
 */
struct paper {
	struct ibv_device_attr_ex attr;
	bool old;
	unsigned int lacks;
	int lacks_err;
	bool readonly;
	bool removed;
	enum ibv_fork_status fork;
	enum ibv_qp_state state;
	bool silent, late;
	enum paper_op op;
	int err, skip, times;
	enum paper_op also_op;
	int also_err;
	int calls[PAPER_OPS];
	int regs, mws;
	unsigned int access;
	uint64_t advised;
	enum ibv_advise_mr_advice advice;
};

extern struct paper paper;
extern struct ibv_pd paper_pd, paper_other_pd;
extern struct ibv_qp paper_qp;

/* Around each test: a new device, and nothing of the test's left on it. */
int paper_setup(void **state);
int paper_teardown(void **state);
bool paper_clean(void);
void paper_refuse(enum paper_op op, int err, int times);
void paper_refuse_also(enum paper_op op, int err);

/* Whether a peer that knows @rkey may do IBV_ACCESS_* to those bytes. */
bool paper_peer(uint32_t rkey, uint64_t iova, uint64_t len,
		unsigned int access);

/* The last message logged since paper_setup(), and how many there were. */
extern char paper_logged[512];
extern int paper_log_cnt;

/* That time goes by, as far as the library sees. */
void paper_wait(unsigned int ms);

/* Opened on it; NULL: with the defaults. @opts->size is set here. */
struct kedge_device *paper_open(const struct kedge_verbs_opts *opts);
uint32_t paper_rkey(const struct kedge_device_mr *mr);
/* Fails the test if the reason for @rc does not say @words. */
void paper_words(int rc, const char *words);

#endif /* TESTS_VERBS_PAPER_H */
