// SPDX-License-Identifier: BSD-2-Clause
#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/who.h"

void who_command(int pid, char *name, size_t room)
{
	char path[32];
	FILE *f = NULL;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (pid > 0)
		f = fopen(path, "re");
	if (!f || !fgets(name, (int)room, f))
		snprintf(name, room, "?");
	if (f)
		fclose(f);
	name[strcspn(name, "\n")] = 0;
}

void who_user(uint32_t uid, char *name, size_t room)
{
	const struct passwd *p = uid == UINT32_MAX ? NULL : getpwuid(uid);

	if (p)
		snprintf(name, room, "%s", p->pw_name);
	else if (uid == UINT32_MAX)
		snprintf(name, room, "?");
	else
		snprintf(name, room, "%u", uid);
}

const char *who_plain(char *to, size_t room, const char *from)
{
	size_t i;

	for (i = 0; i + 1 < room && from[i]; i++)
		to[i] = iscntrl((unsigned char)from[i]) || (unsigned char)from[i] == 0x9b
				? '?' : from[i];
	to[i] = 0;
	return to;
}

const char *who_plural(size_t n, const char *one, const char *more)
{
	return n == 1 ? one : more;
}
