// SPDX-License-Identifier: BSD-2-Clause
/*
 * libkedge-hooks, libkedge and the kernel together: what watching does to the
 * process's mappings, and that none of the application's calls fails for it.
 */
#include <dlfcn.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <sys/ioctl.h>

#include <kedge/kedge.h>
#include <kedge/hooks.h>

#include "check.h"

#define PG	((size_t)4096)
#define NO_UFFD 77
#define RW	(PROT_READ | PROT_WRITE)
#define ANON	(MAP_PRIVATE | MAP_ANONYMOUS)

static struct kedge_notifier *nf;
static uint64_t cookie;

static int lines(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	int n = 0, c;

	CHECK(f);
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* libc's own, past the hooks. */
static int (*raw_munmap)(void *, size_t);
static void *(*raw_mmap)(void *, size_t, int, int, int, off_t);

static void find_raw(void)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

	CHECK(libc);
	*(void **)(void *)&raw_munmap = dlsym(libc, "munmap");
	*(void **)(void *)&raw_mmap = dlsym(libc, "mmap");
	CHECK(raw_munmap && raw_mmap);
}

/* A file that no userfaultfd can watch. */
static int some_file(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static int watch(void *p, size_t len)
{
	return kedge_watch_add(nf, p, len, ++cookie);
}

/* Take all events; how many there were for @of. */
static uint32_t flags; /* of the last event that was counted */

static int events(uint64_t of, uint32_t *kind)
{
	struct kedge_event ev[64];
	ssize_t n, i;
	int cnt = 0;

	do {
		n = kedge_notifier_read(nf, ev, 64);
		CHECK(n > 0);
		for (i = 0; i < n; i++) {
			if (ev[i].kind == KEDGE_EVENT_LAST ||
			    ev[i].cookie != of)
				continue;
			*kind = ev[i].kind;
			flags = ev[i].flags;
			cnt++;
		}
	} while (ev[n - 1].kind != KEDGE_EVENT_LAST);
	return cnt;
}

/* @cnt pages, with pages on either side that nothing melts with. */
static char *map(size_t cnt)
{
	char *p = mmap(NULL, (cnt + 2) * PG, PROT_NONE, ANON, -1, 0);

	CHECK(p != MAP_FAILED);
	CHECK(mmap(p + PG, cnt * PG, RW, ANON | MAP_FIXED, -1, 0) == p + PG);
	return p + PG;
}

static void unmap(char *p, size_t cnt)
{
	CHECK(!munmap(p - PG, (cnt + 2) * PG));
}

/* Buffers of the heap that are freed stay mapped, and stay one mapping. */
static void freeing_every_second_chunk_splits_nothing(void)
{
	enum { CNT = 4000, LEN = 70000 };
	static char *buf[CNT];
	int before, i;

	CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20));
	for (i = 0; i < CNT; i++) {
		buf[i] = malloc(LEN);
		CHECK(buf[i]);
	}
	before = lines();
	for (i = 0; i < CNT; i++)
		CHECK(watch(buf[i], LEN) >= 0);
	for (i = 0; i < CNT; i += 2)
		free(buf[i]);
	CHECK(lines() <= before + 8);
	for (i = 1; i < CNT; i += 2)
		free(buf[i]);
	CHECK(lines() <= before + 8);
}

/* A chunk of glibc's that has a mapping of its own is unmapped at once. */
static void a_freed_mapping_is_not_waited_for(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	uint64_t armed;
	char *p;

	CHECK(!kedge_notifier_info(nf, &info));
	armed = info.armed;
	p = malloc(8 << 20);
	CHECK(p && watch(p, 8 << 20) >= 0);
	free(p);
	CHECK(!kedge_notifier_info(nf, &info));
	CHECK(info.armed <= armed);
}

/* The change was announced and not made: what was cut out melts again. */
static void a_change_that_fails_leaves_no_seam(void)
{
	static const int kinds[] = { KEDGE_EVENT_UNMAP, KEDGE_EVENT_REMAP };
	struct kedge_hook hook;
	char *p = map(16);
	int before, i;

	CHECK(!watch(p, 16 * PG));
	before = lines();
	for (i = 0; i < 2; i++) {
		kedge_hook_begin(&hook, kinds[i], p + 4 * PG, 4 * PG);
		CHECK(lines() > before);
		kedge_hook_end(&hook);
		CHECK(lines() == before);
		kedge_hook_begin(&hook, kinds[i], p, 4 * PG);
		kedge_hook_end(&hook);
		CHECK(lines() == before);
		kedge_hook_begin(&hook, kinds[i], p + 8 * PG, 8 * PG);
		kedge_hook_end(&hook);
		CHECK(lines() == before);
		CHECK(!watch(p, 16 * PG));
	}
	/* The kernel has no room for that much. */
	CHECK(mremap(p + PG, PG, (size_t)1 << 46, MREMAP_MAYMOVE) ==
	      MAP_FAILED);
	CHECK(errno == ENOMEM);
	CHECK(lines() == before);
	unmap(p, 16);
}

