// SPDX-License-Identifier: BSD-2-Clause
/*
 * The backend of the kernel module, with the module: what only it sees, and what
 * it must not lose. Skipped where the module is not loaded; tests/vm loads it.
 */
#include <sys/shm.h>

#include "notifier.h"
#include "tools/common/raw.h"

#define PAGES 64

static char *mem;

static struct kedge_notifier *open_module(void)
{
	struct kedge_notifier_opts o = { .size = sizeof(o),
					 .backend = "ummunot" };
	struct kedge_notifier *n;
	int rc = kedge_notifier_open(&o, &n);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	return n;
}

static int setup(void **state)
{
	mem = new_pages(PAGES);
	/* A huge page there would be split, which is told as its whole. */
	madvise(mem, PAGES * page_len(), MADV_NOHUGEPAGE);
	nf = open_module();
	return 0;
}

static char *at(size_t page)
{
	return mem + page * page_len();
}

static void watch(size_t page, size_t cnt, uint64_t cookie)
{
	assert_int_equal(kedge_watch_add(nf, at(page), cnt * page_len(),
					 cookie), 0);
}

/* One event, of @cookie and of exactly those pages; then the queue's end. */
static void expect(uint64_t cookie, size_t page, size_t cnt)
{
	struct kedge_event ev[4];

	assert_int_equal(kedge_notifier_read(nf, ev, 4), 2);
	assert_int_equal(ev[0].cookie, cookie);
	assert_int_equal(ev[0].start, addr_of(at(page)));
	assert_int_equal(ev[0].end, addr_of(at(page + cnt)));
	assert_int_equal(ev[1].kind, KEDGE_EVENT_LAST);
	assert_int_equal(ev[1].generation, kedge_notifier_generation(nf));
}

static void expect_nothing(uint64_t generation)
{
	struct kedge_event ev[2];

	assert_int_equal(kedge_notifier_generation(nf), generation);
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 1);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_LAST);
	assert_int_equal(ev[0].generation, generation);
}

static void it_says_what_it_is(void **state)
{
	struct kedge_notifier_opts o = { .size = sizeof(o),
					 .flags = KEDGE_NOTIFIER_NO_BLIND_SPOT,
					 .min_level = KEDGE_LEVEL_EXACT };
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier *n;

	assert_int_equal(kedge_notifier_open(&o, &n), 0);
	assert_int_equal(kedge_notifier_info(n, &info), 0);
	assert_string_equal(info.backend, "ummunot");
	assert_int_equal(info.level, KEDGE_LEVEL_EXACT);
	assert_int_equal(info.blind, 0);
	assert_int_equal(kedge_watch_add(n, mem, 1, 1), 0);
	assert_int_equal(kedge_notifier_info(n, &info), 0);
	assert_int_equal(info.watches, 1);
	kedge_notifier_close(n);
}

static void a_change_is_told_once_as_its_pages(void **state)
{
	uint64_t g;

	watch(4, 8, 7);
	g = kedge_notifier_generation(nf);
	expect_nothing(g);
	raw_syscall6(SYS_munmap, (long)at(6), (long)page_len(), 0, 0, 0, 0);
	assert_true(kedge_notifier_generation(nf) > g);
	expect(7, 6, 1);
	pages_at(at(6), 1);
	/* Mapping where nothing was takes nothing away. */
	g = kedge_notifier_generation(nf);
	expect_nothing(g);
	madvise(at(5), page_len(), MADV_DONTNEED);
	madvise(at(7), page_len(), MADV_DONTNEED);
	expect(7, 5, 3);
	/* Next to it. */
	g = kedge_notifier_generation(nf);
	madvise(at(2), 2 * page_len(), MADV_DONTNEED);
	madvise(at(12), page_len(), MADV_DONTNEED);
	expect_nothing(g);
	assert_int_equal(kedge_watch_remove(nf, 7), 0);
	madvise(at(5), page_len(), MADV_DONTNEED);
	expect_nothing(g);
}

