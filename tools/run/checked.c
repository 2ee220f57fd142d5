// SPDX-License-Identifier: BSD-2-Clause
/* See checked.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/run/checked.h"

/* ---- the file ---- */

static bool name_file(char path[CHECKED_PATH], const char *what)
{
	const char *dir = getenv("TMPDIR");
	/* Processes of the program may be elsewhere when they write. */
	char *tmp = realpath(dir && *dir ? dir : "/tmp", NULL);
	bool fits = tmp && snprintf(path, CHECKED_PATH, "%s/kedge-%s-XXXXXX", tmp, what) <
				   CHECKED_PATH;

	if (tmp && !fits)
		errno = ENAMETOOLONG;
	free(tmp);
	return fits;
}

FILE *checked_make_file(char path[CHECKED_PATH], const char *what)
{
	int fd = name_file(path, what) ? mkostemp(path, O_CLOEXEC) : -1;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r+");

	if (fd >= 0 && !f) {
		unlink(path);
		close(fd);
	}
	return f;
}

void checked_fini(struct checked *c)
{
	free(c->process);
	free(c->stale.all);
	free(c->used.all);
}

/* ---- what they wrote ---- */

static void *one_more(struct checked *c, void **all, size_t *cnt, size_t size)
{
	void *bigger = reallocarray(*all, *cnt + 1, size);

	if (!bigger) {
		c->no_memory = true;
		return NULL;
	}
	*all = bigger;
	return memset((char *)bigger + (*cnt)++ * size, 0, size);
}

static struct checked_stale *find(const struct checked_stales *in, const char *name)
{
	size_t i;

	for (i = 0; i < in->cnt; i++)
		if (!strcmp(in->all[i].name, name))
			return &in->all[i];
	return NULL;
}

static void add_stale(struct checked *c, struct checked_stales *to, const struct checked_stale *s)
{
	struct checked_stale *one = find(to, s->name);

	to->registrations += s->cnt;
	if (one) {
		one->cnt += s->cnt;
		one->requests += s->requests;
		one->blind |= s->blind;
		return;
	}
	one = one_more(c, (void **)&to->all, &to->cnt, sizeof(*one));
	if (one)
		*one = *s;
}

/* True: it is such a line. */
static bool take_stale(struct checked *c, const struct checked_process *p, const char *line)
{
	struct checked_stale s = { .pid = p->pid, .blind = !p->posts };

	if (sscanf(line, "stale %llu %" SCNx64 " %" SCNx64 " %15s %" SCNu32 " %63[^\n]", &s.cnt,
		   &s.start, &s.end, s.kind, &s.change, s.name) != 6 || !s.cnt)
		return false;
	add_stale(c, &c->stale, &s);
	return true;
}

/* exec leaves the process's number to another program, which begins anew. */
static void take_process(struct checked *c, const char *line)
{
	struct checked_process got = { 0 }, *p;
	char word[8];
	size_t i = c->processes;

	if (sscanf(line, "%7s %d %63[^\n]", word, &got.pid, got.name) != 3)
		return;
	got.silent = !strcmp(word, "began");
	while (!got.silent && i-- && !(c->process[i].pid == got.pid && c->process[i].silent))
		;
	if (!got.silent && i < c->processes) {
		c->process[i].silent = false;
		c->now = i;
		return;
	}
	p = one_more(c, (void **)&c->process, &c->processes, sizeof(*p));
	if (!p)
		return;
	*p = got;
	c->now = c->processes - 1;
}

static void take_line(struct checked *c, const char *line)
{
	struct checked_process *p, got;

	if (!strncmp(line, "began ", 6) || !strncmp(line, "process ", 8)) {
		take_process(c, line);
		return;
	}
	p = c->processes ? &c->process[c->now] : NULL;
	if (!p || p->silent)
		return;
	if (sscanf(line, "posts %llu", &got.posts) == 1) {
		p->posts = got.posts;
	} else if (sscanf(line, "held %llu %llu %llu", &got.followed, &got.not_followed,
			  &got.left_to_fi) == 3) {
		p->followed = got.followed;
		p->not_followed = got.not_followed;
		p->left_to_fi = got.left_to_fi;
	} else if (!take_stale(c, p, line)) {
		sscanf(line, "counts %llu %llu %llu %llu %llu %llu", &p->hits, &p->misses,
		       &p->lent, &p->uncached, &p->refused, &p->invalidated);
	}
}

struct checked_unknown checked_unknown(const struct checked *c)
{
	struct checked_unknown u = { 0 };
	size_t i;

	for (i = 0; i < c->processes; i++) {
		u.registrations += c->process[i].not_followed;
		u.left_to_fi += c->process[i].left_to_fi;
		u.processes += c->process[i].silent;
	}
	return u;
}

void checked_add_used(struct checked *c, const struct checked_stale *s)
{
	add_stale(c, &c->used, s);
}

bool checked_used(const struct checked *c, const char *name)
{
	return find(&c->used, name);
}

void checked_read(struct checked *c, FILE *f)
{
	char line[256];

	rewind(f);
	while (fgets(line, sizeof(line), f))
		take_line(c, line);
}

/* ---- what is printed ---- */

static unsigned long long asked(const struct checked_process *p)
{
	return p->followed + p->not_followed + p->left_to_fi;
}

/* The registrations that libibverbs made without the cache: it refused, or it could not be had. */
static unsigned long long not_served(const struct checked_process *p)
{
	unsigned long long served = p->hits + p->misses;

	return asked(p) > served ? asked(p) - served : 0;
}

void checked_print_processes(const struct checked *c, bool watched)
{
	const struct checked_process *p;
	size_t i;

	fprintf(stderr, "%-24s %9s %9s %9s %9s %9s %9s\n", "process", "asked", "cached",
		"made", "not kept", "left", "changed");
	for (i = 0; i < c->processes; i++) {
		p = &c->process[i];
		if (p->silent) {
			fprintf(stderr, "%-15.15s %8d   has told no more: it was killed, or ended "
				"by _exit() or exec, or its report was lost\n", p->name, p->pid);
			continue;
		}
		fprintf(stderr, "%-15.15s %8d %9llu %9llu %9llu %9llu %9llu %9llu\n", p->name,
			p->pid, asked(p), p->hits, p->misses, p->lent + p->uncached,
			not_served(p), p->invalidated);
		if (p->not_followed && watched)
			fprintf(stderr, "    %llu of them in memory that cannot be watched here, "
				"or that another notifier watches\n", p->not_followed);
		if (p->left_to_fi)
			fprintf(stderr, "    %llu of them libfabric's or UCX's, for whose cache "
				"libkedge-fi or libkedge-ucx watches\n", p->left_to_fi);
	}
}

static json_t *process_row(const void *of, size_t i)
{
	const struct checked_process *p = &((const struct checked *)of)->process[i];

	return json_pack("{si so sb sI sI sI sI sI sI sI sI sI sI}", "pid", p->pid, "name",
			 util_json_text(p->name), "silent", p->silent, "asked",
			 (json_int_t)asked(p), "cached", (json_int_t)p->hits, "made",
			 (json_int_t)p->misses, "lent", (json_int_t)p->lent, "uncached",
			 (json_int_t)p->uncached, "refused", (json_int_t)p->refused, "invalidated",
			 (json_int_t)p->invalidated, "followed", (json_int_t)p->followed,
			 "not_followed", (json_int_t)p->not_followed, "left_to_libkedge_fi",
			 (json_int_t)p->left_to_fi);
}

json_t *checked_processes_json(const struct checked *c)
{
	return util_json_rows(c->processes, process_row, c);
}
