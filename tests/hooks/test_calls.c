// SPDX-License-Identifier: BSD-2-Clause
/*
 * Each call announces exactly what it changes, before it does, and ends it
 * after; through libc and through syscall(). Built shared and static.
 */
#undef _FILE_OFFSET_BITS
#include <sys/shm.h>

#include <kedge/hooks.h>

#include "check.h"
#include "recorder.h"

#define PG	     ((size_t)4096)
#define UNMAP	     KEDGE_EVENT_UNMAP
#define REMOVE	     KEDGE_EVENT_REMOVE
#define REMAP	     KEDGE_EVENT_REMAP
#define GUARD	     102
#define UNSET_ERRNO  4711

static int raw; /* through syscall() instead of libc's function */

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	memset(p, 1, len);
	return p;
}

static void start(void)
{
	errno = UNSET_ERRNO;
	recorder_start();
}

/* The call is over: everything ended, and @cnt ranges were announced. */
static void expect(int cnt)
{
	recorder_stop();
	CHECK(record_open == 0);
	if (record_cnt != cnt)
		fprintf(stderr, "%d announced, not %d\n", record_cnt, cnt);
	CHECK(record_cnt == cnt);
}

static void range(int i, uint32_t kind, const void *addr, size_t len)
{
	CHECK(record[i].kind == kind);
	CHECK(record[i].start == (uintptr_t)addr);
	CHECK(record[i].end == (uintptr_t)addr + len);
	CHECK(record[i].ended);
}

static void expect_one(uint32_t kind, const void *addr, size_t len)
{
	expect(1);
	range(0, kind, addr, len);
}

static int do_munmap(void *p, size_t len)
{
	return raw ? (int)syscall(SYS_munmap, p, len) : munmap(p, len);
}

static void *do_mmap(void *p, size_t len, int flags, int fd)
{
	int prot = PROT_READ | PROT_WRITE;

	return raw ? (void *)syscall(SYS_mmap, p, len, prot, flags, fd, 0L)
		   : mmap(p, len, prot, flags, fd, 0);
}

static void *do_mremap(void *p, size_t old, size_t new, int flags, void *to)
{
	return raw ? (void *)syscall(SYS_mremap, p, old, new, flags, to)
		   : mremap(p, old, new, flags, to);
}

static int do_madvise(void *p, size_t len, int advice)
{
	return raw ? (int)syscall(SYS_madvise, p, len, advice)
		   : madvise(p, len, advice);
}

static void munmap_is_announced_before_and_ended_after(void)
{
	char *p = map(4 * PG);

	start();
	CHECK(!do_munmap(p + PG, 2 * PG));
	CHECK(errno == UNSET_ERRNO);
	expect_one(UNMAP, p + PG, 2 * PG);
	CHECK(record[0].mapped_at_begin && !record[0].mapped_at_end);
	do_munmap(p, 4 * PG);
}

static void a_failing_munmap_keeps_its_errno(void)
{
	char *p = map(PG);

	start();
	CHECK(do_munmap(p + 1, PG) == -1);
	CHECK(errno == EINVAL);
	expect(1);
	CHECK(record[0].mapped_at_end);
	start();
	CHECK(do_munmap(p, 0) == -1);
	CHECK(errno == EINVAL);
	expect(0);
	do_munmap(p, PG);
}

static void given_is(const void *at, size_t len)
{
	recorder_stop();
	CHECK(given_cnt == 1);
	CHECK(given[0].start == (uintptr_t)at);
	CHECK(given[0].end == (uintptr_t)at + len);
	CHECK(errno == UNSET_ERRNO);
}

static void *do_shmat(int id, const void *at, int flags)
{
	return raw ? (void *)syscall(SYS_shmat, id, at, flags)
		   : shmat(id, at, flags);
}

static void what_is_mapped_is_told_of(void)
{
	int anon = MAP_PRIVATE | MAP_ANONYMOUS, id;
	char *p, *q;

	start();
	p = do_mmap(NULL, 4 * PG, anon, -1);
	given_is(p, 4 * PG);
	start();
	CHECK(do_mmap(p, PG, anon | MAP_FIXED, -1) == p);
	given_is(p, PG);
	/* A part that stays where it is is no news; the part added is. */
	start();
	CHECK(do_mremap(p, 4 * PG, 3 * PG, 0, NULL) == p);
	recorder_stop();
	CHECK(!given_cnt);
	start();
	CHECK(do_mremap(p, 3 * PG, 4 * PG, 0, NULL) == p);
	given_is(p + 3 * PG, PG);
	q = map(4 * PG);
	start();
	CHECK(do_mremap(p, 4 * PG, 4 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, q) ==
	      q);
	given_is(q, 4 * PG);
	do_munmap(q, 4 * PG);

	id = shmget(IPC_PRIVATE, 2 * PG, 0600);
	CHECK(id >= 0);
	start();
	p = do_shmat(id, NULL, 0);
	given_is(p, 2 * PG);
	shmdt(p);
	shmctl(id, IPC_RMID, NULL);

	start();
	CHECK(do_mmap(p + 1, PG, anon | MAP_FIXED, -1) == MAP_FAILED);
	CHECK(do_mremap(p + 1, PG, 2 * PG, MREMAP_MAYMOVE, NULL) ==
	      MAP_FAILED);
	CHECK(do_shmat(-1, NULL, 0) == (void *)-1);
	recorder_stop();
	CHECK(!given_cnt);
}

