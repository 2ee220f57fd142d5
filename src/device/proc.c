// SPDX-License-Identifier: BSD-2-Clause
/* See proc.h. By system calls, because open(), read() and close() are points at
 * which a thread may be cancelled. */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "device/proc.h"

struct lines {
	int fd;
	size_t pos, len;
	char buf[2048];
};

static bool lines_open(struct lines *l, const char *path)
{
	l->pos = 0;
	l->len = 0;
	l->fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	return l->fd >= 0;
}

static bool lines_fill(struct lines *l)
{
	ssize_t got;

	do
		got = syscall(SYS_read, l->fd, l->buf, sizeof(l->buf));
	while (got < 0 && errno == EINTR);
	l->pos = 0;
	l->len = got > 0 ? (size_t)got : 0;
	return l->len;
}

static void lines_close(const struct lines *l)
{
	syscall(SYS_close, l->fd);
}

/* The next line, cut to @size. False at the end. */
static bool lines_next(struct lines *l, char *line, size_t size)
{
	size_t n = 0;
	char c = 0;

	while (c != '\n') {
		if (l->pos == l->len && !lines_fill(l))
			return false;
		c = l->buf[l->pos++];
		if (c != '\n' && n < size - 1)
			line[n++] = c;
	}
	line[n] = '\0';
	return true;
}

uint64_t kedge__proc_pinned(void)
{
	struct lines l;
	uint64_t kib = 0;
	char line[128];

	if (!lines_open(&l, "/proc/self/status"))
		return 0;
	while (lines_next(&l, line, sizeof(line)))
		if (sscanf(line, "VmPin: %" SCNu64, &kib) == 1)
			break;
	lines_close(&l);
	return kib * 1024;
}

/* Shared memory is pinned as any other; what else is shared is a file. */
static bool is_shared_file(const struct proc_vma *v)
{
	static const char *const memory[] = { "/memfd:", "/dev/zero", "/SYSV",
					      "/dev/shm/", "anon_inode:" };
	size_t i;

	if (v->perm[3] != 's')
		return false;
	for (i = 0; i < ARRAY_SIZE(memory); i++)
		if (!strncmp(v->name, memory[i], strlen(memory[i])))
			return false;
	return true;
}

/* As the kernel asks: a pin for writing does not need the right to read. */
static enum proc_fault fault_of(const struct proc_vma *v, bool writes)
{
	if (!writes)
		return v->perm[0] != 'r' ? PROC_NO_READ : PROC_NO_FAULT;
	if (v->perm[1] != 'w')
		return PROC_NO_WRITE;
	return is_shared_file(v) ? PROC_SHARED_FILE : PROC_NO_FAULT;
}

static bool parse_vma(const char *line, struct proc_vma *v)
{
	v->name[0] = '\0';
	return sscanf(line,
		      "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %111[^\n]",
		      &v->start, &v->end, v->perm, v->name) >= 3 &&
	       v->start < v->end && strlen(v->perm) == 4;
}

enum proc_fault kedge__proc_fault(uint64_t start, uint64_t end, bool writes,
				  struct proc_vma *v)
{
	enum proc_fault fault = PROC_NO_FAULT;
	uint64_t at = start;
	struct lines l;
	char line[256];

	if (!lines_open(&l, "/proc/self/maps"))
		return PROC_NO_FAULT;
	while (!fault && at < end && lines_next(&l, line, sizeof(line))) {
		if (!parse_vma(line, v) || v->end <= at)
			continue;
		if (v->start > at)
			break;
		fault = fault_of(v, writes);
		at = v->end;
	}
	lines_close(&l);
	if (fault || at >= end)
		return fault;
	v->start = at;
	return PROC_HOLE;
}

/* One mapping as smaps tells of it, as far as it was read. */
struct smap {
	struct proc_vma v;
	uint64_t clean, anonymous; /* KiB */
};

/*
 * Clean anonymous pages are what MADV_FREE leaves. LazyFree counts only those of
 * them that have come out of the per-CPU batches in which the kernel collects
 * them; to rely on it would lose the others. A file's mapping has no such pages:
 * there MADV_FREE fails. True at the last of the lines that are read here.
 */
static bool smap_line(struct smap *m, const char *line, bool *lazy)
{
	uint64_t kib;

	if (sscanf(line, "Private_Clean: %" SCNu64, &kib) == 1 ||
	    sscanf(line, "Shared_Clean: %" SCNu64, &kib) == 1)
		m->clean += kib;
	else if (sscanf(line, "Anonymous: %" SCNu64, &kib) == 1)
		m->anonymous = kib;
	else if (sscanf(line, "LazyFree: %" SCNu64, &kib) == 1) {
		*lazy = kib ||
			(m->clean && m->anonymous && m->v.name[0] != '/');
		return true;
	}
	return false;
}

bool kedge__proc_each_lazy(uint64_t start, uint64_t end,
			   void (*each)(void *arg, uint64_t from, uint64_t to),
			   void *arg)
{
	struct smap m = { .clean = 0 };
	bool told = false, lazy;
	struct proc_vma v;
	struct lines l;
	char line[256];

	if (!lines_open(&l, "/proc/self/smaps"))
		return false;
	while (lines_next(&l, line, sizeof(line))) {
		if (parse_vma(line, &v)) {
			if (v.start >= end)
				break;
			m = (struct smap){ .v = v };
		} else if (smap_line(&m, line, &lazy)) {
			told = true;
			if (lazy && m.v.end > start)
				each(arg, m.v.start > start ? m.v.start : start,
				     m.v.end < end ? m.v.end : end);
		}
	}
	lines_close(&l);
	return told;
}

/* A capability in a user namespace of one's own does not count here. */
static bool first_namespace(void)
{
	unsigned int inside = 1, outside = 1, cnt = 0;
	char line[128];
	struct lines l;
	bool read;

	if (!lines_open(&l, "/proc/self/uid_map"))
		return true;
	read = lines_next(&l, line, sizeof(line)) &&
	       sscanf(line, "%u %u %u", &inside, &outside, &cnt) == 3;
	lines_close(&l);
	return !read || (!inside && !outside && cnt == UINT32_MAX);
}

bool kedge__proc_has_ipc_lock(void)
{
	struct __user_cap_header_struct h = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	memset(d, 0, sizeof(d));
	if (syscall(SYS_capget, &h, d))
		return false;
	return d[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &
	       CAP_TO_MASK(CAP_IPC_LOCK);
}

bool kedge__proc_may_pin(void)
{
	return kedge__proc_has_ipc_lock() && first_namespace();
}

const char *kedge__proc_bytes(char *buf, size_t size, uint64_t bytes)
{
	const uint64_t mib = UINT64_C(1) << 20;

	if (bytes >= mib && !(bytes % mib))
		snprintf(buf, size, "%" PRIu64 " MiB", bytes / mib);
	else if (!(bytes % 1024))
		snprintf(buf, size, "%" PRIu64 " KiB", bytes / 1024);
	else
		snprintf(buf, size, "%" PRIu64 " bytes", bytes);
	return buf;
}
