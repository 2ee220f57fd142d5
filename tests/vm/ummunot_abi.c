// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/ummunot, the calls: what each takes and refuses, the mapped counter,
 * reading, waiting. The changes that are told are in ummunot_events.c, the
 * processes that may have the descriptor in ummunot_share.c.
 */
#include <liburing.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "ummunot_lib.h"

#define PARAMS "/sys/module/ummunot/parameters/"

/* The file of a case, which waits for nothing or, if WAITING, in read(). */
static struct um u;

static int open_one(void **state)
{
	um_open(&u, O_NONBLOCK);
	return 0;
}

static int open_waiting(void **state)
{
	um_open(&u, 0);
	return 0;
}

static int close_one(void **state)
{
	um_close(&u);
	return 0;
}

static void opens_for_reading_alone(void **state)
{
	assert_int_equal(vm_errno(open("/dev/ummunot", O_RDWR)), -EINVAL);
	assert_int_equal(vm_errno(open("/dev/ummunot", O_WRONLY)), -EINVAL);
}

static int raw_register(struct ummunot_register_ioctl r)
{
	return vm_errno(ioctl(u.fd, um_request(u.fd, UMMUNOT_REGISTER_REGION), &r));
}

static void refuses_bad_ranges(void **state)
{
	const uint64_t m = (uintptr_t)vm_memory(1);
	const struct ummunot_register_ioctl bad[] = {
		{ m, m, 1, 0, 0 },	   { m + 1, m, 1, 0, 0 },
		{ m, 0, 1, 0, 0 },	   { UINT64_MAX, 1, 1, 0, 0 },
		{ m, m + 1, 1, 4, 0 },	   { m, m + 1, 1, 0, 1 },
		{ m, m + 1, 1, 1u << 31, 0 },
		{ m, UINT64_MAX, 1, 0, 0 },
		{ 0xffff888000000000ull, 0xffff888000001000ull, 1, 0, 0 },
		{ 0, 0xffff888000001000ull, 1, 0, 0 },
		/* A flag whose feature was not asked for. */
		{ m, m + 1, 1, UMMUNOT_REGISTER_PROTECTION, 0 },
		{ m, m + 1, 1, UMMUNOT_REGISTER_QUIET, 0 },
	};
	size_t i;

	for (i = 0; i < VM_COUNT(bad); i++)
		assert_int_equal(raw_register(bad[i]), -EINVAL);
	assert_int_equal(um_unwatch(&u, 1), -ENOENT);
	/* Nothing mapped there, unaligned, all of user space: these are fine. */
	assert_int_equal(um_watch(&u, (void *)1, 1, 1, 0), 0);
	assert_int_equal(um_watch(&u, NULL, 0x7ffffffff000, 2, 0), 0);
}

static void cookies_name_one_watch(void **state)
{
	char *m = vm_memory(2);

	assert_int_equal(um_watch(&u, m, PAGE, 0, 0), 0);
	assert_int_equal(um_watch(&u, m + PAGE, PAGE, 0, 0), -EEXIST);
	assert_int_equal(um_watch(&u, m, PAGE, UINT64_MAX, 0), 0);
	assert_int_equal(um_watch(&u, m, PAGE, 1ull << 32, 0), 0);
	assert_int_equal(um_unwatch(&u, 0), 0);
	assert_int_equal(um_unwatch(&u, 0), -ENOENT);
	assert_int_equal(um_watch(&u, m, PAGE, 0, 0), 0);
}

static void bad_pointers_fault(void **state)
{
	static const unsigned long cmds[] = { UMMUNOT_EXCHANGE_FEATURES,
					      UMMUNOT_REGISTER_REGION,
					      UMMUNOT_UNREGISTER_REGION,
					      UMMUNOT_END_QUIET };
	char *m = vm_memory(1);
	unsigned long cmd;
	size_t i;

	mprotect(m, PAGE, PROT_NONE);
	for (i = 0; i < VM_COUNT(cmds); i++) {
		cmd = um_request(u.fd, cmds[i]);
		assert_int_equal(vm_errno(ioctl(u.fd, cmd, m)), -EFAULT);
		assert_int_equal(vm_errno(ioctl(u.fd, cmd, ~0ul)), -EFAULT);
	}
	cmd = um_request(u.fd, _IO(UMMUNOT_MAGIC, 63));
	assert_int_equal(vm_errno(ioctl(u.fd, cmd, m)), -ENOTTY);
	assert_int_equal(vm_errno(ioctl(u.fd, TIOCGWINSZ, m)), -ENOTTY);
}

