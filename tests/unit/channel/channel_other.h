/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_CHANNEL_OTHER_H
#define TESTS_CHANNEL_OTHER_H

/* Of no sanitizer. */
#define HOLD_AT	 ((char *)0x567000000000ull)
#define HOLD_LEN (1u << 20)

#endif /* TESTS_CHANNEL_OTHER_H */
