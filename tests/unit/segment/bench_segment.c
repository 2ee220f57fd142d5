// SPDX-License-Identifier: BSD-2-Clause
/*
 * A benchmark, "meson test --benchmark segment": what an attached segment costs beside the
 * process's own memory, beside mmap() of a memfd, and beside process_vm_readv(). The two of
 * each line take turns; medians, and the median of their ratios.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"

#define ROUNDS 41
#define LEN    ((size_t)64 << 20)
#define RW     (KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE)

/* The other process has the memory: what is attached here is really another's. */
static char *there, *own;
static struct kedge_grant *grant;
static struct kedge_attachment *att;
static pid_t owner;
static int memfd;

static int die(const char *what, int rc)
{
	fprintf(stderr, "bench_segment: %s: %s\n", what, kedge_strerror(rc));
	exit(rc == -EOPNOTSUPP ? 77 : 1);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), by_size);
	return v[ROUNDS / 2];
}

/* @a and @b in turns; each returns the nanoseconds of one operation. */
static void compare(const char *what, double (*a)(void), double (*b)(void))
{
	double x[ROUNDS], y[ROUNDS], r[ROUNDS];
	int i;

	a();
	b();
	for (i = 0; i < ROUNDS; i++) {
		x[i] = a();
		y[i] = b();
		r[i] = y[i] / x[i];
	}
	printf("%-44s %12.1f %12.1f ns %8.2fx\n", what, median(x), median(y), median(r));
}

/* ---- loads: a chain through 256 KiB, each dependent on the one before ---- */

#define CHAIN ((size_t)256 << 10)

static void chain(char *at)
{
	size_t i, n = CHAIN / 64;

	for (i = 0; i < n; i++)
		*(uint64_t *)(void *)(at + i * 64) = (i * 1021 + 1) % n;
}

static double follow(const char *at)
{
	uint64_t i = 0, start = clock_ns();
	int k;

	for (k = 0; k < 100000; k++)
		i = *(const volatile uint64_t *)(const void *)(at + i * 64);
	return (double)(clock_ns() - start) / 100000;
}

static double load_own(void)
{
	return follow(own);
}

static double load_there(void)
{
	return follow(there);
}

static double load_valid(void)
{
	uint64_t start = clock_ns();
	int k, n = 0;

	for (k = 0; k < 100000; k++)
		n += kedge_segment_valid(att);
	return n == 100000 ? (double)(clock_ns() - start) / 100000 : 1e9;
}

/* ---- mappings, of 64 KiB ---- */

#define PART ((size_t)64 << 10)

static double map_memfd(void)
{
	uint64_t start = clock_ns();
	int k;

	for (k = 0; k < 1000; k++)
		munmap(mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0), PART);
	return (double)(clock_ns() - start) / 1000;
}

static double attach_part(void)
{
	uint64_t start = clock_ns();
	struct kedge_attachment *a;
	int k;

	for (k = 0; k < 1000; k++) {
		if (kedge_segment_attach(grant, 0, PART, 0, &a))
			return 1e9;
		kedge_segment_detach(a);
	}
	return (double)(clock_ns() - start) / 1000;
}

/* ---- copies ---- */

static double copied(size_t len, bool loads)
{
	int k, n = len > 4096 ? 20 : 10000;
	uint64_t start = clock_ns();

	for (k = 0; k < n; k++)
		if (loads)
			memcpy(own, there, len);
		else if (kedge_segment_copy(grant, 0, own, len, KEDGE_SEGMENT_READ) < 0)
			return 1e9;
	return (double)(clock_ns() - start) / n;
}

static double load_64(void)
{
	return copied(64, true);
}

static double copy_64(void)
{
	return copied(64, false);
}

static double load_1m(void)
{
	return copied(1 << 20, true);
}

static double copy_1m(void)
{
	return copied(1 << 20, false);
}

/* ---- the other process ---- */

struct pace {
	uint64_t converted; /* nanoseconds for all of it */
	uint64_t copied;
};

struct hello {
	struct kedge_segment_id id;
	struct pace pages, huge;
	int rc;
};

