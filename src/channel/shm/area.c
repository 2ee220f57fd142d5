// SPDX-License-Identifier: BSD-2-Clause
/*
 * Areas: a memfd of each side, made, checked and mapped.
 *
 * Its descriptor is not kept: mremap() of no bytes of a shared mapping makes
 * another one of the same file, of any length, so what is mapped at the
 * handshake is the key to the rest. A mapping that is not for forked children
 * hands that on to those made from it.
 *
 * A store to an area must not end this process by SIGBUS. The kernel sends that
 * where the file is shorter than the mapping, where a huge page is not to be
 * had, and where the file system is full. So the file of a peer must be a memfd
 * of plain pages (tmpfs's magic number: a hugetlb memfd has another, and only a
 * memfd can be sealed, so that no file of a mounted tmpfs with a limit passes),
 * of the length that was agreed on, sealed against shrinking and growing. It
 * must not be sealed against writing, which would take the ring away.
 *
 * The risk that is left: under vm.overcommit_memory=2 each new page counts against the
 * commit limit, and at the limit a first touch is a SIGBUS, as for any shared
 * memory of the process's own. Pages that are made ahead would not help, since
 * either side can give them back (MADV_REMOVE); the memory limit of a cgroup is
 * no SIGBUS but its OOM killer's affair; and pages lost to a memory error or a
 * swap device that fails are as those of any memory.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "channel/shm/internal.h"

#define SEALS	  (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NOT_SEALS (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)
#define GROW_MIN  (128u << 10)
#define HEAP_MAX  ((uint64_t)1 << 36)

/*
 * Rings of RING_CELLS in a process, its own and its peers' together: 64 MiB of
 * addresses, and many more than have pages for such laps (RING_SPARE).
 */
#define LONG_RINGS 32

static _Atomic int long_rings = LONG_RINGS;

static uint32_t cells_take(uint32_t most)
{
	if (most < RING_CELLS)
		return most;
	if (atomic_fetch_sub_explicit(&long_rings, 1, memory_order_relaxed) > 0)
		return RING_CELLS;
	atomic_fetch_add_explicit(&long_rings, 1, memory_order_relaxed);
	return RING_SHORT;
}

static int map_base(struct area *a, int fd)
{
	uint64_t len = RING_AT + (uint64_t)a->cells * CELL;

	/* For the cell behind a short one. */
	a->base_len = a->cells < RING_CELLS ? len + kedge__page_size() : len;
	a->base = mmap(NULL, a->base_len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (a->base == MAP_FAILED) {
		a->base = NULL;
		return -errno;
	}
	/* A forked child has no part in this. */
	madvise(a->base, a->base_len, MADV_DONTFORK);
	return 0;
}

int area_make(struct area *a, uint64_t heap_bytes, int *out)
{
	int fd = memfd_create("kedge-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc;

	if (fd < 0)
		return -errno;
	a->len = HEAP_AT + round_up(heap_bytes, kedge__page_size());
	a->cells = cells_take(RING_CELLS);
	rc = ftruncate(fd, (off_t)a->len) || fcntl(fd, F_ADD_SEALS, SEALS)
		     ? -errno : map_base(a, fd);
	if (rc) {
		close(fd);
		return rc;
	}
	*out = fd;
	return 0;
}

/* Seals first: a file system that another process serves knows no seals, and would
 * be waited for by the other calls. */
static bool is_area(int fd, uint64_t len)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	return seals >= 0 && (seals & SEALS) == SEALS &&
	       !(seals & NOT_SEALS) && !fstatfs(fd, &fs) &&
	       fs.f_type == TMPFS_MAGIC && !fstat(fd, &st) &&
	       S_ISREG(st.st_mode) && (uint64_t)st.st_size == len;
}

int area_take(struct area *a, uint64_t heap_len, uint32_t cells, int fd)
{
	if (heap_len % kedge__page_size() || heap_len > HEAP_MAX ||
	    !is_area(fd, HEAP_AT + heap_len))
		return kedge_reason(-EPROTO, "the peer's memory is no sealed "
				    "memfd of plain pages, or of another "
				    "length than it says");
	a->len = HEAP_AT + heap_len;
	a->cells = cells_take(cells);
	return map_base(a, fd);
}

static void unmap(struct window *w)
{
	if (w->at)
		munmap(w->at, w->len);
	*w = (struct window){ 0 };
}

void area_fini(struct area *a)
{
	unmap(&a->slots);
	unmap(&a->heap);
	if (a->base)
		munmap(a->base, a->base_len);
	a->base = NULL;
	if (a->cells == RING_CELLS)
		atomic_fetch_add_explicit(&long_rings, 1, memory_order_relaxed);
	a->cells = 0;
}

char *area_map(const struct area *a, uint64_t at, uint64_t len)
{
	char *p = mmap(NULL, at + len, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* At addresses that mmap() gave: tools that look at memory know of those,
	 * and forget what was there before. */
	if (mremap(a->base, 0, at + len, MREMAP_MAYMOVE | MREMAP_FIXED, p) ==
	    MAP_FAILED) {
		munmap(p, at + len);
		return NULL;
	}
	munmap(p, at);
	return p + at;
}

static int grow(const struct area *a, struct window *w, uint64_t part,
		uint64_t max, uint64_t need)
{
	uint64_t len = w->len ? 2 * w->len : GROW_MIN;
	char *p;

	if (len < need)
		len = round_up(need, kedge__page_size());
	if (len > max)
		len = max;
	p = area_map(a, part, len);
	if (!p)
		return -ENOMEM;
	if (w->at)
		munmap(w->at, w->len);
	*w = (struct window){ p, len };
	return 0;
}

char *area_slots(struct area *a, uint64_t off, uint64_t len)
{
	if (unlikely(off + len > a->slots.len) &&
	    grow(a, &a->slots, SLOTS_AT, SLOTS_LEN, off + len))
		return NULL;
	return a->slots.at + off;
}

char *area_heap(struct area *a, uint64_t off, uint64_t len)
{
	if (unlikely(off + len > a->heap.len) &&
	    grow(a, &a->heap, HEAP_AT, a->len - HEAP_AT, off + len))
		return NULL;
	return a->heap.at + off;
}
