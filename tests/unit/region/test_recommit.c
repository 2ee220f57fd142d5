// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program that takes away what it has advertised: peers' accesses there fail, others go on, and
 * kedge_region_recommit() repairs it.
 */
#include <sys/prctl.h>

#include "recommit.h"
#include "suites.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#define PAGE 4096

static void drop_locked(void)
{
	assert_int_equal(madvise(at + FROM, PART, MADV_DONTNEED_LOCKED), 0);
}

/* The system call itself: sanitizers' munlock() does not unlock. */
static void remove_pages(void)
{
	assert_int_equal(syscall(SYS_munlock, at + FROM, PART), 0);
	assert_int_equal(madvise(at + FROM, PART, MADV_REMOVE), 0);
}

/* The kernel tells of it, and refuses it then: it is taken for a drop. */
static void free_pages_of_it(void)
{
	assert_int_equal(syscall(SYS_munlock, at + FROM, PART), 0);
	assert_int_equal(madvise(at + FROM, PART, MADV_FREE), -1);
}

static void move_away(void)
{
	void *to = mmap(NULL, PART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_equal(mremap(at + FROM, PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
	munmap(to, PART);
}

static void by_system_call(void)
{
	assert_int_equal(syscall(SYS_munmap, at + FROM, PART), 0);
}

/* Each of these takes PART away and leaves its place empty. */
static const struct {
	const char *name;
	void (*fn)(void);
	uint64_t mapped;
	uint64_t lost;
	bool told; /* not found by a look at mappings */
} ways[] = {
	{ "munmap", unmap_part, PART, 0, false },
	{ "munmap by the system call", by_system_call, PART, 0, false },
	{ "mremap", move_away, PART, 0, false },
	{ "MADV_DONTNEED_LOCKED", drop_locked, 0, 0, true },
	{ "MADV_REMOVE", remove_pages, 0, PART, true },
	{ "MADV_FREE", free_pages_of_it, 0, 0, true },
};

static void what_is_taken_away_is_missing_until_it_is_repaired(void **state)
{
	struct kedge_recommit_info info;
	size_t i, round;

	for (i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		print_message("%s\n", ways[i].name);
		begin_watched();
		for (round = 0; round < 3; round++) {
			ways[i].fn();
			if (is_told() || !ways[i].told)
				is_missing();
			assert_int_equal(recommit(round ? FROM : 0, round == 1 ? PART : 0,
						  &info), 0);
			assert_int_equal(info.mapped, ways[i].mapped);
			assert_int_equal(info.lost, ways[i].lost);
			assert_int_equal(at[FROM], ways[i].lost ? 0 : 'o');
			is_whole();
		}
		end_remote();
	}
}

static void all_of_it(void **state)
{
	struct kedge_recommit_info info;
	char c;

	assert_int_equal(munmap(at, LEN), 0);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), -ENODATA);
	assert_int_equal(kedge_remote_get(remote, LEN - 1, &c, 1, 0), -ENODATA);
	is_missing_as_told(LEN, 0);
	assert_int_equal(recommit(0, 0, &info), 0);
	assert_int_equal(info.mapped, LEN);
	assert_int_equal(at[LEN - 1], 'o');
	is_whole();
}

static void other_memory_is_left_alone(void **state)
{
	struct kedge_recommit_info info;
	struct kedge_region_info was;
	size_t i;

	begin_watched();
	was = query(region);
	assert_ptr_equal(mmap(at + FROM, PART, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at + FROM);
	memset(at + FROM, 'x', PART);
	is_missing();
	assert_int_equal(recommit(0, 0, &info), -EEXIST);
	assert_non_null(strstr(kedge_strerror(-EEXIST), "16384 to 24576"));
	assert_int_equal(recommit(0, FROM, &info), 0);
	assert_int_equal(kedge_region_trim(region, FROM), -ENODATA);
	assert_non_null(strstr(kedge_strerror(-ENODATA), "16384 to 24576"));
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), -ENODATA);
	assert_int_equal(kedge_region_trim(region, LEN / 2), 0);
	assert_int_equal(kedge_region_grow(region, LEN), 0);
	is_missing();
	for (i = 0; i < PART; i++)
		assert_int_equal(at[FROM + i], 'x');
	end_remote();
	/* Nor does the region's end take it. */
	for (i = 0; i < PART; i++)
		assert_int_equal(at[FROM + i], 'x');
	assert_int_equal(syscall(SYS_msync, at, FROM, MS_ASYNC), -1);
	munmap(at + FROM, PART);
	assert_int_equal(was.len, LEN);
}

