// SPDX-License-Identifier: BSD-2-Clause
#include "ummunot_lib.h"

_Static_assert(sizeof(struct ummunot_event) == 32, "its layout is for ever");
_Static_assert(sizeof(struct ummunot_register_ioctl) == 32, "likewise");

#define MAGIC_OF_SERIES 0xBC

/* A pointer to nowhere is EFAULT where the request is known, and has no effect. */
unsigned long um_request(int fd, unsigned long request)
{
	if (!ioctl(fd, UMMUNOT_UNREGISTER_REGION, NULL) || errno != ENOTTY)
		return request;
	return (request & ~((unsigned long)_IOC_TYPEMASK << _IOC_TYPESHIFT)) |
	       MAGIC_OF_SERIES << _IOC_TYPESHIFT;
}

static int request(int fd, unsigned long number, void *arg)
{
	return ioctl(fd, um_request(fd, number), arg) ? -errno : 0;
}

void um_open(struct um *u, int flags)
{
	u->fd = open("/dev/ummunot", O_RDONLY | O_CLOEXEC | flags);
	if (u->fd < 0)
		err(1, "/dev/ummunot");
	u->counter = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, u->fd, 0);
	if (u->counter == MAP_FAILED)
		err(1, "mapping /dev/ummunot");
	u->first = um_counter(u);
}

void um_close(struct um *u)
{
	munmap((void *)u->counter, PAGE);
	close(u->fd);
}

uint64_t um_counter(const struct um *u)
{
	return __atomic_load_n(u->counter, __ATOMIC_ACQUIRE);
}

uint64_t um_moved(const struct um *u)
{
	return um_counter(u) - u->first;
}

int um_features(struct um *u, uint32_t features)
{
	int rc = request(u->fd, UMMUNOT_EXCHANGE_FEATURES, &features);

	return rc ? rc : (int)features;
}

int um_watch(struct um *u, const void *start, size_t len, uint64_t cookie,
	     uint32_t flags)
{
	struct ummunot_register_ioctl r = {
		.start = (uintptr_t)start,
		.end = (uintptr_t)start + len,
		.user_cookie = cookie,
		.flags = flags,
	};

	return request(u->fd, UMMUNOT_REGISTER_REGION, &r);
}

int um_unwatch(struct um *u, uint64_t cookie)
{
	return request(u->fd, UMMUNOT_UNREGISTER_REGION, &cookie);
}

int um_swap(int fd, void *a, void *b, size_t len)
{
	return um_swap_with(fd, a, b, len, 0);
}

int um_swap_with(int fd, void *a, void *b, size_t len, uint64_t flags)
{
	static _Atomic unsigned long number;
	struct ummunot_swap_ioctl r = {
		.a = (uintptr_t)a,
		.b = (uintptr_t)b,
		.len = len,
		.flags = flags,
	};

	if (!number)
		number = um_request(fd, UMMUNOT_SWAP_PAGES);
	return ioctl(fd, number, &r) ? -errno : 0;
}

int um_end_quiet(struct um *u, uint64_t cookie)
{
	return request(u->fd, UMMUNOT_END_QUIET, &cookie);
}

ssize_t um_read(struct um *u, struct ummunot_event *ev, size_t max)
{
	ssize_t n = read(u->fd, ev, max * sizeof(*ev));

	if (n < 0)
		return -errno;
	return n / (ssize_t)sizeof(*ev);
}

void um_drain(struct um *u, struct news *n)
{
	struct ummunot_event ev[8];
	ssize_t i, got;

	memset(n, 0, sizeof(*n));
	n->start = UINT64_MAX;
	while ((got = um_read(u, ev, 8)) > 0) {
		for (i = 0; i < got; i++) {
			if (ev[i].type == UMMUNOT_EVENT_TYPE_LAST) {
				n->last = ev[i].user_cookie_counter;
				continue;
			}
			n->cnt++;
			n->cookie = ev[i].user_cookie_counter;
			if (ev[i].hint_start < n->start)
				n->start = ev[i].hint_start;
			if (ev[i].hint_end > n->end)
				n->end = ev[i].hint_end;
		}
		if (n->last == um_counter(u))
			return;
	}
}