static void only_mmap_fixed_is_announced(void)
{
	int anon = MAP_PRIVATE | MAP_ANONYMOUS;
	char *p = map(2 * PG), *q;

	start();
	q = do_mmap(NULL, PG, anon, -1);
	CHECK(q != MAP_FAILED);
	expect(0);
	do_munmap(q, PG);
	start();
	CHECK(do_mmap(p, PG, anon | MAP_FIXED_NOREPLACE, -1) == MAP_FAILED);
	CHECK(errno == EEXIST);
	expect(0);
	start();
	CHECK(do_mmap(p + PG, PG, anon | MAP_FIXED, -1) == p + PG);
	CHECK(errno == UNSET_ERRNO);
	expect_one(UNMAP, p + PG, PG);
	CHECK(p[0] == 1 && p[PG] == 0);
	start();
	CHECK(do_mmap(p, PG, MAP_PRIVATE | MAP_FIXED, -1) == MAP_FAILED);
	CHECK(errno == EBADF);
	expect(1);
	start();
	CHECK(mmap64(p, PG, PROT_READ, anon | MAP_FIXED, -1, 0) == p);
	expect_one(UNMAP, p, PG);
	do_munmap(p, 2 * PG);
}

/* It may fail, where there are no such pages: the kernel looks later. */
static void huge_pages_are_announced_whole(void)
{
	const size_t huge = (size_t)2 << 20;
	const int two_mib = 21 << 26; /* MAP_HUGE_2MB */
	char *p = map(3 * huge), *at;

	at = (char *)(((uintptr_t)p + huge - 1) & -huge);
	start();
	do_mmap(at, PG,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB | two_mib,
		-1);
	expect_one(UNMAP, at, huge);
	do_munmap(p, 3 * huge);
}

static void mremap_announces_both_ends(void)
{
	char *p = map(4 * PG), *q = map(4 * PG), *to;

	start();
	CHECK(do_mremap(p, 4 * PG, 3 * PG + 1, 0, NULL) == p);
	expect(0);
	start();
	CHECK(do_mremap(p, 4 * PG, 3 * PG, 0, NULL) == p);
	expect_one(UNMAP, p + 3 * PG, PG);
	start();
	CHECK(do_mremap(p, 3 * PG, 3 * PG, MREMAP_MAYMOVE, NULL) == p);
	expect(0);
	start();
	to = do_mremap(p, 3 * PG, 300 * PG, MREMAP_MAYMOVE, NULL);
	CHECK(to != MAP_FAILED);
	expect_one(REMAP, p, 3 * PG);
	start();
	CHECK(do_mremap(to, 300 * PG, 4 * PG, MREMAP_MAYMOVE | MREMAP_FIXED,
			q) == q);
	CHECK(errno == UNSET_ERRNO);
	expect(2);
	range(0, UNMAP, q, 4 * PG);
	range(1, REMAP, to, 300 * PG);
	CHECK(!record[1].mapped_at_end);
	start();
	to = do_mremap(q, 4 * PG, 4 * PG, MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
		       NULL);
	CHECK(to != MAP_FAILED && to != q && to[0] == 1 && q[0] == 0);
	expect_one(REMAP, q, 4 * PG);
	start();
	CHECK(do_mremap(q + 1, PG, 2 * PG, MREMAP_MAYMOVE, NULL) == MAP_FAILED);
	CHECK(errno == EINVAL);
	expect(1);
	do_munmap(to, 4 * PG);
	do_munmap(q, 4 * PG);
}

