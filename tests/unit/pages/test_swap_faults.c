// SPDX-License-Identifier: BSD-2-Clause
/*
 * Calls of the page swap to the system fail, one after the other, with
 * one error after the other: either the pages are exchanged or all is as it was,
 * and the next swap goes well. Each try is a process of its own, that has never
 * swapped before; and once more with the contexts that the first swap has left.
 */
#include "base/base.h"
#include "cases.h"
#include "pages/swap.h"

static int target, calls, with;
static bool for_good; /* and all calls of that name from then on */
static const char *failed = "nothing";

static bool fails(const char *name)
{
	if (!target)
		return false;
	if (++calls != target &&
	    !(for_good && calls > target && !strcmp(name, failed)))
		return false;
	failed = name;
	errno = with;
	return true;
}

#define WRAP(ret, name, ...)            \
	ret __real_##name(__VA_ARGS__); \
	ret __wrap_##name(__VA_ARGS__)

WRAP(int, ioctl, int fd, unsigned long request, ...);
WRAP(long, syscall, long nr, ...);
WRAP(void *, mmap, void *at, size_t len, int prot, int flags, int fd,
     off_t off);
void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd,
		    off_t off);
WRAP(void *, mremap, void *from, size_t len, size_t new_len, int flags, ...);
WRAP(int, mprotect, void *at, size_t len, int prot);
WRAP(int, madvise, void *at, size_t len, int advice);
WRAP(void *, calloc, size_t cnt, size_t size);
WRAP(int, open, const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
WRAP(FILE *, fopen, const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	return fails("ioctl") ? -1 : __real_ioctl(fd, request, arg);
}

/* It takes six, as syscall() does; the caller may have passed fewer. */
__attribute__((no_sanitize("address")))
long __wrap_syscall(long nr, ...)
{
	long a[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (fails("syscall"))
		return -1;
	return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return fails("mmap") ? MAP_FAILED
			     : __real_mmap(at, len, prot, flags, fd, off);
}

void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd,
		    off_t off)
{
	return __wrap_mmap(at, len, prot, flags, fd, off);
}

void *__wrap_mremap(void *from, size_t len, size_t new_len, int flags, ...)
{
	va_list ap;
	void *to;

	va_start(ap, flags);
	to = va_arg(ap, void *);
	va_end(ap);
	return fails("mremap") ? MAP_FAILED
			       : __real_mremap(from, len, new_len, flags, to);
}

int __wrap_mprotect(void *at, size_t len, int prot)
{
	return fails("mprotect") ? -1 : __real_mprotect(at, len, prot);
}

int __wrap_madvise(void *at, size_t len, int advice)
{
	return fails("madvise") ? -1 : __real_madvise(at, len, advice);
}

void *__wrap_calloc(size_t cnt, size_t size)
{
	return fails("calloc") ? NULL : __real_calloc(cnt, size);
}

int __wrap_open(const char *path, int flags, ...)
{
	return fails("open") ? -1 : __real_open(path, flags, 0);
}

int __wrap_open64(const char *path, int flags, ...)
{
	return __wrap_open(path, flags);
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	return fails("fopen") ? NULL : __real_fopen(path, mode);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	return __wrap_fopen(path, mode);
}

/* ---- the tries ---- */

struct try {
	uint32_t way;
	int step;
	int with;
	bool second; /* not the first swap of the process */
	bool for_good;
	bool done;   /* told back: the step was never reached */
};

/*
 * Two huge pages' length: one of single pages, one huge, if there are any. For
 * mremap() all of a kind: it takes mappings that are alike.
 */
static char *range(const struct try *t, char id)
{
	size_t h = pages_huge_len();
	char *p = mmap(NULL, 4 * h, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		_exit(2);
	p = (char *)round_up((uintptr_t)p, h);
	if (t->way == KEDGE_SWAP_MOVE)
		madvise(p + (id == 1 ? 0 : h), h, MADV_HUGEPAGE);
	memset(p, id, 2 * h);
	/* A hole on one side alone. */
	if (id == 1)
		madvise(p, 4 * page_len(), MADV_DONTNEED);
	return p;
}

static bool holds(const char *p, char id)
{
	size_t h = pages_huge_len(), i;

	for (i = 4 * page_len(); i < 2 * h; i += page_len() / 2)
		if (p[i] != id)
			return false;
	return p[0] == (id == 1 ? 0 : id);
}

/* The kernel may hold a page for a moment, too: -EBUSY, with nothing pinned. */
static bool swaps(const struct try *t, char *a, char *b)
{
	int rc;

	do {
		rc = kedge_page_swap_with(a, b, 2 * pages_huge_len(), t->way);
	} while (rc == -EBUSY);
	if (rc)
		fprintf(stderr, "after call %d (%s) failed with %s: %d, %s\n",
			t->step, failed, strerrorname_np(t->with), rc,
			kedge_strerror(rc));
	return !rc;
}

static int one_try(void *arg)
{
	struct try *t = arg;
	size_t len = 2 * pages_huge_len();
	char *a = range(t, 1), *b = range(t, 2);
	char now = 1;
	int rc;

	if (t->second) {
		CHILD_CHECK(swaps(t, a, b));
		now = 2;
	}
	with = t->with;
	for_good = t->for_good;
	calls = 0;
	target = t->step;
	rc = kedge_page_swap_with(a, b, len, t->way);
	t->done = calls < target;
	target = 0;
	if (!rc)
		now = 3 - now;
	/* One EINVAL at the right moment is the answer of an older kernel. */
	if (t->with == EINVAL && rc == -EOPNOTSUPP &&
	    strstr(kedge_strerror(rc), "this kernel cannot"))
		return !holds(a, now) || !holds(b, 3 - now);
	if (!holds(a, now) || !holds(b, 3 - now) || rc > 0 ||
	    (t->done && rc && rc != -EBUSY)) {
		fprintf(stderr, "call %d (%s) fails with %s: %d, %s\n",
			t->step, failed, strerrorname_np(t->with), rc,
			kedge_strerror(rc));
		return 1;
	}
	CHILD_CHECK(swaps(t, a, b));
	CHILD_CHECK(holds(a, 3 - now) && holds(b, now));
	return 0;
}

static int ask(void *arg)
{
	struct try *t = arg;
	char *p = range(t, 1), *q = range(t, 2);

	t->done = kedge_page_swap_with(p, q, page_len(), t->way);
	return 0;
}

static struct try *shared_try(void)
{
	struct try *t = mmap(NULL, page_len(), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(t, MAP_FAILED);
	return t;
}

static void every_failure_leaves_all_or_nothing(uint32_t way)
{
	static const int errors[] = { ENOMEM, EAGAIN, EBUSY, EINVAL,
				      EBADF, EEXIST, ENOENT, EPERM };
	struct try *t = shared_try();
	int seen = 0;
	size_t i;

	t->way = way;
	assert_int_equal(in_child(ask, t), 0);
	skip_if(t->done, "this kernel cannot move pages");
	for (i = 0; i < 2 * ARRAY_SIZE(errors); i++) {
		t->with = errors[i / 2];
		t->second = i % 2;
		t->step = 0;
		do {
			t->step++;
			if (in_child(one_try, t))
				fail_msg("call %d, %s, %s swap", t->step,
					 strerrorname_np(t->with),
					 t->second ? "second" : "first");
		} while (!t->done);
		seen += t->step - 1;
	}
	print_message("%d failures\n", seen);
	assert_true(seen > 20);
	munmap(t, page_len());
}

static void a_move_that_fails_leaves_all_or_nothing(void **state)
{
	every_failure_leaves_all_or_nothing(KEDGE_SWAP_MOVE);
}

static void a_remap_that_fails_leaves_all_or_nothing(void **state)
{
	every_failure_leaves_all_or_nothing(KEDGE_SWAP_REMAP);
}

/* Pages that are out come home, if need be as copies. */
static void a_remap_that_fails_for_good_copies_what_is_out_home(void **state)
{
	struct try *t = shared_try();

	t->way = KEDGE_SWAP_REMAP;
	t->with = ENOMEM;
	t->for_good = true;
	do {
		t->step++;
		if (in_child(one_try, t))
			fail_msg("call %d and on", t->step);
	} while (!t->done);
	assert_true(t->step > 3);
	munmap(t, page_len());
}

#define LISTED PLAIN
#include "test_swap_faults.cases.h"

int main(void)
{
	return cmocka_run_group_tests_name("swap_faults", cases, NULL,
					   NULL);
}
