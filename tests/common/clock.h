/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock of src/base/clock.h, moved: for programs that link the insides. Processes
 * that are forked behind test_clock_begin() share the moved clock.
 */
#ifndef TESTS_CLOCK_H
#define TESTS_CLOCK_H

#include <stdint.h>

/* Before a thread is started that reads the clock. It begins unmoved. */
void test_clock_begin(void);
/* Forward, for all that share it: those that wait look again within milliseconds. */
void test_clock_move_ms(uint64_t ms);
/* Real time again. No other thread reads the clock. */
void test_clock_end(void);

#endif /* TESTS_CLOCK_H */
