// SPDX-License-Identifier: BSD-2-Clause
/* Segments by the kernel module, as one uses them: memory of any kind, which stays as it is. */
#include "lists.h"
#include "shared.h"

#define PAGES ((size_t)64)

static size_t len;
static uint64_t *w;

static bool has_module(void)
{
	int fd = open("/dev/kedge-segment", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int setup(void **state)
{
	if (!has_module())
		return 0;
	len = PAGES * page_len();
	/* First: a page that a fork shared may be copied by the next store, which is a change. */
	peer_start(&peer, 0);
	w = words(len);
	return 0;
}

static int teardown(void **state)
{
	if (!has_module())
		return 0;
	end();
	segment = NULL;
	munmap(w, len);
	return 0;
}

static void need_module(void)
{
	if (has_module())
		return;
	print_message("skipped: the module kedge_segment is not loaded\n");
	skip();
}

/* As a program does that says nothing. */
static void made(void *at, size_t n)
{
	struct kedge_segment_info i = { .size = sizeof(i) };

	need_module();
	assert_int_equal(kedge_segment_make(at, n, NULL, &segment), 0);
	assert_int_equal(kedge_segment_info(segment, &i), 0);
	assert_int_equal(i.backend, KEDGE_SEGMENT_MODULE);
	assert_int_equal(i.len, n);
	assert_int_equal(kedge_segment_id(segment, &id), 0);
}

static size_t page(size_t n)
{
	return n * page_len();
}

/* ---- memory ---- */

static void both_see_what_either_stores(void **state)
{
	made(w, len);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(page(3)), page(3) / sizeof(*w));
	w[7] = 70;
	assert_int_equal(loaded(7 * sizeof(*w)), 70);
	assert_int_equal(peer_store(&peer, page(5), 5), 0);
	assert_int_equal(w[page(5) / sizeof(*w)], 5);
	assert_true(peer_valid(&peer));
}

static void a_part_starts_anywhere(void **state)
{
	made(w + 3, page(2));
	assert_int_equal(peer_get(&peer, &id, R), 0);
	assert_int_equal(peer_attach(&peer, page(1), page(1)), 0);
	assert_int_equal(loaded(0), page(1) / sizeof(*w) + 3);
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, page(1), page(1) + 1), -EINVAL);
}

static const uint64_t constant[1024] = { 17 };

static void what_is_read_only_is_not_written(void **state)
{
	made((void *)(uintptr_t)constant, sizeof(constant));
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(0), 17);
	assert_int_equal(peer_store(&peer, 0, 18), -EFAULT);
	assert_int_equal(constant[0], 17);
}

static void a_grant_to_read_is_not_written(void **state)
{
	made(w, len);
	peer_has(&peer, segment, R);
	assert_int_equal(loaded(8), 1);
	assert_int_equal(peer_make_writable(&peer), -EACCES);
	assert_int_equal(peer_store(&peer, 8, 9), -EFAULT);
	assert_int_equal(w[1], 1);
}

/* Memory that is mapped when the segment is there already, a stack, a hole. */
static void the_whole_address_space_is_a_segment(void **state)
{
	const struct kedge_segment_opts o = { .size = sizeof(o),
					      .flags = KEDGE_SEGMENT_WHOLE };
	volatile uint64_t here = 33;
	uint64_t *later, v;

	need_module();
	assert_int_equal(kedge_segment_make(NULL, 0, &o, &segment), 0);
	assert_int_equal(kedge_segment_id(segment, &id), 0);
	assert_int_equal(peer_get(&peer, &id, RW), 0);
	later = words(page(2));
	assert_int_equal(peer_attach(&peer, (uintptr_t)later, page(2)), 0);
	assert_int_equal(loaded(page(1)), page(1) / sizeof(*later));
	munmap(later, page(2));
	assert_int_equal(peer_load(&peer, 0, &v), -EFAULT);
	assert_false(peer_valid(&peer));
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, (uintptr_t)&here, sizeof(here)), 0);
	assert_int_equal(loaded(0), 33);
	assert_int_equal(peer_store(&peer, 0, 34), 0);
	assert_int_equal(here, 34);
}

/* ---- changes ---- */

static void an_unmapped_page_is_a_sigbus(void **state)
{
	uint64_t v;

	made(w, len);
	peer_has(&peer, segment, R);
	assert_int_equal(loaded(page(1)), page(1) / sizeof(*w));
	assert_true(peer_valid(&peer));
	munmap((char *)w + page(1), page_len());
	assert_false(peer_valid(&peer));
	assert_int_equal(peer_load(&peer, page(1), &v), -EFAULT);
	assert_int_equal(loaded(page(2)), page(2) / sizeof(*w));
	assert_false(peer_valid(&peer));
}

