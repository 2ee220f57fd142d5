// SPDX-License-Identifier: BSD-2-Clause
/*
 * Peers that speak the protocol badly, or not at all: each is refused or cut off by itself,
 * and one that has a handle and its region go on.
 */
#include <sched.h>
#include <sys/resource.h>

#include "base/base.h"
#include "by_hand.h"
#include "clock.h"

#define SILENT 300

static struct region_ask packet_question(void)
{
	return (struct region_ask){ REGION_MAGIC, REGION_VERSION, 1, 0, handle };
}

static void what_is_no_question_is_refused(void **state)
{
	struct region_ask q;
	char big[4096] = { 0 };

	q = packet_question();
	assert_int_equal(answer_to_packet(&q, sizeof(q)), 0);
	assert_int_equal(answer_to_packet(&q, sizeof(q) - 1), -EPROTO);
	assert_int_equal(answer_to_packet(&q, 1), -EPROTO);
	assert_int_equal(answer_to_packet(big, sizeof(big)), -EPROTO);
	q.magic++;
	assert_int_equal(answer_to_packet(&q, sizeof(q)), -EPROTO);
	q = packet_question();
	q.version++;
	assert_int_equal(answer_to_packet(&q, sizeof(q)), -EPROTO);
	q = packet_question();
	memset(&q.handle, 0xff, sizeof(q.handle));
	assert_int_equal(answer_to_packet(&q, sizeof(q)), -EPROTO);
	handle_works();
}

/* A slot far away, and generations to come. */
static void numbers_are_not_trusted(void **state)
{
	static const uint32_t numbers[] = { 1, 1023, 1024, 1u << 20, UINT32_MAX };
	struct handle_words w;
	struct region_ask q;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		q = packet_question();
		assert_true(handle_read(&q.handle, &w));
		w.slot += numbers[i];
		handle_write(&w, &q.handle);
		rc = answer_to_packet(&q, sizeof(q));
		/* One that was there once. */
		assert_true(rc == -EKEYREJECTED || rc == -EKEYREVOKED);
		w.slot -= numbers[i];
		w.generation += numbers[i];
		handle_write(&w, &q.handle);
		rc = answer_to_packet(&q, sizeof(q));
		assert_true(rc == -EKEYREJECTED || rc == -EKEYREVOKED);
	}
	handle_works();
}

/* A slot that is free has no key that fits. */
static void a_revoked_handle_is_not_forged(void **state)
{
	struct handle_words w;
	struct region_ask q;

	q = packet_question();
	assert_int_equal(kedge_region_revoke(region, &handle), 0);
	assert_true(handle_read(&q.handle, &w));
	w.generation++;
	handle_write(&w, &q.handle);
	assert_int_equal(answer_to_packet(&q, sizeof(q)), -EKEYREJECTED);
	memset(w.key, 0, sizeof(w.key));
	handle_write(&w, &q.handle);
	assert_int_equal(answer_to_packet(&q, sizeof(q)), -EKEYREJECTED);
}

