// SPDX-License-Identifier: BSD-2-Clause
/* See uring.h. */
#include <pthread.h>
#include <stdio.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <kedge/base.h>

#include "fakes/uring.h"
#include "fakes/wrapped.h"

#define REGISTERED (1u << 31)

struct fake fake;
struct io_uring fake_ring;

/* lock guards fake. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The @fault-th step from now fails; @live counts what is not undone. */
static int fault, live;
static bool tracking;

static bool step_fails(void)
{
	return tracking && fault > 0 && !--fault;
}

static void track(int by)
{
	if (tracking)
		live += by;
}

static void unpin(void)
{
	if (!fake.pinned)
		return;
	if (fake.late)
		fake.owed++;
	else
		fake.pinned--;
}

static int kernel_update(const struct io_uring_rsrc_update2 *up)
{
	const struct iovec *iov = (const void *)(uintptr_t)up->data;

	assert_int_equal(up->nr, 1);
	assert_int_equal(up->tags, 0);
	if (fake.no_update)
		return -EINVAL;
	if (!fake.nr)
		return -ENXIO;
	if (up->offset >= fake.nr)
		return up->offset == UINT32_MAX ? -EOVERFLOW : -EINVAL;
	if (up->data >= ~UINT64_C(15))
		return -EFAULT;
	assert_true(!iov->iov_base == !iov->iov_len);
	if (iov->iov_base && fake.room && fake.pinned > fake.room)
		return -ENOMEM;
	if (fake.slot[up->offset] && !iov->iov_base)
		unpin();
	if (iov->iov_base && fake.pinned)
		fake.pinned++;
	fake.slot[up->offset] = iov->iov_base;
	return 1;
}

static int kernel_table(uint32_t nr)
{
	if (fake.nr)
		return -EBUSY;
	if (!nr || nr > fake.max)
		return -EINVAL;
	fake.nr = nr;
	memset(fake.slot, 0, sizeof(fake.slot));
	track(1);
	return 0;
}

static int kernel(unsigned int op, const void *arg, unsigned int nr)
{
	const struct io_uring_rsrc_register *reg = arg;

	fake.calls++;
	if (fake.times && op == fake.op) {
		if (!fake.skip) {
			fake.times--;
			return fake.rc;
		}
		fake.skip--;
	}
	switch (op) {
	case IORING_REGISTER_BUFFERS2:
		assert_int_equal(reg->flags, IORING_RSRC_REGISTER_SPARSE);
		return fake.no_sparse ? -EINVAL : kernel_table(reg->nr);
	case IORING_REGISTER_BUFFERS:
		return fake.no_empty ? -EFAULT : kernel_table(nr);
	case IORING_REGISTER_BUFFERS_UPDATE:
		return kernel_update(arg);
	case IORING_UNREGISTER_BUFFERS:
		if (!fake.nr)
			return -ENXIO;
		fake.nr = 0;
		track(-1);
		return 0;
	}
	fail_msg("io_uring_register(%u)", op);
	return -EINVAL;
}

static bool fills(unsigned int op, const void *arg)
{
	const struct io_uring_rsrc_update2 *up = arg;

	return op == IORING_REGISTER_BUFFERS_UPDATE &&
	       up->data < ~UINT64_C(15) &&
	       ((const struct iovec *)(uintptr_t)up->data)->iov_base;
}

WRAPPED(io_uring_register);
int __wrap_io_uring_register(unsigned int fd, unsigned int op, const void *arg,
			     unsigned int nr)
{
	int rc;

	if (step_fails())
		return -ENOMEM;
	/*
	 * By the caller's number, which may be another ring's by now, only to
	 * fill a slot: then it was looked at.
	 */
	if (fake_ring.ring_fd < 0) {
		assert_true(op & REGISTERED);
		assert_int_equal(fd, FAKE_RING_INDEX);
		op &= ~REGISTERED;
	} else {
		if (!fills(op, arg))
			assert_int_not_equal(fd, fake_ring.ring_fd);
		assert_true(fcntl((int)fd, F_GETFD) & FD_CLOEXEC);
	}
	if (fake.in_call) {
		void (*fn)(void) = fake.in_call;

		fake.in_call = NULL;
		fn();
	}
	pthread_mutex_lock(&lock);
	rc = kernel(op, arg, nr);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* ---- the rest of the kernel: pages, and time ---- */

uint64_t __wrap_kedge__proc_pinned(void);
uint64_t __wrap_kedge__proc_pinned(void)
{
	return fake.pinned * 4096;
}

WRAPPED(clock_gettime);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	ts->tv_sec = (time_t)(fake.now_ns / 1000000000u);
	ts->tv_nsec = (long)(fake.now_ns % 1000000000u);
	return 0;
}

