// SPDX-License-Identifier: BSD-2-Clause
/*
 * Places of buffers in segments of this process: as others find them there, or none. Where the
 * module is loaded each buffer has one, so the test skips.
 */
#include "cases.h"
#include "segment/internal.h"
#include "segment/place.h"

#define LEN ((size_t)1 << 18)

static struct segment_memos memos;
static struct kedge_segment *segment;
static char *mem;

static char *map_at(void *at)
{
	char *p = mmap(at, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int share(void)
{
	const struct kedge_segment_opts o = { .size = sizeof(o),
					      .backend = KEDGE_SEGMENT_CONVERT };

	return kedge_segment_make(mem, LEN, &o, &segment);
}

static int setup(void **state)
{
	int rc;

	if (!access("/dev/kedge-segment", F_OK)) {
		printf("skipped: with the module each buffer has a place\n");
		exit(77);
	}
	memset(&memos, 0, sizeof(memos));
	mem = map_at(NULL);
	rc = share();
	if (rc == -EOPNOTSUPP) {
		printf("skipped: %s\n", kedge_strerror(rc));
		exit(77);
	}
	return rc;
}

static int teardown(void **state)
{
	segment_memos_fini(&memos);
	kedge_segment_remove(segment);
	munmap(mem, LEN);
	return 0;
}

static bool is_there(size_t off, size_t len)
{
	struct segment_place p;
	struct kedge_segment_id id;

	if (!segment_place(&memos, mem + off, len, &p))
		return false;
	assert_int_equal(kedge_segment_id(segment, &id), 0);
	assert_memory_equal(&p.id, &id, sizeof(id));
	assert_int_equal(p.off, off);
	return true;
}

/* The kernel may not say what is mapped where. */
static void need_places(void)
{
	if (is_there(0, LEN))
		return;
	printf("skipped: PROCMAP_QUERY is of Linux 6.11\n");
	skip();
}

static void a_part_is_found(void **state)
{
	need_places();
	assert_true(is_there(5000, 100));
	assert_true(is_there(LEN - 1, 1));
	assert_false(is_there(1, LEN));
	assert_true(segment_converted(&memos, mem, LEN));
	assert_false(segment_converted(&memos, &memos, sizeof(memos)));
}

static void what_has_gone_is_not(void **state)
{
	need_places();
	assert_int_equal(madvise(mem + LEN / 2, LEN / 4, MADV_DONTNEED), 0);
	assert_false(is_there(0, LEN));
	assert_true(is_there(0, LEN / 2));
	assert_true(is_there(LEN / 4 * 3, LEN / 4));
	munmap(mem, LEN / 4);
	assert_false(is_there(0, LEN / 2));
	assert_true(is_there(LEN / 4, LEN / 4));
}

static void what_moved_is_not(void **state)
{
	char *to = map_at(NULL), *was = mem;

	need_places();
	assert_ptr_equal(mremap(mem, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
	assert_false(is_there(0, LEN));
	mem = to;
	assert_false(is_there(0, LEN));
	assert_non_null(map_at(was));
	mem = was;
	assert_false(is_there(0, LEN));
	munmap(to, LEN);
}

static void a_segment_that_has_ended_is_not(void **state)
{
	need_places();
	kedge_segment_remove(segment);
	segment = NULL;
	assert_false(is_there(0, LEN));
	assert_int_equal(share(), 0);
	assert_true(is_there(0, LEN));
}

static void *unmap(void *arg)
{
	munmap(mem, LEN);
	return arg;
}

/* A thread unmaps it, and another is given the addresses before kedge hears of that. */
static void new_memory_at_its_addresses_is_not(void **state)
{
	pthread_t thread;
	char *at = NULL;
	bool there;

	need_places();
	sig_lock(&seg_lock); /* which holds kedge's thread up */
	assert_int_equal(pthread_create(&thread, NULL, unmap, NULL), 0);
	WAIT_FOR((at = map_at(mem)));
	there = is_there(0, LEN);
	sig_unlock(&seg_lock);
	pthread_join(thread, NULL);
	assert_ptr_equal(at, mem);
	assert_false(there);
	assert_false(is_there(0, LEN));
}

/* kedge's descriptor for asking the kernel: its number is found again, closed and used anew. */
static void a_closed_descriptor_is_opened_anew(void **state)
{
	int was, other;
	pid_t pid;

	need_places();
	was = memos.maps.fd;
	assert_int_equal(close(was), 0);
	assert_true(is_there(0, LEN));
	close(memos.maps.fd);
	other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(is_there(0, LEN));
	assert_int_not_equal(memos.maps.fd, other);
	/* It is the program's: neither closed with the memos, nor in a child. */
	pid = fork();
	if (!pid)
		_exit(fcntl(other, F_GETFD) < 0);
	assert_int_equal(waitpid(pid, &was, 0), pid);
	assert_int_equal(was, 0);
	segment_memos_fini(&memos);
	assert_true(fcntl(other, F_GETFD) >= 0);
	close(other);
}

#include "test_segment_place.cases.h"
