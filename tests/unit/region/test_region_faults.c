// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions where the system refuses something: each call in turn fails once. The caller's
 * request fails, the region is as it was, nothing is left, and all works afterwards.
 */
#include "look.h"
#include "refuse.h"
#include "region/internal.h"
#include "remote.h"

WRAP(int, pthread_mutex_init, pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
	return fails() ? ENOMEM : __real_pthread_mutex_init(m, a);
}

static struct kedge_region *make(uint64_t max_len)
{
	struct kedge_region_opts o = { .size = sizeof(o), .max_len = max_len };
	struct kedge_region *r = NULL;

	assert_int_equal(kedge_region_create(LEN, &o, &r), 0);
	return r;
}

static bool is(struct kedge_region *r, size_t len, char c)
{
	const char *p = bytes_of(r);
	size_t i;

	assert_int_equal(query(r).len, len);
	assert_false(look_readable(p + len));
	for (i = 0; i < len; i++)
		if (p[i] != c)
			return false;
	return true;
}

static void create_undoes_every_step(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .max_len = 4 * LEN };
	struct kedge_region *const before = (struct kedge_region *)0x1;
	struct kedge_region *r = before;
	unsigned int fds, maps, step, failed = 0;
	int rc;

	kedge_region_close(make(0));
	fds = open_fds();
	maps = look_maps();
	for (step = 1; is_step(step); step++) {
		r = before;
		fail_with = ENOMEM;
		fail_from(step);
		rc = kedge_region_create(LEN, &o, &r);
		fail_at = 0;
		if (rc) {
			failed++;
			assert_int_equal(rc, -ENOMEM);
			assert_ptr_equal(r, before);
		} else {
			assert_true(is(r, LEN, 0));
			kedge_region_close(r);
		}
		assert_int_equal(open_fds(), fds);
		assert_int_equal(look_maps(), maps);
		assert_int_equal(look_status("VmLck"), 0);
		assert_int_equal(bytes_had(), 0);
	}
	/* calloc, mutex, the thread, addresses, memfd, its length, pages, the mapping, madvise,
	 * mprotect, mlock. Without the mapping that tries the limit of locks the limit is
	 * taken to hold. */
	assert_int_equal(failed, 11);
}

static void a_table_of_its_own_is_had_in_two_ways(void **state)
{
	unknown_calls = 1;
	kedge_region_close(make(0));
	assert_int_equal(unknown_calls, 0);
}

static void addresses_are_fewer_where_there_are_few(void **state)
{
	struct kedge_region *r = NULL;

	fail_with = ENOMEM;
	fail_from(4); /* calloc, mutex, the thread, the first try */
	assert_int_equal(kedge_region_create(LEN, NULL, &r), 0);
	fail_at = 0;
	assert_int_equal(query(r).max_len, (uint64_t)32 << 30);
	kedge_region_close(r);
}

/* Both are one error of the C library's, or of the kernel's. */
static void what_may_be_used_up_is_named(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .max_len = LEN };
	struct kedge_region *r = NULL;
	struct kedge_handle h;
	unsigned int step;
	int rc = 0;

	fail_with = EAGAIN;
	fail_from(3); /* the thread */
	assert_int_equal(kedge_region_create(LEN, &o, &r), -EAGAIN);
	assert_true(reason_says(-EAGAIN, "pids.max") && reason_says(-EAGAIN, "ulimit -v"));
	fail_with = ENOMEM;
	fail_from(4); /* addresses */
	assert_int_equal(kedge_region_create(LEN, &o, &r), -ENOMEM);
	assert_true(reason_says(-ENOMEM, "256 KiB of addresses"));
	assert_true(reason_says(-ENOMEM, "vm.max_map_count"));
	fail_at = 0;
	r = make(LEN);
	fail_with = EAGAIN;
	for (step = 1; rc != -EAGAIN && step < 50; step++) {
		fail_from(step);
		rc = kedge_region_advertise(r, NULL, &h);
		fail_at = 0;
	}
	assert_int_equal(rc, -EAGAIN);
	assert_true(reason_says(rc, "answer peers") && reason_says(rc, "pids.max"));
	assert_true(reason_says(rc, "ulimit -v"));
	kedge_region_close(r);
}

/* To two lengths of sixes. */
static void put_back(struct kedge_region *r)
{
	assert_int_equal(query(r).len > 2 * LEN ? kedge_region_trim(r, 2 * LEN)
					    : kedge_region_grow(r, 2 * LEN), 0);
	memset(bytes_of(r) + LEN, 6, LEN);
}