static void features_are_agreed_before_the_first_watch(void **state)
{
	const int all = UMMUNOT_FEATURE_PROTECTION | UMMUNOT_FEATURE_SETTLED |
			UMMUNOT_FEATURE_QUIET;
	char *m = vm_memory(1);

	assert_int_equal(um_features(&u, 0), 0);
	assert_int_equal(um_features(&u, UINT32_MAX), all);
	assert_int_equal(um_features(&u, UMMUNOT_FEATURE_SETTLED),
			 UMMUNOT_FEATURE_SETTLED);
	assert_int_equal(um_features(&u, all), all);
	assert_int_equal(um_watch(&u, m, PAGE, 1, UMMUNOT_REGISTER_PROTECTION),
			 0);
	assert_int_equal(um_features(&u, all), all);
	assert_int_equal(um_features(&u, 0), -EBUSY);
}

static void a_file_has_a_limit(void **state)
{
	const uint64_t file = vm_number(PARAMS "max_watches_per_file");
	char *m = vm_memory(1);
	struct um a, b;

	um_open(&a, O_NONBLOCK);
	um_open(&b, O_NONBLOCK);
	vm_set(PARAMS "max_watches_per_file", 2);
	assert_int_equal(um_watch(&a, m, PAGE, 1, 0), 0);
	assert_int_equal(um_watch(&a, m, PAGE, 2, 0), 0);
	assert_int_equal(um_watch(&a, m, PAGE, 3, 0), -ENOSPC);
	assert_int_equal(um_unwatch(&a, 2), 0);
	assert_int_equal(um_watch(&a, m, PAGE, 3, 0), 0);
	assert_int_equal(um_watch(&b, m, PAGE, 1, 0), 0);
	vm_set(PARAMS "max_watches_per_file", file);
	um_close(&a);
	um_close(&b);
}

/* Watches until there is no more room; how many. */
static uint64_t fill_up(struct um *of, const void *m)
{
	uint64_t n = 0;
	int rc;

	do
		rc = um_watch(of, m, PAGE, n++, 0);
	while (!rc);
	assert_int_equal(rc, -EDQUOT);
	return n - 1;
}

static void a_user_has_a_limit(void **state)
{
	const uint64_t user = vm_number(PARAMS "max_kib_per_user");
	char *m = vm_memory(1);
	int fd[3], i;
	struct um a, b;
	uint64_t n;

	um_open(&b, O_NONBLOCK);
	um_open(&a, O_NONBLOCK);
	vm_set(PARAMS "max_kib_per_user", 256);
	n = fill_up(&a, m);
	print_message("%llu watches in 256 KiB\n", (unsigned long long)n);
	/* A watch is 64 to 256 bytes, and what the files take counts, too. */
	assert_in_range(n, 800, 4096);
	assert_int_equal(um_watch(&b, m, PAGE, 1, 0), -EDQUOT);
	/* A file takes no more than two watches do. */
	for (i = 0; i < 3; i++)
		fd[i] = open("/dev/ummunot", O_RDONLY);
	assert_int_equal(vm_errno(fd[2]), -EDQUOT);
	for (i = 0; i < 3; i++)
		close(fd[i]);
	/* The closed file's memory is to be had again; no failure was counted. */
	um_close(&a);
	assert_in_range(fill_up(&b, m), n, n + 4);
	vm_set(PARAMS "max_kib_per_user", user);
	assert_int_equal(um_watch(&b, m, PAGE, n + 5, 0), 0);
	um_close(&b);
}

