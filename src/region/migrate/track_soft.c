// SPDX-License-Identifier: BSD-2-Clause
/*
 * Stores by soft-dirty bits: a store sets the bit of its page (bit 55 in pagemap), and a "4"
 * to clear_refs takes the bits of the whole process away, with the leave to store without
 * a fault. Linux has had them since 3.11 on x86-64, so this is Debian 12's way.
 *
 * The bits are cleared once, at the beginning, and each take tells all that are set. To
 * read them and then clear them is no take that could forget: a store in between sets a
 * bit that is cleared unseen, and no order avoids it, as the clearing says nothing of what
 * it cleared, stores are not to be held up, and the process has no second set of bits.
 *
 * No store is missed as long as bits are not cleared again:
 *
 *  1. A store before the clearing is before the first take, which tells the whole range.
 *  2. A store after it finds its page without leave, or with the bit set already: the bit is
 *     there before the bytes. So where a take reads the bit as not set, the store comes
 *     after that, and the next take finds it set. Where it reads it as set, the page is
 *     told after that; if the store is later than the copy, the next take tells it too.
 *
 * Others in the process may clear the bits: another track that begins, a checkpoint, a
 * profiler. They clear those of all pages, so a page of our own tells, the canary, which is
 * stored into once after the clearing:
 *
 *  3. A take reads the bits of the range and then the canary's. Set: no clearing came between
 *     the store into the canary and that, so the bits read are those of 2. A clearing that
 *     comes later is found by the next take.
 *  4. Not set: bits may be lost. The canary is stored into again, then the whole range is
 *     told. A store before the canary's is in what is copied after it. Any later one has its
 *     bit, or a clearing after it took the canary's, too.
 *
 * A clearing is one step for both pages: the kernel holds the lock of the address space until
 * the translations of all processors are flushed, and each reading takes that lock.
 *
 * The canary's mapping has neighbours without access, which are not merged with it: a mapping
 * that takes in new memory counts as stored into as a whole. (For the range that tells
 * too much, not too little.)
 *
 * The bits are in the page table. Pages that are locked leave it for a huge page that takes
 * the place of small ones alone, and enter it again without their bits; so this is no way
 * where the kernel makes huge pages for shared memory. Huge TLB pages have no such bits.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/own.h"
#include "region/migrate/ways.h"

#define SOFT_DIRTY (1ull << 55)
#define PRESENT	   (1ull << 63)

#define SHMEM_HUGE "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

#define ENTRY_CNT   4096u /* of pagemap, read at a time */
#define CANARY_LEN  3u	  /* pages; the one in the middle is it */

/* @dirty has a bit for each page; the canary is at @canary + a page. */
struct state {
	int pagemap;
	char *at;
	uint64_t len;
	char *canary;
	uint64_t *dirty;
	uint64_t entries[ENTRY_CNT];
};

/* ---- the kernel ---- */

static int open_file(const char *path, int flags)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC), err;

	if (fd >= 0)
		return fd;
	err = errno;
	return error_no_fd(err) ? error_no_fd(err)
				: kedge_reason(-EOPNOTSUPP, "%s cannot be opened (%s)", path,
					       strerrordesc_np(err));
}

static int clear_bits(void)
{
	int fd = open_file("/proc/thread-self/clear_refs", O_WRONLY);
	long n;

	if (fd < 0)
		return fd;
	do
		n = syscall(SYS_write, fd, "4", 1);
	while (n < 0 && errno == EINTR);
	syscall(SYS_close, fd);
	return n == 1 ? 0 : kedge_reason(-EOPNOTSUPP, "clear_refs: error %d", errno);
}

