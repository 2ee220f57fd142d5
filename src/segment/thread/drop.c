// SPDX-License-Identifier: BSD-2-Clause
/*
 * MADV_DONTNEED of converted memory. On private memory it empties pages; on a shared
 * mapping it does not, as the file keeps them: an allocator that reuses such pages as
 * zeros would find old bytes. userfaultfd announces the call before pages go, and the
 * caller waits in the kernel until the event is read, and looks the mapping up again
 * afterwards. But reading the event is what lets it go, so the range has to be
 * known before that. The kernel shows it: the system call that a thread waits in, with
 * its arguments (/proc/thread-self/../syscall), and that it is userfaultfd that it waits for
 * (wchan). New private memory is mapped there; then the event is read, and the caller
 * empties that.
 *
 * Events are read in the order in which they were told, each after a look of its own. So
 * the thread that an event is of had told it before the look. By then it is about to sleep
 * (the kernel sets its state under the lock under which it tells): where it does not sleep
 * yet, the look waits for that. But to read an event wakes all threads that wait for the same
 * descriptor, and those that told another go back to sleep. One that told after the
 * look may run then, where no look finds it. Its event is in the list still: it is not there
 * if the descriptor is not readable after the reading. Where it is readable, a look counts that
 * found no thread running, or that came after those that ran have been out of the kernel
 * (monitor.c).
 *
 * The same look finds threads that wait in munmap(), in mmap() over such memory, or in an
 * mremap() that made a mapping shorter. Their range is gone, and its bytes are, too, before
 * they are let go: one that makes the rest longer again at once would find them.
 *
 * All is done by system calls on the stack: no allocation.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/own.h"
#include "notify/internal.h"
#include "segment/peer/attached.h"
#include "segment/thread/thread.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#define SLEEPS_NS 10000000000u
#define YIELDS	  100 /* before it naps: the thread may have a lower priority */

struct entry { /* of getdents64() */
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

static void let_run(int tries)
{
	const struct timespec nap = { 0, 50000 };

	if (tries < YIELDS)
		syscall(SYS_sched_yield);
	else
		syscall(SYS_nanosleep, &nap, NULL);
}

/*
 * A look that cannot be had is none, and the event behind it is not to be read: so a descriptor is
 * waited for, where this thread's table is full, or the system's.
 */
static long open_in_time(const char *path, int flags)
{
	const uint64_t deadline = clock_ns() + SLEEPS_NS;
	int tries = 0;
	long fd;

	do {
		fd = syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC);
		if (fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != ENOMEM))
			return fd;
		let_run(tries++);
	} while (clock_ns() < deadline);
	return fd;
}

