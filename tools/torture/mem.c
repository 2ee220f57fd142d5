// SPDX-License-Identifier: BSD-2-Clause
/*
 * Where the memory of a round lies. Each lane has a window of addresses far
 * from where the kernel puts mappings of its own choice, and cuts arenas out
 * of it: a reservation of ZONES zones, the first of which holds the range
 * under test. A hole in it can't be given to anybody who doesn't ask for that
 * address; should someone do, the hole is lost and left alone.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/torture/case.h"

#define HUGE_LEN ((size_t)2 << 20)
#define ZONE_LEN ((size_t)4 << 20)

/* The sanitizers' shadows leave each its own room. */
#if HAVE_ASAN
#define WINDOW_BASE ((uintptr_t)0x200000000000)
#else
#define WINDOW_BASE ((uintptr_t)0x1000000000)
#endif
#define WINDOW_LEN ((uintptr_t)1 << 30)
/* So few that addresses come back soon, and what was cached there with them. */
#define WINDOW_CNT 8

size_t sys_page(void)
{
	static _Atomic size_t page;
	size_t p = atomic_load_explicit(&page, memory_order_relaxed);

	if (!p) {
		p = (size_t)sysconf(_SC_PAGESIZE);
		atomic_store_explicit(&page, p, memory_order_relaxed);
	}
	return p;
}

uint8_t *arena_zone(struct run *x, unsigned int n)
{
	return x->arena + n * x->zone;
}

static int arena_get(struct run *x)
{
	struct lane *l = x->lane;
	size_t len = ZONES * ZONE_LEN;
	uintptr_t want;
	unsigned int i;
	void *p;

	x->zone = ZONE_LEN;
	x->hole = (struct span){ 0 };
	for (i = 0; i < WINDOW_LEN / len; i++) {
		/* The first few over and over; others when those are taken. */
		want = i < WINDOW_CNT ? l->arena++ % WINDOW_CNT : i;
		want = WINDOW_BASE + l->id * WINDOW_LEN + want * len;
		p = mmap((void *)want, len, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
				 MAP_FIXED_NOREPLACE,
			 -1, 0);
		if (p == (void *)want) {
			x->arena = p;
			return 0;
		}
		if (p != MAP_FAILED)
			munmap(p, len);
	}
	return why(x, -EOPNOTSUPP, "no address space at %#lx: %s",
		   (unsigned long)want, strerror(errno));
}

static void arena_put(struct run *x)
{
	size_t len = ZONES * x->zone;

	if (!x->arena)
		return;
	if (x->hole.len) {
		munmap(x->arena, x->hole.off);
		munmap(x->arena + x->hole.off + x->hole.len,
		       len - x->hole.off - x->hole.len);
	} else {
		munmap(x->arena, len);
	}
	x->arena = NULL;
	x->addr = NULL;
}

long call(struct run *x, long nr, long a, long b, long c, long d, long e,
	  long f)
{
	const long arg[6] = { a, b, c, d, e, f };

	return route_call(x->lane, x->row->route, nr, arg);
}

int anon_flags(const struct run *x)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	return x->row->pages == PAGES_HUGETLB ? flags | MAP_HUGETLB : flags;
}

void anon_advise(struct run *x, void *at, size_t len)
{
	/* Advice that a kernel without huge pages refuses is not needed. */
	if (x->row->pages == PAGES_4K)
		madvise(at, len, MADV_NOHUGEPAGE);
	else if (x->row->pages == PAGES_THP)
		madvise(at, len, MADV_HUGEPAGE);
}

int anon_over(struct run *x, void *at, size_t len)
{
	void *p = mmap(at, len, PROT_READ | PROT_WRITE,
		       anon_flags(x) | MAP_FIXED, -1, 0);

	if (p == MAP_FAILED) {
		/* Pages that a cache still pins can't be had again yet. */
		if (errno == ENOMEM)
			return EV_AGAIN;
		return why(x, -errno, "mmap of %zu bytes: %s", len,
			   strerror(errno));
	}
	anon_advise(x, at, len);
	return 0;
}

int anon_setup(struct run *x)
{
	int rc = arena_get(x);

	if (rc)
		return rc;
	x->unit = x->row->pages == PAGES_HUGETLB ? HUGE_LEN : sys_page();
	x->len = x->row->pages == PAGES_4K
			 ? x->unit * (2 + util_rng_below(&x->lane->rng, 16))
			 : HUGE_LEN;
	x->addr = arena_zone(x, 0);
	return anon_over(x, x->addr, x->len);
}