/* Shared, and of the same offset. */
static void so_is_another_file(void **state)
{
	struct kedge_recommit_info info;
	int fd = memfd_create("other", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, LEN), 0);
	assert_ptr_equal(mmap(at + FROM, PART, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			      FROM), at + FROM);
	is_missing();
	assert_int_equal(recommit(0, 0, &info), -EEXIST);
	unmap_part();
	assert_int_equal(recommit(0, 0, &info), 0);
	is_whole();
	close(fd);
}

static void what_was_done_before_the_first_handle_is_found(void **state)
{
	struct kedge_recommit_info info;

	assert_int_equal(kedge_region_create(LEN, NULL, &region), 0);
	at = region_at();
	memset(at, 'o', LEN);
	assert_int_equal(syscall(SYS_munlock, at + FROM, PART), 0);
	assert_int_equal(madvise(at + FROM, PART, MADV_REMOVE), 0);
	assert_int_equal(query(region).flags, 0);
	advertise(NULL);
	remote = open_it();
	is_missing();
	assert_int_equal(recommit(0, 0, &info), 0);
	assert_int_equal(info.lost, PART);
	is_whole();
	unmap_part();
	is_missing();
	assert_int_equal(recommit(0, 0, &info), 0);
	end_remote();
}

static void a_protection_is_made_as_it_was(void **state)
{
	struct kedge_recommit_info info;

	assert_int_equal(mprotect(at + FROM, PART, PROT_NONE), 0);
	/* The memory is the same one still. */
	assert_int_equal(kedge_remote_put(remote, FROM, "x", 1, 0), 0);
	assert_int_equal(recommit(FROM, PART, &info), 0);
	assert_int_equal(at[FROM], 'x');
	is_whole();
}

static void a_part_of_a_handle_has_numbers_of_its_own(void **state)
{
	struct kedge_handle_opts o = { .size = sizeof(o), .offset = FROM + PAGE + 8,
				       .len = LEN / 2 };
	char c;

	begin_remote(&o);
	at = region_at();
	unmap_part();
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), -ENODATA);
	if (is_told())
		assert_non_null(strstr(kedge_strerror(-ENODATA), "bytes 0 to 4088 "));
	assert_int_equal(kedge_remote_get(remote, 4087, &c, 1, 0), -ENODATA);
	assert_int_equal(kedge_remote_get(remote, 4088, &c, 1, 0), 0);
	end_remote();
}

/* More than there is room for: all that is missing fails, and all is repaired. */
static void many_parts(void **state)
{
	struct kedge_recommit_info info;
	size_t i;
	char c;

	make_region(4 * LEN, NULL);
	remote = open_it();
	at = region_at();
	/* Few are told apart. */
	assert_int_equal(munmap(at, PAGE), 0);
	assert_int_equal(munmap(at + LEN, PAGE), 0);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), -ENODATA);
	assert_int_equal(kedge_remote_get(remote, LEN - PAGE, &c, 1, 0), 0);
	assert_int_equal(kedge_remote_get(remote, LEN, &c, 1, 0), -ENODATA);
	for (i = 0; i < 4 * LEN / PAGE; i += 2)
		munmap(at + i * PAGE, PAGE);
	for (i = 0; i < 4 * LEN / PAGE; i += 2)
		assert_int_equal(kedge_remote_get(remote, i * PAGE, &c, 1, 0), -ENODATA);
	assert_int_equal(recommit(0, 0, &info), 0);
	assert_int_equal(info.mapped, 2 * LEN);
	for (i = 0; i < 4 * LEN / PAGE; i++)
		assert_int_equal(kedge_remote_get(remote, i * PAGE, &c, 1, 0), 0);
	end_remote();
}