/* Loads first, then asks: as the example does. */
static void a_reader_that_keeps_has_no_sigbus(void **state)
{
	uint64_t v = 1;

	made(w, len);
	assert_int_equal(peer_get(&peer, &id, R), 0);
	assert_int_equal(peer_attach_with(&peer, 0, len, KEDGE_ATTACH_KEEP), 0);
	assert_int_equal(peer_load(&peer, 0, &v), 0);
	assert_true(peer_valid(&peer));
	/* Not touched so far: the load finds what is not the owner's, and valid() knows. */
	munmap((char *)w + page(40), page_len());
	assert_int_equal(peer_load(&peer, page(40), &v), 0);
	assert_int_equal(v, 0);
	assert_false(peer_valid(&peer));
	remove_segment();
	assert_int_equal(peer_load(&peer, page(2), &v), 0);
	assert_false(peer_valid(&peer));
}

static void emptied_memory_is_attached_anew(void **state)
{
	made(w, len);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(page(2)), page(2) / sizeof(*w));
	madvise(w, len, MADV_DONTNEED);
	assert_false(peer_valid(&peer));
	assert_int_equal(loaded(page(2)), 0);
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, 0, len), 0);
	assert_int_equal(loaded(page(2)), 0);
	assert_true(peer_valid(&peer));
	w[page(2) / sizeof(*w)] = 4;
	assert_int_equal(loaded(page(2)), 4);
	madvise(w, len, MADV_DONTNEED);
	assert_false(peer_valid(&peer));
	assert_int_equal(peer_reattach(&peer), 0);
	assert_true(peer_valid(&peer));
	assert_int_equal(loaded(page(2)), 0);
	remove_segment();
	assert_int_equal(peer_reattach(&peer), -ESTALE);
}

static int look_in_child(void *arg)
{
	struct kedge_segment_info i = { .size = sizeof(i) };

	/* Its own copy; what the peer stores is the parent's. */
	CHILD_CHECK(w[0] == 0);
	w[1] = 99;
	CHILD_CHECK(kedge_segment_info(segment, &i) == -ECHILD);
	CHILD_CHECK(!peer_store(&peer, 0, 5));
	CHILD_CHECK(w[0] == 0);
	kedge_segment_remove(segment);
	return 0;
}

static void a_child_has_its_own_copy(void **state)
{
	made(w, len);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(8), 1);
	assert_int_equal(in_child(look_in_child, NULL), 0);
	assert_int_equal(w[0], 5);
	assert_int_equal(loaded(8), 1);
	w[2] = 6;
	assert_int_equal(loaded(16), 6);
}

/* ---- ends ---- */

static void a_removed_segment_is_stale(void **state)
{
	uint64_t v;

	made(w, len);
	peer_has(&peer, segment, R);
	assert_int_equal(loaded(8), 1);
	remove_segment();
	assert_false(peer_valid(&peer));
	assert_int_equal(peer_load(&peer, 8, &v), -EFAULT);
	assert_int_equal(peer_copy(&peer, 8, &v, R), -ESTALE);
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, 0, len), -ESTALE);
	assert_int_equal(peer_release(&peer), 0);
	assert_int_equal(peer_get(&peer, &id, R), -ENOENT);
	assert_int_equal(w[1], 1);
}

static void own_until_killed(int out)
{
	if (kedge_segment_make(w, len, NULL, &segment) ||
	    kedge_segment_id(segment, &id) ||
	    write(out, &id, sizeof(id)) != sizeof(id))
		_exit(1);
	for (;;)
		pause();
}

static void an_owner_that_is_killed_leaves_nothing(void **state)
{
	uint64_t v;
	int fd[2], status;
	pid_t pid;

	need_module();
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (!pid)
		own_until_killed(fd[1]);
	assert_int_equal(read(fd[0], &id, sizeof(id)), sizeof(id));
	assert_int_equal(peer_get(&peer, &id, R), 0);
	assert_int_equal(peer_attach(&peer, 0, len), 0);
	assert_int_equal(loaded(8), 1);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	assert_false(peer_valid(&peer));
	assert_int_equal(peer_load(&peer, 8, &v), -EFAULT);
	assert_int_equal(peer_release(&peer), 0);
	assert_int_equal(peer_get(&peer, &id, R), -ENOENT);
	close(fd[0]);
	close(fd[1]);
}

/* ---- who ---- */

static void half_of_an_id_is_enough(void **state)
{
	made(w, len);
	id.word[1] = 0;
	assert_int_equal(peer_get(&peer, &id, R), 0);
	assert_int_equal(peer_attach(&peer, 0, len), 0);
	assert_int_equal(loaded(8), 1);
}

