// SPDX-License-Identifier: BSD-2-Clause
/*
 * Stores by asynchronous write-protection: the kernel itself lifts the protection of a page
 * at the first store, a thread's or its own, and the page then is "written".
 * PAGEMAP_SCAN tells written pages and protects them again.
 *
 * No store is missed. The kernel looks at an entry of the page table and protects it under
 * the lock that a store's fault takes to lift the protection, and flushes the translations
 * of all processors before the call returns. So a store either is in the page when the
 * call returns, and the page is told, or it faults after that and the page is written
 * at the next scan. A range is told after the call that protected it.
 *
 * A page that is not in the page table counts as stored into: an entry that is dropped (the
 * page itself stays in the memfd) takes with it that it was written. Where written pages
 * alone are asked for, kernels differ in whether they pass over a table that is missing.
 *
 * Async mode has no message and no thread that answers one: an access never waits for
 * this process. So userfaultfd for faults of user mode is enough, which needs no
 * privilege; the kernel's own stores are resolved by the kernel as well.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/own.h"
#include "region/migrate/ways.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

#define FEATURES                                                                 \
	((uint64_t)UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | \
	 UFFD_FEATURE_WP_ASYNC)

/* From linux/fs.h since Linux 6.7, under other names, so that they meet in no header. */
struct scanned {
	uint64_t start;
	uint64_t end;
	uint64_t categories;
};

struct scan {
	uint64_t size;
	uint64_t flags;
	uint64_t start;
	uint64_t end;
	uint64_t walk_end;
	uint64_t vec;
	uint64_t vec_len;
	uint64_t max_pages;
	uint64_t category_inverted;
	uint64_t category_mask;
	uint64_t category_anyof_mask;
	uint64_t return_mask;
};

#define SCAN		   _IOWR('f', 16, struct scan)
#define SCAN_WP_MATCHING   (1u << 0)
#define SCAN_CHECK_WPASYNC (1u << 1)
#define SCAN_WRITTEN	   (1u << 1)
#define SCAN_PRESENT	   (1u << 3)

/*
 * No more than the kernel collects before it hands them out, 512 at least. Having collected
 * anew it may return as the end of its walk that of a part, and pages behind it are
 * protected and told already: they would be told twice.
 */
#define FOUND_CNT 256

struct state {
	int uffd;
	int pagemap;
	uint64_t start;
	uint64_t len;
	struct scanned found[FOUND_CNT];
};

/* ---- the kernel ---- */

static int new_uffd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY), dev, err;

	if (fd >= 0)
		return fd;
	err = errno;
	dev = (int)syscall(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev >= 0) {
		fd = (int)syscall(SYS_ioctl, dev, USERFAULTFD_IOC_NEW,
				  O_CLOEXEC | UFFD_USER_MODE_ONLY);
		syscall(SYS_close, dev);
		if (fd >= 0)
			return fd;
	}
	if (error_no_fd(err))
		return error_no_fd(err);
	return kedge_reason(-EOPNOTSUPP, "userfaultfd is refused (%s)", strerrordesc_np(err));
}

static int handshake(int fd)
{
	struct uffdio_api api = { .api = UFFD_API, .features = FEATURES };

	if (!syscall(SYS_ioctl, fd, UFFDIO_API, &api) && (api.features & FEATURES) == FEATURES)
		return 0;
	return kedge_reason(-EOPNOTSUPP, "userfaultfd protects no page asynchronously (Linux "
			    "6.7 does)");
}

static int open_pagemap(void)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/pagemap",
			      O_RDONLY | O_CLOEXEC), err;

	if (fd >= 0)
		return fd;
	err = errno;
	return error_no_fd(err) ? error_no_fd(err)
				: kedge_reason(-EOPNOTSUPP, "/proc/thread-self/pagemap cannot "
					       "be read (%s)", strerrordesc_np(err));
}