static void a_change_of_kedges_own_is_none(void **state)
{
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	is_whole();
	assert_int_equal(kedge_region_grow(region, 2 * LEN), 0);
	is_whole();
	assert_int_equal(munmap(at + LEN, PAGE), 0);
	is_missing_as_told(PAGE, LEN);
	assert_int_equal(kedge_region_recommit(region, LEN, 1, NULL), 0);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	is_whole();
	/* Watched as before: also what is dropped, as kedge has just done so itself. */
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	is_whole();
	drop_locked();
	if (is_told())
		is_missing();
	assert_int_equal(kedge_region_recommit(region, 0, 0, NULL), 0);
	is_whole();
	unmap_part();
	is_missing();
}

static void arguments(void **state)
{
	struct kedge_recommit_info info = { .size = 4 };

	assert_int_equal(kedge_region_recommit(NULL, 0, 0, NULL), -EINVAL);
	assert_int_equal(kedge_region_recommit(region, 0, 0, &info), -EINVAL);
	assert_int_equal(kedge_region_recommit(region, LEN, 0, NULL), -EINVAL);
	assert_int_equal(kedge_region_recommit(region, 1, LEN, NULL), -EINVAL);
	assert_int_equal(kedge_region_recommit(region, 1, SIZE_MAX, NULL), -EINVAL);
	assert_int_equal(kedge_region_recommit(region, 0, 0, NULL), 0);
}

/* ---- at the same time ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS 100 /* far slower */
#else
#define ROUNDS 500
#endif

static _Atomic bool stops;
static _Atomic unsigned int puts_done, refused, wrong;
static _Atomic uint32_t gone; /* odd: from before the call that unmaps to the repair's end */

/*
 * A value that is put is there for the program, or the range was missing: if it was whole from
 * before the put until after the look, the look finds it.
 */
static void *put_on(void *r)
{
	uint32_t value = 1, before;
	int rc;

	for (; !atomic_load(&stops); value++) {
		before = atomic_load(&gone);
		rc = kedge_remote_put(r, FROM, &value, sizeof(value), SOON_MS);
		if (rc == -ENODATA)
			atomic_fetch_add(&refused, 1);
		else if (rc)
			atomic_fetch_add(&wrong, 1);
		/* Unmapped for good in that whole time. */
		if (!rc && before % 4 == 2 && atomic_load(&gone) == before)
			atomic_fetch_add(&wrong, 1);
		atomic_fetch_add(&puts_done, !rc);
	}
	return r;
}

/* @gone: 0 whole, 1 about to be unmapped, 2 unmapped, 3 about to be repaired; and so on. */
static void accesses_never_end_in_the_void(void **state)
{
	struct kedge_remote *r[3];
	pthread_t thread[3];
	unsigned int i, n;
	uint32_t value;

	atomic_store(&stops, false);
	/* Here, as what they map would find room where the region is unmapped. */
	for (i = 0; i < 3; i++)
		r[i] = open_it();
	for (i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, put_on, r[i]), 0);
	for (i = 0; i < ROUNDS; i++) {
		n = atomic_load(&puts_done);
		while (atomic_load(&puts_done) == n)
			sched_yield();
		atomic_fetch_add(&gone, 1);
		unmap_part();
		atomic_fetch_add(&gone, 1);
		n = atomic_load(&refused);
		while (atomic_load(&refused) < n + 3)
			sched_yield();
		assert_int_equal(kedge_remote_put(remote, FROM, "", 1, 0), -ENODATA);
		atomic_fetch_add(&gone, 1);
		assert_int_equal(kedge_region_recommit(region, FROM, PART, NULL), 0);
		atomic_fetch_add(&gone, 1);
	}
	atomic_store(&stops, true);
	for (i = 0; i < 3; i++) {
		pthread_join(thread[i], NULL);
		kedge_remote_close(r[i]);
	}
	assert_int_equal(atomic_load(&wrong), 0);
	value = 77;
	assert_int_equal(kedge_remote_put(remote, FROM, &value, sizeof(value), 0), 0);
	assert_memory_equal(at + FROM, &value, sizeof(value));
}

