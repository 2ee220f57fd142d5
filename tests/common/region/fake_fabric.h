/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_REGION_FAKE_FABRIC_H
#define TESTS_REGION_FAKE_FABRIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FABRIC_ENDS 4096u

/*
 * Counters of adapters that the tests have, and orders to them, in a page of all processes of the
 * test: the fake ones (fake_fabric.c), or libfabric (counted_fabric.c).
 * @refuses: there is no adapter
 * @fails:   accesses fail; the last by the owner's end @failed
 * @loses:   of that loan, no more lines can be had
 * @ends:    owners' ends that were opened, ever; of each: @is_ending, and @is_over
 * @numbers: of loans, ever
 * @lent, @puts, @gets: how many; @cut: of those that failed, as the lease was over
 * @last: the last loan
 * @loans: that are lent now; @live: owners' ends that are open
 */
struct fake_fabric {
	_Atomic int refuses;
	_Atomic int fails;
	_Atomic uint32_t loses;
	_Atomic uint32_t ends;
	_Atomic uint32_t numbers;
	_Atomic unsigned int lent;
	_Atomic unsigned int failed;
	_Atomic unsigned int loans;
	_Atomic uint32_t last;
	_Atomic unsigned int live;
	_Atomic unsigned int puts;
	_Atomic unsigned int gets;
	_Atomic unsigned int cut;
	_Atomic bool is_ending[FABRIC_ENDS]; /* before its peer can find out */
	_Atomic bool is_over[FABRIC_ENDS];
};

struct fake_fabric *fake_fabric(void);
/* Of an owner's end that is opened: a number that none had for long. */
unsigned int fake_end_open(void);
/* Before processes of the test are forked: 0, or a negative errno. */
int fake_fabric_begin(void);
/* The fake stands for adapters from now on. */
int fake_fabric_use(const char *unused);

#endif /* TESTS_REGION_FAKE_FABRIC_H */
