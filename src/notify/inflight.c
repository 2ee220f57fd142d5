// SPDX-License-Identifier: BSD-2-Clause
/*
 * The counters: they are of no part, so that neither the watching nor the
 * channels need each other.
 */
#include "notify/inflight.h"

struct inflight kedge__swaps;
struct inflight kedge__watches;