/* Each sleep takes a tenth of a second; after @late of them all is unpinned. */
static long slept(void)
{
	pthread_mutex_lock(&lock);
	fake.now_ns += 100000000u;
	fake.sleeps++;
	if (fake.owed && fake.sleeps >= fake.late) {
		fake.pinned -= (uint64_t)fake.owed;
		fake.owed = 0;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static long marked(long at, long len)
{
	int fails;

	/* A try if it can be done at all. */
	if (!len) {
		errno = fake.no_populate;
		return fake.no_populate ? -1 : 0;
	}
	pthread_mutex_lock(&lock);
	fake.marks++;
	fake.mark_at = (uintptr_t)at;
	fake.mark_end = (uintptr_t)(at + len);
	fails = fake.mark_fails;
	fake.mark_fails -= !!fails;
	pthread_mutex_unlock(&lock);
	if (!fails)
		return 0;
	errno = fake.mark_errno;
	return -1;
}

WRAPPED(uname);
int __wrap_uname(struct utsname *name)
{
	int rc = __real_uname(name);

	if (!rc && fake.release)
		snprintf(name->release, sizeof(name->release), "%s",
			 fake.release);
	return rc;
}

static bool is_fake(const char *path)
{
	return fake.smaps && (!strcmp(path, "/proc/self/smaps") ||
			      (!*fake.smaps &&
			       !strcmp(path, "/proc/self/pagemap")));
}

static long opened(void)
{
	size_t len = strlen(fake.smaps);
	int fd;

	if (!len) {
		errno = ENOENT;
		return -1;
	}
	fd = memfd_create("smaps", MFD_CLOEXEC);
	assert_true(fd >= 0 && write(fd, fake.smaps, len) == (ssize_t)len);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

WRAPPED(syscall);
/* It takes six, as syscall() does; the caller may have passed fewer. */
__attribute__((no_sanitize("address")))
long __wrap_syscall(long nr, ...)
{
	long a, b, c, d;
	va_list ap;

	va_start(ap, nr);
	a = va_arg(ap, long);
	b = va_arg(ap, long);
	c = va_arg(ap, long);
	d = va_arg(ap, long);
	va_end(ap);
	if (nr == SYS_clock_nanosleep)
		return slept();
	if (nr == SYS_madvise)
		return marked(a, b);
	if (nr == SYS_openat && is_fake((const char *)b))
		return opened();
	return __real_syscall(nr, a, b, c, d);
}

/* ---- every step that may fail, and its undoing ---- */

WRAPPED(malloc);
WRAPPED(calloc);
WRAPPED(free);
WRAPPED(madvise);
WRAPPED(mmap);
WRAPPED(mmap64);
WRAPPED(fcntl);
WRAPPED(fcntl64);
WRAPPED(munmap);
WRAPPED(close);
WRAPPED(pthread_mutex_init);
WRAPPED(pthread_mutex_destroy);

static void *count_ptr(void *p)
{
	if (p)
		track(1);
	return p;
}

void *__wrap_malloc(size_t n)
{
	return step_fails() ? NULL : count_ptr(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
	return step_fails() ? NULL : count_ptr(__real_calloc(n, size));
}

void __wrap_free(void *p)
{
	track(p ? -1 : 0);
	__real_free(p);
}

int __wrap_madvise(void *p, size_t len, int advice)
{
	if (step_fails()) {
		errno = ENOMEM;
		return -1;
	}
	return __real_madvise(p, len, advice);
}

void *__wrap_mmap(void *p, size_t len, int prot, int flags, int fd, off_t at)
{
	if (step_fails()) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	track(1);
	return __real_mmap(p, len, prot, flags, fd, at);
}

/* The name that _FILE_OFFSET_BITS=64 gives it. */
void *__wrap_mmap64(void *p, size_t len, int prot, int flags, int fd, off_t at)
{
	return __wrap_mmap(p, len, prot, flags, fd, at);
}

static int wrap_fcntl(int fd, int cmd, int arg)
{
	if (cmd == F_DUPFD_CLOEXEC) {
		if (step_fails()) {
			errno = ENOMEM;
			return -1;
		}
		/* An fcntl that fails by itself has made nothing. */
		fd = __real_fcntl(fd, cmd, arg);
		track(fd >= 0);
		return fd;
	}
	return __real_fcntl(fd, cmd, arg);
}

int __wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	int arg;

	va_start(ap, cmd);
	arg = va_arg(ap, int);
	va_end(ap);
	return wrap_fcntl(fd, cmd, arg);
}

int __wrap_fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	int arg;

	va_start(ap, cmd);
	arg = va_arg(ap, int);
	va_end(ap);
	return wrap_fcntl(fd, cmd, arg);
}

int __wrap_munmap(void *p, size_t len)
{
	track(-1);
	return __real_munmap(p, len);
}

int __wrap_close(int fd)
{
	track(-1);
	return __real_close(fd);
}

int __wrap_pthread_mutex_init(pthread_mutex_t *m,
			      const pthread_mutexattr_t *attr)
{
	if (step_fails())
		return ENOMEM;
	track(1);
	return __real_pthread_mutex_init(m, attr);
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *m)
{
	track(-1);
	return __real_pthread_mutex_destroy(m);
}

/* ---- the tests' side ---- */

int fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.max = 16384;
	fake.now_ns = 1000000000u;
	memset(&fake_ring, 0, sizeof(fake_ring));
	fake_ring.ring_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	fake_ring.enter_ring_fd = fake_ring.ring_fd;
	return fake_ring.ring_fd < 0 ? -1 : 0;
}

void fake_refuse(unsigned int op, int rc, int times)
{
	fake.op = op;
	fake.rc = rc;
	fake.skip = 0;
	fake.times = times;
}

void fake_track(int step)
{
	live = 0;
	fault = step;
	tracking = true;
}

void fake_calm(void)
{
	fault = 0;
}

int fake_untrack(void)
{
	tracking = false;
	return live;
}

char fake_logged[512];
int fake_log_cnt;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void on_log(void *ctx, int severity, const char *text)
{
	pthread_mutex_lock(&log_lock);
	snprintf(fake_logged, sizeof(fake_logged), "%s", text);
	fake_log_cnt++;
	pthread_mutex_unlock(&log_lock);
}

void fake_log_start(void)
{
	fake_log_cnt = 0;
	fake_logged[0] = '\0';
	kedge_log_set(on_log, NULL, KEDGE_LOG_DEBUG);
}

int fake_close(void **unused)
{
	if (fake_ring.ring_fd >= 0)
		close(fake_ring.ring_fd);
	return 0;
}
