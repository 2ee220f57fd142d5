// SPDX-License-Identifier: BSD-2-Clause
/* Operations where the system refuses memory, a thread or a descriptor. */
#include "submit.h"

#include "look.h"
#include "refuse.h"

static bool no_bell;

WRAP(int, socketpair, int domain, int type, int protocol, int fd[2])
{
	if (no_bell) {
		errno = EMFILE;
		return -1;
	}
	return fails() ? -1 : __real_socketpair(domain, type, protocol, fd);
}

static int open_once(void)
{
	struct kedge_queue *const before = (struct kedge_queue *)0x1;
	struct kedge_queue *q = before;
	int rc = kedge_queue_open(NULL, &q), fd = 0;

	if (rc) {
		assert_int_equal(rc, -ENOMEM);
		assert_ptr_equal(q, before);
		return rc;
	}
	fd = kedge_queue_fd(q);
	atomic_store(&fail_at, 0);
	if (fd < 0)
		assert_non_null(strstr(kedge_strerror(fd), fd == -EMFILE ? "ulimit" : "socket"));
	assert_true(kedge_queue_fd(q) >= 0);
	kedge_queue_close(q);
	return fd < 0 ? fd : 0;
}

static void a_queue_undoes_every_step(void **state)
{
	unsigned int fds;

	open_once();
	fds = open_fds();
	assert_int_equal(each_step(open_once), 2);
	fail_with = EMFILE;
	assert_int_equal(each_step(open_once), 2);
	fail_with = ENOMEM;
	assert_int_equal(open_fds(), fds);
}

/* The first that must wait has a thread made. */
static int wait_once(void)
{
	const unsigned int step = atomic_exchange(&fail_at, 0);
	struct kedge_remote_op o[2] = { add_of(8, 1, 1), add_of(8, 1, 2) };
	int rc;

	remote = open_it();
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	fail_from(step);
	rc = kedge_remote_submit(remote, queue, o, 1);
	atomic_store(&fail_at, 0);
	assert_true(rc == 1 || rc == -ENOMEM);
	/* It was taken, or not at all. */
	assert_int_equal(read_now(), 0);
	submit(remote, rc == 1 ? o + 1 : o, rc == 1 ? 1 : 2);
	assert_int_equal(kedge_region_resume(region), 0);
	ends(1, 0);
	ends(2, 0);
	assert_int_equal(read_now(), 0);
	kedge_remote_close(remote);
	return rc < 0 ? rc : 0;
}

static void what_cannot_wait_is_not_taken(void **state)
{
	unsigned int fds;

	begin_queue(2);
	kedge_remote_close(remote);
	wait_once();
	fds = open_fds();
	/* Memory, and the thread; by a connection the bell's sockets, which it does without. */
	assert_int_equal(each_step(wait_once), 2);
	assert_int_equal(open_fds(), fds);
	remote = open_it();
	end_queue();
}

/* Descriptors are used up: they are looked for now and then. */
static void without_a_bell_it_goes_on(void **state)
{
	struct kedge_remote_op o[3] = { add_of(8, 1, 1), add_of(8, 1, 2), add_of(8, 1, 3) };
	int i;

	no_bell = true;
	for (i = 0; i < 20; i++) {
		assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
		submit(remote, o, 1);
		usleep(1000);
		submit(remote, o + 1, 2);
		assert_int_equal(kedge_region_resume(region), 0);
		ends(1, 0);
		ends(2, 0);
		ends(3, 0);
	}
	assert_int_equal(kedge_queue_fd(queue), -EMFILE);
	no_bell = false;
	assert_true(kedge_queue_fd(queue) >= 0);
}

/* As daemons do that close what they do not know. */
static void the_program_closes_everything(void **state)
{
	struct kedge_remote_op o[4] = { add_of(8, 1, 1), add_of(8, 1, 2), add_of(8, 1, 3),
					add_of(8, 1, 4) };
	int fd, i;

	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	submit(remote, o, 2);
	usleep(20000);
	/* ThreadSanitizer takes close() while another thread receives for a fault. */
	for (fd = 3; fd < 1024; fd++)
		syscall(SYS_close, fd);
	submit(remote, o + 2, 2);
	for (i = 0; i < 4; i++)
		ends((uint64_t)i + 1, -ECONNRESET);
	kedge_remote_close(remote);
	assert_int_equal(kedge_region_resume(region), 0);
	remote = open_it();
	submit(remote, o, 1);
	ends(1, 0);
}

/* The program's files there are neither written to nor read. */
static void the_program_has_others_under_their_numbers(void **state)
{
	struct kedge_remote_op o[2] = { add_of(8, 1, 1), add_of(8, 1, 2) };
	int s[2], fd;
	char c[2];

	begin_queue(0);
	assert_true(kedge_queue_fd(queue) >= 0);
	submit(remote, o, 1);
	next();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	assert_int_equal(send(s[0], "x", 1, 0), 1);
	for (fd = 3; fd < 1024; fd++)
		if (fd != s[0] && fd != s[1] && syscall(SYS_fcntl, fd, F_GETFD) >= 0)
			syscall(SYS_dup3, s[1], fd, 0);
	submit(remote, o, 2);
	next();
	next();
	assert_int_equal(recv(s[0], c, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(recv(s[1], c, 2, MSG_DONTWAIT), 1);
	end_queue();
	for (fd = 3; fd < 1024; fd++)
		syscall(SYS_close, fd);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_queue_undoes_every_step),
	cmocka_unit_test(what_cannot_wait_is_not_taken),
	queue_case(without_a_bell_it_goes_on),
	queue_case(the_program_closes_everything),
	cmocka_unit_test(the_program_has_others_under_their_numbers),
};

const long counted_calls[] = { 0 };
const struct suite suite = { "submit_faults", SUITE_OF(tests), .by = "tcp" };
