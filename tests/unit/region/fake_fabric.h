/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_REGION_FAKE_FABRIC_H
#define TESTS_REGION_FAKE_FABRIC_H

#include "region/fabric/fabric.h"

/*
 * Counters of the fake, and its orders; of all processes of the test.
 * @refuses: there is no adapter
 * @fails:   accesses fail; the last by the owner's end @failed
 * @loses:   of that loan, no more lines can be had
 * @lent, @puts, @gets: how many; @cut: of those that failed, as the lease was over
 * @last: the last loan
 * @loans: that are lent now; @live: owners' ends that are open
 */
struct fake_fabric {
	_Atomic int refuses;
	_Atomic int fails;
	_Atomic uint32_t loses;
	_Atomic unsigned int lent;
	_Atomic unsigned int failed;
	_Atomic unsigned int loans;
	_Atomic uint32_t last;
	_Atomic unsigned int live;
	_Atomic unsigned int puts;
	_Atomic unsigned int gets;
	_Atomic unsigned int cut;
};

struct fake_fabric *fake_fabric(void);
/* That end is closed. */
bool fake_is_over(unsigned int end);

#endif /* TESTS_REGION_FAKE_FABRIC_H */
