// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions whose accesses the owner does: large ones, owners that do not answer, and addresses that
 * are none.
 */
#include <sys/resource.h>

#include "base/base.h"
#include "region/share/share.h"
#include "region/peer/state.h"
#include "by_hand.h"
#include "clock.h"
#include "look.h"

#define LARGE  ((size_t)3 << 20)

/* ---- large accesses ---- */

static void a_large_access_is_made_in_pieces(void **state)
{
	unsigned char *data = malloc(LARGE), *got = malloc(LARGE);
	const size_t len = LARGE - 12345;
	size_t i;

	assert_true(data && got);
	for (i = 0; i < LARGE; i++)
		data[i] = (unsigned char)(i * 31 >> 7);
	make_region(LARGE, NULL);
	remote = open_it();
	assert_int_equal(kedge_remote_put(remote, 777, data, len, SOON_MS), 0);
	assert_memory_equal(region_at() + 777, data, len);
	assert_int_equal(kedge_remote_get(remote, 777, got, len, SOON_MS), 0);
	assert_memory_equal(got, data, len);
	/* A range that is not all there is told with the first piece. */
	memset(data, 0xff, LARGE);
	assert_int_equal(kedge_remote_put(remote, 777, data, LARGE - 776, SOON_MS), -EFAULT);
	assert_memory_equal(region_at() + 777, got, len);
	assert_int_equal(kedge_remote_get(remote, 777, data, LARGE, SOON_MS), -EFAULT);
	assert_int_equal(data[0], 0xff);
	assert_int_equal(kedge_remote_get(remote, 777, data, 8, SOON_MS), 0);
	assert_memory_equal(data, got, 8);
	free(data);
	free(got);
	end_remote();
}

/* It does not stand in the way of others, nor of a suspension. */
static void one_that_does_not_read_stops_nobody(void **state)
{
	struct kedge_remote *other;
	struct stream_req q = { .op = STREAM_GET, .len = PIECE_LEN, .end = PIECE_LEN };
	char c = 1;
	int i;

	begin_remote(NULL);
	other = open_it();
	for (i = 0; i < 64; i++)
		assert_int_equal(send(atomic_load(&remote->link)->sock.fd, &q, sizeof(q), 0),
				 sizeof(q));
	for (i = 0; i < 100; i++)
		assert_int_equal(kedge_remote_put(other, 0, &c, 1, SOON_MS), 0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(kedge_region_resume(region), 0);
	assert_int_equal(kedge_remote_put(other, 0, &c, 1, SOON_MS), 0);
	kedge_remote_close(other);
	end_remote();
}

/* ---- owners that do not answer ---- */

static void *resumes(void *arg)
{
	const _Atomic pid_t first = getpid();

	look_asleep(&first);
	kedge_region_resume(region);
	return arg;
}

static void a_resumption_is_found(void **state)
{
	pthread_t t;
	char c = 1;

	begin_remote(NULL);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(pthread_create(&t, NULL, resumes, NULL), 0);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	pthread_join(t, NULL);
	end_remote();
}

static void an_owner_that_is_stopped_is_given_up(void **state)
{
	int fd[2];
	char c = 1;
	pid_t pid;

	need_threads_after_fork();
	assert_int_equal(pipe(fd), 0);
	pid = fork_child();
	if (!pid) {
		/* A test that fails leaves it. */
		make_region(LEN, NULL);
		CHILD_CHECK(write(fd[1], &handle, sizeof(handle)) == sizeof(handle));
		for (;;)
			pause();
	}
	assert_int_equal(read(fd[0], &handle, sizeof(handle)), sizeof(handle));
	remote = open_it();
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	/* A question how much there is may be answered later. */
	test_clock_hurry(100);
	assert_int_equal(remote_len(remote), LEN);
	assert_int_equal(remote_len(remote), LEN);
	test_clock_rest();
	kill(pid, SIGCONT);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	assert_int_equal(remote_len(remote), LEN);
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	test_clock_hurry(500);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 10), -ECONNRESET);
	test_clock_rest();
	kill(pid, SIGCONT);
	/* That is for good: what was under way could come later otherwise. */
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), -ECONNRESET);
	assert_non_null(strstr(kedge_strerror(-ECONNRESET), "open the handle again"));
	kedge_remote_close(remote);
	kedge_remote_close(open_it());
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd[0]);
	close(fd[1]);
}

