// SPDX-License-Identifier: BSD-2-Clause
/* See trace.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/doctor/trace.h"

static bool is_it(const char *line, uint64_t at, const char *name, struct mapping *m)
{
	char rights[5];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &m->start, &m->end, rights) != 3)
		return false;
	m->shared = rights[3] == 's';
	return name ? strstr(line, name) != NULL : at >= m->start && at < m->end;
}

bool maps_find(pid_t pid, uint64_t at, const char *name, struct mapping *m)
{
	char path[64], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = is_it(line, at, name, m);
	if (f)
		fclose(f);
	return found;
}
