/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libibverbs.so.1 of the tests' own, with one device, "fake0": regions, their
 * rules and their failures, and no hardware. Found before the real one by
 * LD_LIBRARY_PATH; a program asks fake_ibverbs() for its state.
 */
#ifndef TESTS_FAKE_IBVERBS_H
#define TESTS_FAKE_IBVERBS_H

#include <stdint.h>

#include <infiniband/verbs.h>

enum fake_op {
	FAKE_NONE,
	FAKE_REG_MR,
	FAKE_REG_MR_IOVA,
	FAKE_REG_MR_IOVA2,
	FAKE_DEREG_MR,
	FAKE_REREG_MR,
	FAKE_OPS,
};

/*
 * @calls:   of each op
 * @regs:    regions alive, of all domains
 * @max:     more than these are refused; 0: as many as one likes
 * @full:    the errno of that refusal; 0: ENOMEM
 * @op, @err, @skip, @times: the next @times calls of @op after @skip fail
 * @reg_err: the next @reg_times calls that register, by any name, fail
 * @access:  of the last region made
 * @iova:    of the last region made
 * @fork:    what ibv_is_fork_initialized() says
 * @leaked:  regions that were alive when their device was closed
 * @wrong:   calls that no program may make: an unknown region or domain
 */
struct fake {
	int calls[FAKE_OPS];
	int regs;
	int max, full;
	enum fake_op op;
	int err, skip, times;
	int reg_err, reg_times;
	unsigned int access;
	uint64_t iova;
	enum ibv_fork_status fork;
	int leaked;
	int wrong;
};

struct fake *fake_ibverbs(void);

#endif /* TESTS_FAKE_IBVERBS_H */