static void maps_one_page_for_reading(void **state)
{
	char *copy;

	assert_int_equal(um_moved(&u), 0);
	assert_int_equal(vm_map_errno(u.fd, PAGE, PROT_READ, MAP_SHARED, PAGE),
			 -EINVAL);
	assert_int_equal(vm_map_errno(u.fd, 2 * PAGE, PROT_READ, MAP_SHARED, 0),
			 -EINVAL);
	assert_int_equal(vm_map_errno(u.fd, PAGE, PROT_READ, MAP_PRIVATE, 0),
			 -EINVAL);
	assert_int_equal(vm_map_errno(u.fd, PAGE, PROT_READ | PROT_WRITE,
				   MAP_SHARED, 0), -EACCES);
	assert_int_equal(vm_map_errno(u.fd, PAGE, PROT_READ | PROT_EXEC,
				   MAP_SHARED, 0), -EPERM);
	assert_int_equal(vm_errno(mprotect((void *)u.counter, PAGE, PROT_READ | PROT_WRITE)),
			 -EACCES);
	copy = mremap((void *)u.counter, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
	assert_true(copy == MAP_FAILED);
	/* Dropped by the program, it comes back. */
	madvise((void *)u.counter, PAGE, MADV_DONTNEED);
	assert_int_equal(um_moved(&u), 0);
}

static void the_mapping_outlives_the_descriptor(void **state)
{
	char *m = vm_memory(1);

	assert_int_equal(um_watch(&u, m, PAGE, 1, 0), 0);
	close(u.fd);
	munmap(m, PAGE);
	assert_int_equal(um_moved(&u), 2);
	munmap((void *)u.counter, PAGE);
}

static void seeking_is_refused(void **state)
{
	char buf[64];

	assert_int_equal(vm_errno(lseek(u.fd, 0, SEEK_SET)), -ESPIPE);
	assert_int_equal(vm_errno(pread(u.fd, buf, sizeof(buf), 0)), -ESPIPE);
}

static void reads_whole_events(void **state)
{
	struct ummunot_event ev[4];
	char *m = vm_memory(3);
	int i;

	assert_int_equal(um_read(&u, ev, 4), -EAGAIN);
	assert_int_equal(vm_errno(read(u.fd, ev, 31)), -EINVAL);
	for (i = 0; i < 3; i++)
		assert_int_equal(um_watch(&u, m + i * PAGE, PAGE, i, 0), 0);
	munmap(m, 3 * PAGE);
	assert_int_equal(read(u.fd, ev, 2 * sizeof(ev[0]) + 31),
			 2 * sizeof(ev[0]));
	assert_int_equal(ev[0].user_cookie_counter, 0);
	assert_int_equal(ev[1].user_cookie_counter, 1);
	/* It just fits: the LAST is owed. */
	assert_int_equal(um_read(&u, ev, 1), 1);
	assert_int_equal(ev[0].type, UMMUNOT_EVENT_TYPE_INVAL);
	assert_int_equal(ev[0].user_cookie_counter, 2);
	assert_int_equal(ev[0].flags, 0);
	assert_int_equal(ev[0].hint_start, (uintptr_t)m + 2 * PAGE);
	assert_int_equal(ev[0].hint_end, (uintptr_t)m + 3 * PAGE);
	assert_int_equal(um_read(&u, ev, 4), 1);
	assert_int_equal(ev[0].type, UMMUNOT_EVENT_TYPE_LAST);
	assert_int_equal(ev[0].flags, 0);
	assert_int_equal(ev[0].hint_start, 0);
	assert_int_equal(ev[0].hint_end, 0);
	assert_int_equal(ev[0].user_cookie_counter, um_counter(&u));
	assert_int_equal(um_read(&u, ev, 4), -EAGAIN);
}

/* 40 events through a buffer whose second page cannot be written. */
static void a_fault_loses_no_event(void **state)
{
	struct ummunot_event *ev;
	char *m = vm_memory(40);
	char *buf = vm_memory(2);
	uint64_t seen = 0;
	ssize_t n;
	int i;

	for (i = 0; i < 40; i++)
		assert_int_equal(um_watch(&u, m + i * PAGE, PAGE, i, 0), 0);
	munmap(m, 40 * PAGE);
	mprotect(buf + PAGE, PAGE, PROT_NONE);
	assert_int_equal(vm_errno(read(u.fd, buf + PAGE, 1024)), -EFAULT);
	/* Room for 5 and a half. */
	for (;;) {
		ev = (void *)(buf + PAGE - 176);
		n = read(u.fd, ev, 1024);
		if (n < 0)
			break;
		assert_true(n <= 160);
		for (i = 0; i < n / 32; i++)
			if (ev[i].type == UMMUNOT_EVENT_TYPE_INVAL)
				seen |= 1ull << ev[i].user_cookie_counter;
			else
				assert_int_equal(ev[i].user_cookie_counter,
						 um_counter(&u));
	}
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(seen, (1ull << 40) - 1);
}

static void readv_scatters(void **state)
{
	char *m = vm_memory(1);
	char a[20], b[44];
	struct iovec v[2] = { { a, 20 }, { b, 44 } };

	assert_int_equal(um_watch(&u, m, PAGE, 9, 0), 0);
	munmap(m, PAGE);
	assert_int_equal(readv(u.fd, v, 2), 64);
}

static void events_coalesce(void **state)
{
	struct ummunot_event ev[4];
	char *m = vm_memory(16);

	assert_int_equal(um_watch(&u, m + 100, 15 * PAGE, 5, 0), 0);
	madvise(m + 3 * PAGE, PAGE, MADV_DONTNEED);
	madvise(m + 7 * PAGE, 2 * PAGE, MADV_DONTNEED);
	assert_int_equal(um_moved(&u), 4);
	assert_int_equal(um_read(&u, ev, 4), 2);
	assert_int_equal(ev[0].flags, UMMUNOT_EVENT_FLAG_HINT);
	assert_int_equal(ev[0].hint_start, (uintptr_t)m + 3 * PAGE);
	assert_int_equal(ev[0].hint_end, (uintptr_t)m + 9 * PAGE);
	assert_int_equal(ev[1].user_cookie_counter, um_counter(&u));
	/* Clipped to the watch, which is not made of whole pages. */
	madvise(m, 2 * PAGE, MADV_DONTNEED);
	assert_int_equal(um_read(&u, ev, 4), 2);
	assert_int_equal(ev[0].hint_start, (uintptr_t)m + 100);
	assert_int_equal(ev[0].hint_end, (uintptr_t)m + 2 * PAGE);
	/* All of it: no hint. */
	munmap(m, 16 * PAGE);
	assert_int_equal(um_read(&u, ev, 4), 2);
	assert_int_equal(ev[0].flags, 0);
	assert_int_equal(ev[0].hint_end, (uintptr_t)m + 100 + 15 * PAGE);
}

static void unregister_drops_the_event(void **state)
{
	struct ummunot_event ev[4];
	char *m = vm_memory(2);

	assert_int_equal(um_watch(&u, m, PAGE, 1, 0), 0);
	assert_int_equal(um_watch(&u, m, 2 * PAGE, 2, 0), 0);
	munmap(m, PAGE);
	assert_int_equal(um_unwatch(&u, 1), 0);
	assert_int_equal(um_read(&u, ev, 4), 2);
	assert_int_equal(ev[0].user_cookie_counter, 2);
	/* The counter moved for a watch that is no more: a LAST says so. */
	munmap(m + PAGE, PAGE);
	assert_int_equal(um_unwatch(&u, 2), 0);
	assert_int_equal(um_read(&u, ev, 4), 1);
	assert_int_equal(ev[0].type, UMMUNOT_EVENT_TYPE_LAST);
	assert_int_equal(ev[0].user_cookie_counter, um_counter(&u));
}

static int poll_now(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLOUT, 0 };

	assert_in_range(poll(&p, 1, 0), 0, 1);
	return p.revents;
}

