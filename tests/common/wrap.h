/* SPDX-License-Identifier: BSD-2-Clause */
/* A call that the linker replaces (--wrap): the head of the replacement, with both declared. */
#ifndef TESTS_WRAP_H
#define TESTS_WRAP_H

#define WRAP(type, name, ...)           \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

#endif /* TESTS_WRAP_H */
