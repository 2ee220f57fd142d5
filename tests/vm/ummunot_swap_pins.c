// SPDX-License-Identifier: BSD-2-Clause
/*
 * UMMUNOT_SWAP_PAGES: pinned pages go with the others and stay pinned, and what is
 * refused is, each with its error. In a guest whose kernel has it, as root.
 */
#include <liburing.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <linux/userfaultfd.h>

#include "swap_memory.h"

static int swap_error(char *a, char *b, size_t len)
{
	return um_swap(node, a, b, len);
}

/* ---- pins ---- */

/* Read "text" by the fixed buffer's slot at what was @at when it was registered. */
static void read_fixed(struct io_uring *ring, char *at, const char *text)
{
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(write(pipes[1], text, strlen(text)), strlen(text));
	io_uring_prep_read_fixed(sqe, pipes[0], at, (unsigned)strlen(text), 0, 0);
	assert_int_equal(io_uring_submit(ring), 1);
	assert_int_equal(io_uring_wait_cqe(ring, &cqe), 0);
	assert_int_equal(cqe->res, strlen(text));
	io_uring_cqe_seen(ring, cqe);
	close(pipes[0]);
	close(pipes[1]);
}

/* A slot's pages are under @b afterwards, and a device's writes are seen there. */
static void a_slot_follows(int advice, size_t len)
{
	char *a = mem_map(len, advice), *b = mem_map(len, advice);
	struct iovec v = { a, len };
	struct io_uring ring;
	uint64_t *fa, *fb;

	mem_fill(a, len, 'a');
	mem_fill(b, len, 'b');
	assert_int_equal(io_uring_queue_init(4, &ring, 0), 0);
	assert_int_equal(io_uring_register_buffers(&ring, &v, 1), 0);
	fa = frames(a, len);
	assert_int_equal(swap_error(a, b, len), 0);
	fb = frames(b, len);
	assert_memory_equal(fa, fb, len / PAGE * sizeof(*fa));
	mem_expect(b, len, 'a');
	mem_expect(a, len, 'b');
	read_fixed(&ring, a, "arrived");
	read_fixed(&ring, a + len - PAGE, "too");
	assert_memory_equal(b, "arrived", 7);
	assert_memory_equal(b + len - PAGE, "too", 3);
	mem_expect(a, len, 'b');
	/* A pin does not move by itself. */
	assert_int_equal(swap_error(a, b, len), 0);
	assert_memory_equal(a, "arrived", 7);
	read_fixed(&ring, a, "again");
	assert_memory_equal(a, "again", 5);
	/* They leave with the ring, not with the mapping. */
	munmap(a, len);
	io_uring_queue_exit(&ring);
	mem_expect(b, len, 'b');
	munmap(b, len);
	free(fa);
	free(fb);
}

static void a_slot_of_single_pages_follows(void **state)
{
	a_slot_follows(MADV_NOHUGEPAGE, 1300 * PAGE);
}

static void a_slot_of_huge_pages_follows(void **state)
{
	a_slot_follows(MADV_HUGEPAGE, 4 * HUGE);
}

static void a_pinned_huge_page_is_not_split(void **state)
{
	char *a = mem_map(2 * HUGE, MADV_HUGEPAGE);
	char *b = mem_map(2 * HUGE, MADV_HUGEPAGE);
	struct iovec v = { a, 2 * HUGE };
	struct io_uring ring;

	mem_fill(a, 2 * HUGE, 'a');
	mem_fill(b, 2 * HUGE, 'b');
	if (!mem_huge_kib(a))
		skip();
	assert_int_equal(io_uring_queue_init(4, &ring, 0), 0);
	assert_int_equal(io_uring_register_buffers(&ring, &v, 1), 0);
	assert_int_equal(swap_error(a, b + PAGE, HUGE), -EBUSY);
	assert_int_equal(swap_error(b, a, PAGE), -EBUSY);
	mem_expect(a, 2 * HUGE, 'a');
	mem_expect(b, 2 * HUGE, 'b');
	assert_int_equal(swap_error(a, b, HUGE), 0);
	io_uring_queue_exit(&ring);
	munmap(a, 2 * HUGE);
	munmap(b, 2 * HUGE);
}

static void a_pin_is_refused_where_asked_for(int advice, size_t off)
{
	char *a = mem_map(3 * HUGE, advice), *b = mem_map(3 * HUGE, advice);
	struct iovec v = { a + HUGE + 8 * PAGE, PAGE };
	const uint64_t flag = UMMUNOT_SWAP_UNPINNED;
	struct io_uring ring;
	uint64_t *fa, *na;

	mem_fill(a, 3 * HUGE, 'a');
	mem_fill(b, 3 * HUGE, 'b');
	assert_int_equal(io_uring_queue_init(4, &ring, 0), 0);
	assert_int_equal(io_uring_register_buffers(&ring, &v, 1), 0);
	fa = frames(a, 3 * HUGE);
	assert_int_equal(um_swap_with(node, a, b + off, 2 * HUGE, flag), -EBUSY);
	assert_int_equal(um_swap_with(node, b, a + off, 2 * HUGE, flag), -EBUSY);
	na = frames(a, 3 * HUGE);
	assert_memory_equal(fa, na, 3 * HUGE / PAGE * sizeof(*fa));
	mem_expect(a, 3 * HUGE, 'a');
	mem_expect(b, 3 * HUGE, 'b');
	assert_int_equal(um_swap_with(node, a, b, HUGE, flag), 0);
	mem_expect(a, HUGE, 'b');
	io_uring_queue_exit(&ring);
	/* The ring lets go a moment later. */
	while (um_swap_with(node, a, b, 2 * HUGE, flag))
		usleep(1000);
	assert_true(mem_has_at(a, HUGE, HUGE, 'b'));
	mem_expect(b, HUGE, 'b');
	munmap(a, 3 * HUGE);
	munmap(b, 3 * HUGE);
	free(fa);
	free(na);
}

