// SPDX-License-Identifier: BSD-2-Clause
/*
 * Page frame numbers as the judge: after each kind of change to each kind of
 * memory, every page whose frame is another one, or none, has been told. In the
 * guest, as root (/proc/self/pagemap).
 *
 * Each page is a watch of its own. A kind of change that a kind of memory does
 * not take (its call fails) or that moves no page is not counted; the sum is
 * printed, and the program fails where it is below LEAST.
 */
#include <sys/shm.h>

#include <linux/userfaultfd.h>

#include "ummunot_lib.h"

#define HUGE  (2ul << 20)
#define LEN   (2 * HUGE)
#define PAGES (LEN / PAGE)
#define LEAST 77

/* ---- kinds of memory ---- */

struct memory {
	const char *name;
	int fd;
	char *at;
};

static char *map_at(int prot, int flags, int fd)
{
	/* Room for what is aligned to a huge page. */
	char *room = mmap(NULL, LEN + HUGE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;

	if (room == MAP_FAILED)
		err(1, "mmap");
	at = (char *)(((uintptr_t)room + HUGE - 1) & ~(HUGE - 1));
	at = mmap(at, LEN, prot, flags | MAP_FIXED, fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

static int sized(int fd)
{
	if (fd >= 0 && ftruncate(fd, LEN)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int temporary(void)
{
	char path[] = "/tmp/framesXXXXXX";
	int fd = mkstemp(path);

	if (fd >= 0)
		unlink(path);
	return sized(fd);
}

static char *anonymous(struct memory *m)
{
	char *p = map_at(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1);

	madvise(p, LEN, MADV_NOHUGEPAGE);
	return p;
}

static char *huge(struct memory *m)
{
	char *p = map_at(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1);

	return madvise(p, LEN, MADV_HUGEPAGE) ? NULL : p;
}

static char *shared_anonymous(struct memory *m)
{
	return map_at(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
}

static char *memfd_shared(struct memory *m)
{
	m->fd = sized(memfd_create("frames", MFD_CLOEXEC));
	return map_at(PROT_READ | PROT_WRITE, MAP_SHARED, m->fd);
}

static char *memfd_private(struct memory *m)
{
	m->fd = sized(memfd_create("frames", MFD_CLOEXEC));
	return map_at(PROT_READ | PROT_WRITE, MAP_PRIVATE, m->fd);
}

static char *file_shared(struct memory *m)
{
	m->fd = temporary();
	return map_at(PROT_READ | PROT_WRITE, MAP_SHARED, m->fd);
}

static char *file_read(struct memory *m)
{
	m->fd = temporary();
	return map_at(PROT_READ, MAP_PRIVATE, m->fd);
}

static char *huge_tlb(struct memory *m)
{
	return map_at(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		      MAP_HUGETLB, -1);
}

static char *system_v(struct memory *m)
{
	char *at = map_at(PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1), *p;
	int id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);

	if (id < 0)
		return NULL;
	p = shmat(id, at, SHM_REMAP);
	shmctl(id, IPC_RMID, NULL);
	return p == (void *)-1 ? NULL : p;
}

static char *(*const memories[])(struct memory *m) = {
	anonymous, huge, shared_anonymous, memfd_shared, memfd_private,
	file_shared, file_read, huge_tlb, system_v,
};
static const char *const memory_names[] = {
	"anonymous", "huge", "shared anonymous", "memfd", "private memfd",
	"file", "read-only file", "hugetlb", "System V",
};

/* ---- kinds of change: 0, or -1 where it is not to be had ---- */

static int unmap_part(struct memory *m)
{
	return munmap(m->at + HUGE, HUGE);
}

static int unmap_page(struct memory *m)
{
	return munmap(m->at + 3 * PAGE, PAGE);
}

static int map_over(struct memory *m)
{
	return mmap(m->at + PAGE, 7 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED |
		    MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
}

static int move(struct memory *m, int flags)
{
	char *to = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);

	return mremap(m->at, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED | flags,
		      to) == MAP_FAILED ? -1 : 0;
}

static int move_away(struct memory *m)
{
	return move(m, 0);
}

static int move_contents(struct memory *m)
{
	return move(m, MREMAP_DONTUNMAP);
}

static int move_onto(struct memory *m)
{
	return mremap(vm_memory(4), 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE |
		      MREMAP_FIXED, m->at + 9 * PAGE) == MAP_FAILED ? -1 : 0;
}

static int shrink(struct memory *m)
{
	return mremap(m->at, LEN, HUGE, 0) == MAP_FAILED ? -1 : 0;
}

static int shm_over(struct memory *m)
{
	int id = shmget(IPC_PRIVATE, HUGE, IPC_CREAT | 0600);
	void *p = shmat(id, m->at + HUGE, SHM_REMAP);

	shmctl(id, IPC_RMID, NULL);
	return p == (void *)-1 ? -1 : 0;
}

#define ADVICE(name, what)				\
	static int name(struct memory *m)		\
	{						\
		return madvise(m->at, LEN, what);	\
	}
ADVICE(dontneed, MADV_DONTNEED)
ADVICE(page_out, MADV_PAGEOUT)
ADVICE(remove_pages, MADV_REMOVE)
ADVICE(collapse, MADV_COLLAPSE)
ADVICE(guard, MADV_GUARD_INSTALL)

static int dontneed_page(struct memory *m)
{
	return madvise(m->at + 5 * PAGE, PAGE, MADV_DONTNEED);
}

static int free_and_reclaim(struct memory *m)
{
	return madvise(m->at, LEN, MADV_FREE) |
	       madvise(m->at, LEN, MADV_PAGEOUT);
}

static int truncate_file(struct memory *m)
{
	return ftruncate(m->fd, HUGE);
}

static int punch(struct memory *m)
{
	return fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 PAGE, HUGE);
}

static int collapse_range(struct memory *m)
{
	return fallocate(m->fd, FALLOC_FL_COLLAPSE_RANGE, HUGE, HUGE);
}

/* With a child that shares the pages: the parent's writes go to copies. */
static int copy_on_write(struct memory *m)
{
	pid_t pid = fork();
	int rc;

	if (!pid)
		for (;;)
			pause();
	rc = madvise(m->at, LEN, MADV_POPULATE_WRITE);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return rc;
}

/* By /proc/PID/mem, also where the program may only read. */
static int written_by_force(struct memory *m)
{
	int fd = open("/proc/self/mem", O_RDWR);
	ssize_t n = pwrite(fd, "force", 5, (off_t)(uintptr_t)m->at + 64);

	close(fd);
	return n == 5 ? 0 : -1;
}

static int advise_process(pid_t pid, struct memory *m, int advice)
{
	struct iovec v = { m->at, LEN };
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	ssize_t n = syscall(SYS_process_madvise, fd, &v, 1ul, advice, 0u);

	close(fd);
	return n == (ssize_t)LEN ? 0 : -1;
}

/* Another process's doing. */
static int paged_out_from_outside(struct memory *m)
{
	pid_t self = getpid(), pid = fork();
	int status;

	if (!pid)
		_exit(advise_process(self, m, MADV_PAGEOUT) ? 1 : 0);
	waitpid(pid, &status, 0);
	return status ? -1 : 0;
}

static int compacted(struct memory *m)
{
	return vm_write("/proc/sys/vm/compact_memory", "1");
}

static int dropped_from_cache(struct memory *m)
{
	if (m->fd < 0)
		return -1;
	fsync(m->fd);
	return posix_fadvise(m->fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int vfork_child_unmaps(struct memory *m)
{
	char *at = m->at;
	pid_t pid = vfork();

	if (!pid) {
		munmap(at, 2 * PAGE);
		_exit(0);
	}
	return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

static const struct {
	const char *name;
	int (*apply)(struct memory *m);
} changes[] = {
	{ "munmap", unmap_part },
	{ "munmap of a page", unmap_page },
	{ "MAP_FIXED", map_over },
	{ "mremap", move_away },
	{ "MREMAP_DONTUNMAP", move_contents },
	{ "mremap onto", move_onto },
	{ "mremap, smaller", shrink },
	{ "SHM_REMAP", shm_over },
	{ "MADV_DONTNEED", dontneed },
	{ "MADV_DONTNEED of a page", dontneed_page },
	{ "MADV_FREE, reclaim", free_and_reclaim },
	{ "MADV_PAGEOUT", page_out },
	{ "MADV_REMOVE", remove_pages },
	{ "MADV_COLLAPSE", collapse },
	{ "MADV_GUARD_INSTALL", guard },
	{ "ftruncate", truncate_file },
	{ "PUNCH_HOLE", punch },
	{ "COLLAPSE_RANGE", collapse_range },
	{ "copy on write", copy_on_write },
	{ "/proc/self/mem", written_by_force },
	{ "process_madvise", paged_out_from_outside },
	{ "compaction", compacted },
	{ "POSIX_FADV_DONTNEED", dropped_from_cache },
	{ "munmap by a vfork child", vfork_child_unmaps },
};

/* ---- the judge ---- */

/* Frame numbers, 0 where there is none. */
static void frames(const char *at, uint64_t *frame)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	size_t i;

	if (pread(fd, frame, PAGES * 8, (off_t)((uintptr_t)at / PAGE * 8)) !=
	    PAGES * 8)
		err(1, "pagemap");
	close(fd);
	for (i = 0; i < PAGES; i++)
		frame[i] = frame[i] >> 63 ? frame[i] & ((1ull << 55) - 1) : 0;
}

static void touch(const char *at, bool write)
{
	size_t i;

	for (i = 0; i < LEN; i += PAGE)
		if (write)
			*(volatile char *)(at + i) = 1;
		else
			(void)*(const volatile char *)(at + i);
}

/* Marks what is told, until a LAST carries the counter. */
static void drain(struct um *u, bool *told)
{
	static struct ummunot_event ev[256];
	uint64_t last = 0;
	ssize_t i, n;

	while (last != um_counter(u)) {
		n = um_read(u, ev, 256);
		if (n == -EAGAIN)
			return;
		for (i = 0; i < n; i++)
			if (ev[i].type == UMMUNOT_EVENT_TYPE_LAST)
				last = ev[i].user_cookie_counter;
			else
				told[ev[i].user_cookie_counter] = true;
	}
}

/* Pages that moved; those that nobody was told of are added to *missed. */
static size_t one(size_t which, size_t change, size_t *missed)
{
	static uint64_t before[PAGES], after[PAGES];
	struct memory m = { .fd = -1 };
	bool told[PAGES] = { false };
	size_t i, moved = 0, bad = 0;
	struct um u;

	m.at = memories[which](&m);
	if (!m.at)
		return 0;
	touch(m.at, memories[which] != file_read);
	um_open(&u, O_NONBLOCK);
	for (i = 0; i < PAGES; i++)
		if (um_watch(&u, m.at + i * PAGE, PAGE, i, 0))
			err(1, "register");
	frames(m.at, before);
	if (!changes[change].apply(&m)) {
		frames(m.at, after);
		drain(&u, told);
		for (i = 0; i < PAGES; i++)
			if (before[i] && before[i] != after[i]) {
				moved++;
				bad += !told[i];
			}
	}
	if (bad)
		printf("MISSED: %s of %s: %zu of %zu pages\n",
		       changes[change].name, memory_names[which], bad, moved);
	*missed += bad;
	um_close(&u);
	if (m.fd >= 0)
		close(m.fd);
	return moved;
}

int main(void)
{
	size_t which, change, moved, missed = 0, pages = 0, kinds = 0;
	int status;
	pid_t pid;
	struct {
		size_t moved, missed;
	} *r = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	vm_write("/proc/sys/vm/nr_hugepages", "8");
	for (which = 0; which < sizeof(memories) / sizeof(*memories); which++)
		for (change = 0; change < sizeof(changes) / sizeof(*changes);
		     change++) {
			/* Each in a process of its own. */
			r->moved = r->missed = 0;
			pid = fork();
			if (!pid) {
				r->moved = one(which, change, &r->missed);
				_exit(0);
			}
			waitpid(pid, &status, 0);
			if (status)
				errx(1, "%s of %s: %#x", changes[change].name,
				     memory_names[which], status);
			moved = r->moved;
			kinds += moved != 0;
			pages += moved;
			missed += r->missed;
		}
	vm_write("/proc/sys/vm/nr_hugepages", "0");
	printf("%zu kinds of change, %zu pages moved, %zu missed\n", kinds,
	       pages, missed);
	if (kinds < LEAST)
		printf("fewer kinds than %d: what has become of them?\n", LEAST);
	return missed || kinds < LEAST;
}
