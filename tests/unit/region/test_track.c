// SPDX-License-Identifier: BSD-2-Clause
/* Pages that were stored into are told, by each way that works here. */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "core.h"
#include "look.h"
#include "refuse.h"
#include "tracked.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* ---- tests ---- */

static void each_store_is_told_once(void **state)
{
	bool set[PAGES] = { false };

	begin(*state);
	takes_all();
	takes(no_page);
	by_thread(mem.at);
	set[0] = true;
	by_read(mem.at + 3 * mem.page + 5);
	set[3] = true;
	from_outside(mem.at + 4 * mem.page);
	set[4] = true;
	mem.at[mem.len - 1] = 3;
	set[PAGES - 1] = true;
	takes(set);
	assert_int_equal(told.cnt, 3); /* two of them are one range */
	takes(no_page);
	by_read(mem.at + 3 * mem.page);
	takes((const bool[PAGES]){ [3] = true });
	/* A page that is read only is not told. */
	assert_int_equal(*(volatile char *)(mem.at + 7 * mem.page), 1);
	assert_int_equal(write(STDERR_FILENO, mem.at + 8 * mem.page, 0), 0);
	takes(no_page);
}

static void a_store_before_the_first_take_is_told_by_it(void **state)
{
	begin(*state);
	mem.at[mem.page] = 2;
	takes_all();
	if (track_forgets(track))
		takes(no_page);
	else
		takes((const bool[PAGES]){ [1] = true });
}

static void there_is_no_limit_to_ranges(void **state)
{
	bool set[PAGES] = { false };
	uint64_t i;

	begin(*state);
	takes_all();
	for (i = 0; i < PAGES; i += 2) {
		mem.at[i * mem.page] = 2;
		set[i] = true;
	}
	takes(set);
	assert_int_equal(told.cnt, PAGES / 2);
	memset(mem.at, 3, mem.len);
	memset(set, true, sizeof(set));
	takes(set);
	assert_int_equal(told.cnt, 1);
}

static void after_a_stop_all_is_told(void **state)
{
	begin(*state);
	takes_all();
	mem.at[0] = mem.at[4 * mem.page] = 2;
	memset(&told, 0, sizeof(told));
	told.stop = 1;
	assert_int_equal(track_take(track, note, &told), 42);
	assert_int_equal(told.cnt, 1);
	memset(&told, 0, sizeof(told));
	told.stop = 1;
	assert_int_equal(track_take(track, note, &told), 42);
	takes_all();
	if (track_forgets(track))
		takes(no_page);
}

static void after_a_failure_all_is_told(void **state)
{
	begin(*state);
	takes_all();
	mem.at[0] = 2;
	fail_with = EIO;
	fail_from(1);
	assert_int_equal(track_take(track, note, &told), -EIO);
	fail_at = 0;
	takes_all();
}

/*
 * The pages stay in the memfd. The table that says that one was stored into forgets it, and
 * newer kernels give up the table itself.
 */
static void pages_that_left_the_page_table_are_told(void **state)
{
	begin(*state);
	syscall(SYS_munlock, mem.at, mem.len);
	takes_all();
	mem.at[5 * mem.page] = 2;
	assert_int_equal(madvise(mem.at, mem.len, MADV_DONTNEED), 0);
	take();
	assert_true(told.page[5]);
	assert_int_equal(mem.at[5 * mem.page], 2);
	mem.at[6 * mem.page] = 2;
	take();
	assert_true(told.page[6]);
}

/* One in the page table as a whole leaves it if a part gets another protection. */
static void pages_of_a_huge_page_that_is_split_are_told(void **state)
{
	char *huge = mem.at + 2 * HUGE_LEN;

	if (madvise(huge, HUGE_LEN, MADV_COLLAPSE)) {
		printf("skipped: no transparent huge page is to be had\n");
		skip();
	}
	begin(*state);
	takes_all();
	huge[5 * mem.page] = 2;
	assert_int_equal(mprotect(huge + 9 * mem.page, mem.page, PROT_READ), 0);
	assert_int_equal(mprotect(huge + 9 * mem.page, mem.page, PROT_READ | PROT_WRITE), 0);
	take();
	assert_true(told.page[(uint64_t)(huge - mem.at) / mem.page + 5]);
}