/* 64 bytes there and back: the first word of each line says that it is there. */
static void echo(char *mem)
{
	volatile uint64_t *in = (void *)(mem + LEN - 128), *out = in + 8;
	uint64_t seen = 0;

	for (;;) {
		while (__atomic_load_n(in, __ATOMIC_ACQUIRE) == seen)
			if (getppid() == 1)
				_exit(0);
		seen = *in;
		__atomic_store_n(out, seen, __ATOMIC_RELEASE);
	}
}

/* Memory that is a segment's, and how long it took beside a copy of as much. */
static char *shared(int advice, struct pace *p, struct kedge_segment **s, int *rc)
{
	const struct kedge_segment_opts o = { .size = sizeof(o),
					      .backend = KEDGE_SEGMENT_CONVERT };
	char *raw = mmap(NULL, 3 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0), *mem = (char *)round_up((uintptr_t)raw, LEN);

	madvise(mem, 2 * LEN, advice);
	memset(mem, 1, 2 * LEN);
	p->copied = clock_ns();
	memcpy(mem + LEN, mem, LEN);
	p->copied = clock_ns() - p->copied;
	p->converted = clock_ns();
	*rc = kedge_segment_make(mem, LEN, &o, s);
	p->converted = clock_ns() - p->converted;
	return mem;
}

static void be_owner(int fd)
{
	struct hello h = { .rc = 0 };
	struct kedge_segment *s;
	char *mem;

	shared(MADV_HUGEPAGE, &h.huge, &s, &h.rc);
	if (!h.rc)
		kedge_segment_remove(s);
	mem = shared(MADV_NOHUGEPAGE, &h.pages, &s, &h.rc);
	chain(mem);
	memset(mem + LEN - 128, 0, 128);
	if (!h.rc)
		kedge_segment_id(s, &h.id);
	if (write(fd, &h, sizeof(h)) == sizeof(h) && !h.rc)
		echo(mem);
	_exit(0);
}

static double exchange(void)
{
	volatile uint64_t *out = (void *)(there + LEN - 128), *in = out + 8;
	uint64_t start = clock_ns(), n = *out;
	int k;

	for (k = 0; k < 20000; k++) {
		__atomic_store_n(out, ++n, __ATOMIC_RELEASE);
		while (__atomic_load_n(in, __ATOMIC_ACQUIRE) != n)
			;
	}
	return (double)(clock_ns() - start) / 20000;
}

static void begin(struct hello *h)
{
	int fd[2], rc;

	if (pipe(fd))
		exit(1);
	owner = fork();
	if (!owner)
		be_owner(fd[1]);
	if (read(fd[0], h, sizeof(*h)) != sizeof(*h) || h->rc)
		die("make", h->rc);
	rc = kedge_segment_get(&h->id, RW, &grant);
	if (!rc)
		rc = kedge_segment_attach(grant, 0, LEN, 0, &att);
	if (rc)
		die("attach", rc);
	there = kedge_segment_addr(att);
	own = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(own, LEN, MADV_NOHUGEPAGE);
	memset(own, 1, LEN);
	chain(own);
	memfd = memfd_create("bench", MFD_CLOEXEC);
	if (memfd < 0 || ftruncate(memfd, (off_t)LEN))
		exit(1);
}

static void say(const char *what, const struct pace *p)
{
	printf("64 MiB of %s converted: %.2f GB/s, memcpy() %.2f GB/s: %.2fx\n", what,
	       (double)LEN / (double)p->converted, (double)LEN / (double)p->copied,
	       (double)p->copied / (double)p->converted);
}

int main(void)
{
	struct hello h;

	begin(&h);
	printf("%-44s %12s %12s\n", "", "first", "second");
	compare("load, 8 bytes: own memory, attached", load_own, load_there);
	compare("valid() beside such a load", load_own, load_valid);
	compare("64 KiB: mmap() of a memfd, attach", map_memfd, attach_part);
	compare("64 bytes: attached, process_vm_readv()", load_64, copy_64);
	compare("1 MiB: attached, process_vm_readv()", load_1m, copy_1m);
	printf("64 bytes there and back: %.0f ns\n", (exchange(), exchange()));
	say("pages", &h.pages);
	say("huge pages", &h.huge);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	return 0;
}