static int watch(const struct state *s, uint64_t start, uint64_t len)
{
	struct uffdio_register r = {
		.range = { .start = start, .len = len },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	/* Not by ioctl(), which libkedge-hooks takes for another's. */
	if (!syscall(SYS_ioctl, s->uffd, UFFDIO_REGISTER, &r))
		return 0;
	if (errno == EBUSY)
		return kedge_reason(-EBUSY, "another userfaultfd has some of the memory");
	if (errno == ENOMEM)
		return kedge_reason(-ENOMEM, "no memory, or too many mappings: raise "
				    "vm.max_map_count");
	return kedge_reason(-EOPNOTSUPP, "userfaultfd refuses the memory (%s)",
			    strerrordesc_np(errno));
}

/* Pages are protected no more. */
static void unwatch(const struct state *s, uint64_t start, uint64_t len)
{
	struct uffdio_range r = { .start = start, .len = len };

	syscall(SYS_ioctl, s->uffd, UFFDIO_UNREGISTER, &r);
}

static int scan(struct state *s, uint64_t start, uint64_t len, track_fn fn, void *arg)
{
	struct scan a = {
		.size = sizeof(a),
		.flags = SCAN_WP_MATCHING | SCAN_CHECK_WPASYNC,
		.start = start,
		.end = start + len,
		.vec = (uintptr_t)s->found,
		.vec_len = FOUND_CNT,
		.category_inverted = SCAN_PRESENT,
		.category_anyof_mask = SCAN_WRITTEN | SCAN_PRESENT,
		.return_mask = SCAN_WRITTEN,
	};
	long i, n;
	int rc;

	for (; a.start < a.end; a.start = a.walk_end) {
		n = syscall(SYS_ioctl, s->pagemap, SCAN, &a);
		if (n < 0)
			return kedge_reason(-errno, "PAGEMAP_SCAN: error %d; with EPERM some of "
					    "the memory is another mapping now", errno);
		for (i = 0; i < n; i++) {
			rc = fn(arg, s->found[i].start - start,
				s->found[i].end - s->found[i].start);
			if (rc)
				return rc;
		}
		if (a.walk_end <= a.start)
			return kedge_reason(-EIO, "PAGEMAP_SCAN does not get ahead");
	}
	return 0;
}

/* ---- is it of use? ---- */

static int count(void *arg, uint64_t off, uint64_t len)
{
	(void)off;
	*(uint64_t *)arg += len;
	return 0;
}

/* A store into a page is told, and once. */
static int probe(struct state *s)
{
	const uint64_t len = kedge__page_size();
	volatile char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				 -1, 0);
	uint64_t told = 0, again = 0, anew = 0;
	int rc;

	if (at == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no memory for a page: error %d", errno);
	*at = 1;
	rc = watch(s, (uintptr_t)at, len);
	if (rc)
		goto unmap;
	if (scan(s, (uintptr_t)at, len, count, &told) ||
	    scan(s, (uintptr_t)at, len, count, &again))
		told = 0;
	*at = 2;
	if (scan(s, (uintptr_t)at, len, count, &anew) || told != len || again || anew != len)
		rc = kedge_reason(-EOPNOTSUPP, "PAGEMAP_SCAN does not tell stores");
	unwatch(s, (uintptr_t)at, len);
unmap:
	own_unmap((void *)(uintptr_t)at, len);
	return rc;
}

/*
 * Pages are written when they begin to be watched, and stay so until they are protected: a
 * first one that is not told is one that the kernel cannot protect. It may pass over huge
 * TLB pages of other sizes than 2 MiB without a word.
 */
static int try_page(struct state *s, uint64_t page_size)
{
	uint64_t told = 0;
	int rc = scan(s, s->start, page_size, count, &told);

	if (rc == -EIO || (!rc && told != page_size))
		return kedge_reason(-EOPNOTSUPP, "PAGEMAP_SCAN tells no stores for pages of this "
				    "size");
	return rc;
}

/* ---- the way ---- */

static int uffd_begin(char *at, uint64_t len, uint64_t page_size, void **out)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return kedge_reason(-ENOMEM, "no memory to note what is stored into");
	s->start = (uintptr_t)at;
	s->len = len;
	rc = new_uffd();
	if (rc < 0)
		goto free_state;
	s->uffd = rc;
	rc = handshake(s->uffd);
	if (rc)
		goto close_uffd;
	rc = open_pagemap();
	if (rc < 0)
		goto close_uffd;
	s->pagemap = rc;
	rc = probe(s);
	if (rc)
		goto close_pagemap;
	rc = watch(s, s->start, len);
	if (rc)
		goto close_pagemap;
	rc = try_page(s, page_size);
	if (rc)
		goto unwatch;
	*out = s;
	return 0;

unwatch:
	unwatch(s, s->start, len);
close_pagemap:
	syscall(SYS_close, s->pagemap);
close_uffd:
	syscall(SYS_close, s->uffd);
free_state:
	free(s);
	return rc;
}

static int uffd_take(void *state, track_fn fn, void *arg)
{
	struct state *s = state;

	return scan(s, s->start, s->len, fn, arg);
}

static void uffd_end(void *state)
{
	struct state *s = state;

	unwatch(s, s->start, s->len);
	syscall(SYS_close, s->pagemap);
	syscall(SYS_close, s->uffd);
	free(s);
}

const struct track_ops track_uffd = {
	.name = "userfaultfd",
	.forgets = true,
	.begin = uffd_begin,
	.take = uffd_take,
	.end = uffd_end,
};