static void change_undoes_every_step(size_t to, int (*change)(struct kedge_region *r, size_t len))
{
	struct kedge_region *r = make(4 * LEN);
	unsigned int fds, maps, step, failed = 0;
	uint64_t bytes;
	int rc;

	assert_int_equal(kedge_region_grow(r, 2 * LEN), 0);
	memset(bytes_of(r), 6, 2 * LEN);
	fds = open_fds();
	maps = look_maps();
	for (step = 1; is_step(step); step++) {
		fail_with = ENOMEM;
		fail_from(step);
		rc = change(r, to);
		fail_at = 0;
		if (!rc) {
			assert_int_equal(bytes_had(), to);
			put_back(r);
		} else {
			failed++;
			assert_int_equal(rc, -ENOMEM);
		}
		assert_true(is(r, 2 * LEN, 6));
		assert_int_equal(open_fds(), fds);
		assert_int_equal(look_maps(), maps);
		assert_int_equal(look_status("VmLck"), 2 * LEN);
		assert_int_equal(look_files(&bytes), 1);
		assert_int_equal(bytes, 2 * LEN);
		assert_int_equal(bytes_had(), 2 * LEN);
	}
	/* Pages, mapping, madvise, mprotect, mlock; the mapping that hides. The memfd is as
	 * long already. */
	assert_int_equal(failed, to > 2 * LEN ? 5 : 1);
	assert_int_equal(kedge_region_grow(r, 4 * LEN), 0);
	kedge_region_close(r);
}

static void grow_undoes_every_step(void **state)
{
	change_undoes_every_step(3 * LEN, kedge_region_grow);
}

static void trim_undoes_every_step(void **state)
{
	change_undoes_every_step(LEN, kedge_region_trim);
}

/* ---- addresses that the program has unmapped ---- */

static char *hole;

static struct kedge_region *make_with_hole(void)
{
	struct kedge_region *r = make(4 * LEN);

	hole = bytes_of(r) + 2 * LEN;
	memset(hole - 2 * LEN, 6, LEN);
	assert_int_equal(munmap(hole, LEN), 0);
	return r;
}

static void a_hole_is_taken_back_or_left(void **state)
{
	unsigned int fds, maps, step, failed = 0;
	struct kedge_region *r;
	int rc;

	kedge_region_close(make_with_hole());
	fds = open_fds();
	maps = look_maps();
	for (step = 1; is_step(step); step++) {
		r = make_with_hole();
		fail_with = ENOMEM;
		fail_from(step);
		rc = kedge_region_grow(r, 4 * LEN);
		fail_at = 0;
		if (rc) {
			failed++;
			assert_int_equal(rc, -ENOMEM);
			assert_true(is(r, LEN, 6));
			assert_int_equal(kedge_region_grow(r, 4 * LEN), 0);
		}
		memset(hole, 1, LEN);
		kedge_region_close(r);
		assert_int_equal(open_fds(), fds);
		assert_int_equal(look_maps(), maps);
		assert_int_equal(bytes_had(), 0);
	}
	/* The hole's mapping; length, pages, mapping, madvise, mprotect, mlock. */
	assert_int_equal(failed, 7);
}

static bool taken;

/* By any thread; once the addresses are kept it finds no room there. */
static void take_hole(void)
{
	void *got = __real_mmap64(hole, page_len(), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	taken = got == hole;
	if (taken)
		*hole = 'x';
}

/* As an allocator of another thread may: before the look, after it, and once it is too late. */
static void what_comes_into_a_hole_stays(void **state)
{
	unsigned int step, was_taken = 0, steps = 0;
	struct kedge_region *r;
	int rc;

	for (step = 1; is_step(step); step++, steps++) {
		r = make_with_hole();
		taken = false;
		calls = 0;
		instead = take_hole;
		fail_at = step;
		rc = kedge_region_grow(r, 4 * LEN);
		fail_at = 0;
		instead = NULL;
		assert_int_equal(rc, taken ? -EEXIST : 0);
		if (taken) {
			was_taken++;
			assert_true(reason_says(-EEXIST, "unmap it"));
			assert_int_equal(*hole, 'x');
			assert_true(is(r, LEN, 6));
			assert_int_equal(munmap(hole, page_len()), 0);
			assert_int_equal(kedge_region_grow(r, 4 * LEN), 0);
		}
		assert_int_equal(*hole, 0);
		kedge_region_close(r);
	}
	assert_true(was_taken && was_taken < steps);
}

const long counted_calls[] = { SYS_fallocate, SYS_mlock, 0 };

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(create_undoes_every_step),
	cmocka_unit_test(a_table_of_its_own_is_had_in_two_ways),
	cmocka_unit_test(addresses_are_fewer_where_there_are_few),
	cmocka_unit_test(what_may_be_used_up_is_named),
	cmocka_unit_test(a_hole_is_taken_back_or_left),
	cmocka_unit_test(what_comes_into_a_hole_stays),
	cmocka_unit_test(grow_undoes_every_step),
	cmocka_unit_test(trim_undoes_every_step),
};

const struct suite suite = { "region_faults", SUITE_OF(tests) };
