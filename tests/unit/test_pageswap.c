// SPDX-License-Identifier: BSD-2-Clause
/*
 * What a user of the page swap relies upon: data, attributes, neighbours, and
 * that a refusal changes nothing. The fixture's memory is stamped, so that each
 * word tells which page it belongs to.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/base.h"
#include "channel/pageswap.h"
#include "core.h"

#define SPAN_PAGES 1024

enum { SMALL, HUGE, HOLES, FRESH };

static uint32_t way; /* the flags that a case runs with */

/* ---- memory ---- */

static size_t huge_len(void)
{
	return pages_huge_len();
}

/* @len bytes at a huge page's boundary, with a huge page of nothing around. */
static char *area(size_t len)
{
	size_t h = huge_len(), all = round_up(len, h) + 3 * h;
	char *p = mmap(NULL, all, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	p = (char *)round_up((uintptr_t)p + 1, h);
	assert_ptr_equal(mmap(p, len, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 p);
	return p;
}

static void area_free(char *p, size_t len)
{
	size_t h = huge_len();

	munmap(p, round_up(len, h) + h);
}

static uint64_t word(uint64_t stamp, size_t i)
{
	return (stamp << 32) + i + 1;
}

/* A word at both ends of each page. */
static void stamp(char *p, size_t len, uint64_t id)
{
	size_t page = page_len(), i;

	for (i = 0; i < len; i += page) {
		*(uint64_t *)(p + i) = word(id, i / page);
		*(uint64_t *)(p + i + page - 8) = word(id, i / page);
	}
}

static bool stamped(const char *p, size_t len, uint64_t id)
{
	size_t page = page_len(), i;

	for (i = 0; i < len; i += page)
		if (*(const uint64_t *)(p + i) != word(id, i / page) ||
		    *(const uint64_t *)(p + i + page - 8) != word(id, i / page))
			return false;
	return true;
}

static bool zeros(const char *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i += 8)
		if (*(const uint64_t *)(p + i))
			return false;
	return true;
}

/* The flag @flag, such as "hg", in VmFlags of the mapping at @p; and sizes. */
static long smaps_of(const void *p, const char *what)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long start, end;
	bool in = false;
	char line[512];
	long v = -1;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			in = addr_of(p) >= start && addr_of(p) < end;
		else if (in && !strncmp(line, what, strlen(what)))
			sscanf(line + strlen(what), ": %ld", &v);
		else if (in && !strncmp(line, "VmFlags:", 8) &&
			 strlen(what) == 2)
			v = strstr(line, what) != NULL;
	}
	fclose(f);
	return v;
}

static char *small_area(size_t len, uint64_t id)
{
	char *p = area(len);

	madvise(p, len, MADV_NOHUGEPAGE);
	stamp(p, len, id);
	return p;
}

static char *huge_area(size_t len, uint64_t id)
{
	char *p = area(len);

	madvise(p, len, MADV_HUGEPAGE);
	stamp(p, len, id);
	return p;
}

/* ---- the machine ---- */

/* Whether pages can be moved here; else why not. */
static int can_move(void)
{
	char *p = small_area(2 * page_len(), 1);
	int rc = kedge_page_swap(p, p + page_len(), page_len());

	area_free(p, 2 * page_len());
	return rc;
}

static int way_move(void **state)
{
	way = KEDGE_SWAP_MOVE;
	return 0;
}

static int way_remap(void **state)
{
	way = KEDGE_SWAP_REMAP;
	return 0;
}

static void need_way(void)
{
	if (way == KEDGE_SWAP_MOVE && can_move()) {
		print_message("skipped: %s\n", kedge_strerror(can_move()));
		skip();
	}
}

/* ---- data ---- */

static void each_address_has_the_other_ones_data(void **state)
{
	size_t len = 600 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);
	size_t off;

	need_way();
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_true(stamped(a, len, 2));
	assert_true(stamped(b, len, 1));
	/* And back, page after page. */
	for (off = 0; off < len; off += page_len())
		assert_int_equal(kedge_page_swap_with(a + off, b + off,
						      page_len(), way), 0);
	assert_true(stamped(a, len, 1));
	assert_true(stamped(b, len, 2));
	area_free(a, len);
	area_free(b, len);
}

