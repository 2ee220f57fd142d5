/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread that publishes. */
#ifndef STATS_PUBLISH_H
#define STATS_PUBLISH_H

#include <stdbool.h>

/* KEDGE_STATS names a place. */
bool stats_wanted(void);
/* It begins, unless it has, or was refused; by any thread, at any time. */
void stats_publish(void);

#endif /* STATS_PUBLISH_H */
