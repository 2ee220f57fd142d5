// SPDX-License-Identifier: BSD-2-Clause
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kedge/notifier.h>

#include "base/base.h"
#include "stats/trace.h"

struct text {
	char *to;
	size_t len, room;
};

/* Text that does not fit is left out, as a trace is for people. */
__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->to + t->len, t->room - t->len, format, args);
	va_end(args);
	if (n > 0)
		t->len += (size_t)n < t->room - t->len ? (size_t)n : t->room - t->len - 1;
}

static const char *kind_name(uint32_t kind)
{
	static const char *const names[] = { "last", "unmap", "remove", "remap", "other" };

	return kind < ARRAY_SIZE(names) ? names[kind] : "other";
}

/* The thread's name of now; it may have ended. Of other characters than plain ones "_" is left,
 * as a name is the program's to choose. */
static void add_name(struct text *t, int tid)
{
	char path[48], name[32], *c;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, name, sizeof(name) - 1);
	close(fd);
	if (n <= 1)
		return;
	name[n - 1] = '\0';
	for (c = name; *c; c++)
		if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '_';
	add(t, " name=\"%s\"", name);
}

/* ---- objects, by /proc: dladdr() takes the loader's lock ---- */

struct maps {
	int fd;
	size_t at, len;
	char buf[16384];
};

/* The next line, without its end, or NULL. One that is longer than the room is left out. */
static char *next_line(struct maps *m)
{
	for (;;) {
		char *line = m->buf + m->at, *end = memchr(line, '\n', m->len - m->at);
		ssize_t n;

		if (end) {
			*end = '\0';
			m->at = (size_t)(end - m->buf) + 1;
			return line;
		}
		m->len -= m->at;
		memmove(m->buf, line, m->len);
		m->at = 0;
		if (m->len == sizeof(m->buf))
			m->len = 0;
		n = read(m->fd, m->buf + m->len, sizeof(m->buf) - m->len);
		if (n <= 0)
			return NULL;
		m->len += (size_t)n;
	}
}

/* The path of what is mapped at @pc, into @to, or "". */
static void name_of(uintptr_t pc, char *to, size_t room)
{
	static struct maps m; /* of the thread that writes */
	uintptr_t start, end;
	char *line, *path;

	*to = '\0';
	m.at = m.len = 0;
	m.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (m.fd < 0)
		return;
	while ((line = next_line(&m))) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) != 2 || pc >= end)
			continue;
		path = pc >= start ? strchr(line, '/') : NULL;
		if (path)
			snprintf(to, room, "%s", path);
		break;
	}
	close(m.fd);
}

static void add_frame(struct text *t, unsigned int i, const struct trace_stack *s)
{
	char name[256];

	name_of(s->pc[i], name, sizeof(name));
	if (*name && s->base[i])
		add(t, "  #%u %s+0x%" PRIxPTR "\n", i, name, s->pc[i] - s->base[i]);
	else
		add(t, "  #%u 0x%" PRIxPTR "%s%s\n", i, s->pc[i], *name ? " " : "", name);
}

size_t trace_line(char *to, size_t room, const struct trace_change *c)
{
	static const char *const by[] = { "announced", "kernel", "module" };
	struct text t = { to, 0, room };
	uint32_t i;

	/* As a date it would take a lock of the C library's, with which a child may be forked. */
	add(&t, "time=%" PRIu64 ".%06u pid=%d", c->ns / 1000000000u,
	    (unsigned int)(c->ns % 1000000000u / 1000), (int)getpid());
	if (c->tid) {
		add(&t, " thread=%d", c->tid);
		add_name(&t, c->tid);
	}
	add(&t, " kind=%s start=0x%" PRIx64 " end=0x%" PRIx64 " bytes=%" PRIu64 " watches=%" PRIu64
		" by=%s%s\n", kind_name(c->kind), c->start, c->end, c->end - c->start, c->watches,
	    by[c->by], c->unsure ? " unsure" : "");
	for (i = 0; i < c->stack.cnt; i++)
		add_frame(&t, i, &c->stack);
	return t.len;
}
