// SPDX-License-Identifier: BSD-2-Clause
/* Objects come and go: into the table, and with the first the thread begins. */
#include <unistd.h>

#include "stats/publish.h"
#include "stats/table.h"

void stats_add(struct stats_object *o, const struct stats_kind *kind, const void *of)
{
	o->owner = 0;
	if (!stats_wanted())
		return;
	table_enter(o, kind, of);
	stats_publish();
}

void stats_remove(struct stats_object *o)
{
	if (!o->owner || o->owner != getpid())
		return;
	table_remove(o);
	o->owner = 0;
}
