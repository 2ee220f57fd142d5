// SPDX-License-Identifier: BSD-2-Clause
/*
 * Initialised data of a process with one thread: what io_uring has pinned stays where it is,
 * and what is converted keeps its contents.
 */
#include <liburing.h>

#include "peer.h"

#define PAGE 4096
#define CNT  ((size_t)8) /* pages */
#define WORDS (CNT * PAGE / sizeof(uint64_t))
#define WORD(page) ((page) * PAGE / sizeof(uint64_t))

static const struct kedge_segment_opts convert = { .size = sizeof(convert),
						   .backend = KEDGE_SEGMENT_CONVERT };

/* Each case has one of its own: what was converted is anonymous memory afterwards. */
#define DATA(name)                                                             \
	static uint64_t name[WORDS] __attribute__((aligned(PAGE))) = { 1 }

/* Not the page @but. */
static void fill(volatile uint64_t *w, size_t but)
{
	size_t i;

	for (i = 0; i < WORDS; i++)
		if (i / WORD(1) != but)
			w[i] = i;
}

static void assert_filled(const volatile uint64_t *w, size_t but)
{
	size_t i;

	for (i = 0; i < WORDS; i++)
		if (i / WORD(1) != but)
			assert_int_equal(w[i], i);
}

static void need_pages(void)
{
	need_convert();
	skip_if(UNDER_TSAN, "ThreadSanitizer has a thread of its own");
	skip_if(page_len() != PAGE, "pages of another size");
}

static void assert_refused(void *at, size_t len)
{
	struct kedge_segment *const before = (void *)&convert;
	struct kedge_segment *s = before;

	assert_int_equal(kedge_segment_make(at, len, &convert, &s), -EBUSY);
	assert_non_null(strstr(kedge_strerror(-EBUSY), "pinned"));
	assert_ptr_equal(s, before);
}

static void assert_converted(void *at, size_t len)
{
	struct kedge_segment *s;
	int rc = kedge_segment_make(at, len, &convert, &s);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	kedge_segment_remove(s);
}

/* ---- pins ---- */

static struct io_uring ring;

static void pin(void *at)
{
	struct iovec v = { at, PAGE };
	int rc = io_uring_queue_init(2, &ring, 0);

	if (!rc) {
		rc = io_uring_register_buffers(&ring, &v, 1);
		if (rc)
			io_uring_queue_exit(&ring);
	}
	if (rc) {
		print_message("skipped: io_uring is not to be had (%s)\n", strerror(-rc));
		skip();
	}
}

/* io_uring stores @value at @at, which is in the registered page. */
static void stored_by_uring(volatile uint64_t *at, uint64_t value)
{
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	assert_int_equal(write(fd[1], &value, sizeof(value)), sizeof(value));
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read_fixed(sqe, fd[0], (void *)(uintptr_t)at, sizeof(value), 0, 0);
	assert_int_equal(io_uring_submit(&ring), 1);
	assert_int_equal(io_uring_wait_cqe(&ring, &cqe), 0);
	assert_int_equal(cqe->res, sizeof(value));
	io_uring_cqe_seen(&ring, cqe);
	close(fd[0]);
	close(fd[1]);
	assert_int_equal(*at, value);
}

static void unpin(void)
{
	assert_int_equal(io_uring_unregister_buffers(&ring), 0);
	io_uring_queue_exit(&ring);
}

/* ---- cases ---- */

static void pinned_data_stay_where_they_are(void **state)
{
	DATA(data);

	need_pages();
	fill(data, CNT);
	pin(data + WORD(5));
	assert_refused(data, sizeof(data));
	assert_filled(data, CNT);
	stored_by_uring(data + WORD(5) + 3, 77);
	data[WORD(5) + 3] = WORD(5) + 3;
	fill(data, CNT);
	assert_refused(data + WORD(5), PAGE);
	stored_by_uring(data + WORD(6) - 1, 78);
	data[WORD(6) - 1] = WORD(6) - 1;
	/* Pages beside it can be. */
	assert_converted(data + WORD(6), PAGE);
	stored_by_uring(data + WORD(5), 79);
	data[WORD(5)] = WORD(5);
	unpin();
	assert_converted(data, sizeof(data));
	assert_filled(data, CNT);
}

/* The first and the last page of what is made a segment, and behind another mapping. */
static void every_page_is_looked_at(void **state)
{
	static const size_t of[] = { 0, CNT - 1, CNT - 1 };
	DATA(data);
	size_t i;

	need_pages();
	for (i = 0; i < 3; i++) {
		if (i == 2)
			assert_converted(data + WORD(3), PAGE);
		fill(data, CNT);
		pin(data + WORD(of[i]));
		assert_refused(data, sizeof(data));
		assert_filled(data, CNT);
		stored_by_uring(data + WORD(of[i]), 5);
		unpin();
	}
}

static void by_default_pinned_data_are_copied(void **state)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment *s;
	DATA(data);

	need_pages();
	fill(data, CNT);
	pin(data + WORD(2));
	assert_int_equal(kedge_segment_make(data, sizeof(data), NULL, &s), 0);
	assert_int_equal(kedge_segment_info(s, &i), 0);
	assert_int_equal(i.backend, KEDGE_SEGMENT_COPY);
	assert_non_null(strstr(i.reason, "pinned"));
	stored_by_uring(data + WORD(2), 6);
	kedge_segment_remove(s);
	assert_filled(data, 2);
	unpin();
}

static void data_kept_from_children_are_refused(void **state)
{
	struct kedge_segment *s;
	DATA(data);

	need_pages();
	fill(data, CNT);
	assert_int_equal(madvise(data + WORD(3), PAGE, MADV_DONTFORK), 0);
	assert_int_equal(kedge_segment_make(data, sizeof(data), &convert, &s), -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "MADV_DONTFORK"));
	assert_filled(data, CNT);
	fill(data, CNT);
	assert_int_equal(madvise(data + WORD(3), PAGE, MADV_DOFORK), 0);
	assert_converted(data, sizeof(data));
	assert_filled(data, CNT);
}

/* A private mapping of a file, of which some pages were never written, between anonymous
 * memory: the child that shows pins shares that as well. */
static void what_is_around_is_converted_with_them(void **state)
{
	FILE *f = tmpfile();
	uint64_t *w;

	need_pages();
	assert_non_null(f);
	w = (void *)new_pages(CNT);
	fill(w, CNT);
	assert_int_equal(fwrite(w, 1, CNT * PAGE, f), CNT * PAGE);
	assert_int_equal(fflush(f), 0);
	assert_ptr_not_equal(mmap(w + WORD(2), 4 * PAGE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_FIXED, fileno(f), 2 * PAGE), MAP_FAILED);
	fclose(f);
	w[WORD(3)] = WORD(3);
	assert_converted(w, CNT * PAGE);
	assert_filled(w, CNT);
}

static volatile sig_atomic_t heard;

static void hear(int sig)
{
	heard = sig;
}

static void no_child_is_left(void **state)
{
	const struct sigaction act = { .sa_handler = hear };
	struct sigaction was;
	unsigned int fds;
	DATA(data);

	need_pages();
	fill(data, CNT);
	sigaction(SIGCHLD, &act, &was);
	fds = open_fds();
	assert_converted(data, sizeof(data));
	assert_int_equal(open_fds(), fds);
	assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	assert_int_equal(heard, 0);
	sigaction(SIGCHLD, &was, NULL);
}

#define LISTED PLAIN
#include "test_segment_data.cases.h"