/* New memory in the middle of old melts with it, as it would without kedge. */
static void a_mapping_put_in_the_middle_melts(void)
{
	char *p = map(16);
	int before;

	CHECK(!watch(p, 16 * PG));
	before = lines();
	CHECK(mmap(p + 4 * PG, 4 * PG, RW, ANON | MAP_FIXED, -1, 0) ==
	      p + 4 * PG);
	CHECK(lines() == before);
	unmap(p, 16);
}

/* A stranger's mapping where a watched one was, away from others, is let be. */
static void a_strangers_mapping_is_not_taken(void)
{
	struct kedge_hook hook;
	char *p = map(16);
	int fd;

	CHECK(!watch(p + 4 * PG, 4 * PG));
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, p, 16 * PG);
	CHECK(raw_mmap(p, 16 * PG, RW, ANON | MAP_FIXED, -1, 0) == p);
	kedge_hook_end(&hook);
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	CHECK(fd >= 0);
	{
		struct uffdio_api api = { .api = UFFD_API };
		struct uffdio_register r = {
			.range = { (uintptr_t)p, 16 * PG },
			.mode = UFFDIO_REGISTER_MODE_WP,
		};

		CHECK(!ioctl(fd, UFFDIO_API, &api));
		CHECK(!syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &r));
	}
	close(fd);
	unmap(p, 16);
}

/* Another userfaultfd gets what it asks for, and keeps it. */
static void another_userfaultfd_comes_first(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK |
			      UFFD_USER_MODE_ONLY);
	uint32_t kind = 0;
	char *p = map(16);
	uint64_t mine;

	CHECK(fd >= 0 && !ioctl(fd, UFFDIO_API, &api));
	CHECK(!watch(p, 4 * PG)); /* the whole mapping is registered */
	mine = cookie;
	r.range.start = (uintptr_t)p + 8 * PG;
	r.range.len = 4 * PG;
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &r));
	CHECK(events(mine, &kind) == 0); /* its own range was not concerned */
	CHECK(watch(p + 8 * PG, PG) == -EBUSY);
	CHECK(watch(p + 10 * PG, 4 * PG) == -EBUSY);
	CHECK(!watch(p + 12 * PG, 4 * PG));
	/* And what is watched itself. */
	r.range.start = (uintptr_t)p;
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &r));
	CHECK(events(mine, &kind) == 1 && kind == KEDGE_EVENT_UNMAP);
	/* It was not unmapped: it is not watched any more. */
	CHECK(flags == KEDGE_EVENT_UNSURE);
	CHECK(watch(p, PG) == -EBUSY);
	/* A call that fails takes nothing. */
	r.range.start = (uintptr_t)p + 12 * PG;
	r.mode = 0;
	CHECK(ioctl(fd, UFFDIO_REGISTER, &r) == -1 && errno == EINVAL);
	CHECK(!watch(p + 12 * PG, 4 * PG));
	/* When the other is gone it can be watched again. */
	close(fd);
	CHECK(!watch(p, 16 * PG));
	unmap(p, 16);
}

/* Pages that another userfaultfd moves away are not there any more. Before Linux 6.8 there is no
 * such call. */
static void moved_pages_are_told(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct {
		uint64_t dst, src, len, mode;
		int64_t moved;
	} move = { .len = 4 * PG };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	char *to = map(4), *p = map(16);
	uint32_t kind = 0;
	uint64_t mine;
	int rc;

	CHECK(fd >= 0 && !ioctl(fd, UFFDIO_API, &api));
	raw_munmap(to, 4 * PG);
	CHECK(raw_mmap(to, 4 * PG, RW, ANON | MAP_FIXED, -1, 0) == to);
	r.range.start = (uintptr_t)to;
	r.range.len = 4 * PG;
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &r));
	memset(p, 1, 16 * PG);
	CHECK(!watch(p, 8 * PG));
	mine = cookie;
	move.dst = (uintptr_t)to;
	move.src = (uintptr_t)p;
	rc = ioctl(fd, _IOWR(UFFDIO, 0x05, move), &move);
	CHECK(!rc || errno == EINVAL);
	if (!rc)
		CHECK(to[0] == 1);
	CHECK(events(mine, &kind) == 1 && kind == KEDGE_EVENT_REMOVE);
	/* The watch lives on. */
	p[0] = 2;
	madvise(p, PG, MADV_DONTNEED);
	CHECK(events(mine, &kind) == 1 && kind == KEDGE_EVENT_REMOVE);
	close(fd);
	unmap(to, 4);
	unmap(p, 16);
}

