// SPDX-License-Identifier: BSD-2-Clause
/*
 * The counters: they are of no part, so that neither the watching nor the
 * channels need each other.
 */
#include "base/swaps.h"

_Atomic uint32_t kedge__swaps_begun, kedge__swaps_ended;
