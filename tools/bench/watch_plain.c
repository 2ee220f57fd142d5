// SPDX-License-Identifier: BSD-2-Clause
/*
 * The plain way to watch memory, as the reference: a userfaultfd and one
 * thread that polls and reads it. (As a cache's notifier it would be wrong:
 * munmap() may return before the thread has looked at what it read.)
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/bench/watch.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

/** struct plain - a userfaultfd and its thread
 * @stop: eventfd that ends the thread
 * @mode: of the registrations
 * @seen: events; read by nobody, but a cache would store something too
 */
struct plain {
	int fd;
	int stop;
	uint64_t mode;
	pthread_t thread;
	uint64_t seen;
};

static int open_fd(void)
{
	int dev, fd;

	fd = (int)syscall(SYS_userfaultfd,
			  O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd >= 0)
		return fd;
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev < 0)
		return -errno;
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		fd = -errno;
	close(dev);
	return fd;
}

static int shake_hands(int fd)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_FEATURE_EVENT_UNMAP |
					      UFFD_FEATURE_EVENT_REMOVE |
					      UFFD_FEATURE_EVENT_REMAP };

	return ioctl(fd, UFFDIO_API, &api) ? -errno : 0;
}

static void *monitor(void *arg)
{
	struct plain *p = arg;
	struct pollfd pfd[2] = { { .fd = p->fd, .events = POLLIN },
				 { .fd = p->stop, .events = POLLIN } };
	struct uffd_msg msg;

	while (!(pfd[1].revents & POLLIN)) {
		if (poll(pfd, 2, -1) <= 0 || !(pfd[0].revents & POLLIN))
			continue;
		if (read(p->fd, &msg, sizeof(msg)) == (ssize_t)sizeof(msg))
			/* Relaxed: a count that orders nothing. */
			__atomic_fetch_add(&p->seen, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int plain_open(struct plain **out, char why[WATCH_WHY])
{
	struct plain *p;
	int rc;

	p = calloc(1, sizeof(*p));
	if (!p) {
		snprintf(why, WATCH_WHY, "no memory");
		return -ENOMEM;
	}
	p->mode = UFFDIO_REGISTER_MODE_WP;
	p->fd = open_fd();
	if (p->fd < 0) {
		rc = p->fd;
		goto free_plain;
	}
	rc = shake_hands(p->fd);
	if (rc)
		goto close_fd;
	p->stop = eventfd(0, EFD_CLOEXEC);
	if (p->stop < 0) {
		rc = -errno;
		goto close_fd;
	}
	rc = -pthread_create(&p->thread, NULL, monitor, p);
	if (rc)
		goto close_stop;
	*out = p;
	return 0;

close_stop:
	close(p->stop);
close_fd:
	close(p->fd);
free_plain:
	free(p);
	snprintf(why, WATCH_WHY, "cannot open a userfaultfd: %s",
		 strerror(-rc));
	return rc;
}

void plain_close(struct plain *p)
{
	const uint64_t one = 1;

	if (!p)
		return;
	while (write(p->stop, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(p->thread, NULL);
	close(p->stop);
	close(p->fd);
	free(p);
}

int plain_add(struct plain *p, void *addr, size_t len)
{
	struct uffdio_register reg = {
		.range = { .start = (uintptr_t)addr, .len = len },
		.mode = p->mode,
	};

	return ioctl(p->fd, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

int plain_remove(struct plain *p, void *addr, size_t len)
{
	struct uffdio_range range = { .start = (uintptr_t)addr, .len = len };

	return ioctl(p->fd, UFFDIO_UNREGISTER, &range) ? -errno : 0;
}
