// SPDX-License-Identifier: BSD-2-Clause
/*
 * Private memory that becomes shared in place, and private again: contents, holes, huge
 * pages, stores of running threads, refusals after which all is as it was.
 */
#include <liburing.h>

#include "pages/share/share.h"
#include "swap_mem.h"

#define LEN (9 * MIB) /* several chunks */
#define MIB ((size_t)1 << 20)

static int file_of(size_t len)
{
	int fd = memfd_create("share", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	return fd;
}

static char *view_of(int fd, size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void made_shared(char *p, size_t len, int fd)
{
	size_t done;
	int rc = pages_share(p, len, fd, 0, &done);

	if (rc)
		fail_msg("share: %s", kedge_strerror(rc));
	assert_int_equal(done, len);
}

static void made_private(char *p, size_t len, int fd)
{
	size_t done;
	int rc = pages_unshare(p, len, fd, 0, &done);

	if (rc)
		fail_msg("unshare: %s", kedge_strerror(rc));
	assert_int_equal(done, len);
}

/* Kernels that move no pages, or hold no writers back, say so. */
static int need_share(void **state)
{
	char *p = small_area(page_len(), 1);
	int fd = file_of(page_len()), rc;
	size_t done;

	rc = pages_share(p, page_len(), fd, 0, &done);
	if (!rc)
		rc = pages_unshare(p, page_len(), fd, 0, &done);
	close(fd);
	area_free(p, page_len());
	if (!rc)
		return 0;
	assert_int_equal(rc, -EOPNOTSUPP);
	print_message("skipped: %s\n", kedge_strerror(rc));
	return 1;
}

static void there_and_back(char *p, uint64_t id)
{
	int fd = file_of(LEN);
	char *view = view_of(fd, LEN);

	made_shared(p, LEN, fd);
	assert_true(stamped(p, LEN, id));
	assert_true(stamped(view, LEN, id));
	assert_int_equal(smaps_of(p, "sh"), 1);
	/* Both ways. */
	stamp(view, LEN, id + 1);
	assert_true(stamped(p, LEN, id + 1));
	stamp(p, LEN, id + 2);
	assert_true(stamped(view, LEN, id + 2));
	made_private(p, LEN, fd);
	assert_true(stamped(p, LEN, id + 2));
	assert_int_equal(smaps_of(p, "sh"), 0);
	stamp(p, LEN, id + 3);
	assert_true(stamped(view, LEN, id + 2));
	stamp(view, LEN, id + 4);
	assert_true(stamped(p, LEN, id + 3));
	munmap(view, LEN);
	close(fd);
}

static void contents_stay_at_their_addresses(void **state)
{
	char *p = small_area(LEN, 1);

	there_and_back(p, 1);
	/* And again. */
	stamp(p, LEN, 20);
	there_and_back(p, 20);
}

static void huge_pages_go_as_well(void **state)
{
	char *p = huge_area(LEN, 1);

	there_and_back(p, 1);
}

static void a_part_of_a_mapping_is_enough(void **state)
{
	const size_t page = page_len();
	char *p = huge_area(LEN, 5);
	int fd = file_of(3 * page);
	size_t done;

	assert_int_equal(pages_share(p + 3 * page, 3 * page, fd, 0, &done), 0);
	assert_true(stamped(p, LEN, 5));
	assert_int_equal(smaps_of(p + 2 * page, "sh"), 0);
	assert_int_equal(smaps_of(p + 3 * page, "sh"), 1);
	assert_int_equal(smaps_of(p + 6 * page, "sh"), 0);
	assert_int_equal(pages_unshare(p + 3 * page, 3 * page, fd, 0, &done), 0);
	assert_true(stamped(p, LEN, 5));
	close(fd);
}

static void holes_stay_holes(void **state)
{
	const size_t page = page_len();
	int fd = file_of(LEN);
	char *p = area(LEN);
	struct stat st;

	madvise(p, LEN, MADV_NOHUGEPAGE);
	p[page] = 1;
	p[LEN - page] = 2;
	made_shared(p, LEN, fd);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_blocks * 512, 2 * page);
	assert_int_equal(p[page] + p[LEN - page], 3);
	made_private(p, LEN, fd);
	/* One mapping again, of which the kernel may make huge pages. */
	assert_int_equal(smaps_of(p, "Size"), LEN / 1024);
	assert_in_range(smaps_of(p, "Rss"), 2 * page / 1024, 4 * MIB / 1024);
	assert_int_equal(p[page] + p[LEN - page], 3);
	assert_true(zeros(p + 2 * page, LEN - 3 * page));
	close(fd);
}

/* ---- threads that store meanwhile ---- */

#define WRITERS 3
#define PAGES	700

struct writer {
	pthread_t thread;
	char *p;
	size_t word; /* of each page */
	uint64_t cnt[PAGES];
	_Atomic bool *stop;
	_Atomic uint64_t rounds;
	_Atomic uint64_t *wrong;
};

/* Not watched by ThreadSanitizer, to which mmap() is a write. */
__attribute__((no_sanitize("thread"))) static void *write_on(void *arg)
{
	struct writer *w = arg;
	volatile uint64_t *at;
	size_t i;

	for (; !*w->stop; w->rounds++)
		for (i = 0; i < PAGES; i++) {
			at = (uint64_t *)(void *)(w->p + i * page_len()) +
			     w->word;
			/* A plain store: what was there is this thread's own. */
			if (*at != w->cnt[i])
				++*w->wrong;
			*at = ++w->cnt[i];
		}
	return NULL;
}

static void no_store_is_lost(void **state)
{
	const size_t len = PAGES * page_len();
	static struct writer w[WRITERS];
	_Atomic bool stop = false;
	_Atomic uint64_t wrong = 0;
	char *p = area(len);
	bool busy;
	int i, fd;

	for (i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ .p = p, .word = (size_t)i * 8,
					.stop = &stop, .wrong = &wrong };
		w[i].thread = run_thread(write_on, &w[i]);
	}
	do {
		fd = file_of(len);
		made_shared(p, len, fd);
		made_private(p, len, fd);
		close(fd);
		busy = false;
		for (i = 0; i < WRITERS; i++)
			busy = busy || w[i].rounds < 50;
	} while (busy && !wrong);
	stop = true;
	for (i = 0; i < WRITERS; i++)
		pthread_join(w[i].thread, NULL);
	assert_int_equal(wrong, 0);
}

