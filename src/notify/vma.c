// SPDX-License-Identifier: BSD-2-Clause
/*
 * The kind of memory in a range. Private anonymous memory changes by this
 * process's own calls on these addresses alone. Memory with a file behind it can
 * be truncated or punched by any process that has the file, without a word to
 * those that map it, unless seals forbid that (seals.c).
 *
 * Asked by PROCMAP_QUERY (Linux 6.11, O(log n)) where the kernel has it, else
 * read from /proc/self/maps. Uses the stack alone: no allocation.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "notify/internal.h"
#include "uapi/linux/procmap.h"

#define VMA_PROT	 0x07u /* read, write, execute */
#define VMA_SHARED	 0x08u

static int not_mapped(uint64_t addr)
{
	return kedge_reason(-EFAULT, "nothing is mapped at 0x%llx",
			    (unsigned long long)addr);
}

static int not_plain(uint64_t addr)
{
	return kedge_reason(-EOPNOTSUPP,
			    "0x%llx is shared or file-backed memory: whoever "
			    "has the file can change its pages unseen, so it "
			    "is not cached. Seal a memfd against that "
			    "(F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE), or vouch for "
			    "it with kedge_cache_vouch()",
			    (unsigned long long)addr);
}

/*
 * Looks as far as [at, end) is good in one mapping; 0 done, 1 go on, or an error. The
 * first one's start and the last one's end are kept in @whole.
 */
static int step(const struct vma_info *v, uint64_t *at, uint64_t end,
		struct vma_span *whole)
{
	if (*at < v->start)
		return not_mapped(*at);
	if (!v->plain && !seals_keep_pages(v))
		return not_plain(*at);
	if (!whole->end)
		whole->start = v->start;
	whole->end = v->end;
	*at = v->end;
	return *at < end;
}

/* 0; -ENOENT: no such mapping; -ENOTTY: this kernel does not say. */
static int query(int fd, uint64_t at, uint64_t flags, struct vma_info *v)
{
	struct procmap_query_v1 q = {
		.size = sizeof(q),
		.query_flags = flags,
		.query_addr = at,
	};

	if (ioctl(fd, PROCMAP_QUERY_V1, &q))
		return errno == ENOENT ? -ENOENT : -ENOTTY;
	v->start = q.vma_start;
	v->end = q.vma_end;
	v->prot = (uint32_t)q.vma_flags & VMA_PROT;
	v->shared = q.vma_flags & VMA_SHARED;
	v->plain = !q.inode && !v->shared;
	v->off = q.vma_offset;
	v->inode = q.inode;
	v->dev = makedev(q.dev_major, q.dev_minor);
	return 0;
}

static int check_by_query(int fd, uint64_t start, uint64_t end,
			  struct vma_span *whole)
{
	uint64_t at = start;
	struct vma_info v;
	int rc = 1;

	while (rc > 0) {
		rc = query(fd, at, 0, &v);
		if (rc)
			return rc == -ENOENT ? not_mapped(at) : rc;
		rc = step(&v, &at, end, whole);
	}
	return rc;
}

static int next_by_query(int fd, uint64_t at, struct vma_span *whole)
{
	struct vma_info v = { 0 };
	int rc;

	do {
		rc = query(fd, at, PROCMAP_COVERING_OR_NEXT, &v);
		at = v.end;
	} while (!rc && !v.plain);
	if (!rc)
		*whole = (struct vma_span){ v.start, v.end };
	return rc;
}

/* "start-end perms offset dev inode name"; false if it is not such a line. */
static bool parse_line(const char *line, struct vma_info *v)
{
	unsigned long major;
	char *p;

	v->start = strtoull(line, &p, 16);
	if (*p != '-')
		return false;
	v->end = strtoull(p + 1, &p, 16);
	if (*p != ' ' || strlen(p) < 6)
		return false;
	v->prot = (p[1] == 'r') | (p[2] == 'w') << 1 | (p[3] == 'x') << 2;
	v->shared = p[4] != 'p';
	v->off = strtoull(p + 5, &p, 16);
	major = strtoul(p, &p, 16);
	if (*p != ':')
		return false;
	v->dev = makedev(major, strtoul(p + 1, &p, 16));
	v->inode = strtoull(p, NULL, 10);
	v->plain = !v->shared && !v->inode;
	return true;
}

struct maps_reader {
	int fd;
	size_t have;
	char buf[4096];
};

/* The next line, without its newline; NULL at the end. Names may be cut. */
static char *next_line(struct maps_reader *r, char *line, size_t size)
{
	size_t n = 0;

	for (;;) {
		char *nl = memchr(r->buf, '\n', r->have);
		size_t len = nl ? (size_t)(nl - r->buf) : r->have;
		size_t keep = len < size - 1 - n ? len : size - 1 - n;
		ssize_t got;

		memcpy(line + n, r->buf, keep);
		n += keep;
		len += nl ? 1 : 0;
		r->have -= len;
		memmove(r->buf, r->buf + len, r->have);
		if (nl) {
			line[n] = '\0';
			return line;
		}
		do {
			got = syscall(SYS_read, r->fd, r->buf,
				      sizeof(r->buf));
		} while (got < 0 && errno == EINTR);
		if (got <= 0)
			return NULL;
		r->have = (size_t)got;
	}
}

