// SPDX-License-Identifier: BSD-2-Clause
/*
 * A swap's context, its descriptors and scratch space. Each swap that is under
 * way has a context of its own; a few are kept for the next ones, the rest is
 * closed.
 *
 * The scratch space is registered with the context's userfaultfd for good, so
 * that pages can be moved into it, and is never touched: a thread would wait
 * there for ever. It is not mapped in forked children. A child's copy of the
 * contexts' descriptors works on the parent's memory and is closed at its first
 * swap.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/own.h"
#include "base/process/page.h"
#include "pages/internal.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define CAP_MIN	      ((size_t)16 << 20)
#define CAP_KEPT      ((size_t)256 << 20) /* a larger one is not kept */
#define CONTEXTS_KEPT 4
#define AREAS	      4
#define HEARD	      (UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE)

static struct sig_lock lock = SIG_LOCK_INIT; /* guards what follows */
static struct swap_context *idle;
static unsigned int idle_cnt;

/* Zero in a forked child: what is idle then belongs to the parent. */
static _Atomic uint32_t *_Atomic owned;
/* Held by a thread that swaps, against forks. */
#define FORK_LOCK_INIT PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
static pthread_rwlock_t fork_lock = FORK_LOCK_INIT;

static _Atomic int movable; /* 1: this kernel has UFFDIO_MOVE; else an errno */

size_t pages_huge_len(void)
{
	static _Atomic size_t known;
	size_t len = atomic_load_explicit(&known, memory_order_relaxed);
	char text[32];
	ssize_t n;
	int fd;

	if (len)
		return len;
	len = kedge__page_size();
	fd = open("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
		  O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		text[n > 0 ? n : 0] = '\0';
		if (strtoull(text, NULL, 10) > len)
			len = strtoull(text, NULL, 10);
		close(fd);
	}
	atomic_store_explicit(&known, len, memory_order_relaxed);
	return len;
}

/*
 * One that handles the kernel's own faults as well, if it is to be had: then a
 * system call of another thread waits as an access does, instead of failing.
 */
static int new_uffd(bool hears)
{
	struct uffdio_api api = { .api = UFFD_API, .features = hears ? HEARD : 0 };
	int flags = O_CLOEXEC | O_NONBLOCK, err;
	int fd = (int)syscall(SYS_userfaultfd, flags);

	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
	if (fd < 0 && error_no_fd(errno))
		return error_no_fd(errno);
	if (fd < 0) {
		err = errno == ENOSYS ? EOPNOTSUPP : errno;
		return kedge_reason(-err, "userfaultfd is refused (%s): allow "
				    "the system call in the container's "
				    "seccomp profile", strerrordesc_np(errno));
	}
	if (!ioctl(fd, UFFDIO_API, &api))
		return fd;
	err = errno;
	close(fd);
	return kedge_reason(-EOPNOTSUPP, "userfaultfd does not answer (%s)",
			    strerrordesc_np(err));
}

