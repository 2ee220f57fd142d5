// SPDX-License-Identifier: BSD-2-Clause
/*
 * A swap's kit, its descriptors and scratch space. Each swap that is under way has
 * a kit of its own; a few are kept for the next ones, the rest is closed.
 *
 * The scratch space is registered with the kit's userfaultfd for good, so that
 * pages can be moved into it, and is never touched: a thread would wait there
 * for ever. It is not mapped in forked children. A child's copy of the kits'
 * descriptors works on the parent's memory and is closed at its first swap.
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

#include "base/process/page.h"
#include "pages/internal.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define CAP_MIN	  ((size_t)16 << 20)
#define CAP_KEPT  ((size_t)256 << 20) /* a larger one is not kept */
#define KITS_KEPT 4
#define AREAS	  4

static struct sig_lock lock = SIG_LOCK_INIT; /* guards what follows */
static struct swap_kit *idle;
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
static int new_uffd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int flags = O_CLOEXEC | O_NONBLOCK, err;
	int fd = (int)syscall(SYS_userfaultfd, flags);

	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
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

int kit_register(struct swap_kit *kit, uintptr_t at, size_t len)
{
	struct uffdio_register r = {
		.range = { .start = at, .len = len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	/* Not by ioctl(), which libkedge-hooks takes for another's. */
	return syscall(SYS_ioctl, kit->uffd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

/*
 * UFFDIO_UNREGISTER wakes the threads that wait there, but before it stops faults
 * that are under way with the lock of the mapping alone (Linux 6.7 and later): one
 * of those begins to wait after that wake, and would for ever. Once the range is
 * unregistered no such fault is under way, and later ones don't wait: so a second
 * wake finds them all. Closing the descriptor does both in that order.
 */
void kit_unregister(struct swap_kit *kit, uintptr_t at, size_t len)
{
	struct uffdio_range r = { .start = at, .len = len };

	if (ioctl(kit->uffd, UFFDIO_UNREGISTER, &r) ||
	    ioctl(kit->uffd, UFFDIO_WAKE, &r))
		kit->broken = true;
}

/* Find out if the kernel moves a page, by moving one. */
static int try_move(struct swap_kit *kit)
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
	rc = kit_register(kit, m.dst, page);
	if (!rc && ioctl(kit->uffd, UFFDIO_MOVE_V1, &m))
		rc = errno == EINVAL || errno == ENOTTY ? -EOPNOTSUPP : -errno;
	munmap(p, 2 * page);
	return rc;
}

static int need_move(struct swap_kit *kit)
{
	int rc = atomic_load_explicit(&movable, memory_order_relaxed);

	if (!rc) {
		rc = try_move(kit);
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
static int map_area(struct swap_kit *kit)
{
	size_t huge = pages_huge_len(), each = kit->cap + huge, i;
	size_t want = AREAS * each, pieces = each / huge + 1;
	uintptr_t base;

	kit->kind[0] = calloc(2, pieces);
	if (!kit->kind[0])
		return -ENOMEM;
	kit->kind[1] = kit->kind[0] + pieces;
	kit->area_len = want + 2 * huge;
	kit->area = mmap(NULL, kit->area_len, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (kit->area == MAP_FAILED)
		goto free_kind;
	munlock(kit->area, kit->area_len);
	base = round_down((uintptr_t)kit->area + huge, huge);
	if (madvise((void *)base, want, MADV_DONTFORK) ||
	    mprotect((void *)base, want, PROT_READ | PROT_WRITE))
		goto unmap;
	if (kit_register(kit, base, want))
		goto unmap;
	for (i = 0; i < 2; i++) {
		kit->huge[i] = base + i * each;
		kit->small[i] = base + (2 + i) * each;
	}
	return 0;

unmap:
	munmap(kit->area, kit->area_len);
free_kind:
	free(kit->kind[0]);
	kit->kind[0] = NULL;
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

static void kit_close(struct swap_kit *kit)
{
	close_own(kit->uffd, &kit->uffd_id);
	close_own(kit->pagemap, &kit->pagemap_id);
	close_own(kit->maps, &kit->maps_id);
	if (kit->area)
		munmap(kit->area, kit->area_len);
	free(kit->kind[0]);
	free(kit);
}

/* Does without what /proc does not show: then pages are moved one by one. */
static int kit_open(size_t len, struct swap_kit **out)
{
	struct swap_kit *kit = calloc(1, sizeof(*kit));
	int rc;

	if (!kit)
		return -ENOMEM;
	kit->cap = CAP_MIN;
	while (kit->cap < len && kit->cap < SIZE_MAX / (4 * AREAS))
		kit->cap *= 2;
	if (kit->cap < len) {
		rc = -ENOMEM;
		goto free_kit;
	}
	kit->uffd = new_uffd();
	if (kit->uffd < 0) {
		rc = kit->uffd;
		goto free_kit;
	}
	fd_note(kit->uffd, &kit->uffd_id);
	rc = need_move(kit);
	if (!rc)
		rc = map_area(kit);
	if (rc)
		goto close_uffd;
	kit->pagemap = open_proc("/proc/self/pagemap", &kit->pagemap_id);
	kit->maps = open_proc("/proc/self/maps", &kit->maps_id);
	*out = kit;
	return 0;

close_uffd:
	close(kit->uffd);
free_kit:
	free(kit);
	return rc;
}

/* In a child: the parent's kits are ours to forget. With the lock held. */
static void forget_idle(void)
{
	struct swap_kit *kit;

	while ((kit = idle)) {
		idle = kit->next;
		kit->area = NULL; /* not mapped here */
		kit_close(kit);
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

int kit_get(size_t len, struct swap_kit **out)
{
	struct swap_kit **link, *kit, *small = NULL;

	sig_lock_blocked(&lock);
	for (link = &idle; (kit = *link); link = &kit->next)
		if (kit->cap >= len)
			break;
	if (!kit && idle_cnt == KITS_KEPT) {
		small = idle; /* makes room for one that fits */
		link = &idle;
	}
	if (kit || small) {
		*link = (*link)->next;
		idle_cnt--;
	}
	sig_unlock_blocked(&lock);
	if (small)
		kit_close(small);
	/*
	 * The application may have closed what it does not know. Of the others
	 * only this one does harm if it is another file now.
	 */
	if (kit && !fd_same(kit->uffd, &kit->uffd_id)) {
		kit_close(kit);
		kit = NULL;
	}
	if (!kit)
		return kit_open(len, out);
	*out = kit;
	return 0;
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

void kit_put(struct swap_kit *kit)
{
	bool keep;

	sig_lock_blocked(&lock);
	keep = !kit->broken && kit->cap <= CAP_KEPT && idle_cnt < KITS_KEPT;
	if (keep) {
		kit->next = idle;
		idle = kit;
		idle_cnt++;
	}
	sig_unlock_blocked(&lock);
	if (!keep)
		kit_close(kit);
}

int kit_reopen(struct swap_kit *kit)
{
	size_t huge = pages_huge_len();
	int fd;

	/* Were it still open, the new one could not register its ranges. */
	close_own(kit->uffd, &kit->uffd_id);
	kit->uffd = -1;
	fd = new_uffd();
	if (fd < 0)
		return fd;
	kit->uffd = fd;
	fd_note(fd, &kit->uffd_id);
	kit->broken = true; /* closed when this swap is done */
	return kit_register(kit, kit->huge[0], AREAS * (kit->cap + huge));
}