static void memory_is_as_before_after_the_end(void **state)
{
	char *reads = mem.at + mem.len / 2;
	const bool locked = has_flag(mem.at, " lo");
	uint64_t faults;

	begin(*state);
	takes_all();
	track_end(track);
	track = NULL;
	assert_false(has_flag(mem.at, " uw"));
	/* Of a clearing each page has a fault left. */
	memset(mem.at, 2, mem.len);
	faults = look_faults();
	memset(mem.at, 3, mem.len);
	assert_int_equal(look_faults(), faults);
	assert_int_equal(mprotect(reads, mem.len / 2, PROT_READ), 0);
	begin(*state);
	takes_all();
	track_end(track);
	track = NULL;
	assert_false(has_flag(reads, " wr"));
	assert_true(has_flag(mem.at, " wr"));
	assert_int_equal(has_flag(mem.at, " lo"), locked);
	assert_int_equal(has_flag(reads, " lo"), locked);
}

static void two_at_a_time_miss_no_store(void **state)
{
	struct track *const second = NULL;
	struct track *other = second;
	struct mem first = mem;

	begin(*state);
	takes_all();
	assert_true(get_mem(mem.len, mem.page, 0, true));
	first.at[2 * mem.page] = 2;
	assert_int_equal(track_begin(mem.at, mem.len, mem.page, *state, &other), 0);
	first.at[5 * mem.page] = 2;
	take();
	assert_true(told.page[2] && told.page[5]);
	first.at[7 * mem.page] = 2;
	mem.at[8 * mem.page] = 2;
	takes((const bool[PAGES]){ [7] = true, [5] = !track_forgets(track) });
	memset(&told, 0, sizeof(told));
	assert_int_equal(track_take(other, note, &told), 0);
	assert_int_equal(told.len, mem.len);
	track_end(other);
	drop_mem();
	mem = first;
}

static void a_clearing_by_others_is_noticed(void **state)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	begin(*state);
	takes_all();
	takes(no_page);
	mem.at[0] = 2;
	assert_int_equal(write(fd, "4", 1), 1);
	takes_all();
	takes(no_page);
	mem.at[mem.page] = 2;
	takes((const bool[PAGES]){ [1] = true });
	assert_int_equal(write(fd, "4", 1), 1);
	assert_int_equal(write(fd, "4", 1), 1);
	takes_all();
	close(fd);
}

/* ---- refusals ---- */

static void ranges_are_whole_pages(void **state)
{
	struct track *t = NULL;
	const uint64_t page = mem.page;

	assert_int_equal(track_begin(mem.at, 0, page, NULL, &t), -EINVAL);
	assert_int_equal(track_begin(mem.at + 1, page, page, NULL, &t), -EINVAL);
	assert_int_equal(track_begin(mem.at, page + 1, page, NULL, &t), -EINVAL);
	assert_int_equal(track_begin(mem.at, page, page / 2, NULL, &t), -EINVAL);
	assert_int_equal(track_begin(mem.at, 3 * page, 3 * page, NULL, &t), -EINVAL);
	assert_int_equal(track_begin(mem.at, 0 - page, page, NULL, &t), -EINVAL);
	assert_int_equal(track_begin(mem.at, page, page, "smoke", &t), -EINVAL);
	assert_null(t);
	track_end(NULL);
}