/* A file of a thread's, as text: false if there is none. */
static bool read_file(const char *tid, const char *name, char *text, size_t len)
{
	char path[64];
	long fd, n;

	snprintf(path, sizeof(path), "/proc/self/task/%s/%s", tid, name);
	fd = open_in_time(path, O_RDONLY);
	if (fd < 0)
		return false;
	n = syscall(SYS_read, fd, text, len - 1);
	syscall(SYS_close, fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

static bool empties(long advice)
{
	return advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED ||
	       advice == MADV_FREE;
}

/* The call that a thread waits in. */
struct change {
	uintptr_t start;
	uintptr_t end;
	bool empties; /* it is about to; else the range is gone already */
};

static bool change_by(long nr, const unsigned long a[3], struct change *c)
{
	*c = (struct change){ a[0], a[0] + a[1], nr == SYS_madvise };
	switch (nr) {
	case SYS_madvise:
		return empties((long)a[2]);
	case SYS_munmap:
	case SYS_mmap:
		return true;
	case SYS_mremap:
		c->start += round_up(a[2], kedge__page_size());
		return true;
	}
	return false;
}

/* The times that it has gone to sleep, or 0; and its state's letter. */
static unsigned long sleeps(const char *tid, char *state)
{
	static const char name[] = "\nvoluntary_ctxt_switches:", is[] = "\nState:\t";
	char text[4096], *at;

	*state = '?';
	if (!read_file(tid, "status", text, sizeof(text)))
		return 0;
	at = strstr(text, is);
	if (at)
		*state = at[sizeof(is) - 1];
	at = strstr(text, name);
	return at ? strtoul(at + sizeof(name) - 1, NULL, 10) : 0;
}

/* The range that the thread is about to empty, or has unmapped. */
static bool waits_in(const char *tid, struct change *c, bool *runs)
{
	unsigned long a[3];
	char text[256], *at;
	long nr;
	int i;

	*runs = false;
	if (!read_file(tid, "syscall", text, sizeof(text)))
		return false;
	*runs = !strncmp(text, "running", 7);
	nr = strtol(text, &at, 10);
	if (at == text || *at != ' ')
		return false;
	for (i = 0; i < 3; i++)
		a[i] = strtoul(at, &at, 16);
	/* "0" is what a kernel says that does not tell. */
	if (!change_by(nr, a, c) || !read_file(tid, "wchan", text, sizeof(text)) ||
	    (strncmp(text, "userfaultfd", 11) != 0 &&
	     (!c->empties || strcmp(text, "0") != 0)))
		return false;
	c->end = round_up(c->end, kedge__page_size());
	return c->start < c->end;
}

/*
 * The call and the wait are two files. In between the thread may have gone on to another
 * call: from a madvise() that had waited for a lock, say, to the munmap() of the same
 * memory, and another thread has it by now. So it is the same sleep before and after. A
 * state that sleeps in a thread that runs: it is about to.
 */
static bool change_of(const char *tid, struct change *c, bool *runs)
{
	uint64_t deadline = clock_ns() + SLEEPS_NS;
	unsigned long slept;
	int tries = 0;
	char state;
	bool is;

	do {
		slept = sleeps(tid, &state);
		is = waits_in(tid, c, runs);
		if (is && slept && sleeps(tid, &state) == slept)
			return true;
		if (!is && (!*runs || state != 'D'))
			return false;
		let_run(tries++);
	} while (clock_ns() < deadline);
	return false;
}

/* No watch of ours may be on what is mapped over: this thread would wait for itself. */
bool drop_now(uint32_t extent, uintptr_t start, uintptr_t end)
{
	struct piece part;
	bool any = false;

	while (piece_cut(extent, start, end, &part)) {
		uffd_unwatch(seg->extent[extent].uffd, part.at, part.len);
		if (own_mmap((void *)part.at, part.len, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) < 0)
			kedge__log(KEDGE_LOG_ERROR, "memory that was to be emptied keeps its "
				   "contents: no mapping is to be had");
		serve_piece_gone(&part);
		any = true;
	}
	return any;
}

static bool holds(const void *at, size_t len, const struct vma_info *v)
{
	return (uintptr_t)at <= v->start && v->start < (uintptr_t)at + len;
}

/* A mapping of this process that is an attachment of its own. */
static bool is_attachment(const struct vma_info *v)
{
	struct kedge_attachment *a;
	struct kedge_grant *g;
	struct list *l, *tmp;
	bool is = false;
	uint32_t i;

	for (i = 0; i < GRANTS && !is; i++) {
		g = seg->grant[i];
		if (!g)
			continue;
		is = holds(g->map.base, g->map.len, v);
		list_for_each_safe(l, tmp, &g->attachments) {
			a = list_entry(l, struct kedge_attachment, node);
			is |= holds(a->at, a->len, v);
		}
	}
	return is;
}

/* Looks if it is there still, and how far that is so. */
static uintptr_t look_at_piece(int maps, const struct piece *p, bool *there)
{
	const struct extent *e = &seg->extent[p->extent];
	const uintptr_t end = p->at + p->len;
	struct vma_info v;

	*there = false;
	if (vma_from(maps, p->at, &v) || v.start >= end)
		return end;
	if (v.start > p->at)
		return v.start;
	*there = v.shared && v.inode == e->inode && v.dev == e->dev &&
		 v.off + (p->at - v.start) == p->off && !is_attachment(&v);
	return v.end < end ? v.end : end;
}

/* The change, as read of an event, or of a thread that waits. */
struct change_told {
	void (*gone)(const struct change_told *t, const struct piece *part);
	uint32_t extent;
	uintptr_t start;
	uintptr_t end;
	uintptr_t to;
	bool unless_elsewhere;
};

/* Where any of it is mapped. */
struct elsewhere {
	const struct piece *p;
	bool found;
};

static void note(void *arg, const struct vma_info *v)
{
	struct elsewhere *w = arg;
	const struct extent *e = &seg->extent[w->p->extent];

	w->found |= v->shared && v->inode == e->inode && v->dev == e->dev &&
		    v->off < w->p->off + w->p->len &&
		    w->p->off < v->off + (v->end - v->start) && !is_attachment(v);
}

/* It was moved, and that event is not read yet. */
static bool is_elsewhere(const struct piece *p)
{
	struct elsewhere w = { .p = p };

	/* Memory that cannot be looked for is not taken for unmapped: its bytes would be gone. */
	return vma_walk(note, &w) || w.found;
}

/* Finds the parts of @p that are not there, from its start to its end. */
static bool look_through(const struct change_told *t, int maps, struct piece *p)
{
	struct piece part, rest;
	bool any = false, there;
	uintptr_t until;

	piece_part(p, t->start, t->end, &rest);
	while (p && rest.len) {
		until = look_at_piece(maps, &rest, &there);
		piece_part(&rest, rest.at, until, &part);
		if (!there && !(t->unless_elsewhere && is_elsewhere(&part))) {
			p = piece_take(p, &part);
			t->gone(t, &part);
			any = true;
		}
		rest.off += part.len;
		rest.len -= part.len;
		rest.at += part.len;
	}
	return any;
}

/*
 * An event is read some time after the call. By then others may have got those addresses,
 * and moved memory of this extent there, so that several pieces are noted for one place.
 * The mappings say which of them it is; of the others it was, or will be, told what became
 * of them. Moved ones may be added while the table is gone through: they are there.
 */
static bool not_there(const struct change_told *t)
{
	int maps = (int)open_in_time("/proc/self/maps", O_RDONLY);
	struct piece *p = NULL;
	bool any = false;

	if (maps < 0)
		return false;
	while ((p = piece_next(p, t->extent, t->start, t->end)))
		any |= look_through(t, maps, p);
	syscall(SYS_close, maps);
	return any;
}

static void unmapped(const struct change_told *t, const struct piece *part)
{
	(void)t;
	serve_piece_gone(part);
}

/* Still the owner's, and not where others have attached it from. */
static void moved(const struct change_told *t, const struct piece *part)
{
	serve_gone((int)part->extent, part->off, part->off + part->len, false);
	piece_add(part->at - t->start + t->to, part->len, part->extent, part->off);
}

bool drop_gone(uint32_t extent, uintptr_t start, uintptr_t end)
{
	const struct change_told t = { .gone = unmapped, .extent = extent, .start = start,
				       .end = end };

	return not_there(&t);
}

bool drop_moved(uint32_t extent, uintptr_t start, uintptr_t end, uintptr_t to)
{
	const struct change_told t = { .gone = moved, .extent = extent, .start = start,
				       .end = end, .to = to };

	return not_there(&t);
}

/* Before its event is read: nobody makes the rest longer again, and finds old bytes. The
 * thread may wait for another extent's event. */
static bool gone_already(uint32_t extent, const struct change *c)
{
	const struct change_told t = { .gone = unmapped, .extent = extent, .start = c->start,
				       .end = c->end, .unless_elsewhere = true };

	return not_there(&t);
}

static bool look_at(const char *tid, uint32_t extent, bool *asleep)
{
	struct change c;
	bool runs, is = change_of(tid, &c, &runs);

	*asleep &= !runs;
	if (!is)
		return false;
	return c.empties ? drop_now(extent, c.start, c.end)
			 : gone_already(extent, &c);
}

bool drop_look(uint32_t extent, bool *asleep)
{
	const long self = syscall(SYS_gettid);
	char list[2048];
	bool any = false;
	long fd, n, at;

	*asleep = true;
	fd = open_in_time("/proc/self/task", O_RDONLY | O_DIRECTORY);
	if (fd < 0) {
		*asleep = false;
		return false;
	}
	while ((n = syscall(SYS_getdents64, fd, list, sizeof(list))) > 0)
		for (at = 0; at < n; at += ((struct entry *)(void *)(list + at))->len) {
			const char *tid = ((struct entry *)(void *)(list + at))->name;

			if (tid[0] != '.' && atol(tid) != self)
				any |= look_at(tid, extent, asleep);
		}
	syscall(SYS_close, fd);
	return any;
}
