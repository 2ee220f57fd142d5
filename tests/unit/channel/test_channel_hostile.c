// SPDX-License-Identifier: BSD-2-Clause
/*
 * Attacks of a peer of this host on the process at the other end beside the
 * protocol: with the files it hands over, with the socket, and by its memory. Each
 * peer is a process of its own.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "channel/internal.h"
#include "channel/shm/handshake.h"
#include "channel_child.h"
#include "evil_peer.h"

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4U
#endif

#define LONG  ((size_t)1 << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define HUGE  ((uint64_t)2 << 20)

static struct kedge_channel *open_it(uint32_t timeout_ms)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.timeout_ms = timeout_ms };
	struct kedge_channel *ch;

	assert_int_equal(kedge_channel_open_fd(child_sock[0], &o, LIMIT * 1000, &ch),
			 0);
	return ch;
}

/* ---- what is handed over ---- */

static int area_fd; /* made before the fork, handed over by the child */
static uint64_t heap_len;

static void hand_over(void)
{
	struct shm s = { .ring.sock = child_sock[1] };
	struct greeting g = { .area_fd = area_fd };
	struct verdict v = { hello_head(0), 0, 8192 };

	g.me = (struct hello){ .head = hello_head(0), .eager_max = 8192,
			       .unexpected_cnt = 16,
			       .unexpected_bytes = 1 << 20,
			       .heap_len = heap_len };
	CHILD_CHECK(!hello_send(&s, &g));
	/* Were it taken, it would be used, too. */
	send(child_sock[1], &v, sizeof(v), MSG_NOSIGNAL);
	while (recv(child_sock[1], &v, sizeof(v), 0) > 0)
		;
}

static void is_refused(int fd, uint64_t heap, int seals)
{
	struct kedge_channel *ch;
	pid_t pid;

	area_fd = fd;
	heap_len = heap;
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	pid = child_begin(hand_over);
	assert_int_equal(kedge_channel_open_fd(child_sock[0], NULL, LIMIT * 1000, &ch),
			 -EPROTO);
	close(child_sock[0]);
	close(fd);
	child_ends_well(pid);
}

static int file(unsigned int flags, uint64_t heap)
{
	int fd = memfd_create("evil", MFD_ALLOW_SEALING | flags);

	if (fd < 0)
		return -errno;
	assert_int_equal(ftruncate(fd, (off_t)(HEAP_AT + heap)), 0);
	return fd;
}

static void only_a_sealed_memfd_is_an_area(void **state)
{
	const uint64_t heap = 64 << 10;
	int fd[2];

	is_refused(file(0, heap), heap, 0);
	is_refused(file(0, heap), heap, F_SEAL_GROW | F_SEAL_SEAL);
	is_refused(file(0, heap), heap, F_SEAL_SHRINK | F_SEAL_SEAL);
	is_refused(file(0, heap), heap, SEALS | F_SEAL_WRITE);
	is_refused(file(0, heap), heap, SEALS | F_SEAL_FUTURE_WRITE);
	is_refused(file(0, 2 * heap), heap, SEALS);
	is_refused(file(0, heap), 2 * heap, SEALS);
	is_refused(open("/proc/self/exe", O_RDONLY), heap, 0);
	assert_int_equal(pipe(fd), 0);
	close(fd[0]);
	is_refused(fd[1], heap, 0);
}

/* A page of it that is not to be had would be a SIGBUS here. */
static void huge_pages_are_no_area(void **state)
{
	const uint64_t heap = round_up(HEAP_AT, HUGE) - HEAP_AT;
	int fd = file(MFD_HUGETLB, heap);

	if (fd < 0) {
		print_message("skipped: this kernel has no hugetlb memfd\n");
		skip();
	}
	is_refused(fd, heap, SEALS);
}

/* ---- the socket ---- */