static void pins_are_refused_where_asked_for(void **state)
{
	a_pin_is_refused_where_asked_for(MADV_NOHUGEPAGE, 0);
	a_pin_is_refused_where_asked_for(MADV_NOHUGEPAGE, 3 * PAGE);
	a_pin_is_refused_where_asked_for(MADV_HUGEPAGE, 0);
}

/* A reference that a pipe took is no pin, and goes as well. */
static void a_page_in_a_pipe_follows(void **state)
{
	char *a = mem_map(PAGE, 0), *b = mem_map(PAGE, 0), got[16];
	struct iovec v = { a, 16 };
	int pipes[2];

	memset(a, 'a', PAGE);
	memset(b, 'b', PAGE);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(vmsplice(pipes[1], &v, 1, 0), 16);
	assert_int_equal(swap_error(a, b, PAGE), 0);
	memset(b, 'c', PAGE);
	memset(a, 'd', PAGE);
	assert_int_equal(read(pipes[0], got, 16), 16);
	assert_memory_equal(got, "cccccccccccccccc", 16);
	close(pipes[0]);
	close(pipes[1]);
	munmap(a, PAGE);
	munmap(b, PAGE);
}

/* ---- refused ---- */

static void bad_arguments_are_refused(void **state)
{
	char *a = mem_map(HUGE, 0), *b = mem_map(HUGE, 0);
	unsigned long number = um_request(node, UMMUNOT_SWAP_PAGES);
	struct ummunot_swap_ioctl r = { (uintptr_t)a, (uintptr_t)b, HUGE, 2 };

	assert_int_equal(vm_errno(ioctl(node, number, &r)), -EINVAL);
	assert_int_equal(vm_errno(ioctl(node, number, (void *)1)), -EFAULT);
	assert_int_equal(swap_error(a, b, 0), -EINVAL);
	assert_int_equal(swap_error(a, b, 1), -EINVAL);
	assert_int_equal(swap_error(a + 1, b, PAGE), -EINVAL);
	assert_int_equal(swap_error(a, b + 8, PAGE), -EINVAL);
	assert_int_equal(swap_error(a, a, PAGE), -EINVAL);
	assert_int_equal(swap_error(a, a + PAGE, 2 * PAGE), -EINVAL);
	assert_int_equal(swap_error(a + PAGE, a, 2 * PAGE), -EINVAL);
	assert_int_equal(swap_error(a, b, -PAGE), -EINVAL);
	assert_int_equal(swap_error(a, (char *)-PAGE, PAGE), -EINVAL);
	assert_int_equal(swap_error((char *)-PAGE, a, 2 * PAGE), -EINVAL);
	assert_int_equal(swap_error(a, (char *)(1ul << 62), PAGE), -EINVAL);
	assert_int_equal(swap_error((char *)0xffff888000000000, a, PAGE),
			 -EINVAL);
	assert_int_equal(swap_error(a, (char *)(1ul << 40), (1ul << 30) + PAGE), -E2BIG);
	assert_int_equal(swap_error(a, NULL, PAGE), -EFAULT);
	assert_int_equal(swap_error(a, b, HUGE + PAGE), -EFAULT);
	munmap(a, HUGE);
	munmap(b, HUGE);
}

static void refused(char *at, int error)
{
	char *a = mem_map(PAGE, 0);

	*a = 1;
	assert_int_equal(swap_error(a, at, PAGE), error);
	assert_int_equal(swap_error(at, a, PAGE), error);
	assert_int_equal(*a, 1);
	munmap(a, PAGE);
}

static void other_kinds_of_memory_are_refused(void **state)
{
	int fd = memfd_create("swap", MFD_CLOEXEC);
	char *p;

	assert_int_equal(ftruncate(fd, HUGE), 0);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		 -1, 0);
	*p = 1;
	refused(p, -EOPNOTSUPP);
	munmap(p, PAGE);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	refused(p, -EOPNOTSUPP);
	munmap(p, PAGE);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	*p = 1;
	refused(p, -EOPNOTSUPP);
	munmap(p, PAGE);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, node, 0);
	refused(p, -EOPNOTSUPP);
	munmap(p, PAGE);
	close(fd);
	vm_write("/proc/sys/vm/nr_hugepages", "1");
	p = mmap(NULL, HUGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (p != MAP_FAILED) {
		*p = 1;
		refused(p, -EOPNOTSUPP);
		munmap(p, HUGE);
	}
	vm_write("/proc/sys/vm/nr_hugepages", "0");
}

