// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory is shared while other threads are stopped, of which one has just what looks after
 * moves: the thread "kedge-pages" looks at the move of another thread, with its lock.
 */
#include <sys/ioctl.h>

#include <kedge/pageswap.h>

#include "pages/move.h"
#include "pages/share/share.h"
#include "swap_mem.h"
#include "wrap.h"

static __thread bool is_main, is_mover;
static _Atomic bool moving, may_look, looking, over;

static void wait_until(const _Atomic bool *what)
{
	while (!atomic_load(what))
		usleep(1000);
}

WRAP(int, ioctl, int fd, unsigned long what, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, what);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (is_mover && what == UFFDIO_MOVE_V1) {
		atomic_store(&moving, true);
		wait_until(&over);
	} else if (!is_main && !is_mover && what == PAGEMAP_SCAN_V1 &&
		   atomic_load(&may_look)) {
		atomic_store(&looking, true);
		wait_until(&over);
	} else if (is_main && what == UFFDIO_MOVE_V1 && atomic_load(&looking)) {
		/* While they are stopped. */
		atomic_store(&over, true);
	}
	return __real_ioctl(fd, what, arg);
}

/* The others are stopped next. */
WRAP(int, clone, int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	if (is_main) {
		atomic_store(&may_look, true);
		wait_until(&looking);
	}
	return __real_clone(fn, stack, flags, arg);
}

static void *mover(void *at)
{
	is_mover = true;
	return (void *)(intptr_t)kedge_page_swap_with(at, (char *)at + page_len(), page_len(),
						      KEDGE_SWAP_MOVE);
}

static void a_thread_that_has_a_lock_is_not_waited_for(void **state)
{
	const size_t len = 8 * page_len();
	char *p = small_area(len, 1), *other = small_area(2 * page_len(), 2);
	int fd = memfd_create("share", MFD_CLOEXEC);
	pthread_t t;
	size_t done;
	void *rc;

	is_main = true;
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	assert_int_equal(pthread_create(&t, NULL, mover, other), 0);
	wait_until(&moving);
	assert_int_equal(pages_share_stopped(p, len, fd, 0, -1, &done), 0);
	assert_true(atomic_load(&over));
	assert_true(stamped(p, len, 1));
	pthread_join(t, &rc);
	assert_null(rc);
	assert_int_equal(pages_unshare(p, len, fd, 0, &done), 0);
	assert_true(stamped(p, len, 1));
	close(fd);
}

#define LISTED PLAIN
#include "test_share_stopped.cases.h"

int main(void)
{
	char *p = small_area(page_len(), 1);
	int fd = memfd_create("share", MFD_CLOEXEC);
	size_t done;
	int rc = ftruncate(fd, (off_t)page_len());

#ifdef __SANITIZE_THREAD__
	printf("skipped: no thread is stopped under ThreadSanitizer\n");
	return 77;
#endif
	if (!rc)
		rc = pages_share_stopped(p, page_len(), fd, 0, -1, &done);
	if (rc) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return rc == -EOPNOTSUPP || rc == -EPERM ? 77 : 1;
	}
	pages_unshare(p, page_len(), fd, 0, &done);
	close(fd);
	area_free(p, page_len());
	return RUN(cases);
}
