// SPDX-License-Identifier: BSD-2-Clause
/* Watches and events as their user sees them, and the counter. */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/shm.h>

#include "notifier.h"

static void watch(void *at, size_t pages, uint64_t cookie)
{
	assert_int_equal(kedge_watch_add(nf, at, pages * page_len(), cookie),
			 0);
}

static void expect(const struct kedge_event *ev, uint64_t cookie,
		   uint32_t kind, const void *start, size_t pages)
{
	assert_int_equal(ev->cookie, cookie);
	assert_int_equal(ev->kind, kind);
	assert_int_equal(ev->flags, 0);
	assert_int_equal(ev->start, addr_of(start));
	assert_int_equal(ev->end, addr_of(start) + pages * page_len());
	assert_true(ev->generation <= kedge_notifier_generation(nf));
}

/* Just this one event is queued, then LAST with the generation of now. */
static void expect_one(uint64_t cookie, uint32_t kind, const void *start,
		       size_t pages)
{
	struct kedge_event ev[4];

	assert_int_equal(kedge_notifier_read(nf, ev, 4), 2);
	expect(&ev[0], cookie, kind, start, pages);
	assert_int_equal(ev[1].kind, KEDGE_EVENT_LAST);
	assert_int_equal(ev[1].generation, kedge_notifier_generation(nf));
	assert_int_equal(ev[0].generation, ev[1].generation);
}

static void expect_none(void)
{
	struct kedge_event ev[2];

	assert_int_equal(kedge_notifier_read(nf, ev, 2), 1);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_LAST);
	assert_int_equal(ev[0].generation, kedge_notifier_generation(nf));
}

static uint64_t watches(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	return info.watches;
}

static void a_cookie_names_one_watch(void **state)
{
	char *p = new_pages(2);

	watch(p, 1, 7);
	assert_int_equal(kedge_watch_add(nf, p + page_len(), 1, 7), -EEXIST);
	assert_int_equal(watches(), 1);
	assert_int_equal(kedge_watch_remove(nf, 7), 0);
	assert_int_equal(kedge_watch_remove(nf, 7), -ENOENT);
	watch(p + page_len(), 1, 7);
	/* 0 and the largest are cookies like any other. */
	watch(p, 1, 0);
	watch(p, 1, UINT64_MAX);
	assert_int_equal(kedge_watch_remove(nf, 0), 0);
	assert_int_equal(kedge_watch_remove(nf, UINT64_MAX), 0);
	assert_int_equal(watches(), 1);
}

/* Tries if another user of userfaultfd could have all of it. */
static bool others_may_watch(void *at, size_t pages)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = {
		.range = { addr_of(at), pages * page_len() },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	int rc;

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	rc = ioctl(fd, UFFDIO_REGISTER, &r);
	close(fd);
	return !rc;
}

static void a_hole_is_efault(void **state)
{
	char *p = new_pages(3);

	assert_int_equal(munmap(p + page_len(), page_len()), 0);
	assert_int_equal(kedge_watch_add(nf, p, 3 * page_len(), 1), -EFAULT);
	assert_int_equal(kedge_watch_add(nf, p + page_len(), 1, 1), -EFAULT);
	/* Nor does a range that only starts, or ends, in one. */
	assert_int_equal(kedge_watch_add(nf, p + page_len(), 2 * page_len(), 1),
			 -EFAULT);
	assert_int_equal(kedge_watch_add(nf, p, 2 * page_len(), 1), -EFAULT);
	assert_int_equal(watches(), 0);
	assert_true(others_may_watch(p, 1));
	assert_true(others_may_watch(p + 2 * page_len(), 1));
}

static void refuse_memory(void *p, size_t pages)
{
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(kedge_watch_add(nf, p, pages * page_len(), 1),
			 -EOPNOTSUPP);
	assert_int_equal(watches(), 0);
}