static void poll_select_and_epoll_tell(void **state)
{
	struct epoll_event ee = { .events = EPOLLIN };
	struct timeval tv = { 0, 0 };
	struct ummunot_event ev[4];
	char *m = vm_memory(1);
	fd_set set;
	int ep;

	ep = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, u.fd, &ee), 0);
	assert_int_equal(um_watch(&u, m, PAGE, 1, 0), 0);
	FD_ZERO(&set);
	FD_SET(u.fd, &set);
	assert_int_equal(poll_now(u.fd), 0);
	assert_int_equal(select(u.fd + 1, &set, NULL, NULL, &tv), 0);
	assert_int_equal(epoll_wait(ep, &ee, 1, 0), 0);
	munmap(m, PAGE);
	FD_SET(u.fd, &set);
	assert_int_equal(poll_now(u.fd), POLLIN);
	assert_int_equal(select(u.fd + 1, &set, NULL, NULL, &tv), 1);
	assert_int_equal(epoll_wait(ep, &ee, 1, 0), 1);
	assert_int_equal(um_read(&u, ev, 1), 1);
	assert_int_equal(poll_now(u.fd), POLLIN);
	assert_int_equal(um_read(&u, ev, 1), 1);
	assert_int_equal(poll_now(u.fd), 0);
	close(ep);
}