int context_register(struct swap_context *ctx, uintptr_t at, size_t len)
{
	struct uffdio_register r = {
		.range = { .start = at, .len = len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	/* Not by ioctl(), which libkedge-hooks takes for another's. */
	return syscall(SYS_ioctl, ctx->uffd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

/*
 * UFFDIO_UNREGISTER wakes the threads that wait there, but before it stops faults
 * that are under way with the lock of the mapping alone (Linux 6.7 and later): one
 * of those begins to wait after that wake, and would for ever. Once the range is
 * unregistered no such fault is under way, and later ones don't wait: so a second
 * wake finds them all. Closing the descriptor does both in that order.
 */
void context_unregister(struct swap_context *ctx, uintptr_t at, size_t len)
{
	struct uffdio_range r = { .start = at, .len = len };

	if (ioctl(ctx->uffd, UFFDIO_UNREGISTER, &r) ||
	    ioctl(ctx->uffd, UFFDIO_WAKE, &r))
		ctx->broken = true;
}

/* A context that hears would wait for itself: not while that is registered. To change that takes
 * a mapping more; where there is none, the pages go with the context, which is broken then. */
void context_drop(struct swap_context *ctx, uintptr_t at, size_t len)
{
	if (ctx->hears)
		context_unregister(ctx, at, len);
	if (ctx->hears && ctx->broken)
		return;
	madvise((void *)at, len, MADV_DONTNEED);
	if (ctx->hears && context_register(ctx, at, len))
		ctx->broken = true;
}

/* Find out if the kernel moves a page, by moving one. */
static int try_move(struct swap_context *ctx)
{
	size_t page = kedge__page_size();
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_move_v1 m = { .len = page };
	int rc;

	if (p == MAP_FAILED)
		return -ENOMEM;
	*p = 1;
	m.src = (uintptr_t)p;
	m.dst = m.src + page;
	/* A process that locks all its memory could not see it otherwise. */
	munlock(p, 2 * page);
	rc = context_register(ctx, m.dst, page);
	if (!rc && ioctl(ctx->uffd, UFFDIO_MOVE_V1, &m))
		rc = errno == EINVAL || errno == ENOTTY ? -EOPNOTSUPP : -errno;
	munmap(p, 2 * page);
	return rc;
}

static int need_move(struct swap_context *ctx)
{
	int rc = atomic_load_explicit(&movable, memory_order_relaxed);

	if (!rc) {
		rc = try_move(ctx);
		if (!rc || rc == -EOPNOTSUPP)
			atomic_store_explicit(&movable, rc ? rc : 1,
					      memory_order_relaxed);
	}
	if (rc >= 0)
		return 0;
	return kedge_reason(rc, rc == -EOPNOTSUPP
				 ? "this kernel cannot move pages by "
				   "userfaultfd: Linux 6.8 can"
				 : "no memory to try whether pages can be "
				   "moved");
}

static int area_error(void)
{
	return kedge_reason(-ENOMEM, "no room for scratch space (%s): is the "
			    "process near vm.max_map_count or out of address "
			    "space?", strerrordesc_np(errno));
}

/*
 * Without access at first, or memory would be put there in a process that locks
 * all it maps; and unlocked, as pages move between mappings of a kind.
 */
static int map_area(struct swap_context *ctx)
{
	size_t huge = pages_huge_len(), each = ctx->cap + huge, i;
	size_t want = AREAS * each;
	uintptr_t base;

	ctx->area_len = want + 2 * huge;
	ctx->area = mmap(NULL, ctx->area_len, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ctx->area == MAP_FAILED)
		return area_error();
	munlock(ctx->area, ctx->area_len);
	base = round_down((uintptr_t)ctx->area + huge, huge);
	if (madvise((void *)base, want, MADV_DONTFORK) ||
	    mprotect((void *)base, want, PROT_READ | PROT_WRITE))
		goto unmap;
	if (context_register(ctx, base, want))
		goto unmap;
	for (i = 0; i < 2; i++) {
		ctx->huge[i] = base + i * each;
		ctx->small[i] = base + (2 + i) * each;
	}
	return 0;

unmap:
	munmap(ctx->area, ctx->area_len);
	return area_error();
}

static int open_proc(const char *path, struct fd_id *id)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		fd_note(fd, id);
	return fd;
}

static void close_own(int fd, const struct fd_id *id)
{
	if (fd >= 0 && fd_same(fd, id))
		close(fd);
}

static void context_close(struct swap_context *ctx)
{
	close_own(ctx->uffd, &ctx->uffd_id);
	close_own(ctx->pagemap, &ctx->pagemap_id);
	close_own(ctx->maps, &ctx->maps_id);
	if (ctx->area)
		munmap(ctx->area, ctx->area_len);
	own_unmap(ctx, ctx->own_len);
}

/* Goes without what /proc does not show: then pages are moved one by one. */
static int open_files(struct swap_context *ctx)
{
	if (ctx->pagemap < 0 || !fd_same(ctx->pagemap, &ctx->pagemap_id))
		ctx->pagemap = open_proc("/proc/self/pagemap", &ctx->pagemap_id);
	if (ctx->pagemap < 0 && error_no_fd(errno))
		return error_no_fd(errno);
	if (ctx->maps < 0 || !fd_same(ctx->maps, &ctx->maps_id))
		ctx->maps = open_proc("/proc/self/maps", &ctx->maps_id);
	return ctx->maps < 0 ? error_no_fd(errno) : 0;
}

static int context_open(size_t len, bool hears, struct swap_context **out)
{
	size_t cap = hears ? len : CAP_MIN, pieces, places, own_len;
	struct swap_context *ctx;
	int rc;

	while (cap < len && cap < SIZE_MAX / (4 * AREAS))
		cap *= 2;
	if (cap < len)
		return -ENOMEM;
	pieces = cap / pages_huge_len() + 2;
	places = hears ? cap / kedge__page_size() * sizeof(*ctx->place) : 0;
	own_len = sizeof(*ctx) + places + 2 * pieces;
	ctx = own_map(own_len);
	if (!ctx)
		return area_error();
	ctx->own_len = own_len;
	ctx->cap = cap;
	ctx->hears = hears;
	ctx->place = (uintptr_t *)(ctx + 1);
	ctx->kind[0] = (uint8_t *)(ctx + 1) + places;
	ctx->kind[1] = ctx->kind[0] + pieces;
	ctx->uffd = new_uffd(hears);
	if (ctx->uffd < 0) {
		rc = ctx->uffd;
		goto free_context;
	}
	fd_note(ctx->uffd, &ctx->uffd_id);
	rc = need_move(ctx);
	if (!rc)
		rc = map_area(ctx);
	if (rc)
		goto close_uffd;
	ctx->pagemap = ctx->maps = -1;
	*out = ctx;
	return 0;

close_uffd:
	close(ctx->uffd);
free_context:
	own_unmap(ctx, own_len);
	return rc;
}

/* In a child: the parent's contexts are ours to forget. With the lock held. */
static void forget_idle(void)
{
	struct swap_context *ctx;

	while ((ctx = idle)) {
		idle = ctx->next;
		ctx->area = NULL; /* not mapped here */
		context_close(ctx);
	}
	idle_cnt = 0;
}

/*
 * A fork() waits until no page is under way: the child would have zeros there.
 * A child that was made around libc has the lock as it was, and does not hold it.
 */
static void before_fork(void)
{
	const pthread_rwlock_t fresh = FORK_LOCK_INIT;

	if (!atomic_load(owned))
		fork_lock = fresh;
	pthread_rwlock_wrlock(&fork_lock);
}

static void after_fork(void)
{
	pthread_rwlock_unlock(&fork_lock);
}

/* Once in a process, and not again in its children. */
static int own(void)
{
	_Atomic uint32_t *p;

	p = page_of_process();
	if (!p)
		return area_error();
	atomic_store(p, 1);
	/* First: a thread that forks looks at it as soon as it is asked to. */
	owned = p;
	if (!pthread_atfork(before_fork, after_fork, after_fork))
		return 0;
	owned = NULL;
	munmap((void *)p, kedge__page_size());
	return -ENOMEM;
}

/*
 * A forked child finds the lock as some thread of the parent had it, and no other
 * thread runs there yet that could hold it.
 */
static int adopt(void)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	const pthread_rwlock_t fresh = FORK_LOCK_INIT;
	int rc = 0;

	pthread_mutex_lock(&once);
	if (!owned) {
		rc = own();
	} else if (!atomic_load(owned)) {
		sig_lock_init(&lock);
		fork_lock = fresh;
		forget_idle();
		atomic_store(owned, 1);
	}
	pthread_mutex_unlock(&once);
	return rc;
}

static int get(size_t len, bool hears, struct swap_context **out)
{
	struct swap_context **link, *ctx, *small = NULL;
	int rc;

	sig_lock_blocked(&lock);
	for (link = &idle; (ctx = *link); link = &ctx->next)
		if (ctx->cap >= len && ctx->hears == hears)
			break;
	if (!ctx && idle_cnt == CONTEXTS_KEPT) {
		small = idle; /* makes room for one that fits */
		link = &idle;
	}
	if (ctx || small) {
		*link = (*link)->next;
		idle_cnt--;
	}
	sig_unlock_blocked(&lock);
	if (small)
		context_close(small);
	/*
	 * The application may have closed what it does not know. Of the others
	 * only this one does harm if it is another file now.
	 */
	if (ctx && !fd_same(ctx->uffd, &ctx->uffd_id)) {
		context_close(ctx);
		ctx = NULL;
	}
	rc = ctx ? 0 : context_open(len, hears, &ctx);
	if (rc)
		return rc;
	/* There may have been no descriptor left when it was opened. */
	rc = open_files(ctx);
	if (rc)
		context_put(ctx);
	else
		*out = ctx;
	return rc;
}

int context_get(size_t len, struct swap_context **out)
{
	return get(len, false, out);
}

int context_get_hearing(size_t len, struct swap_context **out)
{
	return get(len, true, out);
}

static void signals_off(sigset_t *saved)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, saved);
}

