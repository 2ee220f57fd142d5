// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program's initialised data, and the page that it has in common with the bss, are
 * private pages of a file. userfaultfd does not hold stores to those back, so they can
 * become anonymous memory only while no other thread of the program could store there: where
 * there are some, they are stopped. They are copied, and the copy takes their place.
 *
 * A page that a device or a transfer has pinned has to stay, as what is written to it later
 * would be in no mapping. The kernel tells of pins by what fork() does: it shares all pages
 * with the child but those that may be pinned, which it copies. A page that only this
 * process maps right after a fork is pinned, or is kept from children, which is refused as
 * well.
 *
 * Order: the data are made read-only first, which lets no new pin to write come, and end so
 * only when the copy is there or they stay. io_uring may store there in this very thread, as
 * it returns from a system call: such a request fails with EFAULT, where its bytes would be
 * lost between the copy and the exchange. The data are mapped, and right, at all times.
 *
 * Ruled out: to move the old mapping aside and look at it there. That leaves a hole, which
 * a thread of kedge's may be given by mmap(), or (MREMAP_DONTUNMAP) what is in the file.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/child.h"
#include "base/process/own.h"
#include "base/process/service.h"
#include "base/process/stop.h"
#include "notify/internal.h"
#include "segment/internal.h"

#define PROT_RW	 3u
#define MAPPINGS 64
#define TRIES	 10

/* An entry of pagemap. */
#define PM_EXCLUSIVE (1ull << 56) /* no other process maps it */
#define PM_FILE	     (1ull << 61) /* a file's, or shared */
#define PM_PRESENT   (1ull << 63)
#define PM_CNT	     256 /* entries at a time */

struct data {
	uintptr_t start;
	uintptr_t end;
	char *copy; /* NULL: it has taken their place */
};

struct found {
	uintptr_t start;
	uintptr_t end;
	int pagemap;
	int cnt;
	struct data at[MAPPINGS];
};

static size_t len_of(const struct data *d)
{
	return d->end - d->start;
}

static void note(void *arg, const struct vma_info *v)
{
	struct found *f = arg;
	uint64_t start = v->start > f->start ? v->start : f->start;
	uint64_t end = v->end < f->end ? v->end : f->end;

	if (start < end && !v->plain && !v->shared && v->prot == PROT_RW &&
	    f->cnt < MAPPINGS)
		f->at[f->cnt++] = (struct data){ .start = start, .end = end };
}

static int map_copies(struct found *f)
{
	int i;

	for (i = 0; i < f->cnt; i++) {
		f->at[i].copy = own_map(len_of(&f->at[i]));
		if (!f->at[i].copy)
			return -ENOMEM;
	}
	return 0;
}

static void unmap_copies(struct found *f)
{
	int i;

	for (i = 0; i < f->cnt; i++)
		if (f->at[i].copy)
			own_unmap(f->at[i].copy, len_of(&f->at[i]));
}

/*
 * ---- while they are read-only ----
 *
 * System calls and the stack alone: libc's variables may be among the data.
 */

static int make_read_only(const struct found *f)
{
	int i;

	for (i = 0; i < f->cnt; i++)
		if (syscall(SYS_mprotect, f->at[i].start, len_of(&f->at[i]), PROT_READ))
			return errno == ENOMEM ? -ENOMEM : -EPERM;
	return 0;
}

/* Those that stay. They were so before, thus only memory may be wanting, for a moment. */
static void make_writable(const struct found *f)
{
	const struct data *d;
	int tries;

	for (d = f->at; d < f->at + f->cnt; d++)
		for (tries = 0; d->copy && tries < TRIES &&
				syscall(SYS_mprotect, d->start, len_of(d), PROT_RW); tries++)
			;
}

/* 1: a page is present, and this process's alone; 0: none is; or -EPERM. */
static int is_one_alone(int pagemap, uintptr_t at, uintptr_t end)
{
	const size_t page = kedge__page_size();
	uint64_t entry[PM_CNT];
	size_t cnt;
	long got, i;

	for (; at < end; at += (size_t)got * page) {
		cnt = (end - at) / page;
		got = syscall(SYS_pread64, pagemap, entry,
			      (cnt < PM_CNT ? cnt : PM_CNT) * sizeof(*entry),
			      at / page * sizeof(*entry));
		got /= (long)sizeof(*entry);
		if (got <= 0)
			return -EPERM;
		for (i = 0; i < got; i++)
			if ((entry[i] & (PM_PRESENT | PM_FILE | PM_EXCLUSIVE)) ==
			    (PM_PRESENT | PM_EXCLUSIVE))
				return 1;
	}
	return 0;
}

