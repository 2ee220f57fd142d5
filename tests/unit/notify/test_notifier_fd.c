// SPDX-License-Identifier: BSD-2-Clause
/* The notifier's descriptor, by each way to wait for one. */
#include <liburing.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "notifier.h"

#define WAIT_MS 5000

static char *page;
static int fd;

static int setup(void **state)
{
	nf = open_uffd();
	page = new_pages(1);
	fd = kedge_notifier_fd(nf);
	assert_true(fd >= 0);
	assert_int_equal(kedge_notifier_fd(nf), fd);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	return 0;
}

static bool readable(int timeout)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout) == 1;
}

static void unmap_watched(void)
{
	assert_true(kedge_watch_add(nf, page, 1, 1) >= 0);
	assert_int_equal(munmap(page, page_len()), 0);
}

static void *unmap_soon(void *arg)
{
	const pid_t *waiter = arg;

	while (!is_asleep(*waiter))
		sched_yield();
	munmap(page, page_len());
	return NULL;
}

/* A thread that makes an event while the caller waits for it. */
static pthread_t event_soon(void)
{
	static pid_t caller;
	pthread_t t;

	caller = (pid_t)syscall(SYS_gettid);
	assert_true(kedge_watch_add(nf, page, 1, 1) >= 0);
	assert_int_equal(pthread_create(&t, NULL, unmap_soon, &caller), 0);
	return t;
}

/* Reading the events makes the descriptor quiet; the watch goes. */
static void settle(void)
{
	struct kedge_event ev[2];

	assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_UNMAP);
	assert_false(readable(0));
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
	pages_at(page, 1);
}

static void poll_sees_it_while_events_wait(void **state)
{
	struct kedge_event ev;
	int i;

	for (i = 0; i < 100; i++) {
		assert_false(readable(0));
		unmap_watched();
		assert_true(readable(WAIT_MS));
		settle();
	}
	/* One of two read: still readable. */
	assert_true(kedge_watch_add(nf, page, 1, 2) >= 0);
	unmap_watched();
	assert_int_equal(kedge_notifier_read(nf, &ev, 1), 1);
	assert_true(readable(WAIT_MS));
	settle();
	assert_int_equal(kedge_watch_remove(nf, 2), 0);
}

static void an_event_before_the_fd_was_asked_for_counts(void **state)
{
	struct kedge_notifier *other = open_uffd();
	char *p = new_pages(1);
	struct pollfd q = { .events = POLLIN };

	assert_true(kedge_watch_add(other, p, 1, 1) >= 0);
	assert_int_equal(munmap(p, page_len()), 0);
	q.fd = kedge_notifier_fd(other);
	assert_int_equal(poll(&q, 1, 0), 1);
	kedge_notifier_close(other);
	pages_at(p, 1);
}

static void an_event_wakes_poll(void **state)
{
	pthread_t t = event_soon();

	assert_true(readable(WAIT_MS));
	pthread_join(t, NULL);
	settle();
}

static void an_event_wakes_select(void **state)
{
	struct timeval tv = { .tv_sec = WAIT_MS / 1000 };
	pthread_t t = event_soon();
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	assert_int_equal(select(fd + 1, &set, NULL, NULL, &tv), 1);
	assert_true(FD_ISSET(fd, &set));
	pthread_join(t, NULL);
	settle();
}

static void epoll_wakes(uint32_t flags)
{
	struct epoll_event want = { .events = EPOLLIN | flags }, got;
	int ep = epoll_create1(EPOLL_CLOEXEC), i;

	want.data.fd = fd;
	assert_true(ep >= 0);
	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &want), 0);
	for (i = 0; i < 20; i++) {
		pthread_t t = event_soon();

		assert_int_equal(epoll_wait(ep, &got, 1, WAIT_MS), 1);
		assert_int_equal(got.data.fd, fd);
		pthread_join(t, NULL);
		settle();
		assert_int_equal(epoll_wait(ep, &got, 1, 0), 0);
	}
	close(ep);
}

static void an_event_wakes_epoll_by_level(void **state)
{
	epoll_wakes(0);
}

static void an_event_wakes_epoll_by_edge(void **state)
{
	epoll_wakes(EPOLLET);
}

static void an_event_raises_sigio(void **state)
{
	struct timespec wait = { .tv_sec = WAIT_MS / 1000 };
	sigset_t set, old;
	siginfo_t info;
	int i;

	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
	assert_int_equal(fcntl(fd, F_SETOWN, getpid()), 0);
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC), 0);
	for (i = 0; i < 20; i++) {
		pthread_t t = event_soon();

		assert_int_equal(sigtimedwait(&set, &info, &wait), SIGIO);
		pthread_join(t, NULL);
		settle();
		/* The read of the queue may have raised another. */
		wait.tv_sec = 0;
		while (sigtimedwait(&set, &info, &wait) == SIGIO)
			;
		wait.tv_sec = WAIT_MS / 1000;
	}
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_ASYNC), 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void an_event_wakes_a_poll_of_io_uring(void **state)
{
	struct __kernel_timespec wait = { .tv_sec = WAIT_MS / 1000 };
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	int rc = io_uring_queue_init(4, &ring, 0), i;

	if (rc == -ENOSYS || rc == -EPERM) {
		print_message("skipped: io_uring: %s\n", strerror(-rc));
		skip();
	}
	assert_int_equal(rc, 0);
	for (i = 0; i < 20; i++) {
		pthread_t t;

		io_uring_prep_poll_add(io_uring_get_sqe(&ring), fd, POLLIN);
		assert_int_equal(io_uring_submit(&ring), 1);
		t = event_soon();
		assert_int_equal(io_uring_wait_cqe_timeout(&ring, &cqe, &wait),
				 0);
		assert_true(cqe->res & POLLIN);
		io_uring_cqe_seen(&ring, cqe);
		pthread_join(t, NULL);
		settle();
	}
	io_uring_queue_exit(&ring);
}

#define NEEDED need_uffd
#define LISTED NF_CASE
#include "test_notifier_fd.cases.h"