static void advice_that_drops_pages_is_announced(void)
{
	static const int drops[] = { MADV_DONTNEED, MADV_FREE, MADV_REMOVE,
				     MADV_DONTNEED_LOCKED, GUARD };
	static const int keeps[] = { MADV_NORMAL, MADV_WILLNEED, MADV_PAGEOUT,
				     MADV_COLD, MADV_HUGEPAGE, MADV_DONTFORK,
				     MADV_POPULATE_WRITE };
	char *p = map(4 * PG);
	size_t i;

	for (i = 0; i < sizeof(drops) / sizeof(drops[0]); i++) {
		start();
		do_madvise(p + PG, PG, drops[i]); /* may fail: old kernels */
		expect_one(REMOVE, p + PG, PG);
	}
	for (i = 0; i < sizeof(keeps) / sizeof(keeps[0]); i++) {
		start();
		do_madvise(p, PG, keeps[i]);
		expect(0);
	}
	start();
	CHECK(do_madvise(p + 1, PG, MADV_DONTNEED) == -1 && errno == EINVAL);
	expect(1);
	do_munmap(p, 4 * PG);
}

static void process_madvise_announces_its_ranges(void)
{
	char *p = map(40 * PG);
	struct iovec iov[20];
	int i, fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	CHECK(fd >= 0);
	for (i = 0; i < 20; i++) {
		iov[i].iov_base = p + (size_t)(2 * i) * PG;
		iov[i].iov_len = PG;
	}
	for (i = 3; i <= 20; i += 17) {
		start();
		if (raw)
			syscall(SYS_process_madvise, fd, iov, i, MADV_DONTNEED,
				0);
		else
			process_madvise(fd, iov, (size_t)i, MADV_DONTNEED, 0);
		expect(i == 3 ? 3 : 1);
		if (i == 3)
			range(2, REMOVE, p + 4 * PG, PG);
		else
			range(0, REMOVE, p, 39 * PG);
	}
	start();
	CHECK(process_madvise(-1, iov, 1, MADV_DONTNEED, 0) == -1);
	CHECK(errno == EBADF);
	expect(1);
	start();
	process_madvise(fd, iov, 1, MADV_COLD, 0);
	expect(0);
	close(fd);
	do_munmap(p, 40 * PG);
}

static void segments_are_announced_with_their_size(void)
{
	int id = shmget(IPC_PRIVATE, 3 * PG - 100, 0600 | IPC_CREAT);
	char *p = map(8 * PG), *at, *other;

	CHECK(id >= 0);
	start();
	at = raw ? (void *)syscall(SYS_shmat, id, p + PG, SHM_REMAP)
		 : shmat(id, p + PG, SHM_REMAP);
	CHECK(at == p + PG);
	CHECK(errno == UNSET_ERRNO);
	expect_one(UNMAP, p + PG, 3 * PG);
	start();
	at = do_shmat(id, p + PG + 5, SHM_REMAP | SHM_RND);
	CHECK(at == p + PG);
	expect_one(UNMAP, at, 3 * PG);
	start();
	other = shmat(id, NULL, 0);
	CHECK(other != (void *)-1);
	expect(0);
	start();
	CHECK(raw ? !syscall(SYS_shmdt, at) : !shmdt(at));
	CHECK(errno == UNSET_ERRNO);
	expect_one(UNMAP, at, 3 * PG);
	CHECK(record[0].mapped_at_begin && !record[0].mapped_at_end);
	start();
	CHECK(shmdt(p) == -1 && errno == EINVAL);
	expect(0);
	/* The first page found is not all that is left. */
	at = shmat(id, NULL, 0);
	CHECK(at != (void *)-1);
	do_munmap(at + PG, PG);
	start();
	CHECK(!shmdt(at));
	expect_one(UNMAP, at, 3 * PG);
	/* The first page is gone, and the segment removed. */
	do_munmap(other, PG);
	CHECK(!shmctl(id, IPC_RMID, NULL));
	start();
	CHECK(!shmdt(other));
	expect_one(UNMAP, other, 3 * PG);
	start();
	CHECK(shmat(id, p, SHM_REMAP) == (void *)-1);
	expect(0);
	do_munmap(p, 8 * PG);
}

static void a_file_mapped_anew_is_announced(void)
{
	int fd = memfd_create("hooks", MFD_CLOEXEC);
	char *p;

	CHECK(fd >= 0 && !ftruncate(fd, 4 * PG));
	p = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	start();
	CHECK(raw ? !syscall(SYS_remap_file_pages, p + PG, PG, 0, 3, 0)
		  : !remap_file_pages(p + PG, PG, 0, 3, 0));
	expect_one(UNMAP, p + PG, PG);
	/* An old length of 0 maps the pages again and takes none away. */
	start();
	CHECK(do_mremap(p, 0, PG, MREMAP_MAYMOVE, NULL) != MAP_FAILED);
	expect(0);
	close(fd);
	do_munmap(p, 4 * PG);
}