static void signals_back(const sigset_t *saved)
{
	pthread_sigmask(SIG_SETMASK, saved, NULL);
}

int swap_begin(sigset_t *saved)
{
	int rc;

	signals_off(saved);
	rc = adopt();
	if (rc)
		signals_back(saved);
	else
		pthread_rwlock_rdlock(&fork_lock);
	return rc;
}

void swap_end(const sigset_t *saved)
{
	pthread_rwlock_unlock(&fork_lock);
	signals_back(saved);
}

void context_put(struct swap_context *ctx)
{
	bool keep;

	sig_lock_blocked(&lock);
	keep = !ctx->broken && ctx->cap <= CAP_KEPT && idle_cnt < CONTEXTS_KEPT;
	if (keep) {
		ctx->next = idle;
		idle = ctx;
		idle_cnt++;
	}
	sig_unlock_blocked(&lock);
	if (!keep)
		context_close(ctx);
}

int context_reopen(struct swap_context *ctx)
{
	size_t huge = pages_huge_len();
	int fd;

	/* Were it still open, the new one could not register its ranges. */
	close_own(ctx->uffd, &ctx->uffd_id);
	ctx->uffd = -1;
	fd = new_uffd(ctx->hears);
	if (fd < 0)
		return fd;
	ctx->uffd = fd;
	fd_note(fd, &ctx->uffd_id);
	ctx->broken = true; /* closed when this swap is done */
	return context_register(ctx, ctx->huge[0], AREAS * (ctx->cap + huge));
}
