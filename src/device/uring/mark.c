// SPDX-License-Identifier: BSD-2-Clause
/*
 * Marking what the ring wrote to as dirty.
 *
 * MADV_FREE makes a page clean and takes its mark as swap-backed: reclaim may
 * drop it, unless it is dirty by then. A store by the CPU makes it so; io_uring
 * marks a buffer's pages neither when it pins them, nor when a request has written
 * to them, nor when it lets them go (ib_umem_release() does). So data that were
 * read into such a page would be lost once the slot is empty. MADV_POPULATE_WRITE
 * (Linux 5.14) marks what is present as a store would, and keeps every byte.
 *
 * When. Since Linux 5.18 (commit 6c8e2a256915; its backports to 5.15 and older
 * cannot be told from the outside) reclaim unmaps a page that is not swap-backed,
 * with the page table's lock held, and only then compares the references to it
 * with those that it knows of, its own and the mappings'. A pin is one more: the
 * page is mapped again before the lock is let go, whether it is dirty or not.
 * Huge pages that are dropped whole are compared the same way. So no data are lost
 * while the page is pinned, whoever wrote to it: it has to be marked at any time
 * between the last MADV_FREE, which gives up what it holds, and the unpin. The
 * mark finds it mapped, as it takes that lock, too. It comes at the end, before
 * the slot is emptied or filled anew, when most registrations have gone another
 * way: with the mapping, or into a larger one. Before 5.18 a pinned page could be
 * dropped before anything was written to it; there it comes right after the pin
 * (pages.c).
 *
 * What. A page that is no longer mapped where it was registered is not marked, and
 * what is there now is not populated. /proc/self/pagemap tells what is present,
 * and is neither a file's nor shared: those are never lazily freed. What was
 * swapped out is, as a rule, not ours, since ours are pinned; but a page that is
 * just being migrated looks the same.
 *
 * Memory that cannot be marked, because it was made read-only, and memory that mremap() may
 * have taken anywhere, is looked up in /proc/self/smaps: a mapping without clean
 * anonymous pages has no page that reclaim would drop. One that has some and cannot
 * be marked is owed: the slot is not emptied while there are such pages anywhere in
 * the process, since what is owed may be moved as well.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <kedge/device.h>

#include "base/base.h"
#include "device/proc.h"
#include "device/uring/internal.h"

/* Linux 5.14; not in the headers of every distribution. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* An entry of pagemap: a file's or shared; swapped out, or migrated; present. */
#define PM_FILE	   61
#define PM_SWAP	   62
#define PM_PRESENT 63
#define PM_CNT	   256 /* entries at a time */

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Reclaim leaves pinned pages alone. */
static bool pins_protect(void)
{
	unsigned int major = 0, minor = 0;
	struct utsname name;

	return !uname(&name) &&
	       sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 5 || (major == 5 && minor >= 18));
}

enum mark_when kedge__uring_mark_when(void)
{
	/* EINVAL before Linux 5.14, EPERM of a seccomp filter. */
	if (syscall(SYS_madvise, 0, 0, MADV_POPULATE_WRITE))
		return MARK_NEVER;
	return pins_protect() ? MARK_AT_END : MARK_AT_REG;
}

bool kedge__uring_mark(uint64_t start, uint64_t end)
{
	start = round_down(start, page_size());
	end = round_up(end, page_size());
	return !syscall(SYS_madvise, start, end - start, MADV_POPULATE_WRITE);
}

static bool is_wanted(uint64_t entry)
{
	return (entry >> PM_PRESENT | entry >> PM_SWAP) & 1 &&
	       !(entry >> PM_FILE & 1);
}

/* Mark the wanted of @cnt pages from @at on. */
static bool mark_wanted(const uint64_t *entry, size_t cnt, uint64_t at)
{
	uint64_t page = page_size();
	size_t i, from;
	bool all = true;

	for (i = 0; i < cnt; i++) {
		for (from = i; i < cnt && is_wanted(entry[i]); i++)
			;
		if (i > from &&
		    !kedge__uring_mark(at + from * page, at + i * page))
			all = false;
	}
	return all;
}

/* Mark what is present in [start, end). False if some could not be. */
static bool mark_present(uint64_t start, uint64_t end)
{
	uint64_t entry[PM_CNT], page = page_size(), at;
	bool all = true;
	ssize_t got;
	int fd;

	fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap",
			  O_RDONLY | O_CLOEXEC);
	/* Memory that is allocated anew is better than data that are lost. */
	if (fd < 0)
		return kedge__uring_mark(start, end);
	start = round_down(start, page);
	for (at = start; at < end; at += (uint64_t)got * page) {
		size_t cnt = (size_t)((round_up(end, page) - at) / page);

		got = syscall(SYS_pread64, fd, entry,
			      (cnt < PM_CNT ? cnt : PM_CNT) * sizeof(*entry),
			      at / page * sizeof(*entry));
		got /= (ssize_t)sizeof(*entry);
		if (got <= 0) {
			all = kedge__uring_mark(at, end) && all;
			break;
		}
		all = mark_wanted(entry, (size_t)got, at) && all;
	}
	syscall(SYS_close, fd);
	return all;
}

static void owe(void *arg, uint64_t from, uint64_t to)
{
	struct range *owed = arg;

	if (!owed->end || from < owed->start)
		owed->start = from;
	if (to > owed->end)
		owed->end = to;
}

static void mark_or_owe(void *owed, uint64_t from, uint64_t to)
{
	if (!mark_present(from, to))
		owe(owed, from, to);
}

void kedge__uring_preserve(struct range r, uint32_t flags, struct range *owed)
{
	bool done;

	done = flags & KEDGE_PRESERVE_UNSURE ? mark_present(r.start, r.end)
					     : kedge__uring_mark(r.start, r.end);
	if (flags & KEDGE_PRESERVE_MOVED)
		r = (struct range){ 0, UINT64_MAX };
	else if (done)
		return;
	if (kedge__proc_each_lazy(r.start, r.end, mark_or_owe, owed))
		return;
	if (!done)
		owe(owed, r.start, r.end);
	else
		kedge__log(KEDGE_LOG_WARN,
			   "memory that io_uring wrote to may have been moved by "
			   "mremap(), and /proc/self/smaps cannot be read: if it "
			   "was freed lazily before, the data may be dropped");
}

bool kedge__uring_pay(struct range *owed)
{
	struct range left = { 0, 0 };

	/* Everywhere: what is owed may have been moved since, unseen. */
	if (kedge__proc_each_lazy(0, UINT64_MAX, mark_or_owe, &left))
		*owed = left;
	else if (kedge__uring_mark(owed->start, owed->end) || errno == ENOMEM)
		*owed = left;
	return !owed->end;
}