/* glibc's malloc bears with a heap that others grow and shrink at the top. */
static void a_heap_that_shrinks_is_announced(void)
{
	char *top = sbrk(0), *before = top;

	start();
	CHECK(sbrk((intptr_t)(8 * PG)) == top);
	expect(0);
	start();
	CHECK(sbrk(-(intptr_t)(4 * PG)) == top + 8 * PG);
	expect(1);
	CHECK(record[0].kind == UNMAP);
	CHECK(record[0].start == (((uintptr_t)top + 5 * PG - 1) & -PG));
	CHECK(record[0].end - record[0].start == 4 * PG);
	start();
	if (raw)
		syscall(SYS_brk, top + 2 * PG);
	else
		CHECK(!brk(top + 2 * PG));
	expect(1);
	CHECK(record[0].end - record[0].start == 2 * PG);
	/* A question, and an end within the page where it is. */
	start();
	CHECK(raw ? (char *)syscall(SYS_brk, NULL) == top + 2 * PG
		  : !brk(NULL));
	expect(0);
	start();
	top = (char *)(((uintptr_t)top + PG - 1) & -PG);
	CHECK(raw ? syscall(SYS_brk, top + PG + 1) != -1 : !brk(top + PG + 1));
	for (int i = 0; i < record_cnt; i++)
		CHECK(record[i].start >= (uintptr_t)top + 2 * PG);
	recorder_stop();
	CHECK(!brk(before));
	CHECK(sbrk(0) == before);
}

/* Everything else passes through with all its arguments. */
static void other_system_calls_pass(void)
{
	int p[2];

	CHECK(!pipe(p));
	start();
	CHECK(syscall(SYS_getpid) == getpid());
	CHECK(syscall(SYS_write, p[1], "abc", 3) == 3);
	/* Six arguments. */
	CHECK(syscall(SYS_splice, p[0], NULL, p[1], NULL, 0, 0) == 0);
	CHECK(errno == UNSET_ERRNO);
	CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF);
	CHECK(syscall(100000) == -1 && errno == ENOSYS);
	expect(0);
	close(p[0]);
	close(p[1]);
}

static int dup2_at(int from, int to)
{
	return dup2(from, to);
}

static int dup3_at(int from, int to)
{
	return dup3(from, to, O_CLOEXEC);
}

static void check_number(int (*dup_at)(int from, int to))
{
	recorder_number = -1;
	CHECK(dup_at(1, 77) == 77);
	CHECK(recorder_number == 77);
	recorder_number = -1;
	CHECK(dup_at(78, 77) == -1 && errno == EBADF);
	CHECK(recorder_number == -1);
	CHECK(!close(77));
}

static void a_number_that_is_taken_is_told(void)
{
	check_number(dup2_at);
	check_number(dup3_at);
	CHECK(dup2(1, 1) == 1);
	CHECK(recorder_number == -1);
}

/*
 * A vfork child goes on in its caller's frame; what it writes below the return
 * address of syscall() must hurt nobody. (Above, libc's own would break too.)
 */
static void vfork_through_syscall_needs_no_frame(void)
{
#if defined(__x86_64__)
	int status;
	long pid;

	pid = syscall(SYS_vfork);
	if (!pid)
		__asm__ volatile("mov $-512, %%rcx\n"
				 "1: movq $0, (%%rsp, %%rcx)\n"
				 "add $8, %%rcx\n"
				 "cmp $-8, %%rcx\n"
				 "jne 1b\n"
				 "mov $7, %%edi\n"
				 "mov %0, %%eax\n"
				 "syscall\n" ::"i"(SYS_exit)
				 : "rcx", "rdi", "rax", "r11", "memory");
	CHECK(pid > 0);
	CHECK(waitpid((pid_t)pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
#endif
}

static void forked_and_vforked_children_announce_too(void)
{
	char *p = map(PG);
	int before = atomic_load(&recorder_total), status;
	pid_t pid;

	pid = vfork();
	if (!pid)
		_exit(munmap(p, PG));
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(atomic_load(&recorder_total) == before + 1);
	pid = fork();
	if (!pid) {
		start();
		munmap(map(PG), PG);
		recorder_stop();
		_exit(record_cnt != 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

int main(void)
{
	CHECK(recorder_attached == 1);
	CHECK(recorder_blind == KEDGE_BLIND_RAW);
	for (raw = 0; raw < 2; raw++) {
		munmap_is_announced_before_and_ended_after();
		a_failing_munmap_keeps_its_errno();
		only_mmap_fixed_is_announced();
		what_is_mapped_is_told_of();
		huge_pages_are_announced_whole();
		mremap_announces_both_ends();
		advice_that_drops_pages_is_announced();
		process_madvise_announces_its_ranges();
		segments_are_announced_with_their_size();
		a_file_mapped_anew_is_announced();
		a_heap_that_shrinks_is_announced();
	}
	other_system_calls_pass();
	a_number_that_is_taken_is_told();
	vfork_through_syscall_needs_no_frame();
	forked_and_vforked_children_announce_too();
	return 0;
}
