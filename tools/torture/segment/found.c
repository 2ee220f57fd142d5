// SPDX-License-Identifier: BSD-2-Clause
/* The finds of a storm, counted by the process that makes them. */
#include <stdarg.h>
#include <stdio.h>

#include "tools/torture/segment/storm.h"

void storm_wrong(struct storm *s, _Atomic uint64_t *what, const char *fmt, ...)
{
	va_list ap;

	atomic_fetch_add(what, 1);
	if (atomic_exchange(&s->claimed, true))
		return;
	va_start(ap, fmt);
	vsnprintf(s->found, sizeof(s->found), fmt, ap);
	va_end(ap);
}

bool storm_is_right(const struct storm_result *res)
{
	return !res->stale && !res->torn && !res->lost && !res->crashes;
}
