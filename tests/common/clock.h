/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock of src/base/clock/clock.h, moved: for programs that link the insides ("base/base.h"
 * has the clock, core_link in meson.build the insides). Processes that are forked behind
 * test_clock_begin() share the moved clock.
 */
#ifndef TESTS_CLOCK_H
#define TESTS_CLOCK_H

#include <stdint.h>

/* Before a thread is started that reads the clock. It begins unmoved. */
void test_clock_begin(void);
/* Forward, for all that share it: those that wait look again within milliseconds. */
void test_clock_move_ms(uint64_t ms);
/* For a wait of the calling thread's own: from now on a thread moves it by @ms about each
 * millisecond, until test_clock_rest(). What is to come before a deadline may come too late. */
void test_clock_hurry(uint64_t ms);
void test_clock_rest(void);
/* The same, for @all_ms in all: where another deadline, behind that, is not to come. */
void test_clock_hurry_by(uint64_t ms, uint64_t all_ms);
/* Real time again. No other thread reads the clock. */
void test_clock_end(void);

/* WAIT_FOR() what comes with time: the clock moves by @ms at each look that does not see it. */
#define MOVE_UNTIL(ms, cond) WAIT_FOR((cond) || (test_clock_move_ms(ms), false))

#endif /* TESTS_CLOCK_H */