static void not_congruent_ranges_are_swapped_as_well(void **state)
{
	size_t page = page_len(), len = 700 * page;
	char *a = small_area(len, 1), *b = small_area(len + 3 * page, 2);
	int i;

	need_way();
	for (i = 0; i < 2; i++) {
		assert_int_equal(kedge_page_swap_with(a, b + page, len, way),
				 0);
		stamp(b + page, len, 4);
		assert_true(zeros(a + 8, 8));
	}
	assert_true(stamped(a, len, 4));
	assert_true(stamped(b, page, 2));
	area_free(a, len);
	area_free(b, len + 3 * page);
}

static void ranges_that_touch_are_swapped(void **state)
{
	size_t len = 16 * page_len();
	char *a = small_area(2 * len, 1);

	need_way();
	stamp(a + len, len, 2);
	assert_int_equal(kedge_page_swap_with(a, a + len, len, way), 0);
	assert_true(stamped(a, len, 2));
	assert_true(stamped(a + len, len, 1));
	assert_int_equal(kedge_page_swap_with(a + len, a, len, way), 0);
	assert_true(stamped(a, len, 1));
	area_free(a, 2 * len);
}

static void what_has_no_page_gives_none(void **state)
{
	size_t page = page_len(), len = 8 * page;
	char *a = small_area(len, 1), *b = small_area(len, 2);
	unsigned char in[8];

	need_way();
	madvise(a + page, page, MADV_DONTNEED);
	madvise(b + 2 * page, page, MADV_DONTNEED);
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_int_equal(mincore(b, len, in), 0);
	assert_false(in[1] & 1);
	assert_int_equal(mincore(a, len, in), 0);
	assert_false(in[2] & 1);
	assert_true(zeros(b + page, page));
	assert_true(zeros(a + 2 * page, page));
	assert_true(stamped(a, page, 2));
	assert_true(stamped(b, page, 1));
	area_free(a, len);
	area_free(b, len);
}

static void never_touched_memory_is_swapped(void **state)
{
	size_t len = 2 * huge_len();
	char *a = area(len), *b = area(len);

	need_way();
	stamp(b, len, 2);
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_true(stamped(a, len, 2));
	assert_true(zeros(b, len));
	area_free(a, len);
	area_free(b, len);
}

static void need_huge(char *p, size_t len)
{
	if (smaps_of(p, "AnonHugePages") * 1024 == (long)len)
		return;
	print_message("skipped: the kernel gave no huge pages\n");
	skip();
}

static void huge_pages_stay_huge(void **state)
{
	size_t len = 3 * huge_len();
	char *a = huge_area(len, 1), *b = huge_area(len, 2);

	need_way();
	need_huge(a, len);
	need_huge(b, len);
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_true(stamped(a, len, 2));
	assert_true(stamped(b, len, 1));
	need_huge(a, len);
	need_huge(b, len);
	area_free(a, len);
	area_free(b, len);
}

/* As a message lands: huge pages come where none were, or single ones. */
static void huge_pages_land_whole(void **state)
{
	size_t len = 2 * huge_len();
	char *fresh = area(len), *landing = huge_area(len, 2);

	need_way();
	need_huge(landing, len);
	assert_int_equal(pages_landing_offset(fresh), 0);
	assert_int_equal(pages_land(fresh, landing, len, 0), 0);
	assert_true(stamped(fresh, len, 2));
	assert_int_equal(smaps_of(fresh, "AnonHugePages") * 1024, len);
	assert_int_equal(smaps_of(landing, "AnonHugePages"), 0);
	/* Back again, by the same way. */
	assert_int_equal(pages_land(landing, fresh, len, 0), 0);
	assert_true(stamped(landing, len, 2));
	assert_int_equal(smaps_of(landing, "AnonHugePages") * 1024, len);
	area_free(fresh, len);
	area_free(landing, len);
}

