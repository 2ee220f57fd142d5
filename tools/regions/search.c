// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions of processes that cannot be asked: those that have made no handle have no socket, and
 * those in another network namespace have it there. Each has a thread "kedge-regions", and that
 * has the region's file in its table of descriptors; /proc says so to the process's user and root.
 * The descriptor tells a region of the process from one that it is a peer of.
 *
 * A read of another process's mappings waits for that process, which may be made to take for ever.
 * So a child reads them, and is ended when the time is over. It looks at no file itself, which may
 * be one of a file system that never answers, and only has a name like a region's.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/proc.h"
#include "tools/regions/regions.h"

#define KEEPER "kedge-regions\n"
#define FILE_NAME "/memfd:kedge-region (deleted)"

/* The whole of a small file below @dir, as text; false: it is not there. */
static bool read_text(int dir, const char *name, char *text, size_t room)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return n > 0;
}

static DIR *open_dir(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !d)
		close(fd);
	return d;
}

/* ---- files of a process's regions ---- */

struct file {
	uint64_t ino;
	uint64_t addr;
	uint64_t len;
	bool twice; /* at two places: which one is the region's cannot be told */
};

struct files {
	struct file *file;
	size_t cnt;
	size_t room;
};

static bool add_file(struct files *f, uint64_t ino)
{
	size_t room = 2 * f->room + 16;
	struct file *more;

	if (f->cnt == f->room) {
		more = realloc(f->file, room * sizeof(*more));
		if (!more)
			return false;
		f->file = more;
		f->room = room;
	}
	f->file[f->cnt++] = (struct file){ .ino = ino };
	return true;
}

static int by_ino(const void *x, const void *y)
{
	const struct file *a = x, *b = y;

	return (a->ino > b->ino) - (a->ino < b->ino);
}

static void add_descriptor(struct files *f, int fds, int infos, const char *number)
{
	char text[512];
	const char *ino;
	ssize_t n = readlinkat(fds, number, text, sizeof(text));

	if (n != (ssize_t)strlen(FILE_NAME) || memcmp(text, FILE_NAME, (size_t)n) != 0 ||
	    !read_text(infos, number, text, sizeof(text)))
		return;
	ino = strstr(text, "\nino:");
	if (ino)
		add_file(f, strtoull(ino + 5, NULL, 10));
}

