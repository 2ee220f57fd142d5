// SPDX-License-Identifier: BSD-2-Clause
/*
 * "unix:PATH" is a socket, all else a file. %p stands for the process's number and %% for a %;
 * where PATH is a folder, the process has a name of its own in it.
 */
#include "stats/target.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define SOCKET "unix:"

bool target_named(const char *value)
{
	return value && *value && strcmp(value, "0") && strcmp(value, "1");
}

bool target_is_socket(const char **value)
{
	if (strncmp(*value, SOCKET, strlen(SOCKET)))
		return false;
	*value += strlen(SOCKET);
	return true;
}

bool target_expand(char *to, size_t room, const char *from, int pid)
{
	size_t len = strlen(to);
	char one[16];

	for (; *from; from++) {
		snprintf(one, sizeof(one), "%c", *from);
		if (*from == '%' && (from[1] == 'p' || from[1] == '%'))
			if (*++from == 'p')
				snprintf(one, sizeof(one), "%d", pid);
		if (len + strlen(one) >= room)
			return false;
		len += (size_t)snprintf(to + len, room - len, "%s", one);
	}
	return true;
}

/* The program's name, of characters that are plain in any file's name. */
static void program(char *to, size_t room)
{
	size_t n = 0;
	const char *from;

	for (from = program_invocation_short_name; *from && n + 1 < room; from++)
		to[n++] = isalnum((unsigned char)*from) || strchr("-_.", *from) ? *from : '_';
	to[n] = '\0';
}

static bool add_own_name(struct target *t, const char *file)
{
	const size_t len = strlen(t->path);
	char name[32];

	program(name, sizeof(name));
	return snprintf(t->path + len, sizeof(t->path) - len, "/kedge-%s-%d.%s", name,
			(int)getpid(), t->socket ? "sock" : file) <
	       (int)(sizeof(t->path) - len);
}

int target_parse(struct target *t, const char *value, const char *file)
{
	struct stat st;

	t->socket = target_is_socket(&value);
	*t->path = '\0';
	if (!*value)
		return kedge_reason(-EINVAL, "it names no path");
	/* The program may go to another folder before the thread has begun, or at its end. */
	if (*value != '/') {
		if (!getcwd(t->path, sizeof(t->path) - 1))
			return errno == ERANGE ? -ENAMETOOLONG : -errno;
		strcat(t->path, "/");
	}
	if (!target_expand(t->path, sizeof(t->path), value, (int)getpid()))
		return -ENAMETOOLONG;
	t->own_name = !stat(t->path, &st) && S_ISDIR(st.st_mode);
	return t->own_name && !add_own_name(t, file) ? -ENAMETOOLONG : 0;
}
