// SPDX-License-Identifier: BSD-2-Clause
/*
 * A benchmark, "meson test --benchmark landing": pages that io_uring has pinned are put
 * under a buffer that has none, as an RDMA channel does with what has landed, in turns
 * with copying the same into memory that has its pages. Medians, and the ratio of the
 * two in a round. Wrong contents end it with 1, also those that a read into the
 * registered pages brings by their old slot.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "pages/swap.h"

#define ROUNDS 41
#define HUGE   ((size_t)2 << 20)

struct field {
	struct io_uring ring;
	size_t len;
	int advice;
	char *area, *block; /* pinned; of whole huge pages' addresses */
	char *room, *buffer; /* without pages */
	char *copy; /* with pages */
	int pipe[2];
};

static int die(const char *what, int rc)
{
	fprintf(stderr, "bench_landing: %s: %s\n", what, kedge_strerror(rc));
	return -1;
}

static char *map_at(char *at, size_t len, int advice)
{
	char *p = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE |
		       MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, len, advice);
	return p;
}

static char *aligned(char *p)
{
	return (char *)round_up((uintptr_t)p, HUGE);
}

/* Both ranges anew: the block's pages pinned, the buffer without any. */
static int lay(struct field *f)
{
	struct iovec v = { .iov_len = f->len };
	__u64 tag = 0;
	int rc;

	f->area = map_at(f->area, f->len + HUGE, f->advice);
	f->room = map_at(f->room, f->len + HUGE, f->advice);
	if (!f->area || !f->room)
		return die("mmap", -ENOMEM);
	f->block = aligned(f->area);
	f->buffer = aligned(f->room);
	memset(f->block, 7, f->len);
	v.iov_base = f->block;
	rc = io_uring_register_buffers_update_tag(&f->ring, 0, &v, &tag, 1);
	return rc == 1 ? 0 : die("io_uring", rc < 0 ? rc : -EIO);
}

/* By the slot, which knows the pages by the block's addresses. */
static int reaches(struct field *f, size_t at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&f->ring);
	struct io_uring_cqe *cqe;
	int rc;

	if (write(f->pipe[1], "landing!", 8) != 8)
		return die("write", -errno);
	/* Of a pipe, as the ring has no thread for that, which would be interrupted
	 * by each change of a mapping. */
	io_uring_prep_read_fixed(sqe, f->pipe[0], f->block + at, 8, 0, 0);
	rc = io_uring_submit_and_wait(&f->ring, 1);
	if (rc < 0 || (rc = io_uring_wait_cqe(&f->ring, &cqe)))
		return die("io_uring", rc);
	rc = cqe->res;
	io_uring_cqe_seen(&f->ring, cqe);
	if (rc != 8)
		return die("read", rc < 0 ? rc : -EIO);
	if (memcmp(f->buffer + at, "landing!", 8) || f->buffer[at + 8] != 7)
		return die("the slot reaches other pages", -EIO);
	return 0;
}

static int one_round(struct field *f, double *copy, double *put)
{
	uint64_t t0;
	int rc;

	if (lay(f))
		return -1;
	rc = kedge__pages_alike(f->buffer, f->block, f->len);
	if (rc)
		return die("alike", rc);
	t0 = clock_ns();
	memcpy(f->copy, f->block, f->len);
	*copy = (double)(clock_ns() - t0);
	t0 = clock_ns();
	rc = kedge__pages_replace(f->buffer, f->block, f->len, NULL);
	*put = (double)(clock_ns() - t0);
	if (rc)
		return die("replace", rc);
	if (memcmp(f->buffer, f->copy, f->len))
		return die("contents", -EIO);
	return reaches(f, 0) || reaches(f, f->len / 2) ||
	       reaches(f, f->len - 4096);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[ROUNDS / 2];
}

static int measure(struct field *f)
{
	double copy[ROUNDS], put[ROUNDS], x[ROUNDS];
	int i;

	f->copy = map_at(NULL, f->len, f->advice);
	/* One before it counts. */
	if (!f->copy || one_round(f, copy, put))
		return -1;
	for (i = 0; i < ROUNDS; i++) {
		if (one_round(f, &copy[i], &put[i]))
			return -1;
		x[i] = copy[i] / put[i];
	}
	printf("%-5s %3zu MiB: copy %8.1f us, landing %7.1f us, %6.1f times faster\n",
	       f->advice == MADV_HUGEPAGE ? "huge" : "small", f->len >> 20,
	       median(copy) / 1e3, median(put) / 1e3, median(x));
	munmap(f->copy, f->len);
	munmap(f->area, f->len + HUGE);
	munmap(f->room, f->len + HUGE);
	f->area = f->room = NULL;
	return 0;
}

int main(void)
{
	static const size_t mib[] = { 4, 16 };
	struct field f = { 0 };
	size_t i;
	int rc;

	if (pipe2(f.pipe, O_CLOEXEC))
		return 77;
	rc = io_uring_queue_init(4, &f.ring, 0);
	if (!rc)
		rc = io_uring_register_buffers_sparse(&f.ring, 1);
	if (rc) {
		printf("no io_uring here (%s)\n", kedge_strerror(rc));
		return 77;
	}
	for (i = 0; i < 4 && !rc; i++) {
		f.advice = i % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
		f.len = mib[i / 2] << 20;
		rc = measure(&f);
	}
	io_uring_queue_exit(&f.ring);
	return rc ? 1 : 0;
}