static int read_entries(struct state *s, const char *at, uint64_t cnt)
{
	const uint64_t len = cnt * sizeof(s->entries[0]);
	const uint64_t off = (uintptr_t)at / kedge__page_size() * sizeof(s->entries[0]);
	uint64_t done = 0;
	long n;

	while (done < len) {
		n = syscall(SYS_pread64, s->pagemap, (char *)s->entries + done, len - done,
			    (off_t)(off + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return kedge_reason(-EIO, "pagemap cannot be read: error %d",
					    n ? errno : 0);
		done += (uint64_t)n;
	}
	return 0;
}

/* A page that is not there counts as stored into. 0, 1, or a negative errno. */
static int is_dirty(struct state *s, const volatile char *at)
{
	int rc = read_entries(s, (const char *)at, 1);

	if (rc)
		return rc;
	return (s->entries[0] & SOFT_DIRTY) || !(s->entries[0] & PRESENT);
}

/* ---- the canary ---- */

static volatile char *canary(const struct state *s)
{
	return s->canary + kedge__page_size();
}

static int map_canary(struct state *s)
{
	const size_t len = kedge__page_size();
	void *at = mmap(NULL, CANARY_LEN * len, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no memory for a page: error %d", errno);
	s->canary = at;
	if (!mprotect(s->canary + len, len, PROT_READ | PROT_WRITE))
		return 0;
	own_unmap(at, CANARY_LEN * len);
	return kedge_reason(-ENOMEM, "no memory, or too many mappings: raise vm.max_map_count");
}

static void unmap_canary(const struct state *s)
{
	own_unmap(s->canary, CANARY_LEN * kedge__page_size());
}

/* The bits were cleared since it was stored into. Swapped out it has its bit, too. */
static int canary_is_clean(struct state *s)
{
	int rc = read_entries(s, (const char *)canary(s), 1);

	return rc ? rc : !(s->entries[0] & SOFT_DIRTY);
}

/* ---- is it of use? ---- */

/* Without huge pages in this kernel the file is not there. */
static int refuse_huge(void)
{
	int fd = open_file(SHMEM_HUGE, O_RDONLY);
	char text[128];
	long n;

	if (fd < 0)
		return errno == ENOENT ? 0 : fd;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	text[n > 0 ? n : 0] = '\0';
	if (strstr(text, "[never]") || strstr(text, "[deny]"))
		return 0;
	return kedge_reason(-EOPNOTSUPP, "soft-dirty bits do not last with huge pages: echo never "
			    ">" SHMEM_HUGE);
}

/* Clear the bits; a page of ours then has its bit by a store alone. */
static int clear_and_probe(struct state *s)
{
	const uint64_t len = kedge__page_size();
	volatile char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				 -1, 0);
	int rc, before, after;

	if (at == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no memory for a page: error %d", errno);
	*at = 1;
	rc = clear_bits();
	if (!rc) {
		before = is_dirty(s, at);
		*at = 2;
		after = is_dirty(s, at);
		if (before || after != 1)
			rc = kedge_reason(-EOPNOTSUPP, "this kernel has no soft-dirty bits");
	}
	own_unmap((void *)(uintptr_t)at, len);
	return rc;
}

/* ---- the way ---- */

static int soft_begin(char *at, uint64_t len, uint64_t page_size, void **out)
{
	const uint64_t words = (len / kedge__page_size() + 63) / 64;
	struct state *s;
	int rc;

	if (page_size != kedge__page_size())
		return kedge_reason(-EOPNOTSUPP, "huge TLB pages have no soft-dirty bits");
	rc = refuse_huge();
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return kedge_reason(-ENOMEM, "no memory to note what is stored into");
	rc = kedge_reason(-ENOMEM, "no memory to note what is stored into");
	s->at = at;
	s->len = len;
	s->dirty = calloc(words, sizeof(*s->dirty));
	if (!s->dirty)
		goto free_state;
	rc = open_file("/proc/thread-self/pagemap", O_RDONLY);
	if (rc < 0)
		goto free_dirty;
	s->pagemap = rc;
	rc = map_canary(s);
	if (rc)
		goto close_pagemap;
	rc = clear_and_probe(s);
	if (rc)
		goto unmap_canary;
	*canary(s) = 1;
	*out = s;
	return 0;

unmap_canary:
	unmap_canary(s);
close_pagemap:
	syscall(SYS_close, s->pagemap);
free_dirty:
	free(s->dirty);
free_state:
	free(s);
	return rc;
}

static int read_bits(struct state *s)
{
	const uint64_t page = kedge__page_size(), cnt = s->len / page;
	uint64_t i, j, n;
	int rc;

	memset(s->dirty, 0, (cnt + 63) / 64 * sizeof(*s->dirty));
	for (i = 0; i < cnt; i += n) {
		n = cnt - i < ENTRY_CNT ? cnt - i : ENTRY_CNT;
		rc = read_entries(s, s->at + i * page, n);
		if (rc)
			return rc;
		for (j = 0; j < n; j++)
			if ((s->entries[j] & SOFT_DIRTY) || !(s->entries[j] & PRESENT))
				s->dirty[(i + j) / 64] |= 1ull << (i + j) % 64;
	}
	return 0;
}

static int tell_bits(const struct state *s, track_fn fn, void *arg)
{
	const uint64_t page = kedge__page_size(), cnt = s->len / page;
	uint64_t i;
	int rc;

	for (i = 0; i < cnt; i++) {
		if (!(s->dirty[i / 64] >> i % 64 & 1))
			continue;
		rc = fn(arg, i * page, page);
		if (rc)
			return rc;
	}
	return 0;
}

static int soft_take(void *state, track_fn fn, void *arg)
{
	struct state *s = state;
	int rc = read_bits(s);

	if (rc)
		return rc;
	/* After the bits of the range. */
	rc = canary_is_clean(s);
	if (rc < 0)
		return rc;
	if (!rc)
		return tell_bits(s, fn, arg);
	*canary(s) = 1;
	return fn(arg, 0, s->len);
}

static void soft_end(void *state)
{
	struct state *s = state;

	unmap_canary(s);
	syscall(SYS_close, s->pagemap);
	free(s->dirty);
	free(s);
}

const struct track_ops track_soft = {
	.name = "soft-dirty",
	.forgets = false,
	.begin = soft_begin,
	.take = soft_take,
	.end = soft_end,
};
