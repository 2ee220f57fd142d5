// SPDX-License-Identifier: BSD-2-Clause
#include "notify/backend/uffd_who.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/page.h"
#include "notify/threads.h"

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

	if (c.tid > 0 && w->cnt < WHO_MAX &&
	    thread_file(dir, c.tid, "syscall", text, sizeof(text)) && parse(text, &c))
		w->call[w->cnt++] = c;
}

void who_waits(struct who *w)
{
	_Alignas(struct dirent64) char buf[4096];
	const struct dirent64 *d;
	ssize_t n, at;
	long dir;

	w->cnt = 0;
	dir = syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return;
	while ((n = getdents64((int)dir, buf, sizeof(buf))) > 0)
		for (at = 0; at < n; at += d->d_reclen) {
			d = (const struct dirent64 *)(const void *)(buf + at);
			look(w, (int)dir, d->d_name);
		}
	syscall(SYS_close, dir);
}

static bool overlaps(uint64_t start, uint64_t end, uint64_t at, uint64_t len)
{
	return start < at + len && end > at;
}

/* Of mmap() and mremap() an address that is no more than a hint is not what changes. */
static bool meets(const struct who_call *c, uint64_t start, uint64_t end)
{
	const unsigned long *a = c->arg;

	switch (c->nr) {
	case SYS_brk: /* the heap's end moves down to it */
	case SYS_shmdt:
		return start + kedge__page_size() > a[0];
	case SYS_shmat:
		return start <= a[1] && a[1] < end;
	case SYS_mmap:
		return a[3] & MAP_FIXED && overlaps(start, end, a[0], a[1]);
	case SYS_mremap:
		if (a[3] & MREMAP_FIXED && overlaps(start, end, a[4], a[2]))
			return true;
	}
	return overlaps(start, end, a[0], a[1]);
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
