/* SPDX-License-Identifier: BSD-2-Clause */
/* The build includes this header ahead of src/cache/get.c for test_cache_fence.c, so that the
 * test counts a lookup's fences, and can stop a thread at one. */
#ifndef TEST_COUNTED_FENCE_H
#define TEST_COUNTED_FENCE_H

#include "base/base.h"

void counted_fence(void);

#define full_fence counted_fence

#endif /* TEST_COUNTED_FENCE_H */