/*
 * [p, p + 16 pages): the first half watched, the second mapped afterwards, both
 * written to. Without kedge that is one mapping.
 */
static char *two_halves(void)
{
	char *p = map(64), *at;

	CHECK(!munmap(p + 8 * PG, 56 * PG));
	memset(p, 1, 8 * PG);
	CHECK(!watch(p, 8 * PG));
	at = mmap(p + 8 * PG, 8 * PG, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(at == p + 8 * PG);
	memset(at, 2, 8 * PG);
	return p;
}

static void filled(const char *p)
{
	CHECK(p[0] == 1 && p[8 * PG - 1] == 1);
	CHECK(p[8 * PG] == 2 && p[16 * PG - 1] == 2);
}

/* Each form of mremap() over the seam between the two. */
static void mremap_over_a_seam_works(void)
{
	char *p = two_halves(), *q, *to;

	q = mremap(p, 16 * PG, 24 * PG, 0); /* there is room behind it */
	CHECK(q == p);
	filled(q);
	q[24 * PG - 1] = 3;
	munmap(p, 64 * PG);

	p = two_halves();
	to = mmap(p + 16 * PG, PG, PROT_NONE, ANON | MAP_FIXED, -1, 0);
	CHECK(to == p + 16 * PG); /* none */
	CHECK(mremap(p, 16 * PG, 32 * PG, 0) == MAP_FAILED);
	CHECK(errno == ENOMEM);
	q = mremap(p, 16 * PG, 32 * PG, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && q != p);
	filled(q);
	CHECK(q[32 * PG - 1] == 0);
	/* And once more, though nothing of it is watched any more. */
	p = q;
	q = mremap(p, 32 * PG, 512 * PG, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	filled(q);
	munmap(q, 512 * PG);

	p = two_halves();
	to = map(32);
	q = mremap(p, 16 * PG, 32 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	CHECK(q == to);
	filled(q);
	unmap(q, 32);

	p = two_halves();
	q = mremap(p, 16 * PG, 16 * PG, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
	CHECK(q != MAP_FAILED && q != p);
	filled(q);
	CHECK(p[0] == 0 && p[16 * PG - 1] == 0);
	munmap(q, 16 * PG);
	munmap(p, 64 * PG);

	p = two_halves();
	q = mremap(p, 16 * PG, 4 * PG, MREMAP_MAYMOVE);
	CHECK(q == p && p[4 * PG - 1] == 1);
	munmap(p, 64 * PG);
}

/* A range that is several mappings without kedge, too, gets the kernel's answer. */
static void mremap_of_different_mappings_still_fails(void)
{
	char *p = map(16);

	CHECK(!watch(p, 8 * PG));
	CHECK(!mprotect(p + 8 * PG, 8 * PG, PROT_READ));
	CHECK(mremap(p, 16 * PG, 32 * PG, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(errno == EFAULT);
	unmap(p, 16);
}

/* Dropping pages over a file's mapping leaves the watches beside it alive. */
static void watches_beside_a_file_stay_awake(void)
{
	int fd = some_file();
	char *p = map(16);
	uint64_t mine;
	uint32_t kind;

	CHECK(!watch(p, 16 * PG));
	CHECK(mmap(p + 4 * PG, 4 * PG, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd,
		   0) == p + 4 * PG);
	CHECK(!watch(p + 8 * PG, 8 * PG));
	CHECK(!watch(p, 4 * PG));
	mine = cookie;
	CHECK(!madvise(p, 16 * PG, MADV_DONTNEED));
	CHECK(events(mine, &kind) == 1 && kind == KEDGE_EVENT_REMOVE);
	CHECK(!raw_munmap(p, 2 * PG));
	CHECK(events(mine, &kind) == 1 && kind == KEDGE_EVENT_UNMAP);
	close(fd);
	unmap(p, 16);
}

/* A range that cannot be watched again when the change is over is not believed. */
static void a_watch_that_is_lost_is_told(void)
{
	struct kedge_hook hook;
	uint32_t kind = 0;
	char *p = map(16);
	uint64_t mine;
	int fd = some_file();

	CHECK(!watch(p, 16 * PG));
	mine = cookie;
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, p, 16 * PG);
	CHECK(events(mine, &kind) == 1 && kind == KEDGE_EVENT_REMOVE);
	/* Its own event comes first: the change that was announced did this. */
	CHECK(raw_mmap(p + 8 * PG, 8 * PG, PROT_READ, MAP_PRIVATE | MAP_FIXED,
		       fd, 0) == p + 8 * PG);
	kedge_hook_end(&hook);
	CHECK(events(mine, &kind) == 1 && kind == KEDGE_EVENT_UNMAP);
	CHECK(watch(p + 8 * PG, PG) == -EOPNOTSUPP);
	CHECK(!watch(p, 8 * PG));
	close(fd);
	unmap(p, 16);
}

/* Two notifiers of a process do not take each other's memory. */
static void each_notifier_takes_its_own_back(void)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };
	struct kedge_notifier *other;
	uint32_t kind = 0;
	char *p = map(16);
	uint64_t mine;

	CHECK(!kedge_notifier_open(&o, &other));
	CHECK(!mprotect(p + 8 * PG, 8 * PG, PROT_READ)); /* two mappings */
	CHECK(!kedge_watch_add(other, p + 8 * PG, 8 * PG, 1));
	CHECK(!watch(p, 8 * PG));
	mine = cookie;
	CHECK(!madvise(p, 16 * PG, MADV_DONTNEED));
	events(mine, &kind);
	CHECK(!raw_munmap(p, PG));
	CHECK(events(mine, &kind) == 1 && kind == KEDGE_EVENT_UNMAP);
	CHECK(kedge_watch_add(other, p + 8 * PG, 8 * PG, 2) >= 0);
	kedge_notifier_close(other);
	unmap(p, 16);
}

static long max_map_count(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	long max = 0;

	CHECK(f && fscanf(f, "%ld", &max) == 1);
	fclose(f);
	return max;
}

static void *nothing(void *arg)
{
	return arg;
}

static void fill(char *at)
{
	CHECK(mmap(at, PG, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == at);
	*at = 1;
}

/*
 * Many small mappings with holes between them, watched; then the holes are
 * filled, which makes one mapping of all without kedge.
 */
static void filling_holes_between_watches_works(long max)
{
	size_t cnt = (size_t)max / 10 * 6, i, refused = 0;
	char *p = map(2 * cnt);
	pthread_t thread;

	for (i = 0; i < cnt; i++) {
		p[2 * i * PG] = 1;
		CHECK(!munmap(p + (2 * i + 1) * PG, PG));
	}
	for (i = 0; i < cnt; i++) {
		int rc = watch(p + 2 * i * PG, PG);

		CHECK(!rc || rc == -ENOSPC);
		refused += rc != 0;
	}
	CHECK(refused && refused < cnt);
	for (i = 0; i < cnt; i++)
		fill(p + (2 * i + 1) * PG);
	CHECK(!pthread_create(&thread, NULL, nothing, NULL));
	CHECK(!pthread_join(thread, NULL));
	unmap(p, 2 * cnt);
}

/* An application that uses up what it may gets all of it. */
static void the_last_mapping_is_the_applications(long max)
{
	enum { CNT = 1000 };
	struct kedge_notifier_info info = { .size = sizeof(info) };
	size_t more = (size_t)max * 2, i;
	char *p = map(4 * CNT), *q = map(more);

	for (i = 0; i < CNT; i++) {
		CHECK(!munmap(p + (4 * i + 1) * PG, 3 * PG));
		CHECK(watch(p + 4 * i * PG, PG) >= 0);
		CHECK(mmap(p + (4 * i + 1) * PG, PG, RW,
			   ANON | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED);
	}
	for (i = 0; i < more; i += 2)
		if (mprotect(q + i * PG, PG, PROT_READ))
			break;
	CHECK(i < more && errno == ENOMEM);
	CHECK(!kedge_notifier_info(nf, &info));
	CHECK(info.armed == 0);
	CHECK(lines() >= max - 4);
	CHECK(!munmap(q, more * PG));
	unmap(p, 4 * CNT);
	munmap(q - PG, PG);
	munmap(q + more * PG, PG);
}

int main(void)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };
	int rc = kedge_notifier_open(&o, &nf);

	alarm(250);
	find_raw();
	if (rc) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return NO_UFFD;
	}
	freeing_every_second_chunk_splits_nothing();
	a_freed_mapping_is_not_waited_for();
	a_change_that_fails_leaves_no_seam();
	a_mapping_put_in_the_middle_melts();
	a_strangers_mapping_is_not_taken();
	another_userfaultfd_comes_first();
	moved_pages_are_told();
	mremap_over_a_seam_works();
	mremap_of_different_mappings_still_fails();
	watches_beside_a_file_stay_awake();
	a_watch_that_is_lost_is_told();
	each_notifier_takes_its_own_back();
	if (max_map_count() <= 1 << 20) {
		filling_holes_between_watches_works(max_map_count());
		kedge_notifier_close(nf);
		CHECK(!kedge_notifier_open(&o, &nf));
		the_last_mapping_is_the_applications(max_map_count());
	}
	kedge_notifier_close(nf);
	return 0;
}