static volatile sig_atomic_t signals;

static void count_signal(int sig)
{
	signals++;
}

static void sigio_comes(void **state)
{
	char *m = vm_memory(1);

	signal(SIGIO, count_signal);
	fcntl(u.fd, F_SETOWN, getpid());
	fcntl(u.fd, F_SETFL, O_NONBLOCK | O_ASYNC);
	assert_int_equal(um_watch(&u, m, PAGE, 1, 0), 0);
	assert_int_equal(signals, 0);
	munmap(m, PAGE);
	while (!signals)
		usleep(1000);
	signal(SIGIO, SIG_DFL);
}

static void *unmap_soon(void *m)
{
	usleep(200000);
	munmap(m, PAGE);
	return NULL;
}

static void a_read_waits(void **state)
{
	struct ummunot_event ev[4];
	char *m = vm_memory(1);
	pthread_t t;

	assert_int_equal(um_watch(&u, m, PAGE, 1, 0), 0);
	pthread_create(&t, NULL, unmap_soon, m);
	assert_true(um_read(&u, ev, 4) >= 1);
	assert_int_equal(ev[0].user_cookie_counter, 1);
	pthread_join(t, NULL);
}

/* By io_uring: a read that was queued before completes with the event. */
static void io_uring_reads(void **state)
{
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	struct ummunot_event ev[4];
	char *m = vm_memory(1);
	struct io_uring ring;

	assert_int_equal(io_uring_queue_init(4, &ring, 0), 0);
	assert_int_equal(um_watch(&u, m, PAGE, 8, 0), 0);
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read(sqe, u.fd, ev, sizeof(ev), 0);
	assert_int_equal(io_uring_submit(&ring), 1);
	assert_int_equal(io_uring_peek_cqe(&ring, &cqe), -EAGAIN);
	munmap(m, PAGE);
	assert_int_equal(io_uring_wait_cqe(&ring, &cqe), 0);
	assert_in_range(cqe->res, 32, 64);
	assert_int_equal(ev[0].user_cookie_counter, 8);
	io_uring_cqe_seen(&ring, cqe);
	io_uring_queue_exit(&ring);
}

static void a_read_that_may_not_wait_does_not(void **state)
{
	struct ummunot_event ev;
	struct iovec v = { &ev, sizeof(ev) };

	assert_int_equal(vm_errno(preadv2(u.fd, &v, 1, -1, RWF_NOWAIT)), -EAGAIN);
}

static void a_signal_ends_the_wait(void **state)
{
	struct sigaction sa = { .sa_handler = count_signal };
	struct ummunot_event ev[4];

	sigaction(SIGALRM, &sa, NULL);
	alarm(1);
	assert_int_equal(um_read(&u, ev, 4), -EINTR);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_one, close_one)
#define WAITING(f) cmocka_unit_test_setup_teardown(f, open_waiting, close_one)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_for_reading_alone),
		TEST(refuses_bad_ranges),
		TEST(cookies_name_one_watch),
		TEST(bad_pointers_fault),
		TEST(features_are_agreed_before_the_first_watch),
		cmocka_unit_test(a_file_has_a_limit),
		cmocka_unit_test(a_user_has_a_limit),
		TEST(maps_one_page_for_reading),
		cmocka_unit_test_setup(the_mapping_outlives_the_descriptor, open_one),
		TEST(seeking_is_refused),
		TEST(reads_whole_events),
		TEST(a_fault_loses_no_event),
		WAITING(readv_scatters),
		TEST(events_coalesce),
		TEST(unregister_drops_the_event),
		TEST(poll_select_and_epoll_tell),
		TEST(sigio_comes),
		WAITING(a_read_waits),
		WAITING(io_uring_reads),
		WAITING(a_read_that_may_not_wait_does_not),
		WAITING(a_signal_ends_the_wait),
	};

	return cmocka_run_group_tests_name("ummunot_abi", tests, NULL, NULL);
}
