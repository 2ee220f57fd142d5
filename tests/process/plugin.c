// SPDX-License-Identifier: BSD-2-Clause
/* A library that has a cache of its own, as plugins do. */
#include "proc.h"

#define EXPORT __attribute__((visibility("default")))

int plugin_use(void);
void plugin_done(void);

static struct rig rig;

/* 0, 1 if it was stale, PROC_SKIP, or a negative errno. */
EXPORT int plugin_use(void)
{
	char *mem = map_anon(NULL, RIG_LEN);
	int rc = rig_open(&rig);

	rc = rc ? rc : rig_check(&rig, mem, RIG_LEN);
	map_anon(mem, RIG_LEN);
	return rc ? rc : rig_check(&rig, mem, RIG_LEN);
}

EXPORT void plugin_done(void)
{
	rig_close(&rig);
	memset(&rig, 0, sizeof(rig));
}
