// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sharing in place, and its end, where the kernel refuses something in the middle: what
 * was not done is as it was, and can be done afterwards.
 */
#include "pages/share/share.h"
#include "swap_mem.h"
#include "wrap.h"

#define LEN ((size_t)10 << 20) /* three chunks */

/* Of the calls that are counted, the one that fails; 0: none. */
static unsigned int fail_at, calls;
static int fail_with;
static bool unmaps; /* a mremap() that fails has unmapped the destination */

/* The act of another thread between the last read and the exchange. */
static void (*after_read)(void);
static char *changed;

static bool fails(void)
{
	if (!fail_at || ++calls != fail_at)
		return false;
	errno = fail_with;
	return true;
}

WRAP(void *, mmap64, void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return flags & MAP_SHARED && fails()
		       ? MAP_FAILED
		       : __real_mmap64(at, len, prot, flags, fd, off);
}

WRAP(void *, mremap, void *from, size_t len, size_t new_len, int flags, ...)
{
	va_list ap;
	void *to;

	va_start(ap, flags);
	to = va_arg(ap, void *);
	va_end(ap);
	if (!fails())
		return __real_mremap(from, len, new_len, flags, to);
	if (unmaps)
		munmap(to, len);
	errno = fail_with;
	return MAP_FAILED;
}

static bool no_mprotect;

WRAP(int, mprotect, void *at, size_t len, int prot)
{
	if (no_mprotect) {
		errno = ENOMEM;
		return -1;
	}
	return __real_mprotect(at, len, prot);
}

WRAP(ssize_t, pwrite64, int fd, const void *p, size_t len, off_t off)
{
	return fails() ? -1 : __real_pwrite64(fd, p, len, off);
}

WRAP(ssize_t, pread64, int fd, void *p, size_t len, off_t off)
{
	ssize_t n = fails() ? -1 : __real_pread64(fd, p, len, off);

	if (after_read)
		after_read();
	return n;
}

WRAP(off_t, lseek64, int fd, off_t off, int whence)
{
	return whence >= SEEK_DATA && fails() ? -1
					      : __real_lseek64(fd, off, whence);
}

static void fail_call(unsigned int n, int with)
{
	fail_at = n;
	fail_with = with;
	calls = 0;
}

typedef int change_fn(void *at, size_t len, int fd, uint64_t off, size_t *done);

/* Each call in turn, until there is none left to fail. */
static void each_fails(change_fn *change, char *p, int fd, uint64_t id)
{
	size_t done, all = 0;
	unsigned int n;
	int rc;

	for (n = 1; all < LEN; n++) {
		fail_call(n, ENOMEM);
		rc = change(p + all, LEN - all, fd, all, &done);
		fail_call(0, 0);
		assert_int_equal(rc, all + done < LEN ? -ENOMEM : 0);
		assert_true(stamped(p, LEN, id));
		if (done)
			n = 0;
		all += done;
		stamp(p, LEN, ++id);
	}
}

/* Bytes that a failed try has written are not found where there is nothing by then. */
static void a_failed_try_leaves_no_data(void **state)
{
	const size_t len = 8 * page_len();
	char *p = small_area(len, 1);
	int fd = memfd_create("share", MFD_CLOEXEC);
	size_t done;

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	/* The first is the write, then come the mapping and its move. */
	fail_call(2, ENOMEM);
	assert_int_equal(pages_share(p, len, fd, 0, &done), -ENOMEM);
	fail_call(0, 0);
	assert_int_equal(madvise(p, len, MADV_DONTNEED), 0);
	assert_int_equal(pages_share(p, len, fd, 0, &done), 0);
	assert_true(zeros(p, len));
	munmap(p, len);
	close(fd);
}

/* As where the kernel lacks a page table at the end of it all. */
static void a_mapping_that_has_gone_is_made_again(void **state)
{
	const size_t len = 8 * page_len();
	char *p = small_area(len, 4);
	int fd = memfd_create("share", MFD_CLOEXEC);
	size_t done;

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	unmaps = true;
	fail_call(3, ENOMEM);
	assert_int_equal(pages_share(p, len, fd, 0, &done), -ENOMEM);
	fail_call(0, 0);
	unmaps = false;
	assert_true(stamped(p, len, 4));
	assert_int_equal(smaps_of(p, "sh"), 0);
	assert_int_equal(pages_share(p, len, fd, 0, &done), 0);
	assert_true(stamped(p, len, 4));
	/* Read, and moved. */
	unmaps = true;
	fail_call(4, ENOMEM);
	assert_int_equal(pages_unshare(p, len, fd, 0, &done), -ENOMEM);
	fail_call(0, 0);
	unmaps = false;
	assert_true(stamped(p, len, 4));
	assert_int_equal(smaps_of(p, "sh"), 1);
	assert_int_equal(smaps_of(p, "dc"), 1);
	assert_int_equal(pages_unshare(p, len, fd, 0, &done), 0);
	assert_true(stamped(p, len, 4));
	assert_int_equal(smaps_of(p, "sh"), 0);
	close(fd);
}