static void a_cut_huge_page_keeps_its_rest(void **state)
{
	size_t page = page_len(), h = huge_len(), len = h + 6 * page;
	char *a = huge_area(3 * h, 1), *b = huge_area(3 * h, 2);
	char *pa = a + h - 3 * page, *pb = b + h - 3 * page;
	size_t i;

	need_way();
	assert_int_equal(kedge_page_swap_with(pa, pb, len, way), 0);
	for (i = 0; i < 3 * h; i += page) {
		bool in = a + i >= pa && a + i < pa + len;

		assert_int_equal(*(uint64_t *)(a + i),
				 word(in ? 2 : 1, i / page));
		assert_int_equal(*(uint64_t *)(b + i),
				 word(in ? 1 : 2, i / page));
	}
	area_free(a, 3 * h);
	area_free(b, 3 * h);
}

/* ---- random ranges against a model ---- */

static uint64_t rnd(uint64_t *s)
{
	*s = *s * 6364136223846793005ull + 1442695040888963407ull;
	return *s >> 33;
}

#define ARENA 2200 /* pages: more than four huge ones */

static void swap_model(uint64_t *m, size_t a, size_t b, size_t n)
{
	while (n--) {
		uint64_t t = m[a + n];

		m[a + n] = m[b + n];
		m[b + n] = t;
	}
}

static void mess(char *p, uint64_t *m, uint64_t *s)
{
	size_t page = page_len(), at = rnd(s) % ARENA, n = rnd(s) % 700, i;

	if (n > ARENA - at)
		n = ARENA - at;
	switch (rnd(s) % 4) {
	case 0:
		madvise(p + at * page, n * page, MADV_DONTNEED);
		memset(m + at, 0, n * sizeof(*m));
		break;
	case 1:
		for (i = at; i < at + n; i++) {
			m[i] = rnd(s);
			*(uint64_t *)(p + i * page) = m[i];
		}
		break;
	case 2: /* zero pages */
		for (i = at; i < at + n; i++)
			(void)*(volatile char *)(p + i * page);
		break;
	case 3:
		madvise(p + at * page, n * page, 25 /* MADV_COLLAPSE */);
		break;
	}
}

static void any_ranges_agree_with_a_model(void **state)
{
	static uint64_t m[ARENA];
	size_t page = page_len(), i, a, b, n;
	char *p = area(ARENA * page);
	uint64_t s = 42;
	int round;

	need_way();
	madvise(p, ARENA * page, MADV_HUGEPAGE);
	memset(m, 0, sizeof(m));
	for (round = 0; round < 400; round++) {
		mess(p, m, &s);
		a = rnd(&s) % ARENA;
		b = rnd(&s) % 3 ? a + 512 * (1 + rnd(&s) % 3) : rnd(&s) % ARENA;
		n = 1 + rnd(&s) % 600;
		if (a + n > ARENA || b + n > ARENA || (a < b + n && b < a + n))
			continue;
		if (kedge_page_swap(p + a * page, p + b * page, n * page))
			fail_msg("round %d: %zu, %zu + %zu: %s", round, a, b, n,
				 kedge_strerror(-EBUSY));
		swap_model(m, a, b, n);
		for (i = 0; i < ARENA; i++)
			if (*(uint64_t *)(p + i * page) != m[i] && m[i])
				fail_msg("round %d, page %zu", round, i);
	}
	area_free(p, ARENA * page);
}

/* ---- what belongs to the addresses, and what is left ---- */

static void mappings_keep_their_attributes(void **state)
{
	size_t len = 64 * page_len();
	char *a = area(len), *b = area(len);
	unsigned int before;

	need_way();
	madvise(a, len, MADV_HUGEPAGE);
	madvise(a, len, MADV_DONTDUMP);
	madvise(b, len, MADV_NOHUGEPAGE);
	madvise(b, len, MADV_DONTFORK);
	stamp(a, len, 1);
	stamp(b, len, 2);
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	before = map_lines();
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	assert_int_equal(kedge_page_swap(a + page_len(), b + 7 * page_len(),
					 5 * page_len()), 0);
	assert_int_equal(map_lines(), before);
	assert_int_equal(smaps_of(a, "hg"), 1);
	assert_int_equal(smaps_of(a, "dd"), 1);
	assert_int_equal(smaps_of(a, "dc"), 0);
	assert_int_equal(smaps_of(b, "nh"), 1);
	assert_int_equal(smaps_of(b, "dc"), 1);
	assert_int_equal(smaps_of(b, "dd"), 0);
	assert_int_equal(smaps_of(b, "um"), 0);
	area_free(a, len);
	area_free(b, len);
}