static void what_keeps_the_pages_is_silent(void **state)
{
	uint64_t g;

	watch(0, PAGES, 1);
	expect_nothing(kedge_notifier_generation(nf));
	g = kedge_notifier_generation(nf);
	assert_int_equal(mprotect(at(3), page_len(), PROT_READ), 0);
	assert_int_equal(mprotect(at(3), page_len(), PROT_READ | PROT_WRITE),
			 0);
	memset(mem, 2, PAGES * page_len());
	expect_nothing(g);
}

static int truncate_it(void *arg)
{
	return ftruncate(*(int *)arg, 0) ? 1 : 0;
}

/* By another process, in memory that no notifier in user space can watch. */
static void another_process_truncates_the_file(void **state)
{
	int fd = memfd_create("kedge-test", MFD_CLOEXEC);
	uint64_t g;
	char *p;

	assert_int_equal(ftruncate(fd, (off_t)page_len()), 0);
	p = mmap(NULL, page_len(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	*p = 1;
	assert_int_equal(kedge_watch_add(nf, p, page_len(), 9), 0);
	g = kedge_notifier_generation(nf);
	expect_nothing(g);
	assert_int_equal(in_child(truncate_it, &fd), 0);
	assert_true(kedge_notifier_generation(nf) > g);
	munmap(p, page_len());
	close(fd);
}

static void shm_remap_over_it(void **state)
{
	int id = shmget(IPC_PRIVATE, page_len(), IPC_CREAT | 0600);

	assert_true(id >= 0);
	watch(4, 1, 3);
	assert_int_equal(raw_syscall6(SYS_shmat, id, (long)at(4), SHM_REMAP, 0,
				      0, 0), (long)at(4));
	expect(3, 4, 1);
	shmctl(id, IPC_RMID, NULL);
}

static void the_descriptor_polls(void **state)
{
	struct pollfd p = { .fd = kedge_notifier_fd(nf), .events = POLLIN };

	assert_true(p.fd >= 0);
	watch(1, 1, 1);
	expect_nothing(kedge_notifier_generation(nf));
	assert_int_equal(poll(&p, 1, 0), 0);
	madvise(at(1), page_len(), MADV_DONTNEED);
	assert_int_equal(poll(&p, 1, 5000), 1);
	expect(1, 1, 1);
	assert_int_equal(poll(&p, 1, 0), 0);
}

/* As who wants SIGIO does: the flag that keeps reads from waiting is lost. */
static void flags_set_by_the_application_do_no_harm(void **state)
{
	int fd = kedge_notifier_fd(nf);

	watch(1, 1, 1);
	assert_int_equal(fcntl(fd, F_SETFL, O_ASYNC), 0);
	alarm(CHILD_TIMEOUT);
	expect_nothing(kedge_notifier_generation(nf));
	alarm(0);
}

#define LIMIT "/sys/module/ummunot/parameters/max_watches_per_file"

static void set_limit(const char *text)
{
	FILE *f = fopen(LIMIT, "we");

	if (!f || fputs(text, f) < 0 || fclose(f))
		fail_msg("%s can't be written", LIMIT);
}

/* The kernel takes no more watches: used once each, and never kept. */
static void beyond_the_limit_nothing_is_kept(void **state)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };
	struct nodev *dev = nodev_new();
	const struct kedge_mr *mr;
	struct kedge_cache *cache;
	int i;

	if (access(LIMIT, W_OK)) {
		nodev_free(dev);
		skip();
	}
	assert_int_equal(kedge_cache_open(dev->dev, NULL, NULL, &cache), 0);
	set_limit("0");
	assert_int_equal(kedge_watch_add(nf, mem, 1, 1), -ENOSPC);
	for (i = 0; i < 3; i++) {
		assert_int_equal(kedge_cache_get(cache, mem, 1, 1, &mr), 0);
		kedge_cache_put(cache, mr);
	}
	set_limit("1048576");
	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	assert_int_equal(st.uncached, 3);
	assert_int_equal(dev->live, 0);
	kedge_cache_close(cache);
	nodev_free(dev);
}

