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

#define SOCKET "unix:"

bool target_named(const char *value)
{
	return value && *value && strcmp(value, "0") && strcmp(value, "1");
}

static bool put(struct target *t, size_t *len, const char *text)
{
	size_t n = strlen(text);

	if (*len + n >= sizeof(t->path))
		return false;
	memcpy(t->path + *len, text, n + 1);
	*len += n;
	return true;
}

static bool put_expanded(struct target *t, size_t *len, const char *from)
{
	char one[16] = "";
	bool fits = true;

	for (; *from && fits; from++) {
		snprintf(one, sizeof(one), "%c", *from);
		if (*from == '%' && (from[1] == 'p' || from[1] == '%'))
			if (*++from == 'p')
				snprintf(one, sizeof(one), "%d", (int)getpid());
		fits = put(t, len, one);
	}
	return fits;
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

static bool put_own_name(struct target *t, size_t *len)
{
	char name[32], own[64];

	program(name, sizeof(name));
	snprintf(own, sizeof(own), "/kedge-%s-%d.%s", name, (int)getpid(),
		 t->socket ? "sock" : "prom");
	return put(t, len, own);
}

int target_parse(struct target *t, const char *value)
{
	struct stat st;
	size_t len = 0;

	t->socket = !strncmp(value, SOCKET, strlen(SOCKET));
	if (t->socket)
		value += strlen(SOCKET);
	/* The program may go to another folder before the thread has begun, or at its end. */
	if (*value != '/') {
		if (!getcwd(t->path, sizeof(t->path)))
			return -errno;
		len = strlen(t->path);
		if (!put(t, &len, "/"))
			return -ENAMETOOLONG;
	}
	if (!put_expanded(t, &len, value))
		return -ENAMETOOLONG;
	if (!stat(t->path, &st) && S_ISDIR(st.st_mode) && !put_own_name(t, &len))
		return -ENAMETOOLONG;
	return 0;
}