/* The region's descriptor, as a peer has it that goes around kedge; *@conn stays open. */
static int raw_pages(int *conn)
{
	char space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	const struct region_ask q = packet_question();
	struct region_answer a;
	struct iovec iov = { &a, sizeof(a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = space, .msg_controllen = sizeof(space) };
	int fd[2];

	*conn = stranger(&handle);
	assert_int_equal(send(*conn, &q, sizeof(q), 0), sizeof(q));
	assert_int_equal(recvmsg(*conn, &m, 0), sizeof(a));
	assert_int_equal(a.rc, 0);
	assert_non_null(CMSG_FIRSTHDR(&m));
	memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	close(fd[0]);
	return fd[1];
}

static void a_handle_to_read_gives_a_file_to_read(void **state)
{
	const struct kedge_handle_opts read = { .size = sizeof(read),
						.access = KEDGE_HANDLE_READ };
	int conn, fd;

	begin_remote(&read);
	fd = raw_pages(&conn);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_ptr_equal(mmap(NULL, LEN, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
	close(conn);
	end_remote();
}

/* Nor is a page of it found when the region has that part again. */
static void what_is_stored_behind_the_end_is_gone(void **state)
{
	int conn, fd;
	char *p;

	assert_int_equal(kedge_region_grow(region, 2 * LEN), 0);
	fd = raw_pages(&conn);
	p = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	p[LEN] = 1;
	assert_int_equal(kedge_region_grow(region, 2 * LEN), 0);
	assert_int_equal(region_at()[LEN], 0);
	/* It cannot take the pages away, either; and what it adds stops no growth. */
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, 8 * LEN), 0);
	assert_int_equal(fallocate(fd, 0, 0, 4 * LEN), 0);
	assert_int_equal(pwrite(fd, "x", 1, 2 * LEN), 1);
	assert_int_equal(kedge_region_grow(region, 3 * LEN), 0);
	assert_int_equal(region_at()[2 * LEN], 0);
	munmap(p, 2 * LEN);
	close(fd);
	close(conn);
}

/* An owner's word on its length is believed as far as its file goes. */
static void an_owner_that_lies_ends_no_peer(void **state)
{
	struct gate *g;
	char x;

	sig_lock(&shares_lock);
	g = list_entry(region->conns.next, struct conn, of_region)->gate;
	sig_unlock(&shares_lock);
	atomic_store(&g->len, 4 * LEN);
	assert_int_equal(kedge_remote_get(remote, 2 * LEN, &x, 1, 0), -EFAULT);
	atomic_store(&g->len, UINT64_MAX);
	assert_int_equal(kedge_remote_get(remote, LEN, &x, 1, 0), -EFAULT);
	atomic_store(&g->len, LEN);
	handle_works();
}

/* In a child whose clock goes differently by @s; false: it cannot be had here. */
static bool with_clock(long s, bool (*look)(void))
{
	int status, fd;
	pid_t pid = fork(), inner;

	assert_true(pid >= 0);
	if (!pid) {
		if (unshare(CLONE_NEWTIME))
			_exit(2);
		fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
		if (fd < 0 || dprintf(fd, "monotonic %ld 0\n", s) < 0)
			_exit(2);
		inner = fork();
		if (!inner)
			_exit(look() ? 0 : 1);
		waitpid(inner, &status, 0);
		_exit(status ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) != 2)
		assert_int_equal(status, 0);
	return WEXITSTATUS(status) != 2;
}

static bool is_there(void)
{
	struct kedge_remote *r;
	char x;

	return !kedge_remote_open(&handle, SOON_MS, &r) &&
	       !kedge_remote_get(r, 0, &x, 1, SOON_MS);
}

/* It was there, or is over already; in the end it is. */
static bool is_over_soon(void)
{
	struct kedge_remote *r;
	int rc = kedge_remote_open(&handle, SOON_MS, &r);
	char x;

	if (rc)
		return rc == -EKEYEXPIRED;
	MOVE_UNTIL(100, kedge_remote_get(r, 0, &x, 1, SOON_MS) == -EKEYEXPIRED);
	return true;
}

static void a_handle_ends_by_the_owners_clock(void **state)
{
	struct kedge_handle_opts o = { .size = sizeof(o), .expires_ms = 3600000 };

	need_threads_after_fork();
	make_region(LEN, &o);
	if (!with_clock(100000, is_there)) {
		kedge_region_close(region);
		print_message("skipped: only root can be in another time namespace\n");
		skip();
	}
	o.expires_ms = 1000;
	advertise(&o);
	with_clock(-(long)(clock_ns() / 2000000000u), is_over_soon);
	kedge_region_close(region);
}

/* The owner's thread hears the question of where the region is after the revocation, as it waits
 * for the lock meanwhile. */
static void a_handle_that_was_revoked_behind_a_move_is_revoked(void **state)
{
	char x;

	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	sig_lock(&shares_lock);
	assert_int_equal(kedge_remote_get(remote, 0, &x, 1, 0), -ETIMEDOUT);
	gates_end(list_entry(region->slots.next, struct slot, node), EKEYREVOKED);
	sig_unlock(&shares_lock);
	assert_int_equal(kedge_remote_get(remote, 0, &x, 1, SOON_MS), -EKEYREVOKED);
}

static void another_users_question_is_refused(void **state)
{
	struct region_ask q;
	pid_t pid;
	int fd;

	need_threads_after_fork();
	if (geteuid()) {
		print_message("skipped: only root can be another user\n");
		skip();
	}
	begin_remote(NULL);
	q = packet_question();
	pid = fork_child();
	if (!pid) {
		CHILD_CHECK(!setresuid(65534, 65534, 65534));
		fd = stranger(&handle);
		send(fd, &q, sizeof(q), MSG_NOSIGNAL);
		CHILD_CHECK(answer_of(fd) == -EACCES);
		_exit(0);
	}
	reap(pid);
	handle_works();
	end_remote();
}

/* The name of an owner that has ended is free for any user. 0: the peer has told nothing there. */
static int takes_the_name(int ready)
{
	struct handle_words w;
	struct sockaddr_un a;
	socklen_t len;
	char said[sizeof(struct region_ask)];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHILD_CHECK(!setresuid(65534, 65534, 65534) && handle_read(&handle, &w));
	len = handle_address(w.name, false, &a);
	CHILD_CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&a, len) && !listen(fd, 4));
	CHILD_CHECK(write(ready, "", 1) == 1);
	fd = accept(fd, NULL, NULL);
	return recv(fd, said, sizeof(said), 0) != 0;
}

