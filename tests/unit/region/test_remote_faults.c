// SPDX-License-Identifier: BSD-2-Clause
/*
 * Handles where the system refuses something, here or in the owner, which is this process,
 * too: each call in turn fails once. The caller's request fails or works, other peers go on,
 * nothing is left, and all works afterwards.
 */
#include <sys/resource.h>

#include "remote.h"

#include "look.h"
#include "refuse.h"

/* The owner's buffer for a peer is the only one of that length. */
WRAP(void *, malloc, size_t len)
{
	return len == (size_t)256 << 10 && fails() ? NULL : __real_malloc(len);
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *m, int flags)
{
	return fails() ? -1 : __real_sendmsg(fd, m, flags);
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *m, int flags)
{
	return fails() ? -1 : __real_recvmsg(fd, m, flags);
}

static unsigned int closed_twice;

WRAP(int, close, int fd)
{
	int rc = __real_close(fd);

	closed_twice += rc && errno == EBADF;
	return rc;
}

WRAP(void *, mremap, void *at, size_t len, size_t to_len, int flags, void *to)
{
	return fails() ? MAP_FAILED : __real_mremap(at, len, to_len, flags, to);
}

/* All of it goes on. */
static void works(void)
{
	assert_int_equal(kedge_remote_put(remote, 1, "y", 1, SOON_MS), 0);
	gets_byte(remote, 1, 'y');
}

/* ---- the first handle starts a thread ---- */

static int advertise_once(void)
{
	const unsigned int step = atomic_exchange(&fail_at, 0);
	struct kedge_handle h = { { 7 } };
	int rc;

	assert_int_equal(kedge_region_create(LEN, NULL, &region), 0);
	atomic_store(&fail_at, step);
	rc = kedge_region_advertise(region, NULL, &h);
	atomic_store(&fail_at, 0);
	advertise(NULL);
	remote = open_it();
	works();
	end_remote();
	return rc;
}

static void a_first_handle_undoes_every_step(void **state)
{
	unsigned int fds;

	begin_remote(NULL);
	end_remote();
	fds = open_fds();
	/* The socket and what it takes to wait for it, the thread, and a block of handles. Another
	 * name is tried where one is taken. */
	assert_in_range(each_step(advertise_once), 7, 30);
	assert_int_equal(open_fds(), fds);
}

/* ---- a peer comes ---- */

static int open_once(void)
{
	struct kedge_remote *const before = (struct kedge_remote *)0x1;
	struct kedge_remote *r = before;
	int rc = kedge_remote_open(&handle, SOON_MS, &r);

	atomic_store(&fail_at, 0);
	if (rc)
		assert_ptr_equal(r, before);
	else
		kedge_remote_close(r);
	works();
	return rc;
}

static void a_peer_that_comes_undoes_every_step(void **state)
{
	unsigned int fds, maps;

	open_once();
	fds = open_fds();
	maps = look_maps();
	/* Here: memory, the socket, its address, its owner, question, answer, two mappings and
	 * what keeps them from children. There: memory, the user, the event, the gate's
	 * file, length and mapping, the answer. More where one of them is tried again. */
	assert_in_range(each_step(open_once), way->served ? 8 : 12, 60);
	assert_int_equal(open_fds(), fds);
	/* The owner's side of it goes when it has heard of the end. */
	while (look_maps() > maps)
		usleep(1000);
}

/* ---- a region is moved ---- */

static int move_once(void)
{
	const char *at = region_at();
	int rc = kedge_region_move(region, NULL, SOON_MS, NULL);

	atomic_store(&fail_at, 0);
	/* No access of the owner's has to have a page entered. */
	assert_int_equal(look_smaps(at, "Rss"), LEN);
	works();
	assert_int_equal(at[1], 'y');
	assert_int_equal(at[LEN - 1], 'z');
	assert_int_equal(bytes_had(), LEN);
	return rc;
}