/* All pieces have the time of the first, and none is stored when one was not. */
static void a_large_access_waits_once(void **state)
{
	struct stream_req q = { .op = STREAM_GET, .seq = 1, .first = 1, .len = 1, .end = 2,
				.timeout_ms = 10 };
	unsigned char *data = calloc(1, LARGE);
	int fd;

	assert_non_null(data);
	make_region(LARGE, NULL);
	remote = open_it();
	fd = open_by_hand();
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	test_clock_hurry_by(100, 1100);
	assert_int_equal(kedge_remote_put(remote, 0, data, LARGE, 1100), -ETIMEDOUT);
	test_clock_rest();
	assert_int_equal(kedge_remote_get(remote, 0, data, LARGE, 0), -ETIMEDOUT);
	assert_int_equal(ask(fd, q), -ETIMEDOUT);
	assert_int_equal(kedge_region_resume(region), 0);
	q.seq = 2;
	q.offset = 1;
	assert_int_equal(ask(fd, q), -ETIMEDOUT);
	q.seq = q.first = 3;
	assert_int_equal(ask(fd, q), 0);
	close(fd);
	assert_int_equal(kedge_remote_put(remote, 0, data, LARGE, SOON_MS), 0);
	free(data);
	end_remote();
}

static void a_buffer_that_is_none_is_told(void **state)
{
	char c = 1;

	begin_remote(NULL);
	assert_int_equal(kedge_remote_put(remote, 0, (void *)16, 4096, SOON_MS), -ECONNRESET);
	assert_non_null(strstr(kedge_strerror(-ECONNRESET), "memory of this process"));
	kedge_remote_close(remote);
	remote = open_it();
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	end_remote();
}

static void a_program_may_close_the_socket(void **state)
{
	char c = 1;

	begin_remote(NULL);
	close(atomic_load(&remote->link)->sock.fd);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), -ECONNRESET);
	kedge_remote_close(remote);
	remote = open_it();
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	end_remote();
}

/* ---- addresses ---- */

static int at(const char *node, const char *service)
{
	const struct kedge_handle_opts o = { .size = sizeof(o), .node = node,
					     .service = service };

	return kedge_region_advertise(region, &o, &handle);
}

static _Atomic pid_t getting;

static void *gets_it(void *rc)
{
	char c;

	atomic_store(&getting, (pid_t)syscall(SYS_gettid));
	*(int *)rc = kedge_remote_get(remote, 0, &c, 1, SOON_MS);
	return NULL;
}

/* The sockets of this process's table but @own, which takes the place of each: how many. */
static int take_numbers(int own, int other)
{
	struct stat st;
	int fd, cnt = 0;

	for (fd = 3; fd < 1024; fd++)
		if (fd != own && fd != other && !fstat(fd, &st) && S_ISSOCK(st.st_mode))
			cnt += dup2(own, fd) == fd;
	return cnt;
}