static void root_shows_no_key_to_another_user(void **state)
{
	struct kedge_remote *r;
	int ready[2];
	pid_t pid;
	char c;

	need_threads_after_fork();
	if (geteuid()) {
		print_message("skipped: only root can be another user\n");
		skip();
	}
	make_region(LEN, NULL);
	kedge_region_close(region);
	assert_int_equal(pipe(ready), 0);
	pid = fork_child();
	if (!pid)
		_exit(takes_the_name(ready[1]));
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(kedge_remote_open(&handle, SOON_MS, &r), -ECONNREFUSED);
	reap(pid);
	close(ready[0]);
	close(ready[1]);
}

static void the_silent_make_room(void **state)
{
	int fd[SILENT], i;

	for (i = 0; i < SILENT; i++)
		fd[i] = stranger(&handle);
	handle_works();
	for (i = 0; i < SILENT; i++)
		close(fd[i]);
	handle_works();
}

/* It asks all the time, and reads nothing: its queue is full, and it is cut off. */
static void one_that_never_reads_is_cut_off(void **state)
{
	struct region_ask q;
	int fd, i, n = 0;

	q = packet_question();
	fd = stranger(&handle);
	while (n < 100000 && send(fd, &q, sizeof(q), MSG_NOSIGNAL) > 0)
		n++;
	assert_true(n < 100000);
	for (i = 0; i < 10; i++)
		handle_works();
	close(fd);
}

/* An owner without a descriptor left says so, and not that it has ended. */
static void a_full_table_of_the_owners_is_for_now(void **state)
{
	struct rlimit old, few = { 3, 3 };
	char c = 0;

	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, SOON_MS), -EMFILE);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, SOON_MS), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, SOON_MS), 0);
}

/* As many as there are descriptors for are in; the next one is told. */
static void too_many_are_told(void **state)
{
	struct rlimit old, few = { 64, 64 };

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	open_as_many_as_can_be();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	handle_works();
}

static const struct CMUnitTest tests[] = {
	remote_case(what_is_no_question_is_refused),
	remote_case(numbers_are_not_trusted),
	remote_case(a_revoked_handle_is_not_forged),
	cmocka_unit_test(a_handle_to_read_gives_a_file_to_read),
	remote_case(what_is_stored_behind_the_end_is_gone),
	remote_case(an_owner_that_lies_ends_no_peer),
	cmocka_unit_test(a_handle_ends_by_the_owners_clock),
	remote_case(a_handle_that_was_revoked_behind_a_move_is_revoked),
	cmocka_unit_test(another_users_question_is_refused),
	cmocka_unit_test(root_shows_no_key_to_another_user),
	remote_case(the_silent_make_room),
	remote_case(one_that_never_reads_is_cut_off),
	remote_case(a_full_table_of_the_owners_is_for_now),
	remote_case(too_many_are_told),
};

const struct suite suite = { "remote_hostile", SUITE_OF(tests), .by = "mapped",
			     .first = test_clock_begin };
