/* SPDX-License-Identifier: BSD-2-Clause */
/* Both names of a call that the linker wraps, where its header is included. */
#ifndef TESTS_WRAPPED_H
#define TESTS_WRAPPED_H

#define WRAPPED(name) extern __typeof__(name) __real_##name, __wrap_##name

#endif /* TESTS_WRAPPED_H */
