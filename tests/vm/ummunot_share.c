// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/ummunot in other hands: threads, forked and exec'd children, a process
 * that got the descriptor from a socket; closed last by somebody else, after
 * its owner has died.
 */
#include "ummunot_lib.h"

/* In a process that is not the owner: 0 if all is as documented. */
static int stranger(void *fd)
{
	uint64_t cookie = 1;
	struct ummunot_event ev[4];
	struct um u = { .fd = (int)(intptr_t)fd };
	struct pollfd p = { u.fd, POLLIN, 0 };

	if (um_read(&u, ev, 4) != -ESRCH)
		return 1;
	if (um_watch(&u, &u, sizeof(u), 5, 0) != -ESRCH)
		return 2;
	if (um_unwatch(&u, cookie) != -ESRCH)
		return 3;
	if (um_features(&u, 0) != -ESRCH)
		return 4;
	if (mmap(NULL, PAGE, PROT_READ, MAP_SHARED, u.fd, 0) != MAP_FAILED ||
	    errno != ESRCH)
		return 5;
	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) ? 0 : 6;
}

static void watch_and_change(struct um *u)
{
	char *m = vm_memory(2);

	um_open(u, O_NONBLOCK);
	assert_int_equal(um_watch(u, m, 2 * PAGE, 1, 0), 0);
	madvise(m, PAGE, MADV_DONTNEED);
}

static void a_forked_child_sees_nothing(void **state)
{
	struct news n;
	struct um u;

	watch_and_change(&u);
	assert_int_equal(vm_child(stranger, (void *)(intptr_t)u.fd), 0);
	/* It took nothing away. */
	um_drain(&u, &n);
	assert_int_equal(n.cnt, 1);
	um_close(&u);
}

static int see_counter(void *arg)
{
	return (int)um_moved(arg);
}

static void a_forked_child_sees_the_parents_counter(void **state)
{
	struct um u;

	watch_and_change(&u);
	assert_int_equal(vm_child(see_counter, &u), 2);
	um_close(&u);
}

static int exec_self(void *fd)
{
	char text[16];

	fcntl((int)(intptr_t)fd, F_SETFD, 0);
	snprintf(text, sizeof(text), "%d", (int)(intptr_t)fd);
	execl("/proc/self/exe", "ummunot_share", text, NULL);
	return 99;
}

static void an_execd_child_sees_nothing(void **state)
{
	struct um u;

	watch_and_change(&u);
	assert_int_equal(vm_child(exec_self, (void *)(intptr_t)u.fd), 0);
	um_close(&u);
}

/* The opener has another address space after exec, too. */
static int open_and_exec(void *arg)
{
	struct um u;

	watch_and_change(&u);
	return exec_self((void *)(intptr_t)u.fd);
}

static void the_opener_itself_after_exec_sees_nothing(void **state)
{
	assert_int_equal(vm_child(open_and_exec, NULL), 0);
}

static void send_fd(int sock, int fd)
{
	char buf[CMSG_SPACE(sizeof(fd))] = { 0 };
	struct iovec v = { "x", 1 };
	struct msghdr msg = { .msg_iov = &v, .msg_iovlen = 1,
			      .msg_control = buf,
			      .msg_controllen = sizeof(buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	assert_int_equal(sendmsg(sock, &msg, 0), 1);
}

static int receive_fd(int sock)
{
	char buf[CMSG_SPACE(sizeof(int))], byte;
	struct iovec v = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &v, .msg_iovlen = 1,
			      .msg_control = buf,
			      .msg_controllen = sizeof(buf) };
	int fd;

	if (recvmsg(sock, &msg, 0) != 1)
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

static int receiver(void *sock)
{
	int fd = receive_fd((int)(intptr_t)sock);

	return fd < 0 ? 50 : stranger((void *)(intptr_t)fd);
}

static void who_got_it_from_a_socket_sees_nothing(void **state)
{
	int sv[2], status;
	struct um u;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv), 0);
	pid = fork();
	if (!pid)
		_exit(receiver((void *)(intptr_t)sv[1]));
	watch_and_change(&u);
	send_fd(sv[0], u.fd);
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	um_close(&u);
	close(sv[0]);
	close(sv[1]);
}

/* A process that opens, watches 256 MiB, hands the descriptor out, and dies. */
static int owner(void *sock)
{
	const size_t pages = 256 << 8;
	struct um u;

	um_open(&u, O_NONBLOCK);
	if (um_watch(&u, vm_memory(pages), pages * PAGE, 1, 0))
		return 1;
	send_fd((int)(intptr_t)sock, u.fd);
	return 0;
}

static uint64_t free_kib(void)
{
	return vm_memory_kib("MemFree:");
}

static void a_dead_owners_memory_is_free(void **state)
{
	struct pollfd p = { .events = POLLIN };
	struct ummunot_event ev;
	struct um u = { 0 };
	uint64_t before;
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv), 0);
	before = free_kib();
	assert_int_equal(vm_child(owner, (void *)(intptr_t)sv[0]), 0);
	u.fd = receive_fd(sv[1]);
	assert_true(u.fd >= 0);
	/* Memory that the kernel keeps for a while comes back. */
	while (free_kib() + (128 << 10) <= before)
		usleep(10000);
	p.fd = u.fd;
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_true(p.revents & POLLHUP);
	assert_int_equal(um_read(&u, &ev, 1), -ESRCH);
	/* Closed last, and by a stranger. */
	close(u.fd);
	close(sv[0]);
	close(sv[1]);
}

static int close_it(void *arg)
{
	struct um *u = arg;

	um_close(u);
	return 0;
}

/* A child that closes its copy ends nothing of the parent's. */
static void a_childs_close_leaves_the_parents(void **state)
{
	struct news n;
	char *m = vm_memory(1);
	struct um u;

	um_open(&u, O_NONBLOCK);
	assert_int_equal(um_watch(&u, m, PAGE, 3, 0), 0);
	assert_int_equal(vm_child(close_it, &u), 0);
	munmap(m, PAGE);
	um_drain(&u, &n);
	assert_int_equal(n.cookie, 3);
	um_close(&u);
}

static int child_changes(void *m)
{
	munmap(m, PAGE);
	*((char *)m + PAGE) = 7;
	return 0;
}

/* The child's own copy of the address space is none of the watched one. */
static void what_a_forked_child_changes_is_not_told(void **state)
{
	char *m = vm_memory(2);
	struct um u;

	um_open(&u, O_NONBLOCK);
	assert_int_equal(um_watch(&u, m, 2 * PAGE, 3, 0), 0);
	assert_int_equal(vm_child(child_changes, m), 0);
	assert_int_equal(um_moved(&u), 0);
	um_close(&u);
	munmap(m, 2 * PAGE);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_forked_child_sees_nothing),
		cmocka_unit_test(a_forked_child_sees_the_parents_counter),
		cmocka_unit_test(an_execd_child_sees_nothing),
		cmocka_unit_test(the_opener_itself_after_exec_sees_nothing),
		cmocka_unit_test(who_got_it_from_a_socket_sees_nothing),
		cmocka_unit_test(a_dead_owners_memory_is_free),
		cmocka_unit_test(a_childs_close_leaves_the_parents),
		cmocka_unit_test(what_a_forked_child_changes_is_not_told),
	};

	if (argc > 1)
		return stranger((void *)(intptr_t)atoi(argv[1]));
	return cmocka_run_group_tests_name("ummunot_share", tests, NULL, NULL);
}
