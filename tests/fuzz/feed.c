// SPDX-License-Identifier: BSD-2-Clause
/* The file that harnesses read instead of the kernel's. */
#include <linux/capability.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "calls.h"
#include "feed.h"

#define FEED_FD 1000000 /* nobody has as many */

static struct {
	const uint8_t *data;
	size_t len, pos, chunk;
	int interrupts, reads, opened;
} feed;

uint8_t take(struct bytes *b)
{
	if (!b->left)
		return 0;
	b->left--;
	return *b->at++;
}

uint64_t take_number(struct bytes *b, unsigned int len)
{
	uint64_t v = 0;

	while (len--)
		v = v << 8 | take(b);
	return v;
}

int take_control(const uint8_t *data, size_t len, struct bytes *control, struct bytes *rest)
{
	*control = (struct bytes){ data, 8 };
	*rest = (struct bytes){ data + 8, len - 8 };
	return len >= 8;
}

void *exact_copy(const void *data, size_t len)
{
	void *copy = malloc(len ? len : 1);

	CHECK(copy);
	if (len)
		memcpy(copy, data, len);
	return copy;
}

char *text_copy(const void *data, size_t len)
{
	char *text = malloc(len + 1);

	CHECK(text);
	memcpy(text, data, len);
	text[len] = '\0';
	return text;
}

void feed_set(const void *data, size_t len, size_t chunk, int interrupts)
{
	feed.data = data;
	feed.len = len;
	feed.chunk = chunk ? chunk : SIZE_MAX;
	feed.interrupts = interrupts;
	feed.opened = 0;
}

int feed_is_closed(void)
{
	return !feed.opened;
}

int fuzz_open(const char *path, int flags, ...)
{
	CHECK(!feed.opened);
	CHECK((flags & O_ACCMODE) == O_RDONLY && (flags & O_CLOEXEC));
	feed.opened = 1;
	feed.pos = 0;
	feed.reads = 0;
	return FEED_FD;
}

ssize_t fuzz_read(int fd, void *to, size_t len)
{
	CHECK(fd == FEED_FD && feed.opened && len);
	if (feed.interrupts && !(feed.reads++ % 2)) {
		errno = EINTR;
		return -1;
	}
	if (len > feed.len - feed.pos)
		len = feed.len - feed.pos;
	if (len > feed.chunk)
		len = feed.chunk;
	if (len)
		memcpy(to, feed.data + feed.pos, len);
	feed.pos += len;
	return (ssize_t)len;
}

int fuzz_close(int fd)
{
	CHECK(fd == FEED_FD && feed.opened);
	feed.opened = 0;
	return 0;
}

int fuzz_ioctl(int fd, unsigned long what, ...)
{
	CHECK(fd == FEED_KEPT_FD || (fd == FEED_FD && feed.opened));
	errno = ENOTTY;
	return -1;
}

static int all_capabilities(struct __user_cap_data_struct *d)
{
	memset(d, 0xff, sizeof(*d) * _LINUX_CAPABILITY_U32S_3);
	return 0;
}

static long lseek_to_start(int fd, long at, int whence)
{
	CHECK(fd == FEED_FD && feed.opened && !at && whence == SEEK_SET);
	feed.pos = 0;
	return 0;
}

long fuzz_syscall(long number, ...)
{
	const char *path;
	va_list ap;
	size_t len;
	long rc, at;
	void *to;
	int fd;

	va_start(ap, number);
	switch (number) {
	case SYS_openat:
		fd = va_arg(ap, int);
		path = va_arg(ap, const char *);
		CHECK(fd == AT_FDCWD);
		rc = fuzz_open(path, va_arg(ap, int));
		break;
	case SYS_read:
		fd = va_arg(ap, int);
		to = va_arg(ap, void *);
		len = va_arg(ap, size_t);
		rc = fuzz_read(fd, to, len);
		break;
	case SYS_close:
		rc = fuzz_close(va_arg(ap, int));
		break;
	case SYS_ioctl:
		fd = va_arg(ap, int);
		rc = fuzz_ioctl(fd, va_arg(ap, unsigned long));
		break;
	case SYS_lseek:
		fd = va_arg(ap, int);
		at = va_arg(ap, long);
		rc = lseek_to_start(fd, at, va_arg(ap, int));
		break;
	case SYS_capget:
		CHECK(va_arg(ap, void *));
		rc = all_capabilities(va_arg(ap, void *));
		break;
	default:
		fprintf(stderr, "system call %ld has no fake\n", number);
		abort();
	}
	va_end(ap);
	return rc;
}