/* While a thread waits there: what is the program's is neither read nor written to. */
static void a_number_may_be_anothers_meanwhile(void **state)
{
	char said[16] = "the program's";
	pthread_t t;
	int fd[2], rc = 1;

	begin_remote(NULL);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(pthread_create(&t, NULL, gets_it, &rc), 0);
	look_asleep(&getting);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	assert_int_equal(write(fd[1], said, sizeof(said)), sizeof(said));
	assert_true(take_numbers(fd[0], fd[1]) > 0);
	pthread_join(t, NULL);
	assert_int_equal(rc, -ECONNRESET);
	assert_int_equal(recv(fd[0], said, sizeof(said), MSG_DONTWAIT), sizeof(said));
	assert_int_equal(recv(fd[1], said, 1, MSG_DONTWAIT), -1);
	assert_int_equal(kedge_region_resume(region), 0);
	end_remote();
	assert_int_equal(recv(fd[1], said, 1, MSG_DONTWAIT), -1);
	close(fd[1]);
	close(fd[0]);
}

static void an_address_is_this_hosts(void **state)
{
	struct kedge_handle first;
	struct handle_words w;
	char port[8], node[16];
	int i;

	make_region(LEN, NULL);
	assert_int_equal(at("", NULL), -EINVAL);
	assert_int_equal(at("0.0.0.0", NULL), -EINVAL);
	assert_int_equal(at("::", NULL), -EINVAL);
	assert_int_equal(at("224.0.0.1", NULL), -EINVAL);
	assert_int_equal(at("255.255.255.255", NULL), -EINVAL);
	assert_int_equal(at("ff02::1", NULL), -EINVAL);
	assert_int_equal(at("192.0.2.77", NULL), -EADDRNOTAVAIL);
	assert_int_equal(at("no host of this name", NULL), -EADDRNOTAVAIL);
	assert_int_equal(at("127.0.0.1", "port"), -EADDRNOTAVAIL);
	assert_int_equal(at("127.0.0.1", "65536"), -EADDRNOTAVAIL);
	assert_int_equal(at("127.0.0.1", NULL), 0);
	first = handle;
	assert_true(handle_read(&handle, &w) && w.port);
	/* The same port for each, by its number, too; and another one's is its own. */
	snprintf(port, sizeof(port), "%u", w.port);
	assert_int_equal(at("127.0.0.1", NULL), 0);
	assert_memory_equal(handle.bytes + 12, first.bytes + 12, 2);
	assert_int_equal(at("127.0.0.1", port), 0);
	assert_memory_equal(handle.bytes + 12, first.bytes + 12, 2);
	assert_int_equal(at("localhost", NULL), 0);
	for (i = 2; i < 40; i++) {
		snprintf(node, sizeof(node), "127.0.0.%d", i);
		if (at(node, NULL))
			break;
	}
	assert_in_range(i, 16, 17);
	assert_int_equal(at(node, NULL), -ENOSPC);
	assert_int_equal(at("127.0.0.1", NULL), 0);
	kedge_region_close(region);
	/* Those of the next thread are others. */
	make_region(LEN, NULL);
	assert_int_equal(at("127.0.0.77", NULL), 0);
	kedge_region_close(region);
}

static void a_port_of_others_is_in_use(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	char port[8];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, len) && !listen(fd, 1) &&
		    !getsockname(fd, (struct sockaddr *)&a, &len));
	snprintf(port, sizeof(port), "%u", ntohs(a.sin_port));
	make_region(LEN, NULL);
	assert_int_equal(at("127.0.0.1", port), -EADDRINUSE);
	close(fd);
	kedge_region_close(region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_large_access_is_made_in_pieces),
	cmocka_unit_test(one_that_does_not_read_stops_nobody),
	cmocka_unit_test(a_resumption_is_found),
	cmocka_unit_test(an_owner_that_is_stopped_is_given_up),
	cmocka_unit_test(a_large_access_waits_once),
	cmocka_unit_test(a_buffer_that_is_none_is_told),
	cmocka_unit_test(a_program_may_close_the_socket),
	cmocka_unit_test(a_number_may_be_anothers_meanwhile),
	cmocka_unit_test(an_address_is_this_hosts),
	cmocka_unit_test(a_port_of_others_is_in_use),
};

const struct suite suite = { "remote_streams", SUITE_OF(tests), .by = "stream",
			     .first = test_clock_begin };
