// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/ummunot: which changes are told, by whomever they are made, and which
 * are not. KSM and reclaim need root; reclaim needs swap.
 */
#include <sys/shm.h>

#include "ummunot_lib.h"

#define PAGES 8

struct scene {
	struct um u;
	char *m; /* PAGES pages, watched as cookie 1 */
};

static void scene_open(struct scene *s, char *m, uint32_t flags)
{
	um_open(&s->u, O_NONBLOCK);
	assert_int_equal(um_features(&s->u, flags), flags);
	s->m = m;
	assert_int_equal(um_watch(&s->u, m, PAGES * PAGE, 1, flags), 0);
	assert_int_equal(um_moved(&s->u), 0);
}

/* Pages [from, to) of the scene changed, and nothing else did. */
static void assert_told(struct scene *s, size_t from, size_t to)
{
	struct news n;

	assert_true(um_moved(&s->u));
	um_drain(&s->u, &n);
	assert_true(n.cnt >= 1);
	assert_int_equal(n.cookie, 1);
	assert_int_equal(n.start, (uintptr_t)s->m + from * PAGE);
	assert_int_equal(n.end, (uintptr_t)s->m + to * PAGE);
	assert_int_equal(n.last, um_counter(&s->u));
}

static void assert_silent(struct scene *s)
{
	struct ummunot_event ev;

	assert_int_equal(um_moved(&s->u), 0);
	assert_int_equal(um_read(&s->u, &ev, 1), -EAGAIN);
}

static void scene_close(struct scene *s)
{
	um_close(&s->u);
	munmap(s->m, PAGES * PAGE);
}

/* That of a case, of memory that is touched, and told of what changes it. */
static struct scene s;

static int scene_begin(void **state)
{
	scene_open(&s, vm_memory(PAGES), 0);
	return 0;
}

static int scene_end(void **state)
{
	scene_close(&s);
	return 0;
}

static void munmap_is_told(void **state)
{
	munmap(s.m + 2 * PAGE, 2 * PAGE);
	assert_told(&s, 2, 4);
}

static void neighbours_are_not(void **state)
{
	char *m = vm_memory(PAGES + 2);

	scene_open(&s, m + PAGE, 0);
	munmap(m, PAGE);
	munmap(m + (PAGES + 1) * PAGE, PAGE);
	assert_silent(&s);
}