void anon_fini(struct run *x)
{
	arena_put(x);
	if (x->fd >= 0)
		close(x->fd);
	if (x->fd2 >= 0)
		close(x->fd2);
	x->fd = -1;
	x->fd2 = -1;
}

int memfd_setup(struct run *x)
{
	x->fd = memfd_create("kedge-torture", MFD_CLOEXEC);
	if (x->fd < 0 || ftruncate(x->fd, (off_t)x->len))
		return why(x, -errno, "memfd: %s", strerror(errno));
	return 0;
}

/*
 * A page that MADV_DONTNEED dropped has lost its reservation, and what a device
 * still pins is not back in the pool: kernels before 6.4 unpin a second late.
 * The CPU's store would be SIGBUS then. The kernel's copy to the same place
 * takes the same fault, and returns EFAULT.
 */
bool huge_present(struct lane *l, uint8_t *at, size_t len)
{
	size_t off;

	if (util_rng_below(&l->rng, 2))
		check_touch(l, at, len);
	for (off = 0; off < len; off += HUGE_LEN)
		if (getrandom(at + off, 1, 0) != 1)
			return false;
	return true;
}

bool has_seam(const void *at, size_t len)
{
	const uintptr_t start = (uintptr_t)at, end = start + len;
	unsigned long from, to;
	bool seam = false;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && !seam && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			seam = (to > start && to < end) ||
			       (from > start && from < end);
	if (f)
		fclose(f);
	return seam;
}

/* @got is what mmap returned for the hole at @at. */
static int filled(struct run *x, size_t off, size_t len, long got)
{
	if (got == (long)(uintptr_t)(x->addr + off))
		return 0;
	if (got > 0)
		munmap((void *)(uintptr_t)got, len);
	if (got < 0 && got != -EEXIST && got != -ENOMEM)
		return why(x, (int)got, "mmap into the hole: %s",
			   strerror((int)-got));
	x->hole.off = (size_t)(x->addr - x->arena) + off;
	x->hole.len = len;
	return EV_AGAIN;
}

int hole_fill(struct run *x, size_t off, size_t len)
{
	long got = CALL(x, SYS_mmap, x->addr + off, len, PROT_READ | PROT_WRITE,
			anon_flags(x) | MAP_FIXED_NOREPLACE, -1, 0);
	int rc = filled(x, off, len, got);

	if (!rc)
		anon_advise(x, x->addr + off, len);
	return rc;
}

int hole_fill_fd(struct run *x, size_t off, size_t len, int flags, int fd)
{
	void *p = mmap(x->addr + off, len, PROT_READ | PROT_WRITE,
		       flags | MAP_FIXED_NOREPLACE, fd, 0);

	return filled(x, off, len,
		      p == MAP_FAILED ? -errno : (long)(uintptr_t)p);
}

int memfd_over(struct run *x)
{
	munmap(x->addr, x->len);
	return hole_fill_fd(x, 0, x->len, MAP_SHARED, x->fd);
}

int memfd_over_setup(struct run *x)
{
	int rc = anon_setup(x);

	if (!rc)
		rc = memfd_setup(x);
	return rc ? rc : memfd_over(x);
}

/* Picks the pages that the next event changes: all, or some. */
void pick_hot(struct run *x)
{
	struct util_rng *rng = &x->lane->rng;
	size_t units = x->len / x->unit, first, cnt;

	x->hot = (struct span){ 0, x->len };
	if (x->ev->flags & EV_TAIL) {
		x->hot.off = x->unit * (1 + util_rng_below(rng, units - 1));
		x->hot.len = x->len - x->hot.off;
		return;
	}
	if (!(x->ev->flags & EV_PART) || units < 2 || !util_rng_below(rng, 3))
		return;
	first = util_rng_below(rng, units);
	cnt = 1 + util_rng_below(rng, units - first);
	/* Small parts of large ranges: those are the ones that get lost. */
	if (cnt > 2 && util_rng_below(rng, 2))
		cnt = 1;
	x->hot.off = first * x->unit;
	x->hot.len = cnt * x->unit;
}