static void files_and_shared_memory_are_refused(void **state)
{
	size_t len = 2 * page_len();
	int prot = PROT_READ | PROT_WRITE, fd, id;
	char *p;

	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
	refuse_memory(p, 2);
	munmap(p, len);
	close(fd);

	fd = memfd_create("kedge-test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	p = mmap(NULL, len, prot, MAP_SHARED, fd, 0);
	refuse_memory(p, 2);
	assert_true(others_may_watch(p, 2));
	munmap(p, len);
	p = mmap(NULL, len, prot, MAP_PRIVATE, fd, 0);
	refuse_memory(p, 2);
	munmap(p, len);
	close(fd);

	p = mmap(NULL, len, prot, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	refuse_memory(p, 2);
	assert_true(others_may_watch(p, 2));
	munmap(p, len);

	id = shmget(IPC_PRIVATE, len, IPC_CREAT | 0600);
	if (id < 0)
		return; /* a kernel without System V */
	p = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	refuse_memory(p, 2);
	shmdt(p);
}

static void memory_of_another_userfaultfd_is_busy(void **state)
{
	char *p = new_pages(2);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = {
		.range = { addr_of(p), 2 * page_len() },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &r), 0);
	assert_int_equal(kedge_watch_add(nf, p, 1, 1), -EBUSY);
	assert_int_equal(watches(), 0);
	/* It keeps what it has: before Linux 6.17 anyone could take that from it. */
	assert_int_equal(ioctl(fd, UFFDIO_WAKE, &r.range), 0);
	assert_int_equal(kedge_watch_add(nf, p, 1, 1), -EBUSY);
	close(fd);
	watch(p, 2, 1);
}

/* One of two has a mapping, and is told of it whatever the other one tries. */
static void a_second_notifier_takes_nothing_from_the_first(void **state)
{
	struct kedge_notifier *second = open_uffd();
	char *p = new_pages(2);
	struct kedge_event ev[4];

	watch(p, 2, 1);
	/* A tripwire says of the open that something may have changed. */
	while (kedge_notifier_read(nf, ev, 4) != 1)
		;
	assert_int_equal(kedge_watch_add(second, p, 2 * page_len(), 1), -EBUSY);
	assert_int_equal(kedge_watch_add(second, p, 2 * page_len(), 1), -EBUSY);
	assert_int_equal(munmap(p, 2 * page_len()), 0);
	expect_one(1, KEDGE_EVENT_UNMAP, p, 2);
	kedge_notifier_close(second);
}

static void an_unmap_names_what_it_took(void **state)
{
	char *p = new_pages(4);
	uint64_t g;

	watch(p, 4, 1);
	expect_none();
	g = kedge_notifier_generation(nf);
	assert_int_equal(munmap(p + page_len(), page_len()), 0);
	assert_true(kedge_notifier_generation(nf) > g);
	expect_one(1, KEDGE_EVENT_UNMAP, p + page_len(), 1);
	expect_none();
	/* More than was watched: the event stays within the watch. */
	assert_int_equal(munmap(p - page_len(), 6 * page_len()), 0);
	expect_one(1, KEDGE_EVENT_UNMAP, p, 4);
}

static void a_range_is_watched_in_whole_pages(void **state)
{
	char *p = new_pages(3);

	assert_int_equal(kedge_watch_add(nf, p + page_len() - 1, 2, 5), 0);
	assert_int_equal(munmap(p, 3 * page_len()), 0);
	expect_one(5, KEDGE_EVENT_UNMAP, p, 2);
	pages_at(p, 3);
}

static void a_fixed_map_over_it_is_an_unmap(void **state)
{
	char *p = new_pages(4);

	watch(p, 4, 1);
	pages_at(p + page_len(), 2);
	expect_one(1, KEDGE_EVENT_UNMAP, p + page_len(), 2);
}

static void a_move_is_a_remap(void **state)
{
	char *p = new_pages(2), *q = new_pages(2), *r;
	struct kedge_event ev[4];
	ssize_t n;

	watch(p, 2, 1);
	r = mremap(p, 2 * page_len(), 2 * page_len(),
		   MREMAP_MAYMOVE | MREMAP_FIXED, q);
	assert_ptr_equal(r, q);
	n = kedge_notifier_read(nf, ev, 4);
	assert_int_equal(n, 2);
	assert_true(ev[0].kind == KEDGE_EVENT_REMAP ||
		    ev[0].kind == KEDGE_EVENT_UNMAP);
	expect(&ev[0], 1, ev[0].kind, p, 2);
	pages_at(p, 2);
}

static void a_move_onto_it_is_an_unmap(void **state)
{
	char *p = new_pages(2), *q = new_pages(1), *r;

	watch(p, 2, 1);
	r = mremap(q, page_len(), page_len(), MREMAP_MAYMOVE | MREMAP_FIXED, p);
	assert_ptr_equal(r, p);
	expect_one(1, KEDGE_EVENT_UNMAP, p, 1);
	pages_at(q, 1);
}

static void a_shrink_names_the_tail(void **state)
{
	char *p = new_pages(4);

	watch(p, 4, 1);
	assert_ptr_equal(mremap(p, 4 * page_len(), page_len(), 0), p);
	expect_one(1, KEDGE_EVENT_UNMAP, p + page_len(), 3);
}

static void dropped_pages_are_a_remove(void **state)
{
	char *p = new_pages(4);

	watch(p, 4, 1);
	assert_int_equal(madvise(p, page_len(), MADV_DONTNEED), 0);
	expect_one(1, KEDGE_EVENT_REMOVE, p, 1);
	/* Still watched. */
	assert_int_equal(madvise(p + page_len(), page_len(), MADV_FREE), 0);
	expect_one(1, KEDGE_EVENT_REMOVE, p + page_len(), 1);
}

static void protection_and_use_are_no_events(void **state)
{
	char *p = new_pages(2);
	uint64_t g;

	watch(p, 2, 1);
	g = kedge_notifier_generation(nf);
	assert_int_equal(mprotect(p, page_len(), PROT_READ), 0);
	assert_int_equal(mprotect(p, page_len(), PROT_READ | PROT_WRITE), 0);
	p[0] = 2;
	assert_int_equal(madvise(p, page_len(), MADV_WILLNEED), 0);
	expect_none();
	assert_int_equal(kedge_notifier_generation(nf), g);
}

static void events_of_one_watch_coalesce(void **state)
{
	char *p = new_pages(8);

	watch(p, 8, 1);
	assert_int_equal(madvise(p + 6 * page_len(), page_len(),
				 MADV_DONTNEED), 0);
	assert_int_equal(munmap(p + page_len(), page_len()), 0);
	/* The smallest range with both; the kind and generation of the last. */
	expect_one(1, KEDGE_EVENT_UNMAP, p + page_len(), 6);
	pages_at(p, 8);
}

static void overlapping_watches_are_each_told(void **state)
{
	char *p = new_pages(6);
	struct kedge_event ev[8];
	bool seen[4] = { false };
	int i;

	watch(p, 6, 0);
	watch(p + 2 * page_len(), 2, 1);
	watch(p + 2 * page_len(), 2, 2); /* the same range twice */
	watch(p + 4 * page_len(), 1, 3);
	assert_int_equal(munmap(p + 3 * page_len(), page_len()), 0);
	assert_int_equal(kedge_notifier_read(nf, ev, 8), 4);
	for (i = 0; i < 3; i++) {
		assert_true(ev[i].cookie < 3);
		assert_false(seen[ev[i].cookie]);
		seen[ev[i].cookie] = true;
		expect(&ev[i], ev[i].cookie, KEDGE_EVENT_UNMAP,
		       p + 3 * page_len(), 1);
	}
	assert_int_equal(ev[3].kind, KEDGE_EVENT_LAST);
	/* One gone, the others stay watched. */
	assert_int_equal(kedge_watch_remove(nf, 0), 0);
	assert_int_equal(munmap(p + 4 * page_len(), page_len()), 0);
	expect_one(3, KEDGE_EVENT_UNMAP, p + 4 * page_len(), 1);
	pages_at(p, 6);
}

static void a_read_of_few_takes_few(void **state)
{
	char *p = new_pages(1);
	struct kedge_event ev[64];
	int i;

	for (i = 0; i < 40; i++)
		watch(p, 1, (uint64_t)i);
	assert_int_equal(munmap(p, page_len()), 0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(kedge_notifier_read(nf, ev, 1), 1);
		assert_int_equal(ev[0].kind, KEDGE_EVENT_UNMAP);
		/* Oldest first, and no number is told twice. */
		assert_int_equal(ev[0].cookie, i);
	}
	/* Room for just what is left: no LAST. */
	assert_int_equal(kedge_notifier_read(nf, ev, 37), 37);
	assert_int_equal(ev[36].kind, KEDGE_EVENT_UNMAP);
	assert_int_equal(ev[36].cookie, 39);
	expect_none();
	pages_at(p, 1);
}

static void what_is_removed_is_not_told(void **state)
{
	char *p = new_pages(2);

	watch(p, 2, 1);
	assert_int_equal(munmap(p, page_len()), 0);
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
	expect_none();
	assert_int_equal(munmap(p + page_len(), page_len()), 0);
	expect_none();
	pages_at(p, 2);
}

static void an_unmap_is_visible_when_it_returns(void **state)
{
	char *p = new_pages(1);
	struct kedge_event ev[2];
	int i;

	for (i = 0; i < 20000; i++) {
		uint64_t g;

		watch(p, 1, (uint64_t)i);
		g = kedge_notifier_generation(nf);
		assert_int_equal(munmap(p, page_len()), 0);
		assert_int_not_equal(kedge_notifier_generation(nf), g);
		assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
		expect(&ev[0], (uint64_t)i, KEDGE_EVENT_UNMAP, p, 1);
		assert_int_equal(kedge_watch_remove(nf, (uint64_t)i), 0);
		pages_at(p, 1);
	}
}

/* None of the steps of one big DONTNEED is taken for an end of it. */
static void memory_being_dropped_is_provisional_or_gone(void **state)
{
	size_t pages = 16, i;
	char *p = new_pages(pages);
	int rc;

	for (i = 0; i < 2000; i++) {
		memset(p, 1, pages * page_len());
		rc = kedge_watch_add(nf, p, pages * page_len(), i);
		assert_true(rc == 0 || rc == KEDGE_WATCH_PROVISIONAL);
		assert_int_equal(madvise(p, pages * page_len(),
					 MADV_DONTNEED), 0);
		expect_one(i, KEDGE_EVENT_REMOVE, p, pages);
		assert_int_equal(kedge_watch_remove(nf, i), 0);
	}
	/* It does not stay so: what is mapped anew is like any other. */
	assert_true(kedge_watch_add(nf, p, pages * page_len(), 1) >= 0);
	pages_at(p, pages);
	/* A sanitizer's own thread that runs may be in a call until it rests. */
	while ((rc = kedge_watch_add(nf, p, pages * page_len(), 2)) ==
	       KEDGE_WATCH_PROVISIONAL)
		assert_int_equal(kedge_watch_remove(nf, 2), 0);
	assert_int_equal(rc, 0);
}

#define MANY 100000

static void many_watches_need_few_mappings(void **state)
{
	size_t len = (size_t)64 << 10, i;
	char *p = mmap(NULL, 2 * len * MANY, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned int lines;

	assert_ptr_not_equal(p, MAP_FAILED);
	for (i = 0; i < MANY; i++)
		assert_int_equal(kedge_watch_add(nf, p + 2 * i * len, len, i),
				 0);
	lines = map_lines();
	assert_true(lines < 65530 / 2);
	assert_int_equal(watches(), MANY);
	/* Each still reports by itself. */
	for (i = 0; i < MANY; i += MANY / 10) {
		assert_int_equal(madvise(p + 2 * i * len, page_len(),
					 MADV_DONTNEED), 0);
		expect_one(i, KEDGE_EVENT_REMOVE, p + 2 * i * len, 1);
	}
	for (i = 0; i < MANY; i++)
		assert_int_equal(kedge_watch_remove(nf, i), 0);
	assert_int_equal(munmap(p, 2 * len * MANY), 0);
}

static void info_counts_watches_and_events(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	char *p = new_pages(4);

	watch(p, 1, 1);
	watch(p + 2 * page_len(), 1, 2);
	assert_int_equal(munmap(p, page_len()), 0);
	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	assert_string_equal(info.backend, "uffd");
	assert_int_equal(info.level, KEDGE_LEVEL_ORDERED);
	assert_int_equal(info.hooked, 0);
	assert_int_equal(info.watches, 2);
	assert_int_equal(info.events, 1);
	assert_true(info.armed >= 1);
}

#define NEEDED need_uffd
#define LISTED NF
#include "test_notifier.cases.h"