static void mremap_is_told(void **state)
{
	char *to = vm_memory(PAGES);

	assert_ptr_equal(mremap(s.m + PAGE, 2 * PAGE, 2 * PAGE,
				MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
	assert_told(&s, 1, 3);
	munmap(to, PAGES * PAGE);
}

static void mremap_dontunmap_is_told(void **state)
{
	char *to;

	/* Its last argument is where to begin looking for room: it is read with this flag, too. */
	to = mremap(s.m, PAGES * PAGE, PAGES * PAGE,
		    MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	assert_true(to != MAP_FAILED);
	assert_told(&s, 0, PAGES);
	munmap(to, PAGES * PAGE);
}

static void mremap_onto_is_told(void **state)
{
	char *from = vm_memory(1);

	mremap(from, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, s.m + 5 * PAGE);
	assert_told(&s, 5, 6);
}

static void map_fixed_is_told(void **state)
{
	mmap(s.m + PAGE, PAGE, PROT_READ,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	assert_told(&s, 1, 2);
}

static void advice_is_told(void **state)
{
	madvise(s.m + 3 * PAGE, 2 * PAGE, MADV_DONTNEED);
	assert_told(&s, 3, 5);
	scene_close(&s);
	scene_begin(state);
	madvise(s.m + 3 * PAGE, 2 * PAGE, MADV_FREE);
	assert_told(&s, 3, 5);
}

static void a_vfork_childs_munmap_is_told(void **state)
{
	pid_t pid;

	pid = vfork();
	if (!pid) {
		munmap(s.m + PAGE, PAGE);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	assert_told(&s, 1, 2);
}

static int page_out(void *arg)
{
	struct iovec v = { arg, PAGES * PAGE };
	int fd = (int)syscall(SYS_pidfd_open, getppid(), 0);

	return syscall(SYS_process_madvise, fd, &v, 1, MADV_PAGEOUT, 0) < 0;
}

/*
 * The child shares no page: what it reclaims is mapped once. It runs on the
 * CPU that touched them, which has them in hand until it makes them reclaimable.
 */
static void another_processs_pageout_is_told(void **state)
{
	char *m = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *swaps = fopen("/proc/swaps", "re");
	cpu_set_t one, old;
	char line[256];
	int lines = 0;

	while (swaps && fgets(line, sizeof(line), swaps))
		lines++;
	if (swaps)
		fclose(swaps);
	if (lines < 2) {
		scene_open(&s, m, 0);
		print_message("skipped: no swap\n");
		skip();
	}
	sched_getaffinity(0, sizeof(old), &old);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	madvise(m, PAGES * PAGE, MADV_DONTFORK);
	memset(m, 3, PAGES * PAGE);
	scene_open(&s, m, 0);
	assert_int_equal(vm_child(page_out, m), 0);
	sched_setaffinity(0, sizeof(old), &old);
	assert_told(&s, 0, PAGES);
}

static int cut(void *fd)
{
	return ftruncate((int)(intptr_t)fd, 3 * PAGE) != 0;
}

static int punch(void *fd)
{
	return fallocate((int)(intptr_t)fd,
			 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE,
			 3 * PAGE) != 0;
}

static void another_processs_change_of_the_file(int (*fn)(void *), size_t from,
						size_t to)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	char *m;

	assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
	m = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memset(m, 1, PAGES * PAGE);
	scene_open(&s, m, 0);
	assert_int_equal(vm_child(fn, (void *)(intptr_t)fd), 0);
	assert_told(&s, from, to);
	scene_close(&s);
	close(fd);
}

static void another_processs_truncation_is_told(void **state)
{
	another_processs_change_of_the_file(cut, 3, PAGES);
	another_processs_change_of_the_file(punch, 2, 5);
}

static void detaching_shared_memory_is_told(void **state)
{
	int id = shmget(IPC_PRIVATE, PAGES * PAGE, 0600);
	char *m = shmat(id, NULL, 0);

	shmctl(id, IPC_RMID, NULL);
	assert_true(m != MAP_FAILED);
	memset(m, 1, PAGES * PAGE);
	scene_open(&s, m, 0);
	shmdt(m);
	assert_told(&s, 0, PAGES);
}

static int nothing(void *arg)
{
	return 0;
}

static int wait_for_byte(void *fd)
{
	char c;

	return read((int)(intptr_t)fd, &c, 1) != 1;
}

/* While the child has the page, a write puts another in the parent. */
static void copy_on_write_is_told(void **state)
{
	int pipes[2];
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid)
		_exit(wait_for_byte((void *)(intptr_t)pipes[0]));
	assert_silent(&s);
	s.m[4 * PAGE] = 9;
	assert_told(&s, 4, 5);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	waitpid(pid, NULL, 0);
	close(pipes[0]);
	close(pipes[1]);
}

static void the_page_of_zeros_that_is_replaced_is_told(void **state)
{
	scene_open(&s, vm_untouched(PAGES), 0);
	*(volatile char *)(s.m + PAGE);
	assert_silent(&s);
	s.m[PAGE] = 1;
	assert_told(&s, 1, 2);
}

static void harmless(void)
{
	/* First: it writes to what may not be written, and Linux 5.10 copies it. */
	mlock(s.m, PAGES * PAGE);
	munlock(s.m, PAGES * PAGE);
	mprotect(s.m, PAGES * PAGE, PROT_READ);
	mprotect(s.m, PAGES * PAGE, PROT_READ | PROT_WRITE);
	vm_write("/proc/self/clear_refs", "4");
	madvise(s.m, PAGES * PAGE, MADV_DONTDUMP);
	/* Last: a write after it may well copy. */
	vm_child(nothing, NULL);
}

static void what_changes_no_page_is_silent(void **state)
{
	harmless();
	assert_silent(&s);
	scene_close(&s);

	/* Also where a flag could have asked for it. */
	um_open(&s.u, O_NONBLOCK);
	assert_int_equal(um_features(&s.u, UMMUNOT_FEATURE_PROTECTION),
			 UMMUNOT_FEATURE_PROTECTION);
	s.m = vm_memory(PAGES);
	assert_int_equal(um_watch(&s.u, s.m, PAGES * PAGE, 1, 0), 0);
	harmless();
	assert_silent(&s);
	scene_close(&s);

	scene_open(&s, vm_untouched(PAGES), UMMUNOT_REGISTER_PROTECTION);
	memset(s.m, 1, PAGES * PAGE);
	assert_silent(&s);
}

static void protects_a_page(void)
{
	mprotect(s.m + 2 * PAGE, PAGE, PROT_READ);
}

static void forks(void)
{
	vm_child(nothing, NULL);
}

static void clears_soft_dirty(void)
{
	assert_int_equal(vm_write("/proc/self/clear_refs", "4"), 0);
}

/* A change of the page, which is told to those, too. */
static void discards_a_page(void)
{
	madvise(s.m, PAGE, MADV_DONTNEED);
}

static void protection_is_told_if_asked_for(void **state)
{
	static const struct {
		void (*change)(void);
		size_t from, to;
	} cases[] = {
		{ protects_a_page, 2, 3 },
		{ forks, 0, PAGES },
		{ clears_soft_dirty, 0, PAGES },
		{ discards_a_page, 0, 1 },
	};
	size_t i;

	for (i = 0; i < VM_COUNT(cases); i++) {
		if (i)
			scene_close(&s);
		scene_open(&s, vm_memory(PAGES), UMMUNOT_REGISTER_PROTECTION);
		cases[i].change();
		assert_told(&s, cases[i].from, cases[i].to);
	}
}

static void a_page_merged_by_ksm_is_told(void **state)
{
	char *m = vm_memory(PAGES);
	int i;

	memset(m, 0x5a, PAGES * PAGE);
	scene_open(&s, m, 0);
	if (!vm_ksm()) {
		print_message("skipped: no KSM, or not root\n");
		skip();
	}
	assert_int_equal(madvise(m, PAGES * PAGE, MADV_MERGEABLE), 0);
	for (i = 0; i < 1000 && um_moved(&s.u) < 2; i++)
		usleep(20000);
	vm_write("/sys/kernel/mm/ksm/run", "2");
	assert_true(um_moved(&s.u) >= 2);
}

/* 2 MiB of small pages made one: all of them are others then. */
static void collapse_is_told(void **state)
{
	const size_t huge = 2ul << 20;
	char *m = mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *a = (char *)(((uintptr_t)m + huge - 1) & ~(huge - 1));
	struct news n;
	struct um u;

	madvise(m, 2 * huge, MADV_NOHUGEPAGE);
	memset(a, 1, huge);
	um_open(&u, O_NONBLOCK);
	assert_int_equal(um_watch(&u, a + PAGE, PAGE, 4, 0), 0);
	/* From here on khugepaged may do it, unasked. */
	madvise(m, 2 * huge, MADV_HUGEPAGE);
	if (madvise(a, huge, MADV_COLLAPSE)) {
		um_close(&u);
		print_message("skipped: no MADV_COLLAPSE\n");
		skip();
	}
	um_drain(&u, &n);
	assert_int_equal(n.cnt, 1);
	assert_int_equal(n.cookie, 4);
	um_close(&u);
	munmap(m, 2 * huge);
}

/* Two files of one process are told alike. */
static void every_file_is_told(void **state)
{
	char *m = vm_memory(PAGES);
	struct scene a, b;

	scene_open(&a, m, 0);
	scene_open(&b, m, 0);
	munmap(m, PAGE);
	assert_told(&a, 0, 1);
	assert_told(&b, 0, 1);
	um_close(&a.u);
	scene_close(&b);
}

/* ---- a thread that need not be told of its own ---- */

static void *drops_a_page(void *m)
{
	madvise(m, PAGE, MADV_DONTNEED);
	return NULL;
}

static void by_another_thread(char *m)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, drops_a_page, m), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
}

static int quiet_begin(void **state)
{
	s.m = vm_memory(PAGES);
	um_open(&s.u, O_NONBLOCK);
	assert_int_equal(um_features(&s.u, UMMUNOT_FEATURE_QUIET),
			 UMMUNOT_FEATURE_QUIET);
	assert_int_equal(um_watch(&s.u, s.m, PAGES * PAGE, 1,
				  UMMUNOT_REGISTER_QUIET), 0);
	assert_int_equal(um_moved(&s.u), 0);
	return 0;
}

static void assert_still(uint64_t counter)
{
	struct ummunot_event ev;

	assert_int_equal(um_counter(&s.u), counter);
	assert_int_equal(um_read(&s.u, &ev, 1), -EAGAIN);
}

static void a_quiet_watch_is_told_of_other_threads_alone(void **state)
{
	uint64_t was;
	char *from;

	drops_a_page(s.m);
	from = vm_memory(2);
	assert_true(mremap(from, 2 * PAGE, 2 * PAGE,
			   MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
			   s.m + PAGE) == s.m + PAGE);
	assert_silent(&s);
	by_another_thread(s.m + 2 * PAGE);
	assert_told(&s, 2, 3);
	was = um_counter(&s.u);
	drops_a_page(s.m + 2 * PAGE);
	assert_still(was);
	/* Other watches, and this one after that, are told of all. */
	assert_int_equal(um_watch(&s.u, s.m + 4 * PAGE, PAGE, 2, 0), 0);
	drops_a_page(s.m + 4 * PAGE);
	assert_true(um_counter(&s.u) > was);
	assert_int_equal(um_unwatch(&s.u, 2), 0);
	um_drain(&s.u, &(struct news){ 0 });
	assert_int_equal(um_end_quiet(&s.u, 2), -ENOENT);
	was = um_counter(&s.u);
	assert_int_equal(um_end_quiet(&s.u, 1), 0);
	assert_still(was);
	s.m[PAGE] = 1;
	drops_a_page(s.m + PAGE);
	assert_told(&s, 1, 2);
	munmap(from, 2 * PAGE);
}

static void *registers_quietly(void *arg)
{
	quiet_begin(arg);
	return NULL;
}

/* Its number may be another thread's by now. */
static void a_quiet_watch_outlives_its_thread(void **state)
{
	pthread_t t;
	int i;

	assert_int_equal(pthread_create(&t, NULL, registers_quietly, NULL), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	for (i = 0; i < 100; i++) {
		s.m[0] = 1;
		by_another_thread(s.m);
		assert_told(&s, 0, 1);
	}
	drops_a_page(s.m);
	assert_told(&s, 0, 1);
}

/* Where there are many the log has it, and they are told too much. */
static void many_quiet_watches_miss_nothing(void **state)
{
	struct news n;
	uint64_t i;

	for (i = 2; i < 100; i++)
		assert_int_equal(um_watch(&s.u, s.m, PAGE, i,
					  UMMUNOT_REGISTER_QUIET), 0);
	drops_a_page(s.m);
	um_drain(&s.u, &n);
	by_another_thread(s.m);
	um_drain(&s.u, &n);
	assert_int_equal(n.cnt, 99);
}

/* Each has a scene, which is made before the case, by it, or without news of its own thread. */
#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_begin, scene_end)
#define MADE(f) cmocka_unit_test_teardown(f, scene_end)
#define QUIET(f) cmocka_unit_test_setup_teardown(f, quiet_begin, scene_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(munmap_is_told),
		MADE(neighbours_are_not),
		TEST(mremap_is_told),
		TEST(mremap_dontunmap_is_told),
		TEST(mremap_onto_is_told),
		TEST(map_fixed_is_told),
		TEST(advice_is_told),
		TEST(a_vfork_childs_munmap_is_told),
		MADE(another_processs_pageout_is_told),
		cmocka_unit_test(another_processs_truncation_is_told),
		MADE(detaching_shared_memory_is_told),
		TEST(copy_on_write_is_told),
		MADE(the_page_of_zeros_that_is_replaced_is_told),
		TEST(what_changes_no_page_is_silent),
		MADE(protection_is_told_if_asked_for),
		MADE(a_page_merged_by_ksm_is_told),
		cmocka_unit_test(collapse_is_told),
		QUIET(a_quiet_watch_is_told_of_other_threads_alone),
		MADE(a_quiet_watch_outlives_its_thread),
		QUIET(many_quiet_watches_miss_nothing),
		cmocka_unit_test(every_file_is_told),
	};

	return cmocka_run_group_tests_name("ummunot_events", tests, NULL, NULL);
}
