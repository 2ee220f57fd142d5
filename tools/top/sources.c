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

static int add(struct sources *s, const char *path, const struct source *of)
{
	struct source *more;
	size_t i;

	for (i = 0; i < s->cnt; i++)
		if (!strcmp(s->v[i].path, path) && s->v[i].pid == of->pid)
			return 0;
	if (s->cnt == s->room) {
		more = realloc(s->v, (2 * s->room + 16) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		s->v = more;
		s->room = 2 * s->room + 16;
	}
	s->v[s->cnt] = *of;
	s->v[s->cnt].path = strdup(path);
	return s->v[s->cnt].path ? (s->cnt++, 0) : -ENOMEM;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* Those of a folder; of one process alone, if @of is one. */
static int add_folder(struct sources *s, const char *folder, const struct source *of)
{
	char path[PATH_MAX], end[2][32] = { ".sock", ".prom" };
	DIR *d = opendir(folder);
	struct dirent *e;
	int i, rc = d ? 0 : -errno;

	for (i = 0; i < 2 && of->pid; i++)
		snprintf(end[i], sizeof(end[i]), "-%d.%s", of->number, i ? "prom" : "sock");
	while (!rc && (e = readdir(d))) {
		if (!ends_with(e->d_name, end[0]) && !ends_with(e->d_name, end[1]))
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) < (int)sizeof(path))
			rc = add(s, path, of);
	}
	if (d)
		closedir(d);
	return rc;
}

static int add_path(struct sources *s, const char *path, const struct source *of)
{
	struct source within = *of;
	struct stat st;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return add(s, path, of);
	within.named = false;
	return add_folder(s, path, &within);
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

static uid_t user_of(int pid)
{
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	return stat(path, &st) ? (uid_t)-1 : st.st_uid;
}

static int add_process(struct sources *s, int pid, bool named)
{
	char *all = NULL, path[PATH_MAX] = "";
	const char *value = value_of(pid, &all);
	struct source of = { .pid = pid, .named = named };
	int rc = -ENOENT;

	if (target_named(value)) {
		target_is_socket(&value);
		if (*value != '/')
			snprintf(path, sizeof(path), "/proc/%d/cwd/", pid);
		else if (!same_root(pid))
			snprintf(path, sizeof(path), "/proc/%d/root", pid);
		of.number = number_within(pid);
		of.user = user_of(pid);
		rc = target_expand(path, sizeof(path), value, of.number)
			     ? add_path(s, path, &of) : -ENAMETOOLONG;
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
	const struct source of = { .named = true };
	uint64_t pid;
	int rc;

	if (util_parse_u64(word, &pid) || pid < 1 || pid > INT_MAX)
		return add_path(s, word, &of);
	rc = add_process(s, (int)pid, true);
	if (rc == -ENOENT)
		return kedge_reason(rc, "process %s is not there, is another user's, or was begun "
				    "without KEDGE_STATS=PATH", word);
	return rc;
}

static bool has_ended(const struct source *s)
{
	const char *pid = s->samples.cnt ? parse_label(s->samples.v, "pid") : NULL;

	/* One that was found runs; its number may be of another namespace. */
	return pid && !s->named && !s->pid && kill(atoi(pid), 0) && errno == ESRCH;
}

/* A file that two processes name has what the last one wrote. */
static bool is_anothers(const struct source *s)
{
	const char *pid = s->samples.cnt ? parse_label(s->samples.v, "pid") : NULL;

	return s->pid && !s->named && pid && atoi(pid) != s->number;
}

/* The number that this host knows a process by, whatever it says of itself. */
static void set_pid(struct source *s)
{
	size_t i, k;

	if (!s->pid)
		return;
	snprintf(s->label, sizeof(s->label), "%d", s->pid);
	for (i = 0; i < s->samples.cnt; i++)
		for (k = 0; k < s->samples.v[i].cnt; k++)
			if (!strcmp(s->samples.v[i].label[k].name, "pid"))
				s->samples.v[i].label[k].value = s->label;
}

static void take(struct source *s, struct fetch *f)
{
	s->status = f->status;
	if (!s->status)
		s->status = parse_text(f->text, f->len, &s->samples);
	if (!s->status && (has_ended(s) || is_anothers(s)))
		s->status = -ESRCH;
	if (s->status)
		parse_free(&s->samples);
	else
		set_pid(s);
}

static int ask_all(struct sources *s)
{
	struct fetch *f = calloc(s->cnt + 1, sizeof(*f));
	size_t i;
	int rc = f ? 0 : -ENOMEM;

	for (i = 0; i < s->cnt && f; i++)
		f[i] = (struct fetch){ .path = s->v[i].path, .owner = s->v[i].user,
				       .pid = s->v[i].pid,
				       .has_owner = s->v[i].pid && !s->v[i].named };
	if (f)
		fetch_all(f, s->cnt);
	for (i = 0; i < s->cnt && f; i++) {
		take(&s->v[i], &f[i]);
		if (s->v[i].status == -ENOMEM)
			rc = -ENOMEM;
	}
	free(f);
	return rc;
}

int sources_find(struct sources *s, char *const *words)
{
	int rc = 0;

	memset(s, 0, sizeof(*s));
	if (!*words)
		rc = add_all(s);
	for (; *words && !rc; words++)
		rc = add_word(s, *words);
	if (!rc)
		rc = ask_all(s);
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
	case -EPERM:
		return s->named ? "it is no file that may be read here"
				: "what is there is not of the process that names it";
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
