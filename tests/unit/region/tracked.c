// SPDX-License-Identifier: BSD-2-Clause
#include <sys/prctl.h>
#include <sys/uio.h>

#include "core.h"
#include "tracked.h"

/* ---- memory ---- */

struct mem mem;
struct track *track;

bool get_mem(uint64_t len, uint64_t page, unsigned int flags, bool small)
{
	int fd = memfd_create("test", MFD_CLOEXEC | flags);

	if (fd < 0)
		return false;
	mem = (struct mem){ .len = len, .page = page };
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	mem.kept = mmap(NULL, len + HUGE_LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(mem.kept, MAP_FAILED);
	mem.at = (char *)(((uintptr_t)mem.kept + HUGE_LEN - 1) & ~(HUGE_LEN - 1));
	if (mmap(mem.at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED) {
		munmap(mem.kept, len + HUGE_LEN);
		mem.at = NULL;
	}
	close(fd);
	if (!mem.at)
		return false;
	if (small)
		madvise(mem.at, len, MADV_NOHUGEPAGE);
	memset(mem.at, 1, len);
	mem.copy = calloc(1, len);
	return true;
}

int begin_test(void **state)
{
	assert_true(get_mem(PAGES * page_len(), page_len(), 0, true));
	/* As a region's; where the limit is lower the pages are there all the same. */
	syscall(SYS_mlock, mem.at, mem.len);
	return 0;
}

int begin_any(void **state)
{
	assert_true(get_mem(PAGES * page_len(), page_len(), 0, false));
	return 0;
}

void drop_mem(void)
{
	if (mem.at) {
		munmap(mem.kept, mem.len + HUGE_LEN);
		free(mem.copy);
	}
	mem.at = NULL;
}

int end_test(void **state)
{
	track_end(track);
	track = NULL;
	drop_mem();
	return 0;
}

void begin(const char *way)
{
	int rc = track_begin(mem.at, mem.len, mem.page, way, &track);

	if (rc == -EOPNOTSUPP) {
		printf("skipped: %s\n", kedge_strerror(rc));
		skip();
	}
	if (rc)
		fail_msg("%s: %s", way, kedge_strerror(rc));
	assert_string_equal(track_way(track), way);
	assert_int_equal(track_forgets(track), !strcmp(way, UFFD));
}

/* ---- what is told ---- */

int note(void *arg, uint64_t off, uint64_t len)
{
	struct told *t = arg;
	uint64_t i;

	assert_true(len && !(off % mem.page) && !(len % mem.page));
	assert_true(!t->cnt || off > t->end); /* in order, and not touching */
	assert_true(off + len <= mem.len);
	t->end = off + len;
	t->len += len;
	for (i = off / mem.page; i < t->end / mem.page; i++)
		t->page[i] = true;
	return ++t->cnt == t->stop ? 42 : 0;
}

struct told told;
static bool expected[PAGES]; /* of a way that does not forget */

void take(void)
{
	int rc;

	memset(&told, 0, sizeof(told));
	rc = track_take(track, note, &told);
	if (rc)
		fail_msg("a take: %s", kedge_strerror(rc));
}

void takes_all(void)
{
	memset(expected, 0, sizeof(expected));
	take();
	assert_int_equal(told.cnt, 1);
	assert_int_equal(told.len, mem.len);
}

void takes(const bool *set)
{
	uint64_t i;

	take();
	for (i = 0; i < mem.len / mem.page; i++) {
		expected[i] = set[i] || (!track_forgets(track) && expected[i]);
		if (told.page[i] != expected[i])
			fail_msg("page %u is%s told", (unsigned int)i,
				 told.page[i] ? "" : " not");
	}
}

const bool no_page[PAGES];

static void *store_by_thread(void *at)
{
	*(volatile char *)at = 2;
	return NULL;
}

void by_thread(char *at)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, store_by_thread, at), 0);
	pthread_join(t, NULL);
}

void by_read(char *at)
{
	int p[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(read(p[0], at, 1), 1);
	close(p[0]);
	close(p[1]);
}

static int write_to_parent(void *at)
{
	struct iovec here = { "y", 1 }, there = { at, 1 };

	return process_vm_writev(getppid(), &here, 1, &there, 1, 0) == 1 ? 0 : errno;
}

void from_outside(char *at)
{
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	assert_int_equal(in_child(write_to_parent, at), 0);
}

bool has_flag(const char *at, const char *flag)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long start, end;
	bool within = false, has = false;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			within = (uintptr_t)at >= start && (uintptr_t)at < end;
		else if (within && !strncmp(line, "VmFlags:", 8))
			has = strstr(line, flag);
	}
	fclose(f);
	return has;
}