/* A page that is new since the fork shows whether pagemap tells. */
static int look_for_pins(const struct found *f)
{
	volatile char *fresh = f->at[0].copy;
	int i, rc;

	*fresh = 0;
	rc = is_one_alone(f->pagemap, (uintptr_t)fresh,
			  (uintptr_t)fresh + kedge__page_size());
	if (rc != 1)
		return -EPERM;
	for (i = 0, rc = 0; i < f->cnt && !rc; i++)
		rc = is_one_alone(f->pagemap, f->at[i].start, f->at[i].end);
	return rc == 1 ? -EBUSY : rc;
}

static int check_pins(const struct found *f)
{
	pid_t child = child_start();
	int rc;

	if (child < 0)
		return child == -EAGAIN || child == -ENOMEM ? -EAGAIN : -EPERM;
	rc = look_for_pins(f);
	child_end(child);
	return rc;
}

/* Whole pages, whatever a sanitizer has between the variables there. */
__attribute__((no_sanitize("address", "thread"))) static void
copy(volatile uint64_t *to, const volatile uint64_t *from, size_t len)
{
	for (len /= sizeof(*to); len; len--)
		*to++ = *from++;
}

static int replace(struct data *d)
{
	copy((void *)d->copy, (void *)d->start, len_of(d));
	if (own_remap(d->copy, (void *)d->start, len_of(d), MREMAP_MAYMOVE | MREMAP_FIXED) ==
	    MAP_FAILED)
		return -ENOMEM;
	d->copy = NULL;
	return 0;
}

static int exchange(struct found *f)
{
	int i, rc = make_read_only(f);

	if (!rc)
		rc = check_pins(f);
	for (i = 0; i < f->cnt && !rc; i++)
		rc = replace(&f->at[i]);
	make_writable(f);
	return rc;
}

/* Other threads may have changed it since it was found. */
static bool are_there(const struct found *f)
{
	struct vma_info v;
	int i;

	for (i = 0; i < f->cnt; i++)
		if (vma_at(-1, f->at[i].start, &v) || v.end < f->at[i].end || v.plain ||
		    v.shared || v.prot != PROT_RW)
			return false;
	return true;
}

/* ---- while no other thread runs ---- */

struct moment {
	struct found *found;
	bool came;
};

static int exchange_now(void *arg)
{
	struct moment *m = arg;

	m->came = true;
	return are_there(m->found) ? exchange(m->found) : -ESTALE;
}

/* *@came: or other threads cannot be stopped. */
static int exchange_alone(struct found *f, bool *came)
{
	struct moment m = { .found = f };
	int rc;

	signals_block();
	rc = service_alone() ? exchange_now(&m) : others_stopped(exchange_now, &m);
	signals_restore();
	*came = m.came;
	return rc;
}

/* ---- as ever ---- */

static int why_not(int rc)
{
	switch (rc) {
	case -EBUSY:
		return kedge_reason(rc, "a page there is pinned by a device or a transfer, or "
				    "kept from children (MADV_DONTFORK)");
	case -EAGAIN:
		return kedge_reason(-EBUSY, "no process is to be had, which would show whether "
				    "pages there are pinned");
	case -EPERM:
		return kedge_reason(-EOPNOTSUPP, "it cannot be seen here whether pages of "
				    "initialised data are pinned (seccomp, /proc)");
	}
	return rc;
}

static int not_stopped(int rc)
{
	if (rc == -EAGAIN)
		return kedge_reason(-EBUSY, "a thread is busy in the kernel, or no process is to "
				    "be had by which threads are stopped");
	return kedge_reason(-EOPNOTSUPP, "a program's initialised data can be shared only while "
			    "no other thread runs, and they cannot be stopped here (a debugger, "
			    "kernel.yama.ptrace_scope, seccomp)");
}

static int make_anonymous(struct found *f)
{
	bool came = true;
	int rc = map_copies(f);

	if (!rc)
		rc = exchange_alone(f, &came);
	unmap_copies(f);
	return came ? why_not(rc) : not_stopped(rc);
}

int data_make_anonymous(uintptr_t at, size_t len)
{
	struct found f = { .start = at, .end = at + len };
	int rc = vma_walk(note, &f);

	if (rc || !f.cnt || own_data_in(at, at + len))
		return rc;
	f.pagemap = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap",
				 O_RDONLY | O_CLOEXEC);
	if (f.pagemap < 0)
		return error_no_fd(errno) ? error_no_fd(errno) : why_not(-EPERM);
	rc = make_anonymous(&f);
	syscall(SYS_close, f.pagemap);
	return rc ? rc : f.cnt;
}
