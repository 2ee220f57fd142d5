// SPDX-License-Identifier: BSD-2-Clause
/*
 * Where processes publish. A process's environment tells, as it was when the program began; a
 * folder has names of processes in it.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "stats/target.h"
#include "tools/common/util.h"
#include "tools/top/top.h"

#define VARIABLE "KEDGE_STATS="
#define ENVIRONMENT_MAX (1 << 20)

static int add(struct sources *s, const char *path, int pid, bool named)
{
	struct source *more;
	size_t i;

	for (i = 0; i < s->cnt; i++)
		if (!strcmp(s->v[i].path, path))
			return 0;
	if (s->cnt == s->room) {
		more = realloc(s->v, (2 * s->room + 16) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		s->v = more;
		s->room = 2 * s->room + 16;
	}
	s->v[s->cnt] = (struct source){ .path = strdup(path), .pid = pid, .named = named };
	return s->v[s->cnt].path ? (s->cnt++, 0) : -ENOMEM;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* Those of a folder; with @pid, of that process alone. */
static int add_folder(struct sources *s, const char *folder, int pid)
{
	char path[PATH_MAX], end[2][32] = { ".sock", ".prom" };
	DIR *d = opendir(folder);
	struct dirent *e;
	int i, rc = d ? 0 : -errno;

	for (i = 0; i < 2 && pid; i++)
		snprintf(end[i], sizeof(end[i]), "-%d.%s", pid, i ? "prom" : "sock");
	while (!rc && (e = readdir(d))) {
		if (!ends_with(e->d_name, end[0]) && !ends_with(e->d_name, end[1]))
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) < (int)sizeof(path))
			rc = add(s, path, pid, false);
	}
	if (d)
		closedir(d);
	return rc;
}

static int add_path(struct sources *s, const char *path, int pid, bool named)
{
	struct stat st;

	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		return add_folder(s, path, pid);
	return add(s, path, pid, named);
}

/* The value in a process's environment, of which the caller frees *@all; or NULL. */
static const char *value_of(int pid, char **all)
{
	char path[32], *at, *end;
	ssize_t n, len = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	*all = malloc(ENVIRONMENT_MAX + 1);
	fd = *all ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	while (fd >= 0 && len < ENVIRONMENT_MAX &&
	       (n = read(fd, *all + len, (size_t)(ENVIRONMENT_MAX - len))) > 0)
		len += n;
	if (fd >= 0)
		close(fd);
	if (!*all)
		return NULL;
	(*all)[len] = '\0';
	for (at = *all, end = *all + len; at < end; at += strlen(at) + 1)
		if (!strncmp(at, VARIABLE, strlen(VARIABLE)))
			return at + strlen(VARIABLE);
	return NULL;
}

/* %p is the process's number as it sees it: in its own namespace. */
static int number_within(int pid)
{
	char path[32], line[256];
	int number = pid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "NSpid:", 6))
			number = atoi(strrchr(line, '\t') + 1);
	if (f)
		fclose(f);
	return number;
}

/* Another root, as in a container, is reached by the process's link to it. */
static bool same_root(int pid)
{
	struct stat own, its;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/root/.", pid);
	return !stat("/", &own) && !stat(path, &its) && own.st_dev == its.st_dev &&
	       own.st_ino == its.st_ino;
}

static int add_process(struct sources *s, int pid, bool named)
{
	char *all = NULL, path[PATH_MAX] = "";
	const char *value = value_of(pid, &all);
	int rc = -ENOENT, number;

	if (target_named(value)) {
		target_is_socket(&value);
		if (*value != '/')
			snprintf(path, sizeof(path), "/proc/%d/cwd/", pid);
		else if (!same_root(pid))
			snprintf(path, sizeof(path), "/proc/%d/root", pid);
		number = number_within(pid);
		rc = target_expand(path, sizeof(path), value, number)
			     ? add_path(s, path, number, named) : -ENAMETOOLONG;
	}
	free(all);
	return rc;
}

static int add_all(struct sources *s)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int rc = d ? 0 : -errno;

	while (!rc && (e = readdir(d)))
		if (isdigit((unsigned char)*e->d_name) &&
		    add_process(s, atoi(e->d_name), false) == -ENOMEM)
			rc = -ENOMEM;
	if (d)
		closedir(d);
	return rc;
}

static int add_word(struct sources *s, const char *word)
{
	uint64_t pid;
	int rc;

	if (util_parse_u64(word, &pid) || pid < 1 || pid > INT_MAX)
		return add_path(s, word, 0, true);
	rc = add_process(s, (int)pid, true);
	if (rc == -ENOENT)
		return kedge_reason(rc, "process %s is not there, is another user's, or was begun "
				    "without KEDGE_STATS=PATH", word);
	return rc;
}

static bool has_ended(const struct source *s)
{
	const char *pid = s->samples.cnt ? parse_label(s->samples.v, "pid") : NULL;

	/* A number of another namespace says no such thing. */
	return pid && !s->named && strncmp(s->path, "/proc/", 6) && kill(atoi(pid), 0) &&
	       errno == ESRCH;
}

static void ask(struct source *s)
{
	size_t len;
	char *text;

	s->status = fetch(s->path, &text, &len);
	if (!s->status)
		s->status = parse_text(text, len, &s->samples);
	if (!s->status && has_ended(s))
		s->status = -ESRCH;
	if (s->status)
		parse_free(&s->samples);
}

int sources_find(struct sources *s, char *const *words)
{
	size_t i;
	int rc = 0;

	memset(s, 0, sizeof(*s));
	if (!*words)
		rc = add_all(s);
	for (; *words && !rc; words++)
		rc = add_word(s, *words);
	for (i = 0; i < s->cnt && !rc; i++) {
		ask(&s->v[i]);
		if (s->v[i].status == -ENOMEM)
			rc = -ENOMEM;
	}
	if (rc)
		sources_end(s);
	return rc;
}

void sources_end(struct sources *s)
{
	size_t i;

	for (i = 0; i < s->cnt; i++) {
		parse_free(&s->v[i].samples);
		free(s->v[i].path);
	}
	free(s->v);
	memset(s, 0, sizeof(*s));
}

const char *source_silence(const struct source *s)
{
	switch (s->status) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ESRCH:
		/* One that has not opened a cache yet, or has ended: no news of it. */
		return s->named ? "no process publishes there" : NULL;
	case -EACCES:
		return "it is another user's: run it as root";
	case -ETIMEDOUT:
		return "it does not answer: it is stopped, or busy";
	case -EBADMSG:
	case -EFBIG:
		return "that is no text of kedge's counters";
	}
	return strerrordesc_np(-s->status);
}