static void unmapped_memory_is_refused(void **state)
{
	munmap(at(10), page_len());
	assert_int_equal(kedge_watch_add(nf, at(9), 3 * page_len(), 1),
			 -EFAULT);
	assert_int_equal(kedge_watch_remove(nf, 1), -ENOENT);
	pages_at(at(10), 1);
}

/* Checks that the child never sees one of the parent's generations. */
static int sample(void *arg)
{
	const uint64_t *was = arg;
	int i;

	CHILD_CHECK(kedge_watch_add(nf, mem, 1, 99) == -ECHILD);
	for (i = 0; i < 200000; i++) {
		uint64_t g = kedge_notifier_generation(nf);

		CHILD_CHECK(g < was[0]);
	}
	kedge_notifier_close(nf);
	return 0;
}

static void *move_it(void *arg)
{
	_Atomic bool *stop = arg;

	while (!atomic_load(stop))
		madvise(at(1), page_len(), MADV_DONTNEED);
	return NULL;
}

static void a_child_never_sees_the_parents_number(void **state)
{
	_Atomic bool stop = false;
	uint64_t was;
	pthread_t t;

	need_threads_after_fork();
	watch(1, 1, 1);
	was = kedge_notifier_generation(nf);
	assert_int_equal(pthread_create(&t, NULL, move_it, &stop), 0);
	assert_int_equal(in_child(sample, &was), 0);
	atomic_store(&stop, true);
	pthread_join(t, NULL);
}

/* Nothing is kept any more, and nothing that was kept is a hit. */
static int close_all_descriptors(void *arg)
{
	struct nodev *dev = nodev_new();
	const struct kedge_mr *mr;
	struct kedge_cache *cache;
	uint64_t regs;
	int i;

	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &cache));
	CHILD_CHECK(!kedge_cache_get(cache, mem, 1, 1, &mr));
	kedge_cache_put(cache, mr);
	syscall(SYS_close_range, 3, ~0u, 0);
	pages_at(mem, 1);
	regs = dev->regs;
	for (i = 0; i < 10; i++) {
		CHILD_CHECK(!kedge_cache_get(cache, mem, 1, 1, &mr));
		kedge_cache_put(cache, mr);
	}
	CHILD_CHECK(dev->regs == regs + 10);
	kedge_cache_close(cache);
	CHILD_CHECK(dev->regs == dev->deregs);
	return 0;
}

static void a_program_closes_every_descriptor(void **state)
{
	assert_int_equal(in_child(close_all_descriptors, NULL), 0);
}

#define MANY 100000u

static void the_right_one_of_many_watches_has_the_event(void **state)
{
	char *p = mmap(NULL, MANY * page_len(), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct kedge_event ev[2];
	unsigned int i;

	assert_ptr_not_equal(p, MAP_FAILED);
	for (i = 0; i < MANY; i++)
		assert_int_equal(kedge_watch_add(nf, p + i * page_len(), 1, i),
				 0);
	munmap(p + 777 * page_len(), page_len());
	do
		assert_true(kedge_notifier_read(nf, ev, 1) == 1);
	while (ev[0].kind != KEDGE_EVENT_LAST && ev[0].cookie != 777);
	assert_int_equal(ev[0].cookie, 777);
	for (i = 0; i < MANY; i++)
		assert_int_equal(kedge_watch_remove(nf, i), 0);
	munmap(p, MANY * page_len());
}

#define LISTED NF_CASE
#include "test_ummunot.cases.h"

int main(void)
{
	struct kedge_backend_info info = { .size = sizeof(info) };

	if (kedge_backend_probe(0, &info) || info.rc) {
		printf("skipped: %s\n", info.reason);
		return 77;
	}
	return RUN(cases);
}
