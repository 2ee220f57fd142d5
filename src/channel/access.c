// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two questions. MADV_POPULATE_READ and MADV_POPULATE_WRITE do to pages what an
 * access would, which costs 0.2 us a page. What they refuse is asked for once
 * more, as Linux before 5.14 does not have them, and they refuse a device's
 * memory that a program may well access: one byte of each page goes through a
 * pipe, and back to where it was if the buffer is to be written.
 *
 * PROCMAP_QUERY (Linux 6.11) tells a mapping's protection, at the same price for
 * any length. It does for long messages where the mapping is private and
 * anonymous; of others only an access shows where their file ends. Guard pages
 * (MADV_GUARD_INSTALL) and protection keys it does not show.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/process/page.h"
#include "channel/access.h"
#include "channel/transport.h"
#include "notify/internal.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define ASK_LONG (4 * GRAIN) /* from here on a look at the mappings is cheaper */
#define PROBES 256u /* pages at a time: less than any pipe holds */

/* No library's calls, here and below: those are cancellation points. */
static long populate(uintptr_t start, size_t len, bool write)
{
	return syscall(SYS_madvise, start, len,
		       write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/* A byte of each page, from @at on: how many there are in @v. */
static size_t probes(uintptr_t at, uintptr_t end, struct iovec *v)
{
	size_t page = kedge__page_size(), n;

	for (n = 0; n < PROBES && at < end; n++) {
		v[n] = (struct iovec){ (void *)at, 1 };
		at = round_down(at, page) + page;
	}
	return n;
}

static int through_pipe(const int fd[2], uintptr_t at, uintptr_t end,
			bool write)
{
	size_t page = kedge__page_size(), n;
	struct iovec v[PROBES];
	char sink[PROBES];

	while (at < end) {
		n = probes(at, end, v);
		if (syscall(SYS_writev, fd[1], v, n) != (long)n)
			return -EFAULT;
		if (write && syscall(SYS_readv, fd[0], v, n) != (long)n)
			return -EFAULT;
		if (!write && syscall(SYS_read, fd[0], sink, n) != (long)n)
			return -EFAULT;
		at = round_down((uintptr_t)v[n - 1].iov_base, page) + page;
	}
	return 0;
}

/* A page of ours, which may be read. */
static bool has_populate(void)
{
	static const char here;

	return !populate(round_down((uintptr_t)&here, kedge__page_size()),
			 kedge__page_size(), false);
}

static int by_pipe(uintptr_t at, uintptr_t end, bool write)
{
	int fd[2], rc;

	/* No descriptors: if the kernel does not know the first question, its
	 * refusal told us little, and the copy will show. */
	if (syscall(SYS_pipe2, fd, O_CLOEXEC | O_NONBLOCK))
		return has_populate() ? -EFAULT : 0;
	rc = through_pipe(fd, at, end, write);
	syscall(SYS_close, fd[0]);
	syscall(SYS_close, fd[1]);
	return rc;
}

int access_ask(const void *p, size_t len, bool write)
{
	uintptr_t at = (uintptr_t)p, start, end;

	if (!len)
		return 0;
	if (__builtin_add_overflow(at, len, &end) || end > INTPTR_MAX)
		return kedge_reason(-EFAULT, "a buffer is not in memory");
	start = round_down(at, kedge__page_size());
	if (likely(!populate(start, end - start, write)))
		return 0;
	if (!by_pipe(at, end, write))
		return 0;
	return kedge_reason(-EFAULT, "the buffer at 0x%llx + %zu may not be %s",
			    (unsigned long long)at, len,
			    write ? "written" : "read");
}

/* ---- long messages ---- */

/*
 * /proc/self/maps, opened once. In a forked child it is the parent's, and the
 * word that says that it is ours is zero there. The thread that opened it releases
 * that word, after the descriptor is stored; a thread that uses it acquires it.
 */
static _Atomic int maps = -1;
static _Atomic uint32_t *_Atomic maps_ours;

static _Atomic uint32_t *word_of_ours(void)
{
	_Atomic uint32_t *p = atomic_load(&maps_ours), *none = NULL;

	if (p)
		return p;
	p = page_of_process();
	if (!p || atomic_compare_exchange_strong(&maps_ours, &none, p))
		return p;
	munmap((void *)p, kedge__page_size());
	return none;
}

/* Or -1. */
static int maps_fd(void)
{
	_Atomic uint32_t *ours = word_of_ours();
	int was, fd;

	if (!ours)
		return -1;
	if (likely(atomic_load_explicit(ours, memory_order_acquire)))
		return atomic_load_explicit(&maps, memory_order_relaxed);
	was = atomic_load(&maps);
	fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps",
			  O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (!atomic_compare_exchange_strong(&maps, &was, fd)) {
		/* Another thread was first. */
		syscall(SYS_close, fd);
		return was;
	}
	atomic_store_explicit(ours, 1, memory_order_release);
	return fd;
}

static int ask_long(const void *p, size_t len, bool write)
{
	uint32_t prot = write ? PROT_WRITE : PROT_READ;
	uint64_t at = (uintptr_t)p, end, to;
	struct vma_info v;
	int rc;

	if (__builtin_add_overflow(at, len, &end))
		return access_ask(p, len, write);
	for (; at < end; at = to) {
		to = end;
		if (!vma_query(maps_fd(), at, &v) && v.prot & prot) {
			to = v.end < end ? v.end : end;
			if (v.plain)
				continue;
		}
		rc = access_ask((void *)(uintptr_t)at, to - at, write);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- short ones ---- */

/* With what the last ones were, if they lie side by side, as buffers that are used
 * in turn often do. */
static void remember(struct access *t, uintptr_t from, uintptr_t end, bool write)
{
	uintptr_t was = t->last[write].from, was_end = was + t->last[write].len;

	if (t->last[write].len && from <= was_end && was <= end) {
		from = from < was ? from : was;
		end = end > was_end ? end : was_end;
	}
	t->last[write].from = from;
	t->last[write].len = end - from;
}

/* Grains of a range that are in no slot: asked about all at once. */
static int look_up(struct access *t, const void *p, size_t len, bool write)
{
	uintptr_t from = round_down((uintptr_t)p, GRAIN), at;
	uintptr_t end = (uintptr_t)p + len;
	uint64_t *slot = t->slot[write], tag;
	bool asked = false;
	int rc;

	for (at = from; at < end; at += GRAIN) {
		tag = at | EPOCH_VALID | t->epoch[write] % EPOCH_VALID;
		if (slot[at / GRAIN % ACCESS_SLOTS] == tag)
			continue;
		if (asked)
			rc = 0;
		else
			rc = len > ASK_LONG ? ask_long(p, len, write)
					    : access_ask(p, len, write);
		if (rc)
			return rc;
		asked = true;
		slot[at / GRAIN % ACCESS_SLOTS] = tag;
	}
	remember(t, from, at, write);
	return 0;
}

int access_slow(struct access *t, const void *p, size_t len, bool write)
{
	int rc = -EFAULT;

	if (!len)
		return 0;
	if (--t->last[write].left < 0) {
		t->last[write].left = ACCESS_USES;
		t->epoch[write]++;
		t->last[write].len = 0;
	}
	if ((uintptr_t)p + len > (uintptr_t)p)
		rc = look_up(t, p, len, write);
	if (rc)
		t->last[write].len = 0;
	return rc;
}

/* ---- long ones, remembered ---- */

static uint32_t epoch_of(uint32_t cnt)
{
	return (cnt >> RANGE_SHIFT) | 1u << 31;
}

bool access_knows(const struct access *t, const void *p, size_t len, bool write,
		  uint32_t cnt)
{
	uint32_t epoch = epoch_of(cnt), i;
	uintptr_t at = (uintptr_t)p;

	for (i = 0; i < ACCESS_RANGES; i++)
		if (t->range[write][i].epoch == epoch &&
		    at >= t->range[write][i].from &&
		    at <= t->range[write][i].to &&
		    len <= t->range[write][i].to - at)
			return true;
	return false;
}

void access_learn(struct access *t, const void *p, size_t len, bool write,
		  uint32_t cnt)
{
	uint32_t i;

	if (access_knows(t, p, len, write, cnt))
		return;
	i = t->next[write]++ % ACCESS_RANGES;
	t->range[write][i].from = (uintptr_t)p;
	t->range[write][i].to = (uintptr_t)p + len;
	t->range[write][i].epoch = epoch_of(cnt);
}

int kedge__bulk_check_slow(struct bulk *b)
{
	uint64_t left = b->len, len;
	uint32_t i;
	int rc;

	for (i = 0; i < b->piece_cnt && left; i++) {
		len = b->piece[i].len < left ? b->piece[i].len : left;
		rc = ask_long((void *)(uintptr_t)b->piece[i].addr, len,
			      b->flags & BULK_RECV);
		if (rc)
			return rc;
		left -= len;
	}
	b->flags |= BULK_CHECKED;
	return 0;
}
