// SPDX-License-Identifier: BSD-2-Clause
#include "notify/backend/uffd_who.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

struct dirent64 {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

/* Calls that change mappings. The first two arguments of most are the range. */
static bool changes(long nr)
{
	static const long calls[] = { SYS_munmap, SYS_madvise, SYS_mremap, SYS_mmap, SYS_brk,
				      SYS_shmdt, SYS_shmat };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		if (nr == calls[i])
			return true;
	return false;
}

/* "number, six arguments, sp pc" of a thread that waits; else false. */
static bool parse(const char *line, struct who_call *c)
{
	unsigned int i;
	char *end;

	c->nr = strtol(line, &end, 10);
	if (end == line || !changes(c->nr))
		return false;
	for (i = 0; i < ARRAY_SIZE(c->arg); i++) {
		line = end;
		c->arg[i] = strtoul(line, &end, 16);
		if (end == line)
			return false;
	}
	return true;
}

static void look(struct who *w, int dir, const char *name)
{
	struct who_call c = { .tid = atoi(name) };
	char text[256];
	long fd, n;

	if (c.tid <= 0 || w->cnt == WHO_MAX)
		return;
	snprintf(text, sizeof(text), "%d/syscall", c.tid);
	fd = syscall(SYS_openat, dir, text, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return;
	text[n] = '\0';
	if (parse(text, &c))
		w->call[w->cnt++] = c;
}

void who_waits(struct who *w)
{
	_Alignas(struct dirent64) char buf[4096];
	const struct dirent64 *d;
	long dir, n, at;

	w->cnt = 0;
	dir = syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return;
	while ((n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
		for (at = 0; at < n; at += d->len) {
			d = (const struct dirent64 *)(const void *)(buf + at);
			look(w, (int)dir, d->name);
		}
	syscall(SYS_close, dir);
}

static bool meets(const struct who_call *c, uint64_t start, uint64_t end)
{
	/* The heap's end moves down to the argument; these two name no length. */
	if (c->nr == SYS_brk || c->nr == SYS_shmdt)
		return start >= c->arg[0] - 4095;
	if (c->nr == SYS_shmat)
		return start <= c->arg[1] && c->arg[1] < end;
	if (c->nr == SYS_mremap && start < c->arg[4] + c->arg[2] && end > c->arg[4])
		return true;
	return start < c->arg[0] + c->arg[1] && end > c->arg[0];
}

int who_did(const struct who *w, const struct uffd_msg *m)
{
	const bool remap = m->event == UFFD_EVENT_REMAP;
	const uint64_t start = remap ? m->arg.remap.from : m->arg.remove.start;
	const uint64_t end = remap ? start + m->arg.remap.len : m->arg.remove.end;
	unsigned int i;
	int tid = 0;

	for (i = 0; i < w->cnt; i++) {
		if (!meets(&w->call[i], start, end))
			continue;
		if (tid)
			return 0;
		tid = w->call[i].tid;
	}
	return tid;
}