static void mremap_refuses_mappings_that_differ(void **state)
{
	size_t len = 16 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);

	assert_int_equal(madvise(a, len, MADV_DONTDUMP), 0);
	assert_int_equal(kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP),
			 -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "VmFlags"));
	assert_true(stamped(a, len, 1));
	assert_true(stamped(b, len, 2));
	area_free(a, len);
	area_free(b, len);
}

static void several_mappings_in_a_range(void **state)
{
	size_t page = page_len(), len = 24 * page;
	char *a = small_area(len, 1), *b = small_area(len, 2);

	need_way();
	madvise(a + 3 * page, page, MADV_DONTDUMP);
	madvise(b + 9 * page, 4 * page, MADV_DONTDUMP);
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	assert_true(stamped(a, len, 2));
	assert_true(stamped(b, len, 1));
	assert_int_equal(kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP),
			 -EOPNOTSUPP);
	area_free(a, len);
	area_free(b, len);
}

/* ---- refusals ---- */

static void wrong_ranges_are_refused(void **state)
{
	size_t page = page_len();
	char *a = small_area(8 * page, 1);

	assert_int_equal(kedge_page_swap(a, a + page, 0), -EINVAL);
	assert_int_equal(kedge_page_swap(a + 1, a + page, page), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a + page + 8, page), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a + page, page + 1), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a + page, 2 * page), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a, page), -EINVAL);
	assert_int_equal(kedge_page_swap((void *)-page, a, page), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a + page, -page), -EINVAL);
	assert_int_equal(kedge_page_swap_with(a, a + page, page, 4), -EINVAL);
	assert_true(stamped(a, 8 * page, 1));
	area_free(a, 8 * page);
}

/* Swap both ways round: refused with @want, the reason has @words, all is well. */
static void refused(char *odd, size_t len, int want, const char *words)
{
	char *b = small_area(len, 2);
	int i, rc;

	for (i = 0; i < 2; i++) {
		rc = kedge_page_swap_with(i ? b : odd, i ? odd : b, len, way);
		if (rc != want)
			fail_msg("%d, not %d: %s", rc, want,
				 kedge_strerror(rc));
		if (!strstr(kedge_strerror(rc), words))
			fail_msg("\"%s\" has no \"%s\"", kedge_strerror(rc),
				 words);
	}
	assert_true(stamped(b, len, 2));
	area_free(b, len);
}

