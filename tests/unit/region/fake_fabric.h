/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_REGION_FAKE_FABRIC_H
#define TESTS_REGION_FAKE_FABRIC_H

#include "region/fabric/fabric.h"

/*
 * What the fake has done, and is to do; of all processes of the test.
 * @refuses: there is no adapter
 * @fails:   accesses fail; the last by loan @failed
 * @lent, @puts, @gets: how many; @live: that are lent now
 */
struct fake_fabric {
	_Atomic int refuses;
	_Atomic int fails;
	_Atomic unsigned int lent;
	_Atomic unsigned int failed;
	_Atomic unsigned int live;
	_Atomic unsigned int puts;
	_Atomic unsigned int gets;
};

struct fake_fabric *fake_fabric(void);
/* That loan is over. */
bool fake_is_over(unsigned int loan);

#endif /* TESTS_REGION_FAKE_FABRIC_H */