static void a_move_undoes_every_step(void **state)
{
	unsigned int maps, fds;
	uint64_t bytes;

	region_at()[LEN - 1] = 'z';
	move_once();
	maps = look_maps();
	fds = open_fds();
	/* Addresses, the file, its length, the mapping, two steps that keep it from children,
	 * the exchange. The advice about children is no condition for addresses alone. */
	assert_in_range(each_step(move_once), 6, 20);
	assert_int_equal(look_maps(), maps);
	assert_int_equal(open_fds(), fds);
	/* The region's, what the thread waits for and with, its spare, a connection, its gate;
	 * what it has sent it closes a moment later. And three to watch the region's mapping. */
	while (look_files(&bytes) != (way->served ? 11 : 12))
		usleep(1000);
	assert_int_equal(bytes, LEN + (way->served ? 0 : page_len()));
}

/* ---- a peer of a region that was moved ---- */

static int look_once(void)
{
	const unsigned int step = atomic_exchange(&fail_at, 0);
	char c = 0;
	int rc;

	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	atomic_store(&fail_at, step);
	rc = kedge_remote_get(remote, LEN - 1, &c, 1, SOON_MS);
	atomic_store(&fail_at, 0);
	if (!rc)
		assert_int_equal(c, 'z');
	return rc;
}

/* Where the owner cannot answer it has ended the connection. */
static int look_and_go_on(void)
{
	char c = 0;
	int rc = look_once(), again;

	again = kedge_remote_get(remote, LEN - 1, &c, 1, SOON_MS);
	if (again) {
		assert_true(rc < 0);
		kedge_remote_close(remote);
		remote = open_it();
		again = kedge_remote_get(remote, LEN - 1, &c, 1, SOON_MS);
	}
	assert_int_equal(again, 0);
	assert_int_equal(c, 'z');
	return rc;
}

static void a_peer_finds_what_was_moved_in_the_end(void **state)
{
	unsigned int fds;

	region_at()[LEN - 1] = 'z';
	look_and_go_on();
	fds = open_fds();
	/* Question, answer, mapping and its two steps; there: the answer. */
	assert_in_range(each_step(look_and_go_on), 6, 20);
	assert_int_equal(open_fds(), fds);
}

/* One descriptor too few for the answer: the other one is given back, once. */
static void a_full_table_loses_no_descriptor(void **state)
{
	struct rlimit old, few;
	int fd[64], cnt = 0;
	char c = 0;

	region_at()[LEN - 1] = 'z';
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	few = (struct rlimit){ 64, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (cnt < 64 && (fd[cnt] = dup(2)) >= 0)
		cnt++;
	assert_true(cnt > 0);
	close(fd[--cnt]);
	closed_twice = 0;
	assert_int_equal(kedge_remote_get(remote, LEN - 1, &c, 1, SOON_MS), -EMFILE);
	assert_int_equal(closed_twice, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	while (cnt)
		close(fd[--cnt]);
	gets_byte(remote, LEN - 1, 'z');
	assert_int_equal(closed_twice, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_first_handle_undoes_every_step),
	remote_case(a_peer_that_comes_undoes_every_step),
	remote_case(a_move_undoes_every_step),
	remote_case_for(FOR_MAPPED, a_full_table_loses_no_descriptor),
	remote_case(a_peer_finds_what_was_moved_in_the_end),
};

/* Those of the thread that answers. It waits for events by another one. */
const long counted_calls[] = { SYS_socket, SYS_bind, SYS_listen, SYS_epoll_create1, SYS_epoll_ctl,
			       SYS_eventfd2, SYS_openat, SYS_accept4, SYS_getsockopt,
			       SYS_memfd_create, SYS_ftruncate, SYS_fcntl, SYS_mmap, SYS_recvfrom,
			       SYS_sendmsg, 0 };
const struct suite suite = { "remote_faults", SUITE_OF(tests), .by = "mapped" };