/* ---- refusals ---- */

static void refused(char *p, size_t len, int fd, int want)
{
	size_t done = 1;
	int rc = pages_share(p, len, fd, 0, &done);

	assert_int_equal(rc, want);
	assert_int_equal(done, 0);
	print_message("%s\n", kedge_strerror(rc));
}

static void pinned_pages_are_refused(void **state)
{
	const size_t len = 16 * page_len();
	char *p = small_area(len, 1);
	struct iovec v = { p + 5 * page_len(), page_len() };
	struct io_uring ring;
	int fd = file_of(len);

	if (io_uring_queue_init(2, &ring, 0))
		skip();
	assert_int_equal(io_uring_register_buffers(&ring, &v, 1), 0);
	refused(p, len, fd, -EBUSY);
	assert_true(stamped(p, len, 1));
	assert_int_equal(smaps_of(p, "sh"), 0);
	stamp(p, len, 2);
	io_uring_queue_exit(&ring);
	close(fd);
	fd = file_of(len);
	/* The ring's end gives them back a moment later. */
	for (;;) {
		size_t done;
		int rc = pages_share(p, len, fd, 0, &done);

		if (!rc)
			break;
		assert_int_equal(rc, -EBUSY);
		usleep(1000);
	}
	assert_true(stamped(p, len, 2));
	close(fd);
}

static void other_memory_is_refused(void **state)
{
	const size_t len = 4 * page_len();
	int fd = file_of(len), other = file_of(len);
	char *p = view_of(other, len), *q;

	refused(p, len, fd, -EOPNOTSUPP);
	munmap(p, len);
	p = small_area(len, 1);
	assert_int_equal(mprotect(p, len, PROT_READ), 0);
	refused(p, len, fd, -EOPNOTSUPP);
	assert_true(stamped(p, len, 1));
	assert_int_equal(smaps_of(p, "wr"), 0);
	q = area(2 * len);
	stamp(q, 2 * len, 2);
	munmap(q + len, len);
	refused(q + len, page_len(), fd, -EFAULT);
	close(fd);
	close(other);
}

static void a_memfd_that_takes_no_more_changes_nothing(void **state)
{
	const size_t len = 8 * page_len();
	char *p = small_area(len, 3);
	int fd = file_of(len);

	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	refused(p, len, fd, -EPERM);
	assert_true(stamped(p, len, 3));
	assert_int_equal(smaps_of(p, "sh"), 0);
	stamp(p, len, 4);
	assert_true(stamped(p, len, 4));
	close(fd);
}

/* By a system call of its own, which no handler of libkedge's sees. */
static void a_child_faults_instead_of_sharing(void **state)
{
	const size_t len = 4 * page_len();
	char *p = small_area(len, 1);
	int fd = file_of(len), status;
	pid_t pid;

	made_shared(p, len, fd);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile char *)p = 9;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_true(stamped(p, len, 1));
	/* Private again, it is the child's as all else is. */
	made_private(p, len, fd);
	assert_int_equal(smaps_of(p, "dc"), 0);
	close(fd);
}

#define LISTED PLAIN
#include "test_share.cases.h"

int main(void)
{
	if (need_share(NULL))
		return 77;
	return RUN(cases);
}
