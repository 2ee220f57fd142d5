/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A full fence of which the rare side pays all: it makes every thread of every
 * registered process pass one (membarrier).
 */
#ifndef BASE_BARRIER_H
#define BASE_BARRIER_H

#include <stdbool.h>

/* Register this process; true if others' barrier_heavy() fences it, and its own
 * fences others. To be called once at least in each process. */
bool barrier_register(void);
void barrier_heavy(void);

#endif /* BASE_BARRIER_H */