static _Atomic unsigned int comers;

static void *come_and_go(void *unused)
{
	struct kedge_remote *r;

	while (!atomic_load(&stops)) {
		if (kedge_remote_open(&handle, SOON_MS, &r))
			continue;
		kedge_remote_close(r);
		atomic_fetch_add(&comers, 1);
	}
	return unused;
}

/* A process that has pages for the region has all its owner's connections, while it lives. */
static void peers_leave_while_pages_are_had(void **state)
{
	unsigned int i, n;
	pthread_t thread;

	atomic_store(&stops, false);
	assert_int_equal(pthread_create(&thread, NULL, come_and_go, NULL), 0);
	for (i = 0; i < 100; i++) {
		n = atomic_load(&comers);
		drop_locked();
		assert_int_equal(kedge_region_recommit(region, FROM, PART, NULL), 0);
		while (atomic_load(&comers) == n)
			sched_yield();
	}
	atomic_store(&stops, true);
	pthread_join(thread, NULL);
	is_whole();
}

static void a_child_changes_nothing(void **state)
{
	char c;
	pid_t pid;

	begin_watched();
	pid = fork_child();
	if (!pid) {
		if (kedge_region_recommit(region, 0, 0, NULL) != -ECHILD)
			_exit(1);
		munmap(at, LEN);
		kedge_region_close(region);
		_exit(0);
	}
	reap(pid);
	assert_int_equal(kedge_remote_get(remote, FROM, &c, 1, 0), 0);
	unmap_part();
	is_missing();
	end_remote();
}

static void repair_as_a_daemon(void)
{
	struct kedge_region *r;
	struct kedge_handle h;
	struct kedge_region_info i = { .size = sizeof(i) };

	CHILD_CHECK(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
	CHILD_CHECK(!prctl(PR_GET_DUMPABLE));
	CHILD_CHECK(!kedge_region_create(LEN, NULL, &r));
	CHILD_CHECK(!kedge_region_advertise(r, NULL, &h));
	CHILD_CHECK(!kedge_region_query(r, &i));
	CHILD_CHECK(!munmap((char *)(uintptr_t)i.addr + FROM, PART));
	CHILD_CHECK(!kedge_region_recommit(r, 0, 0, NULL));
	kedge_region_close(r);
	_exit(0);
}

/* Files of its entry in /proc are root's. */
static void one_that_has_changed_its_user_repairs(void **state)
{
	pid_t pid;

	if (geteuid()) {
		print_message("skipped: only root can be another user\n");
		skip();
	}
	need_threads_after_fork();
	pid = fork_child();
	if (!pid)
		repair_as_a_daemon();
	reap(pid);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_is_taken_away_is_missing_until_it_is_repaired),
	watched_case(all_of_it),
	cmocka_unit_test(other_memory_is_left_alone),
	watched_case(so_is_another_file),
	cmocka_unit_test(what_was_done_before_the_first_handle_is_found),
	watched_case(a_protection_is_made_as_it_was),
	cmocka_unit_test(a_part_of_a_handle_has_numbers_of_its_own),
	cmocka_unit_test(many_parts),
	watched_case(a_change_of_kedges_own_is_none),
	watched_case(arguments),
	watched_case(accesses_never_end_in_the_void),
	watched_case(peers_leave_while_pages_are_had),
	cmocka_unit_test(a_child_changes_nothing),
	cmocka_unit_test(one_that_has_changed_its_user_repairs),
};

const struct suite suite_recommit = {
	.name = "recommit", SUITE_OF(tests), .by = "mapped", .may_run = may_run,
};