static void a_copy_takes_no_attachment(void **state)
{
	uint64_t v = 0;

	made(w, len);
	assert_int_equal(peer_get(&peer, &id, RW), 0);
	assert_int_equal(peer_copy(&peer, 16, &v, R), sizeof(v));
	assert_int_equal(v, 2);
	v = 77;
	assert_int_equal(peer_copy(&peer, 24, &v, KEDGE_SEGMENT_WRITE), sizeof(v));
	assert_int_equal(w[3], 77);
}

static void other_users_may_not(void **state)
{
	struct peer other;

	need_root();
	made(w, len);
	peer_start(&other, 65534);
	assert_int_equal(peer_get(&other, &id, R), -EACCES);
	peer_end(&other);
}

/* One backend does not hide the other. */
static void converted_memory_is_got_as_well(void **state)
{
	const struct kedge_segment_opts o = { .size = sizeof(o),
					      .backend = KEDGE_SEGMENT_COPY };
	uint64_t v = 0;

	need_module();
	assert_int_equal(kedge_segment_make(w, len, &o, &segment), 0);
	assert_int_equal(kedge_segment_id(segment, &id), 0);
	assert_int_equal(peer_get(&peer, &id, R), 0);
	assert_int_equal(peer_copy(&peer, 16, &v, R), sizeof(v));
	assert_int_equal(v, 2);
}

/* ---- lists ---- */

static size_t list_own(struct kedge_segment_entry *e, size_t room)
{
	const struct kedge_segments_opts o = { .size = sizeof(o), .pid = getpid() };
	struct kedge_segments *s;
	size_t n;

	assert_int_equal(kedge_segments_open(&o, &s), 0);
	for (n = 0; n < room; n++) {
		e[n].size = sizeof(*e);
		if (kedge_segments_next(s, &e[n]) != 1)
			break;
	}
	kedge_segments_close(s);
	return n;
}

/* The kernel knows what others have attached, and have touched of it. */
static void lists_show_what_is_attached(void **state)
{
	const struct kedge_segment_opts o = { .size = sizeof(o), .mode = 0640,
					      .flags = KEDGE_SEGMENT_WHOLE };
	struct kedge_segment_entry e[3];
	struct kedge_segment *whole;
	uint64_t reached;

	made(w, len);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(page(1)), page(1) / sizeof(*w));
	assert_int_equal(loaded(page(4)), page(4) / sizeof(*w));
	assert_int_equal(list_own(e, 3), 1);
	assert_int_equal(e[0].status, 0);
	assert_int_equal(e[0].backend, KEDGE_SEGMENT_MODULE);
	assert_int_equal(e[0].pid, getpid());
	assert_int_equal(e[0].uid, geteuid());
	assert_int_equal(e[0].addr, addr_of(w));
	assert_int_equal(e[0].len, len);
	assert_int_equal(e[0].mode, 0600);
	assert_int_equal(e[0].grants, 1);
	assert_int_equal(e[0].attachments, 1);
	/* Pages near one that is touched may be there with it. */
	reached = e[0].reached;
	assert_true(reached >= page(2) && reached <= len);
	assert_int_equal(e[0].changes, 0);
	madvise((char *)w + page(4), page(1), MADV_DONTNEED);
	assert_int_equal(kedge_segment_make(NULL, 0, &o, &whole), 0);
	assert_int_equal(list_own(e, 3), 2);
	assert_int_equal(e[0].flags, KEDGE_SEGMENT_WHOLE);
	assert_int_equal(e[0].mode, 0640);
	assert_int_equal(e[0].grants, 0);
	assert_int_equal(e[1].reached, reached - page(1));
	assert_true(e[1].changes >= 1);
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_release(&peer), 0);
	assert_int_equal(list_own(e, 3), 2);
	assert_int_equal(e[1].attachments, 0);
	assert_int_equal(e[1].reached, 0);
	assert_int_equal(e[1].grants, 0);
	kedge_segment_remove(whole);
	assert_int_equal(list_own(e, 3), 1);
}

static int lists_none(void *unused)
{
	struct kedge_segment_entry e[2];
	pid_t owner = getppid();
	const struct kedge_segments_opts o = { .size = sizeof(o), .pid = owner };
	struct kedge_segments *s;

	become_nobody();
	CHILD_CHECK(!kedge_segments_open(&o, &s));
	e[0].size = sizeof(e[0]);
	CHILD_CHECK(!kedge_segments_next(s, &e[0]));
	kedge_segments_close(s);
	return 0;
}

static void what_one_may_not_read_is_not_listed(void **state)
{
	made(w, len);
	assert_int_equal(in_child(lists_none, NULL), 0);
}

#include "test_segment_module.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return cmocka_run_group_tests_name("segment_module", cases, NULL, NULL);
}