/* @thread: of the one that has the descriptors. Linux before 5.14 does not say which files. */
static void read_descriptors(struct files *f, int thread)
{
	int infos = openat(thread, "fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *fds = open_dir(thread, "fd");
	const struct dirent *e;

	while (fds && infos >= 0 && (e = readdir(fds)))
		add_descriptor(f, dirfd(fds), infos, e->d_name);
	if (fds)
		closedir(fds);
	if (infos >= 0)
		close(infos);
	if (f->cnt)
		qsort(f->file, f->cnt, sizeof(*f->file), by_ino);
}

static void find_files(struct files *f, int process)
{
	DIR *tasks = open_dir(process, "task");
	const struct dirent *e;
	char name[32], path[300];
	int thread;

	while (tasks && !f->cnt && (e = readdir(tasks))) {
		snprintf(path, sizeof(path), "%s/comm", e->d_name);
		if (!isdigit((unsigned char)*e->d_name) ||
		    !read_text(dirfd(tasks), path, name, sizeof(name)) || strcmp(name, KEEPER) != 0)
			continue;
		thread = openat(dirfd(tasks), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (thread >= 0) {
			read_descriptors(f, thread);
			close(thread);
		}
	}
	if (tasks)
		closedir(tasks);
}

/* ---- where they are ---- */

static void note_mapping(struct files *f, const char *line)
{
	unsigned long long from, to, off, ino;
	struct file key, *found;
	int name = 0;

	if (sscanf(line, "%llx-%llx %*s %llx %*s %llu %n", &from, &to, &off, &ino, &name) != 4 ||
	    !name || strncmp(line + name, FILE_NAME, strlen(FILE_NAME)) != 0 || to < from)
		return;
	key.ino = ino;
	found = bsearch(&key, f->file, f->cnt, sizeof(key), by_ino);
	if (!found)
		return;
	found->twice |= found->len && found->addr != from - off;
	found->addr = from - off;
	found->len = off + (to - from) > found->len ? off + (to - from) : found->len;
}

static void read_mappings(struct files *f, int process)
{
	int fd = openat(process, "maps", O_RDONLY | O_CLOEXEC);
	FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	char *line = NULL;
	size_t room = 0;

	while (maps && getline(&line, &room, maps) > 0)
		note_mapping(f, line);
	free(line);
	if (maps)
		fclose(maps);
	else if (fd >= 0)
		close(fd);
}

/* ---- the child ---- */

static bool is_elsewhere(int process)
{
	char mine[64] = "", its[64] = "";

	return readlink("/proc/self/ns/net", mine, sizeof(mine) - 1) > 0 &&
	       readlinkat(process, "ns/net", its, sizeof(its) - 1) > 0 && strcmp(mine, its) != 0;
}

static void look_at(int to, const char *name, int process)
{
	struct unasked u = { .pid = atoi(name) };
	struct files f = { NULL };
	struct stat st;
	size_t i;

	if (fstat(process, &st) || (geteuid() && st.st_uid != geteuid()))
		return;
	find_files(&f, process);
	if (f.cnt) {
		read_mappings(&f, process);
		u.uid = st.st_uid;
		u.gid = st.st_gid;
		u.elsewhere = is_elsewhere(process);
	}
	for (i = 0; i < f.cnt; i++) {
		u.addr = f.file[i].twice ? 0 : f.file[i].addr;
		u.len = f.file[i].len;
		proc_send(to, &u, sizeof(u));
	}
	free(f.file);
}

static void look_by_name(int to, int proc, const char *name)
{
	int process = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (process < 0)
		return;
	look_at(to, name, process);
	close(process);
}

/* The last message has no process: all were looked at. */
static void serve(int to, void *arg)
{
	const struct unasked end = { .pid = 0 };
	const int pid = *(const int *)arg;
	DIR *proc = open_dir(AT_FDCWD, "/proc");
	const struct dirent *e;
	char name[16];

	snprintf(name, sizeof(name), "%d", pid);
	if (proc && pid)
		look_by_name(to, dirfd(proc), name);
	while (proc && !pid && (e = readdir(proc)))
		if (isdigit((unsigned char)*e->d_name))
			look_by_name(to, dirfd(proc), e->d_name);
	proc_send(to, &end, sizeof(end));
}

/* ---- the others ---- */

static int add_found(struct listing *l, const struct unasked *u)
{
	struct unasked *more = l->found;

	/* A power of 2 is full. */
	if (!(l->found_cnt & (l->found_cnt - 1)))
		more = realloc(l->found, (l->found_cnt ? 2 * l->found_cnt : 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	l->found = more;
	l->found[l->found_cnt++] = *u;
	return 0;
}

static int receive(struct listing *l, int fd, uint64_t until)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct unasked u;
	uint64_t now;
	int rc = 0;

	for (l->unsearched = true; !rc && l->unsearched; ) {
		now = clock_ns();
		if (now >= until || poll(&p, 1, (int)((until - now) / 1000000u) + 1) < 0)
			break;
		if (!p.revents)
			continue;
		rc = proc_recv(fd, &u, sizeof(u));
		if (!rc && !u.pid)
			l->unsearched = false;
		else if (!rc)
			rc = add_found(l, &u);
	}
	return rc == -ENOMEM ? rc : 0;
}

static int in_order(const void *x, const void *y)
{
	const struct unasked *a = x, *b = y;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return (a->addr > b->addr) - (a->addr < b->addr);
}

int search(struct listing *l, int pid, int wait_s)
{
	const uint64_t until = clock_ns() + (uint64_t)wait_s * 1000000000u;
	struct proc child;
	int rc = proc_start(&child, serve, &pid);

	if (rc)
		return rc;
	rc = receive(l, child.fd, until);
	/* One that waits in a read ends by this alone. */
	kill(child.pid, SIGKILL);
	proc_stop(&child);
	if (l->found_cnt)
		qsort(l->found, l->found_cnt, sizeof(*l->found), in_order);
	return rc;
}