static void unfit_memory_is_refused(void **state)
{
	size_t page = page_len(), len = 8 * page;
	char *p = small_area(len, 1);
	int fd = memfd_create("swap", MFD_CLOEXEC);

	need_way();
	assert_int_equal(mprotect(p + page, page, PROT_READ), 0);
	refused(p, len, -EOPNOTSUPP, "read and written");
	mprotect(p + page, page, PROT_NONE);
	refused(p, len, -EOPNOTSUPP, "read and written");
	mprotect(p + page, page, PROT_READ | PROT_WRITE);
	/* The sanitizers' mlock() does nothing. */
	if (!syscall(SYS_mlock, p + 2 * page, page)) {
		refused(p, len, -EOPNOTSUPP, "locked");
		syscall(SYS_munlock, p + 2 * page, page);
	}
	assert_true(stamped(p, len, 1));
	munmap(p + 3 * page, page);
	refused(p, len, -EFAULT, "nothing is mapped");
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	mmap(p, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	refused(p, len, -EOPNOTSUPP, "shared");
	mmap(p, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
	*p = 1;
	refused(p, len, -EOPNOTSUPP, "file");
	mmap(p, len, PROT_READ | PROT_WRITE,
	     MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	refused(p, len, -EOPNOTSUPP, "shared");
	close(fd);
	area_free(p, len);
}

static void huge_tlb_pages_are_refused(void **state)
{
	size_t len = huge_len();
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	need_way();
	if (p == MAP_FAILED) {
		print_message("skipped: vm.nr_hugepages is 0\n");
		skip();
	}
	refused(p, len, -EOPNOTSUPP, "huge TLB");
	munmap(p, len);
}

static void a_pinned_page_stops_all_of_it(void **state)
{
	size_t page = page_len(), len = 600 * page;
	char *a = small_area(len, 1), *b = small_area(len, 2);
	struct io_uring ring;
	struct iovec pin = { b + 555 * page, page };

	need_way();
	if (io_uring_queue_init(2, &ring, 0)) {
		print_message("skipped: there is no io_uring\n");
		skip();
	}
	assert_int_equal(io_uring_register_buffers(&ring, &pin, 1), 0);
	assert_int_equal(kedge_page_swap(a, b, len), -EBUSY);
	assert_int_equal(kedge_page_swap(b, a, len), -EBUSY);
	assert_true(stamped(a, len, 1));
	assert_true(stamped(b, len, 2));
	io_uring_unregister_buffers(&ring);
	io_uring_queue_exit(&ring);
	/* The kernel unpins from a work queue. */
	while (kedge_page_swap(a, b, len) == -EBUSY)
		usleep(1000);
	assert_true(stamped(a, len, 2));
	area_free(a, len);
	area_free(b, len);
}

static void a_pinned_huge_page_stops_all_of_it(void **state)
{
	size_t page = page_len(), len = 3 * huge_len();
	char *a = huge_area(len, 1), *b = huge_area(len, 2);
	struct io_uring ring;
	struct iovec pin = { b + len - page, page };

	need_way();
	if (io_uring_queue_init(2, &ring, 0)) {
		print_message("skipped: there is no io_uring\n");
		skip();
	}
	assert_int_equal(io_uring_register_buffers(&ring, &pin, 1), 0);
	assert_int_equal(kedge_page_swap(a, b, len), -EBUSY);
	assert_int_equal(kedge_page_swap(b, a, len), -EBUSY);
	assert_true(stamped(a, len, 1));
	assert_true(stamped(b, len, 2));
	io_uring_queue_exit(&ring);
	area_free(a, len);
	area_free(b, len);
}

static void a_forked_child_stops_it(void **state)
{
	size_t len = 40 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);
	int hold[2], status;
	char c;
	pid_t pid;

	need_way();
	assert_int_equal(pipe(hold), 0);
	pid = fork();
	assert_int_not_equal(pid, -1);
	if (!pid) {
		close(hold[1]);
		_exit(read(hold[0], &c, 1) == 0 && stamped(a, len, 1) &&
		      stamped(b, len, 2) ? 0 : 1);
	}
	close(hold[0]);
	assert_int_equal(kedge_page_swap(a, b, len), -EBUSY);
	assert_true(stamped(a, len, 1));
	assert_true(stamped(b, len, 2));
	close(hold[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	/* Written again, they are the parent's own. */
	stamp(a, len, 1);
	stamp(b, len, 2);
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	assert_true(stamped(a, len, 2));
	area_free(a, len);
	area_free(b, len);
}

/* ---- processes and descriptors ---- */

static char *child_a, *child_b;

static int swap_in_child(void *arg)
{
	size_t len = 20 * page_len();

	/* They are shared with the parent: its own it has after writing. */
	stamp(child_a, len, 3);
	stamp(child_b, len, 4);
	CHILD_CHECK(!kedge_page_swap(child_a, child_b, len));
	CHILD_CHECK(stamped(child_a, len, 4));
	CHILD_CHECK(stamped(child_b, len, 3));
	return 0;
}

static void a_child_swaps_its_own_pages(void **state)
{
	size_t len = 20 * page_len();

	need_way();
	child_a = small_area(len, 1);
	child_b = small_area(len, 2);
	assert_int_equal(in_child(swap_in_child, NULL), 0);
	assert_int_equal(in_raw_child(swap_in_child, NULL), 0);
	assert_true(stamped(child_a, len, 1));
	assert_true(stamped(child_b, len, 2));
	stamp(child_a, len, 1);
	stamp(child_b, len, 2);
	assert_int_equal(kedge_page_swap(child_a, child_b, len), 0);
	assert_true(stamped(child_a, len, 2));
	area_free(child_a, len);
	area_free(child_b, len);
}

static int close_all_and_swap(void *arg)
{
	size_t len = 20 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);
	int fds[8], i;

	CHILD_CHECK(!kedge_page_swap(a, b, len));
	closefrom(3);
	/* Others take the numbers. */
	for (i = 0; i < 8; i++)
		fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	CHILD_CHECK(!kedge_page_swap(a, b, len));
	CHILD_CHECK(stamped(a, len, 1));
	for (i = 0; i < 8; i++)
		CHILD_CHECK(!close(fds[i]));
	return 0;
}

static void descriptors_closed_by_others_are_replaced(void **state)
{
	need_way();
	assert_int_equal(in_child(close_all_and_swap, NULL), 0);
}

static void repeated_swaps_leave_nothing_behind(void **state)
{
	size_t len = 20 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);
	unsigned int fds, maps;
	int i;

	need_way();
	for (i = 0; i < 10; i++)
		assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	fds = open_fds();
	maps = map_lines();
	for (i = 0; i < 100; i++)
		assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_int_equal(open_fds(), fds);
	assert_int_equal(map_lines(), maps);
	area_free(a, len);
	area_free(b, len);
}

/* ---- estimates ---- */

static void estimates_are_there(void **state)
{
	size_t len = 2 * huge_len();
	char *a = area(len), *b = huge_area(len, 1);
	uint64_t t0 = clock_ns(), ns;

	ns = pages_land_ns(a, b, len, KEDGE_SWAP_REMAP);
	print_message("measured in %.1f ms; mremap %.1f us",
		      (double)(clock_ns() - t0) / 1e6, (double)ns / 1e3);
	assert_true(ns && ns < UINT64_MAX);
	ns = pages_land_ns(a, b, len, 0);
	print_message(", move %.1f us", (double)ns / 1e3);
	assert_int_equal(ns == UINT64_MAX, can_move() != 0);
	print_message(", not congruent %.1f us\n",
		      (double)pages_land_ns(a, b + page_len(),
					    len - page_len(), 0) / 1e3);
	assert_int_equal(pages_land_ns(a, a, len, 0), UINT64_MAX);
	/* Either way is good enough for both flags. */
	assert_int_equal(kedge_page_swap_with(a, b, len, KEDGE_SWAP_MOVE |
					      KEDGE_SWAP_REMAP),
			 0);
	assert_true(stamped(a, len, 1));
	area_free(a, len);
	area_free(b, len);
}

#define BOTH(f)                                                          \
	{ #f " (move)", f, way_move, NULL, NULL },                       \
	{ #f " (remap)", f, way_remap, NULL, NULL }
#define MOVE(f) { #f, f, way_move, NULL, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(each_address_has_the_other_ones_data),
		BOTH(not_congruent_ranges_are_swapped_as_well),
		BOTH(ranges_that_touch_are_swapped),
		BOTH(what_has_no_page_gives_none),
		BOTH(never_touched_memory_is_swapped),
		MOVE(huge_pages_stay_huge),
		MOVE(huge_pages_land_whole),
		BOTH(a_cut_huge_page_keeps_its_rest),
		MOVE(any_ranges_agree_with_a_model),
		MOVE(mappings_keep_their_attributes),
		cmocka_unit_test(mremap_refuses_mappings_that_differ),
		MOVE(several_mappings_in_a_range),
		cmocka_unit_test(wrong_ranges_are_refused),
		BOTH(unfit_memory_is_refused),
		BOTH(huge_tlb_pages_are_refused),
		MOVE(a_pinned_page_stops_all_of_it),
		MOVE(a_pinned_huge_page_stops_all_of_it),
		MOVE(a_forked_child_stops_it),
		MOVE(a_child_swaps_its_own_pages),
		MOVE(descriptors_closed_by_others_are_replaced),
		BOTH(repeated_swaps_leave_nothing_behind),
		cmocka_unit_test(estimates_are_there),
	};

	return cmocka_run_group_tests_name("pageswap", tests, NULL, NULL);
}