/* Where its protection cannot be had it stays shared, and protected. */
static void protection_is_not_lost(void **state)
{
	const size_t len = 8 * page_len();
	char *p = small_area(len, 4), *ro = p + 3 * page_len();
	int fd = memfd_create("share", MFD_CLOEXEC), rc;
	size_t done;

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	assert_int_equal(pages_share(p, len, fd, 0, &done), 0);
	assert_int_equal(__real_mprotect(ro, page_len(), PROT_READ), 0);
	no_mprotect = true;
	rc = pages_unshare(ro, page_len(), fd, 3 * page_len(), &done);
	no_mprotect = false;
	assert_int_equal(rc, -ENOMEM);
	assert_int_equal(smaps_of(ro, "sh"), 1);
	assert_int_equal(smaps_of(ro, "wr"), 0);
	assert_int_equal(pages_unshare(p, len, fd, 0, &done), 0);
	assert_int_equal(smaps_of(ro, "sh"), 0);
	assert_int_equal(smaps_of(ro, "wr"), 0);
	assert_int_equal(smaps_of(p, "wr"), 1);
	assert_true(stamped(p, len, 4));
	close(fd);
}

static void map_a_page_over(void)
{
	char *p = __real_mmap64(changed, page_len(), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	assert_ptr_equal(p, changed);
	strcpy(p, "mapped meanwhile");
}

static void unmap_a_page(void)
{
	munmap(changed, page_len());
}

/* Pages in the middle of what is made private are not what they were. */
static void check_meanwhile(void (*change)(void), bool before)
{
	const size_t len = 8 * page_len();
	char *p = small_area(len, 4);
	int fd = memfd_create("share", MFD_CLOEXEC);
	size_t done;

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	assert_int_equal(pages_share(p, len, fd, 0, &done), 0);
	changed = p + 3 * page_len();
	if (before)
		change();
	else
		after_read = change;
	assert_int_equal(pages_unshare(p, len, fd, 0, &done), -ESTALE);
	after_read = NULL;
	assert_int_equal(done, 0);
	/* The rest is shared as before. */
	strcpy(p, "stored");
	assert_int_equal(pages_unshare(p, 3 * page_len(), fd, 0, &done), 0);
	assert_string_equal(p, "stored");
	assert_int_equal(smaps_of(p, "sh"), 0);
	assert_int_equal(smaps_of(p + 5 * page_len(), "sh"), 1);
	if (change == map_a_page_over)
		assert_string_equal(changed, "mapped meanwhile");
	else
		assert_int_equal(mprotect(changed, page_len(), PROT_NONE), -1);
	munmap(p, len);
	close(fd);
}

static void what_was_mapped_meanwhile_stays(void **state)
{
	check_meanwhile(map_a_page_over, false);
	check_meanwhile(unmap_a_page, false);
	check_meanwhile(map_a_page_over, true);
	check_meanwhile(unmap_a_page, true);
}

/* As pages_unshare(). */
static int share(void *at, size_t len, int fd, uint64_t off, size_t *done)
{
	return pages_share(at, len, fd, off, done);
}

static void what_failed_is_as_it_was(void **state)
{
	char *p = small_area(LEN, 1);
	int fd = memfd_create("share", MFD_CLOEXEC);
	char *view;

	assert_int_equal(ftruncate(fd, LEN), 0);
	each_fails(share, p, fd, 1);
	view = __real_mmap64(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(view, MAP_FAILED);
	stamp(p, LEN, 50);
	assert_true(stamped(view, LEN, 50));
	each_fails(pages_unshare, p, fd, 50);
	stamp(p, LEN, 99);
	assert_false(stamped(view, LEN, 99));
	munmap(view, LEN);
	close(fd);
}

#define LISTED PLAIN
#include "test_share_faults.cases.h"

int main(void)
{
	char *p = small_area(page_len(), 1);
	int fd = memfd_create("share", MFD_CLOEXEC);
	size_t done;
	int rc = ftruncate(fd, (off_t)page_len());

	if (!rc)
		rc = pages_share(p, page_len(), fd, 0, &done);
	if (!rc)
		rc = pages_unshare(p, page_len(), fd, 0, &done);
	if (rc) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return rc == -EOPNOTSUPP ? 77 : 1;
	}
	close(fd);
	area_free(p, page_len());
	return RUN(cases);
}