/*
 * A descriptor of its own: read from start to end in one go, the kernel goes on
 * by address where it stopped, so a line is never torn by what others map
 * meanwhile.
 */
static int start_reading(struct maps_reader *r)
{
	r->have = 0;
	/* The thread may have a table of its own, which ThreadSanitizer does not know. */
	r->fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (r->fd >= 0)
		return 0;
	if (error_no_fd(errno))
		return error_no_fd(errno);
	return kedge_reason(-EOPNOTSUPP, "/proc/self/maps can't be read (%s): mount /proc",
			    strerrordesc_np(errno));
}

static int next_by_reading(uint64_t at, struct vma_span *whole)
{
	struct maps_reader r;
	char line[256];
	struct vma_info v;
	int rc = start_reading(&r);

	if (rc)
		return rc;
	rc = -ENOENT;
	while (rc && next_line(&r, line, sizeof(line)))
		if (parse_line(line, &v) && v.end > at && v.plain)
			rc = 0;
	close(r.fd);
	if (!rc)
		*whole = (struct vma_span){ v.start, v.end };
	return rc;
}

static int check_by_reading(uint64_t start, uint64_t end,
			    struct vma_span *whole)
{
	struct maps_reader r;
	char line[256];
	uint64_t at = start;
	int rc = start_reading(&r);

	if (rc)
		return rc;
	rc = 1;
	while (rc > 0 && next_line(&r, line, sizeof(line))) {
		struct vma_info v;

		if (!parse_line(line, &v) || v.end <= at)
			continue;
		rc = step(&v, &at, end, whole);
	}
	syscall(SYS_close, r.fd);
	return rc > 0 ? not_mapped(at) : rc;
}

void vma_each(int maps_fd, void (*fn)(void *arg, uint64_t start, uint64_t end),
	      void *arg)
{
	struct maps_reader r = { .fd = maps_fd };
	char line[256];
	struct vma_info v;

	if (syscall(SYS_lseek, maps_fd, 0L, SEEK_SET))
		return;
	while (next_line(&r, line, sizeof(line)))
		if (parse_line(line, &v))
			fn(arg, v.start, v.end);
}

int vma_check(int maps_fd, uint64_t start, uint64_t end,
	      struct vma_span *whole)
{
	int saved = errno, cancel, rc;

	/* open(), read() and close() are cancellation points. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	*whole = (struct vma_span){ 0, 0 };
	rc = check_by_query(maps_fd, start, end, whole);
	if (rc == -ENOTTY) {
		*whole = (struct vma_span){ 0, 0 };
		rc = check_by_reading(start, end, whole);
	}
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
	return rc;
}

int vma_next(int maps_fd, uint64_t at, struct vma_span *whole)
{
	int saved = errno, cancel, rc;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	rc = next_by_query(maps_fd, at, whole);
	if (rc == -ENOTTY)
		rc = next_by_reading(at, whole);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
	return rc;
}

int vma_walk(void (*fn)(void *arg, const struct vma_info *v), void *arg)
{
	struct maps_reader r;
	struct vma_info v;
	char line[256];
	int saved = errno, rc = start_reading(&r);

	if (!rc) {
		while (next_line(&r, line, sizeof(line)))
			if (parse_line(line, &v))
				fn(arg, &v);
		syscall(SYS_close, r.fd);
	}
	errno = saved;
	return rc;
}

struct wanted {
	uint64_t at;
	struct vma_info *v;
	int rc;
};

static void take_first(void *arg, const struct vma_info *v)
{
	struct wanted *w = arg;

	if (w->rc && w->at < v->end) {
		*w->v = *v;
		w->rc = 0;
	}
}

int vma_query(int maps_fd, uint64_t at, struct vma_info *v)
{
	return query(maps_fd, at, 0, v);
}

int vma_from(int maps_fd, uint64_t at, struct vma_info *v)
{
	struct wanted w = { at, v, -ENOENT };
	int saved = errno, rc = query(maps_fd, at, PROCMAP_COVERING_OR_NEXT, v);

	if (rc == -ENOTTY) {
		rc = vma_walk(take_first, &w);
		rc = rc ? rc : w.rc;
	}
	errno = saved;
	return rc;
}

int vma_at(int maps_fd, uint64_t at, struct vma_info *v)
{
	struct vma_info found;
	int rc = vma_from(maps_fd, at, &found);

	if (!rc && found.start > at)
		return -ENOENT;
	if (!rc)
		*v = found;
	return rc;
}
