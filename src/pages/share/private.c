// SPDX-License-Identifier: BSD-2-Clause
/*
 * To make it private: writers are held back (userfaultfd's write protection), what is in
 * the memfd is read into new memory, and mremap() puts that in the place of the shared
 * mapping at once, so readers meet one or the other. The order is what keeps stores:
 * protect, which flushes; read; replace; wake.
 */
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/own.h"
#include "pages/share/priv.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define PROT_RW (PROT_READ | PROT_WRITE)

static int protect(struct swap_context *ctx, uintptr_t at, size_t len)
{
	struct uffdio_register r = {
		.range = { .start = at, .len = len },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_writeprotect w = {
		.range = r.range,
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	int rc;

	if (syscall(SYS_ioctl, ctx->uffd, UFFDIO_REGISTER, &r))
		return errno == EBUSY ? SWAP_TAKEN : -errno;
	while ((rc = ioctl(ctx->uffd, UFFDIO_WRITEPROTECT, &w) ? -errno : 0) == -EAGAIN) {
		hear(ctx);
		sched_yield();
	}
	if (!rc)
		return 0;
	hear_unregister(ctx, at, len);
	return rc;
}

static int read_all(int fd, uintptr_t to, size_t len, uint64_t off)
{
	ssize_t n;

	for (; len; len -= (size_t)n) {
		n = pread(fd, (void *)to, len, (off_t)off);
		if (n <= 0)
			return n ? -errno : -EIO;
		to += (uintptr_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

/* The data of [@off, @off + @len), without its holes. */
static int read_data(int fd, uintptr_t to, size_t len, uint64_t off)
{
	const uint64_t end = off + len;
	off_t from = (off_t)off, hole;
	int rc = 0;

	while (!rc && (uint64_t)from < end) {
		from = lseek(fd, from, SEEK_DATA);
		if (from < 0)
			return errno == ENXIO ? 0 : -errno;
		if ((uint64_t)from >= end)
			return 0;
		hole = lseek(fd, from, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		if ((uint64_t)hole > end)
			hole = (off_t)end;
		rc = read_all(fd, to + ((uint64_t)from - off),
			      (size_t)(hole - from), (uint64_t)from);
		from = hole;
	}
	return rc;
}

/*
 * Finds out if other memory was mapped there since protect(): the kernel refuses to
 * register what another userfaultfd has, and to protect what none has, but passes over
 * holes. -EAGAIN: a thread waits to be heard.
 */
static int look_protected(const struct swap_context *ctx, uintptr_t at, size_t len)
{
	struct uffdio_writeprotect w = {
		.range = { .start = at, .len = len },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (!share_is_mapped(at, len))
		return -ESTALE;
	if (!ioctl(ctx->uffd, UFFDIO_WRITEPROTECT, &w))
		return 0;
	return errno == EAGAIN ? -EAGAIN : -ESTALE;
}

/* New memory at @from without what was emptied meanwhile. */
static void drop_emptied(struct swap_context *ctx, uintptr_t from)
{
	size_t pos, n;

	while (hear_emptied(ctx, &pos, &n))
		madvise((void *)(from + pos), n, MADV_DONTNEED);
}

static int is_protected(struct swap_context *ctx, uintptr_t at, size_t len, uintptr_t from)
{
	int rc = -EAGAIN;

	while (rc == -EAGAIN && !ctx->moved) {
		drop_emptied(ctx, from);
		rc = look_protected(ctx, at, len);
		if (rc == -EAGAIN) {
			hear(ctx);
			sched_yield();
		}
	}
	return ctx->moved ? -ESTALE : rc;
}

/*
 * New memory with what the file has, in the place of the mapping. What is emptied after the
 * last look is emptied in the new memory: whoever does that waits to be heard, and looks
 * anew.
 */
static int replace(struct swap_context *ctx, uintptr_t at, size_t len, int prot,
		   uintptr_t from, int fd, uint64_t off)
{
	int rc = read_data(fd, from, len, off);

	/* Before it is there, as there may be no mapping left to make of it. */
	if (!rc && prot != PROT_RW && mprotect((void *)from, len, prot))
		rc = -errno;
	if (!rc)
		rc = is_protected(ctx, at, len, from);
	if (rc)
		return rc;
	/* No hole stays, which another thread's mmap() could get. */
	if (own_remap((void *)from, (void *)at, len,
		      MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) == MAP_FAILED) {
		rc = -errno;
		hear_map_again(ctx, at, len, fd, off);
		return rc;
	}
	hear_end(ctx);
	if (!ctx->moved)
		return 0;
	/* Another thread has moved it, and was quicker. */
	munmap((void *)at, len);
	return -ESTALE;
}

int share_not_private(int rc)
{
	if (rc == -EINVAL)
		return kedge_reason(-EOPNOTSUPP, "the kernel holds no writers to "
				    "shared memory back: Linux 5.19 does");
	return kedge_reason(rc, "shared memory cannot be made private (%s): is "
			    "the process near vm.max_map_count, or its memory "
			    "cgroup at its limit?", strerrordesc_np(-rc));
}

/* 0: it is that part of the file; -ESTALE: it is what another thread has put there. */
static int is_of_file(const struct swap_context *ctx, uintptr_t at, size_t len, int fd,
		      uint64_t off)
{
	const uintptr_t end = at + len, first = at;
	struct vma_info v;
	struct stat st;
	int rc;

	if (fstat(fd, &st))
		return -errno;
	for (; at < end; at = v.end) {
		rc = vma_at(ctx->maps, at, &v);
		if (rc)
			return rc == -ENOENT ? -ESTALE : rc;
		if (!v.shared || v.inode != st.st_ino || v.dev != st.st_dev ||
		    v.off + (at - v.start) != off + (at - first))
			return -ESTALE;
	}
	return 0;
}

/* One mapping, or a part of it, which the program may have made read-only. */
static int end_mapping(struct swap_context *ctx, const struct share_change *c, uintptr_t at,
		       size_t len, int prot)
{
	const uint64_t off = c->off + (at - c->at);
	int rc;

	hear_begin(ctx, at, len);
	rc = is_of_file(ctx, at, len, c->fd, off);
	if (rc)
		return rc;
	share_unwatch(c, at, len);
	rc = protect(ctx, at, len);
	if (rc)
		share_watch(c, at, len);
	if (rc == -ESTALE || rc == SWAP_TAKEN)
		return rc;
	if (rc)
		return share_not_private(rc);
	rc = replace(ctx, at, len, prot, c->area + (at - c->at), c->fd, off);
	if (rc) {
		hear_unregister(ctx, at, len);
		share_watch(c, at, len);
	} else if (c->mark >= 0) {
		mark_set(c->mark, at, len);
	}
	/* In any case: a mapping that was made again is not registered. */
	hear_wake(ctx, at, len);
	return rc && rc != -ESTALE ? share_not_private(rc) : rc;
}

int share_end(struct swap_context *ctx, const struct share_change *c, uintptr_t at, size_t len)
{
	const uintptr_t end = at + len;
	struct vma_info v;
	int rc = is_of_file(ctx, at, len, c->fd, c->off + (at - c->at));

	for (; !rc && at < end; at = v.end) {
		rc = vma_at(ctx->maps, at, &v);
		if (rc)
			return rc == -ENOENT ? -ESTALE : rc;
		if (v.end > end)
			v.end = end;
		rc = end_mapping(ctx, c, at, v.end - at, (int)v.prot);
	}
	return rc;
}