static void differing_mappings_are_refused(void **state)
{
	char *p = mem_map(4 * PAGE, 0), *a;

	mem_fill(p, 4 * PAGE, 'p');
	mprotect(p, PAGE, PROT_READ);
	refused(p, -EACCES);
	mprotect(p, PAGE, PROT_NONE);
	refused(p, -EACCES);
	mprotect(p, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	refused(p, -EXDEV);
	assert_int_equal(mlock(p + PAGE, PAGE), 0);
	refused(p + PAGE, -EXDEV);
	a = mem_map(4 * PAGE, 0);
	assert_int_equal(swap_error(a, p, 2 * PAGE), -ERANGE);
	assert_int_equal(swap_error(p + PAGE, a, 2 * PAGE), -ERANGE);
	mlock(a, PAGE);
	assert_int_equal(swap_error(a, p + PAGE, PAGE), 0);
	assert_int_equal(a[8], 'p');
	/* These say nothing of a page. */
	munlock(a, PAGE);
	madvise(a, 4 * PAGE, MADV_DONTFORK);
	madvise(a, 4 * PAGE, MADV_DONTDUMP);
	assert_int_equal(swap_error(a, p + 2 * PAGE, PAGE), 0);
	munmap(a, 4 * PAGE);
	munmap(p, 4 * PAGE);
}

static void an_armed_range_is_refused(void **state)
{
	struct uffdio_api api = { .api = UFFD_API };
	char *p = mem_map(PAGE, 0);
	struct uffdio_register reg = {
		.range = { (uintptr_t)p, PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		skip();
	*p = 1;
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
	refused(p, -EADDRINUSE);
	close(fd);
	munmap(p, PAGE);
}

static void merged_pages_are_refused(void **state)
{
	char *p = mem_map(64 * PAGE, MADV_NOHUGEPAGE), *a = mem_map(64 * PAGE, 0);
	int i;

	memset(p, 5, 64 * PAGE);
	memset(a, 6, 64 * PAGE);
	if (madvise(p, 64 * PAGE, MADV_MERGEABLE) ||
	    vm_write("/sys/kernel/mm/ksm/pages_to_scan", "1000") ||
	    vm_write("/sys/kernel/mm/ksm/sleep_millisecs", "10") ||
	    vm_write("/sys/kernel/mm/ksm/run", "1"))
		skip();
	for (i = 0; i < 200 && vm_number("/sys/kernel/mm/ksm/pages_sharing") < 50;
	     i++)
		usleep(50000);
	if (vm_number("/sys/kernel/mm/ksm/pages_sharing") < 50)
		skip();
	assert_int_equal(swap_error(p, a, 64 * PAGE), -EMLINK);
	vm_write("/sys/kernel/mm/ksm/run", "0");
	memset(p, 7, 64 * PAGE);
	assert_int_equal(swap_error(p, a, 64 * PAGE), 0);
	assert_int_equal(p[64 * PAGE - 1], 6);
	assert_int_equal(a[0], 7);
	munmap(a, 64 * PAGE);
	munmap(p, 64 * PAGE);
}

/* ---- signals ---- */

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
	alarms++;
}

static void signals_do_not_disturb(void **state)
{
	struct itimerval every = { { 0, 2000 }, { 0, 2000 } };
	struct itimerval off = { { 0, 0 }, { 0, 0 } };
	size_t len = 4 * HUGE;
	char *a = mem_map(len, MADV_NOHUGEPAGE);
	char *b = mem_map(len, MADV_NOHUGEPAGE);
	int i;

	mem_fill(a, len, 'a');
	mem_fill(b, len, 'b');
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &every, NULL);
	for (i = 0; i < 200; i++)
		assert_int_equal(swap_error(a, b + (i % 4 / 2) * PAGE,
					    len - HUGE), 0);
	setitimer(ITIMER_REAL, &off, NULL);
	assert_true(alarms > 0);
	mem_expect(a, len, 'a');
	mem_expect(b, len, 'b');
	munmap(a, len);
	munmap(b, len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slot_of_single_pages_follows),
		cmocka_unit_test(a_slot_of_huge_pages_follows),
		cmocka_unit_test(a_pinned_huge_page_is_not_split),
		cmocka_unit_test(a_page_in_a_pipe_follows),
		cmocka_unit_test(pins_are_refused_where_asked_for),
		cmocka_unit_test(bad_arguments_are_refused),
		cmocka_unit_test(other_kinds_of_memory_are_refused),
		cmocka_unit_test(differing_mappings_are_refused),
		cmocka_unit_test(an_armed_range_is_refused),
		cmocka_unit_test(merged_pages_are_refused),
		cmocka_unit_test(signals_do_not_disturb),
	};
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	if (!mem_node())
		return 77;
	setrlimit(RLIMIT_MEMLOCK, &all);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
