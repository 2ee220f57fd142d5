// SPDX-License-Identifier: BSD-2-Clause
/* The devices' reading of this process's memory, on memory of this machine's. */
#include "cases.h"
#include "base/base.h"
#include "device/proc.h"

#define PAGES 8

static char *mem;
static size_t page;

static int setup(void **state)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	mem = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return mem == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
	return munmap(mem, PAGES * page);
}

static uint64_t at(size_t n)
{
	return (uintptr_t)mem + n * page;
}

static void expect(size_t from, size_t to, bool writes, enum proc_fault fault,
		   uint64_t start)
{
	struct proc_vma v;

	assert_int_equal(kedge__proc_fault(at(from), at(to), writes, &v),
			 fault);
	if (fault)
		assert_int_equal(v.start, start);
}

static void protect(size_t n, int prot)
{
	assert_int_equal(mprotect(mem + n * page, page, prot), 0);
}

static void the_first_fault_is_told(void **state)
{
	expect(0, PAGES, true, PROC_NO_FAULT, 0);
	expect(0, PAGES, false, PROC_NO_FAULT, 0);
	protect(2, PROT_READ);
	protect(4, PROT_NONE);
	munmap(mem + 6 * page, page);
	expect(0, PAGES, true, PROC_NO_WRITE, at(2));
	expect(0, PAGES, false, PROC_NO_READ, at(4));
	expect(3, PAGES, true, PROC_NO_WRITE, at(4));
	expect(5, PAGES, true, PROC_HOLE, at(6));
	expect(5, 7, false, PROC_HOLE, at(6));
	expect(6, 7, true, PROC_HOLE, at(6));
	/* A mapping that begins where the range ends does not count. */
	expect(0, 2, true, PROC_NO_FAULT, 0);
	expect(5, 6, true, PROC_NO_FAULT, 0);
	expect(7, PAGES, true, PROC_NO_FAULT, 0);
}

static void what_is_written_need_not_be_readable(void **state)
{
	protect(2, PROT_WRITE);
	expect(0, PAGES, true, PROC_NO_FAULT, 0);
	expect(0, PAGES, false, PROC_NO_READ, at(2));
}

static void a_shared_file_is_one_for_writing(void **state)
{
	char path[] = "./proc_XXXXXX";
	int fd = mkstemp(path);
	struct proc_vma v;
	char *p;

	if (fd < 0)
		skip();
	unlink(path);
	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	p = mmap(mem + page, page, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0);
	close(fd);
	assert_ptr_equal(p, mem + page);
	expect(0, PAGES, true, PROC_SHARED_FILE, at(1));
	expect(0, PAGES, false, PROC_NO_FAULT, 0);
	assert_int_equal(kedge__proc_fault(at(0), at(PAGES), true, &v),
			 PROC_SHARED_FILE);
	assert_non_null(strstr(v.name, "proc_"));
	/* Memory has no file. */
	p = mmap(mem + page, page, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	assert_ptr_equal(p, mem + page);
	expect(0, PAGES, true, PROC_NO_FAULT, 0);
}

static void bytes_are_told_in_words(void **state)
{
	char buf[32];

	assert_string_equal(kedge__proc_bytes(buf, sizeof(buf), 0), "0 KiB");
	assert_string_equal(kedge__proc_bytes(buf, sizeof(buf), 5), "5 bytes");
	assert_string_equal(kedge__proc_bytes(buf, sizeof(buf), 12288),
			    "12 KiB");
	assert_string_equal(kedge__proc_bytes(buf, sizeof(buf), 3u << 20),
			    "3 MiB");
}

/*
 * A child in a user namespace of its own, in which user @inside is the one that
 * it was: 0 if it may not pin, 1 if it may, 77 where there are no namespaces.
 */
static int pins_in_namespace(unsigned int inside)
{
	char map[64];
	pid_t pid = fork();
	int fd, len, status;

	if (!pid) {
		len = snprintf(map, sizeof(map), "%u %u 1", inside, getuid());
		if (unshare(CLONE_NEWUSER))
			_exit(77);
		fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, map, (size_t)len) != len)
			_exit(77);
		_exit(kedge__proc_has_ipc_lock() ? kedge__proc_may_pin() : 77);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* It has every capability there, and none outside. */
static void a_capability_in_a_namespace_is_none(void **state)
{
	int rc = pins_in_namespace(0);

	if (rc == 77)
		skip();
	assert_int_equal(rc, 0);
	assert_int_equal(pins_in_namespace(1000), 0);
}

/* ---- lazily freed pages ---- */

static uint64_t lazy_from, lazy_to;
static unsigned int lazy_cnt;

static void note_lazy(void *arg, uint64_t from, uint64_t to)
{
	assert_ptr_equal(arg, &lazy_cnt);
	lazy_from = from;
	lazy_to = to;
	lazy_cnt++;
}

static unsigned int lazy_in(size_t from, size_t to)
{
	lazy_cnt = 0;
	assert_true(kedge__proc_each_lazy(at(from), at(to), note_lazy,
					  &lazy_cnt));
	return lazy_cnt;
}

static void what_was_freed_lazily_is_found(void **state)
{
	madvise(mem, PAGES * page, MADV_NOHUGEPAGE);
	memset(mem, 'x', PAGES * page);
	/* Three mappings. */
	protect(3, PROT_READ);
	assert_int_equal(lazy_in(0, PAGES), 0);
	/* Also while it is in a batch of the CPU's. */
	assert_int_equal(madvise(mem + 4 * page, page, MADV_FREE), 0);
	assert_int_equal(lazy_in(0, PAGES), 1);
	assert_int_equal(lazy_from, at(4));
	assert_int_equal(lazy_to, at(PAGES));
	assert_int_equal(lazy_in(0, 4), 0);
	assert_int_equal(lazy_in(5, 6), 1);
	assert_int_equal(lazy_from, at(5));
	assert_int_equal(lazy_to, at(6));
	mem[4 * page] = 'y';
	assert_int_equal(lazy_in(0, PAGES), 0);
}

#include "test_proc.cases.h"