static void flood(void)
{
	static char bytes[65536];

	evil_shakes_hands(child_sock[1], 0);
	evil_sends(PACKET_EAGER, "x", 1);
	while (send(evil.ring.sock, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0)
		;
}

static void a_flood_of_wake_ups_stops_nothing(void **state)
{
	pid_t pid = child_begin(flood);
	struct kedge_channel *ch = open_it(0);
	struct kedge_completion c;
	char in[8];
	int i;

	assert_int_equal(kedge_channel_recv(ch, in, 8, 0, 0, 1, NULL), 0);
	while (!wait_and_poll(ch, &c))
		;
	assert_int_equal(c.status, 0);
	for (i = 0; i < 1000; i++)
		assert_int_equal(wait_and_poll(ch, &c), 0);
	kedge_channel_close(ch);
	child_ends_well(pid);
}

static void send_descriptors(void)
{
	union {
		char buf[CMSG_SPACE(64 * sizeof(int))];
		struct cmsghdr align;
	} u = { { 0 } };
	struct iovec iov = { "x", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int i;

	evil_shakes_hands(child_sock[1], 0);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(64 * sizeof(int));
	for (i = 0; i < 64; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &evil.ring.sock, sizeof(int));
	for (i = 0; i < 100; i++)
		sendmsg(evil.ring.sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	evil_sends(PACKET_EAGER, "x", 1);
	pause();
}

static void descriptors_that_come_later_are_not_kept(void **state)
{
	pid_t pid = child_begin(send_descriptors);
	struct kedge_channel *ch = open_it(0);
	unsigned int fds = open_fds();
	struct kedge_completion c;
	char in[8];
	int i;

	assert_int_equal(kedge_channel_recv(ch, in, 8, 0, 0, 1, NULL), 0);
	while (!wait_and_poll(ch, &c))
		;
	for (i = 0; i < 200; i++) {
		kedge_channel_arm(ch);
		kedge_channel_poll(ch, &c, 1);
	}
	/* The thread that waits for the peer's end has two. */
	assert_in_range(open_fds(), fds, fds + 2);
	child_kill(pid);
	kedge_channel_close(ch);
}

/* It always sleeps, and never reads what wakes it. */
static void sleep_on(void)
{
	size_t len;

	evil_shakes_hands(child_sock[1], 0);
	for (;;) {
		atomic_store(&evil.ring.my_head->asleep, 1);
		if (ring_next(&evil, &len))
			ring_release(&evil, NULL);
	}
}

static void a_socket_that_is_not_read_stops_nobody(void **state)
{
	pid_t pid = child_begin(sleep_on);
	struct kedge_channel *ch = open_it(0);
	int i, rc;

	/* Its credit is as much as is allowed once. */
	for (i = 0; i < 4000; i++) {
		ring_wake(ch->ctx);
		rc = kedge_channel_send(ch, "x", 1, 1, 0, NULL);
		assert_true(rc >= 0);
	}
	/* Many more than fit, and then nobody is there any more. */
	for (i = 0; i < 100000; i++) {
		struct shm *s = ch->ctx;

		atomic_store(&s->ring.peer_head->asleep, 1);
		ring_wake(&s->ring);
		if (i == 50000)
			child_kill(pid);
	}
	kedge_channel_close(ch);
}

/* ---- memory ---- */

/* Its page faults are nobody's. */
static void announce_what_never_faults_in(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *at;

	if (fd < 0)
		_exit(77);
	at = mmap(NULL, LONG, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r.range.start = (uintptr_t)at;
	r.range.len = LONG;
	CHILD_CHECK(!ioctl(fd, UFFDIO_API, &api));
	CHILD_CHECK(!ioctl(fd, UFFDIO_REGISTER, &r));
	evil_shakes_hands(child_sock[1], 0);
	evil_announces(at, LONG);
	pause();
}

/* Of the channel, or of the receive alone. */
static void time_out(uint32_t channels, uint32_t its_own)
{
	pid_t pid = child_begin(announce_what_never_faults_in);
	struct kedge_channel *ch = open_it(channels);
	char *in = malloc(LONG);
	struct iovec v = { in, LONG };
	struct kedge_message m = { .size = sizeof(m), .pieces = &v, .cnt = 1,
				   .timeout_ms = its_own };
	struct kedge_completion c;
	ssize_t n;

	assert_int_equal(kedge_channel_recvmsg(ch, &m, NULL), 0);
	while (!(n = wait_and_poll(ch, &c)))
		;
	assert_int_equal(n, 1);
	assert_int_equal(c.status, -ETIMEDOUT);
	kedge_channel_close(ch);
	free(in);
	child_kill(pid);
}

static void a_timeout_holds_where_memory_never_comes(void **state)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0) {
		print_message("skipped: the kernel's faults take root, or the sysctl "
			      "vm.unprivileged_userfaultfd\n");
		skip();
	}
	close(fd);
	time_out(100, 0);
	time_out(0, 100);
}

/* ---- death ---- */

static void die_but_for_a_child(void)
{
	char c;

	evil_shakes_hands(child_sock[1], 0);
	if (!fork()) {
		/* It has the socket, until the test has seen it. */
		while (!kill((pid_t)heap_len, 0) && read(child_sock[1], &c, 0) >= 0)
			usleep(10000);
	}
}

static void a_death_shows_though_a_third_has_the_socket(void **state)
{
	struct kedge_channel *ch;
	struct kedge_completion c;
	ssize_t n;
	pid_t pid;

	heap_len = (uint64_t)getpid();
	pid = child_begin(die_but_for_a_child);
	ch = open_it(0);
	while (!(n = wait_and_poll(ch, &c)))
		;
	assert_int_equal(n, -ECONNRESET);
	kedge_channel_close(ch);
	child_ends_well(pid);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(only_a_sealed_memfd_is_an_area),
		CASE(huge_pages_are_no_area),
		CASE(a_flood_of_wake_ups_stops_nothing),
		CASE(descriptors_that_come_later_are_not_kept),
		CASE(a_socket_that_is_not_read_stops_nobody),
		CASE(a_timeout_holds_where_memory_never_comes),
		CASE(a_death_shows_though_a_third_has_the_socket),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
