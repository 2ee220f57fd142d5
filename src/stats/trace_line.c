// SPDX-License-Identifier: BSD-2-Clause
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kedge/notifier.h>

#include "base/base.h"
#include "stats/trace.h"

struct text {
	char *to;
	size_t len, room;
};

/* What does not fit is left out. */
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

/* What a thread is called now; it may have ended. Of other characters than plain ones "_" is left,
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

static void add_frame(struct text *t, unsigned int i, void *pc)
{
	Dl_info d;

	if (!dladdr(pc, &d) || !d.dli_fname) {
		add(t, "  #%u %p\n", i, pc);
		return;
	}
	add(t, "  #%u %.256s+0x%" PRIxPTR, i, d.dli_fname,
	    (uintptr_t)pc - (uintptr_t)d.dli_fbase);
	if (d.dli_sname)
		add(t, " (%.128s+0x%" PRIxPTR ")", d.dli_sname,
		    (uintptr_t)pc - (uintptr_t)d.dli_saddr);
	add(t, "\n");
}

static void add_time(struct text *t, uint64_t ns)
{
	const time_t s = (time_t)(ns / 1000000000u);
	char date[32] = "";
	struct tm tm;

	if (gmtime_r(&s, &tm))
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	add(t, "time=%s.%06uZ", date, (unsigned int)(ns % 1000000000u / 1000));
}

size_t trace_line(char *to, size_t room, const struct trace_change *c)
{
	static const char *const by[] = { "announced", "kernel", "module" };
	struct text t = { to, 0, room };
	uint32_t i;

	add_time(&t, c->ns);
	add(&t, " pid=%d", (int)getpid());
	if (c->tid) {
		add(&t, " thread=%d", c->tid);
		add_name(&t, c->tid);
	}
	add(&t, " kind=%s start=0x%" PRIx64 " end=0x%" PRIx64 " bytes=%" PRIu64 " watches=%" PRIu64
		" by=%s%s\n", kind_name(c->kind), c->start, c->end, c->end - c->start, c->watches,
	    by[c->by], c->unsure ? " unsure" : "");
	for (i = 0; i < c->stack.cnt; i++)
		add_frame(&t, i, c->stack.pc[i]);
	return t.len;
}
