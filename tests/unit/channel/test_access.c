// SPDX-License-Identifier: BSD-2-Clause
/*
 * Tells if memory can be accessed, by each of the kernel's ways to ask,
 * and without those that an old kernel or a filter refuses.
 */
#include "channel/access.h"
#include "channel/transport.h"
#include "core.h"

static bool no_populate, no_pipe, no_maps;
static unsigned int asked;

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);

long __wrap_syscall(long nr, ...)
{
	long a[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (nr == SYS_madvise && no_populate) {
		errno = EINVAL;
		return -1;
	}
	if (nr == SYS_pipe2 && no_pipe) {
		errno = EMFILE;
		return -1;
	}
	if (nr == SYS_openat && no_maps) {
		errno = EMFILE;
		return -1;
	}
	asked += nr == SYS_madvise;
	return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#define PAGES 600u /* more than are asked about at a time */

static char *area; /* readable and writable, but for: */
enum { NONE = 10, READ = 20, HOLE = 30, LAST = 599 };

static char *at(size_t page)
{
	return area + page * page_len();
}

static int set_up(void **state)
{
	no_populate = no_pipe = no_maps = false;
	area = new_pages(PAGES);
	memset(area, 0x5a, PAGES * page_len());
	mprotect(at(NONE), page_len(), PROT_NONE);
	mprotect(at(READ), page_len(), PROT_READ);
	mprotect(at(LAST), page_len(), PROT_READ);
	/* Nobody else gets it: that is as good as a hole. */
	munmap(at(HOLE), page_len());
	return 0;
}

static int tear_down(void **state)
{
	free_pages(area, PAGES);
	return 0;
}

static void both(int (*ask)(const void *p, size_t len, bool write))
{
	size_t page = page_len();
	char *p = at(1) + 7;

	assert_int_equal(ask(p, 1, true), 0);
	assert_int_equal(ask(p, 8 * page, true), 0);
	assert_int_equal(ask(p, 9 * page, true), -EFAULT);
	assert_int_equal(ask(p, 9 * page, false), -EFAULT);
	assert_int_equal(ask(at(NONE) + 5, 1, false), -EFAULT);
	assert_int_equal(ask(at(NONE) - 1, 1, true), 0);
	assert_int_equal(ask(at(NONE) - 1, 2, true), -EFAULT);
	assert_int_equal(ask(at(READ), page, false), 0);
	assert_int_equal(ask(at(READ), 1, true), -EFAULT);
	assert_int_equal(ask(at(READ) - 1, 2, true), -EFAULT);
	assert_int_equal(ask(at(HOLE) - 1, 2, false), -EFAULT);
	assert_int_equal(ask(at(HOLE) + page, 568 * page, true), 0);
	assert_int_equal(ask(at(HOLE) + page, 569 * page, true), -EFAULT);
	assert_int_equal(ask(at(HOLE) + page, 569 * page, false), 0);
	assert_int_equal(ask(NULL, 0, true), 0);
	assert_int_equal(ask(NULL, 1, true), -EFAULT);
	assert_int_equal(ask((void *)64, 8, false), -EFAULT);
	assert_int_equal(ask((void *)UINTPTR_MAX, 8, false), -EFAULT);
	assert_int_equal(ask(p, SIZE_MAX, false), -EFAULT);
	assert_int_equal(ask((void *)(UINTPTR_MAX - 100), 8, true), -EFAULT);
	/* Asking changes nothing. */
	for (p = at(1); p < at(NONE); p++)
		assert_int_equal(*p, 0x5a);
}

static int ask_bulk(const void *p, size_t len, bool write)
{
	struct bulk_piece half[2] = { { (uintptr_t)p, len / 2 },
				      { (uintptr_t)p + len / 2,
					len - len / 2 } };
	struct bulk b = { .flags = write ? BULK_RECV : 0,
			  .piece = half,
			  .piece_cnt = 2,
			  .len = len };
	int rc = kedge__bulk_check(&b);

	assert_int_equal(!!(b.flags & BULK_CHECKED), !rc);
	return rc;
}

static int ask_table(const void *p, size_t len, bool write)
{
	static struct access t;

	return access_check(&t, p, len, write);
}

static void the_kernel_tells(void **state)
{
	both(access_ask);
	both(ask_bulk);
	both(ask_table);
	both(ask_table);
}

static void an_older_kernel_tells(void **state)
{
	no_populate = true;
	both(access_ask);
	no_maps = true;
	both(ask_bulk);
}

static void without_maps_pages_tell(void **state)
{
	no_maps = true;
	both(ask_bulk);
}

static void without_descriptors_the_first_answer_holds(void **state)
{
	no_pipe = true;
	both(access_ask);
	/* Nothing is known then, so nothing is refused. */
	no_populate = true;
	assert_int_equal(access_ask(at(READ), 1, true), 0);
}

static void what_was_good_is_asked_about_now_and_then(void **state)
{
	static struct access t;
	unsigned int i, first;

	asked = 0;
	assert_int_equal(access_check(&t, at(3), 8, true), 0);
	first = asked;
	assert_true(first > 0);
	for (i = 0; i < ACCESS_USES / 2; i++)
		assert_int_equal(access_check(&t, at(3) + i % 99, 8, true), 0);
	assert_int_equal(asked, first);
	/* For writing only, and one grain. */
	assert_int_equal(access_check(&t, at(3), 8, false), 0);
	assert_int_equal(asked, 2 * first);
	assert_int_equal(access_check(&t, at(4) - 4, 8, true), 0);
	assert_int_equal(asked, 3 * first);
	/* Several in turns are remembered as well. */
	for (i = 0; i < ACCESS_USES / 4; i++)
		assert_int_equal(access_check(&t, at(3 + i % 2), 8, true), 0);
	assert_int_equal(asked, 3 * first);
	for (i = 0; i < ACCESS_USES; i++)
		assert_int_equal(access_check(&t, at(3 + i % 2), 8, true), 0);
	assert_int_equal(asked, 5 * first);
	mprotect(at(3), page_len(), PROT_READ);
	for (i = 0; i <= ACCESS_USES; i++)
		if (access_check(&t, at(3), 8, true))
			break;
	assert_true(i <= ACCESS_USES);
}

/* Buffers side by side are known together, and nothing that lies between two. */
static void neighbours_are_known_together(void **state)
{
	static struct access t;
	unsigned int first;

	asked = 0;
	assert_int_equal(access_check(&t, at(3), 8, true), 0);
	first = asked;
	assert_int_equal(access_check(&t, at(4), 8, true), 0);
	assert_int_equal(access_check(&t, at(2), 8, true), 0);
	assert_int_equal(asked, 3 * first);
	assert_int_equal(access_check(&t, at(2), 3 * GRAIN, true), 0);
	assert_int_equal(asked, 3 * first);
	assert_int_equal(access_check(&t, at(6), 8, true), 0);
	assert_int_equal(asked, 4 * first);
	assert_int_equal(access_check(&t, at(5), 8, true), 0);
	assert_int_equal(asked, 5 * first);
}

static void long_ones_are_known_by_their_whole_length(void **state)
{
	static struct access t;
	size_t page = page_len();

	assert_false(access_knows(&t, at(1), page, true, 0));
	access_learn(&t, at(1), 3 * page, true, 0);
	assert_true(access_knows(&t, at(1), 3 * page, true, 1));
	assert_true(access_knows(&t, at(2), page, true, 1));
	assert_false(access_knows(&t, at(2), 3 * page, true, 1));
	assert_false(access_knows(&t, at(1), page, false, 1));
	assert_false(access_knows(&t, at(1), page, true, 1u << RANGE_SHIFT));
	assert_false(access_knows(&t, at(2), SIZE_MAX, true, 1));
}

static int ask_in_child(void *unused)
{
	CHILD_CHECK(!ask_bulk(at(1), 4 * page_len(), true));
	CHILD_CHECK(!mprotect(at(2), page_len(), PROT_READ));
	CHILD_CHECK(ask_bulk(at(1), 4 * page_len(), true) == -EFAULT);
	return 0;
}

/* The parent's descriptors tell of the parent. */
static void a_child_asks_about_itself(void **state)
{
	assert_int_equal(ask_bulk(at(1), 4 * page_len(), true), 0);
	assert_int_equal(in_child(ask_in_child, NULL), 0);
	assert_int_equal(ask_bulk(at(1), 4 * page_len(), true), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(without_maps_pages_tell),
		CASE(the_kernel_tells),
		CASE(an_older_kernel_tells),
		CASE(without_descriptors_the_first_answer_holds),
		CASE(what_was_good_is_asked_about_now_and_then),
		CASE(neighbours_are_known_together),
		CASE(long_ones_are_known_by_their_whole_length),
		CASE(a_child_asks_about_itself),
	};

	return cmocka_run_group_tests_name("access", tests, NULL, NULL);
}
