/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters as text. */
#ifndef STATS_TEXT_H
#define STATS_TEXT_H

#include <stddef.h>

/* Those of now, to be freed, or NULL. */
char *stats_text(size_t *len);

#endif /* STATS_TEXT_H */
