// SPDX-License-Identifier: BSD-2-Clause
/*
 * The mappings at a region's addresses, and the pages of its file. A file's identity is its device
 * and inode, which no other file has as long as the region has it open.
 *
 * A file that has as many pages as the region, or more, is not gone through: that takes time
 * for each page. Peers that were stopped may have made pages behind the end, so as many pages may
 * be missing then, and are not found here.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "notify/internal.h"
#include "region/watch/look.h"

#define BLOCK_LEN 512u /* of st_blocks */
#define PROT_RW	  3u   /* as struct vma_info has it */

static int open_maps(void)
{
	/* Not of the process: its first thread may have ended, and has no mappings then. */
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/maps",
			      O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (error_no_fd(errno))
		return error_no_fd(errno);
	if (errno == ENOMEM)
		return kedge_reason(-ENOMEM, "no memory to look at this process's mappings");
	return kedge_reason(-EOPNOTSUPP, "/proc/thread-self/maps cannot be read (%s): mount /proc",
			    strerrordesc_np(errno));
}

/* Of the mapping at @at. */
static enum look kind_of(const struct kedge_region *r, const struct stat *st,
			 const struct vma_info *v, uint64_t at)
{
	const uint64_t off = at - (uintptr_t)r->at;

	if (v->plain && !v->prot)
		return LOOK_KEPT;
	if (!v->shared || v->inode != st->st_ino || v->dev != st->st_dev ||
	    v->off + (at - v->start) != off)
		return LOOK_OTHER;
	return v->prot == PROT_RW ? LOOK_OWN : LOOK_SHUT;
}

/* The kind of memory at @at, up to *@until. */
static int look_at(const struct kedge_region *r, const struct stat *st, int maps, uint64_t at,
		   uint64_t *until, enum look *is)
{
	struct vma_info v;
	int rc = vma_from(maps, at, &v);

	if (rc && rc != -ENOENT)
		return rc;
	*is = LOOK_NONE;
	if (rc || v.start >= *until)
		return 0;
	if (v.start > at) {
		*until = v.start;
		return 0;
	}
	*is = kind_of(r, st, &v, at);
	if (v.end < *until)
		*until = v.end;
	return 0;
}

int look_through(const struct kedge_region *r, uint64_t from, uint64_t to, look_fn *fn, void *arg)
{
	const uint64_t start = (uintptr_t)r->at;
	struct stat st = { 0 };
	uint64_t until;
	enum look is;
	int maps, rc = 0;

	if (r->fd >= 0 && fstat(r->fd, &st))
		return kedge_reason(-errno, "fstat: error %d", errno);
	maps = open_maps();
	if (maps < 0)
		return maps;
	for (; !rc && from < to; from = until - start) {
		until = start + to;
		rc = look_at(r, &st, maps, start + from, &until, &is);
		if (!rc)
			rc = fn(arg, is, from, until - start);
	}
	syscall(SYS_close, maps);
	return rc;
}

/* ---- pages ---- */

static int go_through(const struct kedge_region *r, uint64_t from, uint64_t to,
		      int (*fn)(void *arg, uint64_t from, uint64_t to), void *arg)
{
	off_t data;
	int rc = 0;

	while (!rc && from < to) {
		from = (uint64_t)lseek(r->fd, (off_t)from, SEEK_HOLE);
		if (from >= to)
			break;
		data = lseek(r->fd, (off_t)from, SEEK_DATA);
		if (data < 0 || (uint64_t)data > to)
			data = (off_t)to;
		rc = fn(arg, from, (uint64_t)data);
		from = (uint64_t)data;
	}
	return rc;
}

int look_for_holes(const struct kedge_region *r, uint64_t from, uint64_t to,
		   int (*fn)(void *arg, uint64_t from, uint64_t to), void *arg)
{
	struct stat st;

	if (fstat(r->fd, &st))
		return kedge_reason(-errno, "fstat: error %d", errno);
	if ((uint64_t)st.st_blocks * BLOCK_LEN >= r->len)
		return 0;
	/* hugetlbfs does not say where. */
	if (r->page_size != kedge__page_size())
		return fn(arg, from, to);
	return go_through(r, from, to, fn, arg);
}

/* ---- an access ---- */

bool look_is_needed(const struct kedge_region *r)
{
	bool is;

	sig_lock(&gaps_lock);
	is = !r->noticed;
	sig_unlock(&gaps_lock);
	return is;
}

struct access_look {
	look_touches_fn *touches;
	const void *arg;
	struct gap *gap;
};

static int first_other(void *arg, enum look is, uint64_t from, uint64_t to)
{
	const struct access_look *a = arg;

	if (is == LOOK_OWN || is == LOOK_SHUT || !a->touches(a->arg, from, to))
		return 0;
	*a->gap = (struct gap){ from, to };
	return -ENODATA;
}

int look_at_access(const struct kedge_region *r, uint64_t from, uint64_t to,
		   look_touches_fn *touches, const void *arg, struct gap *gap)
{
	const uint64_t page = r->page_size;
	struct access_look a = { touches, arg, gap };

	return look_through(r, round_down(from, page), round_up(to, page), first_other, &a);
}

/* ---- is it whole? ---- */

int look_missing(uint64_t from, uint64_t to)
{
	return kedge_reason(-ENODATA, "bytes %" PRIu64 " to %" PRIu64 " of the region are not "
			    "there: the program has unmapped, replaced or dropped them; "
			    "kedge_region_recommit() repairs that", from, to);
}

static int own_alone(void *arg, enum look is, uint64_t from, uint64_t to)
{
	(void)arg;
	return is == LOOK_OWN || is == LOOK_SHUT ? 0 : look_missing(from, to);
}

static int no_hole(void *arg, uint64_t from, uint64_t to)
{
	(void)arg;
	return look_missing(from, to);
}

int look_is_whole(const struct kedge_region *r, uint64_t from, uint64_t to)
{
	int rc = look_through(r, from, to, own_alone, NULL);

	return rc ? rc : look_for_holes(r, from, to, no_hole, NULL);
}