static void the_best_way_that_works_serves(void **state)
{
	static const char *const all[] = { UFFD, SOFT };
	struct track *t;
	const char *best = NULL;
	unsigned int i;
	int rc;

	for (i = 0; i < 2 && !best; i++)
		if (!track_begin(mem.at, mem.len, mem.page, all[i], &t)) {
			track_end(t);
			best = all[i];
		}
	rc = track_begin(mem.at, mem.len, mem.page, NULL, &track);
	assert_int_equal(rc, best ? 0 : -EOPNOTSUPP);
	if (rc) {
		assert_non_null(strstr(kedge_strerror(rc), "no way to see stores"));
		printf("%s\n", kedge_strerror(rc));
		return;
	}
	printf("%s serves here\n", track_way(track));
	assert_string_equal(track_way(track), best);
	takes_all();
}

static void a_page_of_another_userfaultfd_is_left_alone(void **state)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_WP };
	unsigned int fds;
	int fd, rc;

	begin(UFFD); /* there is such a way */
	track_end(track);
	track = NULL;
	fd = (int)__real_syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY, 0, 0, 0, 0, 0);
	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	r.range.start = (uintptr_t)mem.at + 3 * mem.page;
	r.range.len = mem.page;
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &r), 0);
	fds = open_fds();
	assert_int_equal(track_begin(mem.at, mem.len, mem.page, UFFD, &track), -EBUSY);
	assert_int_equal(open_fds(), fds);
	assert_false(has_flag(mem.at, " uw"));
	assert_true(has_flag(mem.at + 3 * mem.page, " uw"));
	/* The next way is taken, or the call refused. */
	rc = track_begin(mem.at, mem.len, mem.page, NULL, &track);
	if (rc) {
		assert_int_equal(rc, -EOPNOTSUPP);
		assert_non_null(strstr(kedge_strerror(rc), "another userfaultfd"));
	} else {
		assert_string_equal(track_way(track), SOFT);
		takes_all();
		mem.at[3 * mem.page] = 2;
		takes((const bool[PAGES]){ [3] = true });
		track_end(track);
	}
	track = NULL;
	close(fd);
	begin(UFFD);
	takes_all();
}

static void beginning_undoes_every_step(void **state)
{
	struct track *const before = (struct track *)0x1;
	struct track *t;
	unsigned int step, fds, maps, failures = 0;
	int rc;

	begin(*state);
	track_end(track);
	track = NULL;
	maps = look_maps();
	fds = open_fds();
	for (step = 1; is_step(step); step++) {
		t = before;
		calls = 0;
		fail_with = step % 2 ? ENOMEM : EMFILE;
		fail_at = step;
		rc = track_begin(mem.at, mem.len, mem.page, *state, &t);
		fail_at = 0;
		if (rc) {
			failures++;
			assert_ptr_equal(t, before);
			assert_true(*kedge_strerror(rc));
		} else {
			track_end(t);
		}
		assert_int_equal(open_fds(), fds);
		assert_int_equal(look_maps(), maps);
		assert_false(has_flag(mem.at, " uw"));
	}
	assert_true(failures >= 6);
	begin(*state);
	takes_all();
}

/* ---- all ---- */

const long counted_calls[] = { SYS_openat, SYS_userfaultfd, SYS_write, SYS_pread64, SYS_ioctl, 0 };

int main(void)
{
	const struct CMUnitTest tests[] = {
		ONE(ranges_are_whole_pages),
		ONE(the_best_way_that_works_serves),
		BOTH(each_store_is_told_once),
		BOTH(a_store_before_the_first_take_is_told_by_it),
		BOTH(there_is_no_limit_to_ranges),
		BOTH(after_a_stop_all_is_told),
		BOTH(after_a_failure_all_is_told),
		BY(UFFD, pages_that_left_the_page_table_are_told),
		ON(begin_any, UFFD, pages_of_a_huge_page_that_is_split_are_told),
		BOTH(memory_is_as_before_after_the_end),
		BOTH(two_at_a_time_miss_no_store),
		BY(SOFT, a_clearing_by_others_is_noticed),
		ONE(a_page_of_another_userfaultfd_is_left_alone),
		BOTH(beginning_undoes_every_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
