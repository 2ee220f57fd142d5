/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fake RDMA device, for the verbs device: regions, windows, one
 * queue pair and its completions, any of whose calls can be refused. Exports of
 * libibverbs are replaced at link time; calls of its header through a table, by
 * a table. It is strict: a call that the verbs forbid fails the test or, on
 * the queue pair, puts that into error.
 */
#ifndef TESTS_FAKE_VERBS_H
#define TESTS_FAKE_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include <kedge/verbs.h>

enum fake_op {
	FAKE_NONE,
	FAKE_REG,
	FAKE_DEREG,
	FAKE_QUERY,
	FAKE_QUERY_QP,
	FAKE_ADVISE,
	FAKE_ALLOC_MW,
	FAKE_DEALLOC_MW,
	FAKE_POST,
	FAKE_BIND,        /* the work request itself */
	FAKE_INVALIDATE, /* the same */
	FAKE_POLL,
	FAKE_OPS,
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
struct fake {
	struct ibv_device_attr_ex attr;
	bool old;
	unsigned int lacks;
	int lacks_err;
	bool readonly;
	bool removed;
	enum ibv_fork_status fork;
	enum ibv_qp_state state;
	bool silent, late;
	enum fake_op op;
	int err, skip, times;
	enum fake_op also_op;
	int also_err;
	int calls[FAKE_OPS];
	int regs, mws;
	unsigned int access;
	uint64_t advised;
	enum ibv_advise_mr_advice advice;
};

extern struct fake fake;
extern struct ibv_pd fake_pd, fake_other_pd;
extern struct ibv_qp fake_qp;

/* Around each test: a new device, and nothing of the test's left on it. */
int fake_setup(void **state);
int fake_teardown(void **state);
bool fake_clean(void);
void fake_refuse(enum fake_op op, int err, int times);
void fake_refuse_also(enum fake_op op, int err);

/* True: a peer that knows @rkey may do IBV_ACCESS_* to those bytes. */
bool fake_peer(uint32_t rkey, uint64_t iova, uint64_t len, unsigned int access);

/* The last message logged since fake_setup(), and how many there were. */
extern char fake_logged[512];
extern int fake_log_cnt;

/* That time goes by, as far as the library sees. */
void fake_wait(unsigned int ms);

/* Opened on it; NULL: with the defaults. @opts->size is set here. */
struct kedge_device *fake_open(const struct kedge_verbs_opts *opts);
uint32_t fake_rkey(const struct kedge_device_mr *mr);
/* Fails the test if the reason for @rc does not say @words. */
void fake_words(int rc, const char *words);

#endif /* TESTS_FAKE_VERBS_H */
