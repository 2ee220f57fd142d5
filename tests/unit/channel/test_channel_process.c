// SPDX-License-Identifier: BSD-2-Clause
/*
 * A process changes itself while it has channels: it closes descriptors that
 * are not its own, its main thread ends, it forks, it has no descriptor left. Each
 * case runs in a child, whose time ends where it hangs.
 */
#include <sys/prctl.h>
#include <sys/resource.h>

#include <kedge/tcp.h>

#include "base/base.h"
#include "base/process/thread.h"
#include "core.h"
#include "fakes/wrapped.h"

#define MS 10000 /* what a handshake gets */

/* Registered before main(). */
static int fork_handlers_cnt;

WRAPPED(pthread_atfork);

int __wrap_pthread_atfork(void (*before)(void), void (*parent)(void),
			  void (*child)(void))
{
	fork_handlers_cnt++;
	return __real_pthread_atfork(before, parent, child);
}

/* ---- peers in processes of their own ---- */

static __thread pid_t peers; /* the last one of this thread */

/* A child that does not outlive the case. */
static pid_t fork_one(void)
{
	pid_t parent = getpid(), pid = fork();

	CHILD_CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CHILD_CHECK(getppid() == parent);
	}
	return pid;
}

/* A channel to a child that does nothing but wait for its end. */
static struct kedge_channel *channel_to_a_child(void)
{
	struct kedge_channel *ch;
	int sv[2];

	CHILD_CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	peers = fork_one();
	if (!peers) {
		close(sv[0]);
		CHILD_CHECK(!kedge_channel_open_fd(sv[1], NULL, MS, &ch));
		for (;;)
			pause();
	}
	close(sv[1]);
	CHILD_CHECK(!kedge_channel_open_fd(sv[0], NULL, MS, &ch));
	return ch;
}

/* The peer's end is seen, by one who sleeps. */
static void sees_the_end(struct kedge_channel *ch)
{
	struct kedge_completion c;
	ssize_t n;

	do {
		n = kedge_channel_wait(ch, -1);
		if (n >= 0)
			n = kedge_channel_poll(ch, &c, 1);
	} while (!n);
	CHILD_CHECK(n == -ECONNRESET);
}

/* ---- descriptors ---- */

static int close_all_and_open_others(void *arg)
{
	struct kedge_channel *ch = channel_to_a_child(), *next;
	int end[64], p[2], i, spare;
	char byte;

	(void)arg;
	CHILD_CHECK(!kedge_channel_wait(ch, 0));
	spare = dup(2);
	CHILD_CHECK(!syscall(SYS_close_range, 3, ~0u, 0));
	(void)spare;
	/* Pipes whose other end is closed, and some that can be read. */
	CHILD_CHECK(!pipe2(p, O_NONBLOCK));
	for (i = 0; i < 32; i++) {
		CHILD_CHECK(!pipe2(end + 2 * i, O_NONBLOCK));
		close(end[2 * i]);
		CHILD_CHECK(dup2(p[1], end[2 * i]) >= 0);
	}
	kedge_channel_close(ch);
	CHILD_CHECK(read(p[0], &byte, 1) == -1 && errno == EAGAIN);
	for (i = 0; i < 64; i++)
		CHILD_CHECK(fcntl(end[i], F_GETFD) >= 0);
	/* And it can begin again. */
	next = channel_to_a_child();
	CHILD_CHECK(!kedge_channel_wait(next, 0));
	kill(peers, SIGKILL);
	sees_the_end(next);
	kedge_channel_close(next);
	return 0;
}

static void descriptors_closed_by_the_application_are_let_alone(void **state)
{
	assert_int_equal(in_child(close_all_and_open_others, NULL), 0);
}

static int another_before_the_close(void *arg)
{
	unsigned int before = threads_now();
	struct kedge_channel *old = channel_to_a_child(), *ch;

	(void)arg;
	CHILD_CHECK(!kedge_channel_wait(old, 0));
	CHILD_CHECK(!syscall(SYS_close_range, 3, ~0u, 0));
	ch = channel_to_a_child();
	CHILD_CHECK(!kedge_channel_wait(ch, 0));
	kedge_channel_close(old);
	CHILD_CHECK(!kedge_channel_wait(ch, 0));
	kill(peers, SIGKILL);
	sees_the_end(ch);
	kedge_channel_close(ch);
	CHILD_CHECK(threads_are(before));
	return 0;
}

static void a_channel_after_close_range_sees_its_peer_die(void **state)
{
	assert_int_equal(in_child(another_before_the_close, NULL), 0);
}

static int wait_without_a_descriptor(void *arg)
{
	struct kedge_channel *ch = channel_to_a_child();
	struct rlimit few = { 64, 64 };

	(void)arg;
	/* One that is open has what it needs to sleep. */
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	while (dup(2) >= 0)
		;
	CHILD_CHECK(errno == EMFILE);
	CHILD_CHECK(!kedge_channel_wait(ch, 0));
	CHILD_CHECK(!kedge_channel_arm(ch));
	kill(peers, SIGKILL);
	sees_the_end(ch);
	kedge_channel_close(ch);
	return 0;
}

static void a_wait_needs_no_more_than_its_open_had(void **state)
{
	assert_int_equal(in_child(wait_without_a_descriptor, NULL), 0);
}

/* ---- threads ---- */

static int main_thread_ends(void *arg)
{
	struct kedge_channel *ch = channel_to_a_child();

	(void)arg;
	CHILD_CHECK(!kedge_channel_wait(ch, 0));
	pthread_exit(NULL);
}

static void a_channel_does_not_keep_the_process_alive(void **state)
{
	assert_int_equal(in_child(main_thread_ends, NULL), 0);
}

static void *stack_of(void *arg)
{
	pthread_attr_t attr;
	void *at;

	assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
	assert_int_equal(pthread_attr_getstack(&attr, &at, arg), 0);
	pthread_attr_destroy(&attr);
	return NULL;
}

static void a_thread_of_ours_has_a_small_stack(void **state)
{
	size_t len = 0;
	pthread_t t;

	assert_int_equal(thread_start(&t, stack_of, &len), 0);
	pthread_join(t, NULL);
	assert_in_range(len, 64u << 10, 4u << 20);
}

/* ---- forks ---- */

/* Listens, tells where, and accepts one that its child is to see end. */
struct host {
	struct kedge_listener *l;
	bool tcp;
	char at[64];
};

static struct kedge_channel *connect_to(const struct host *h)
{
	struct kedge_channel *ch = NULL;

	CHILD_CHECK(!(h->tcp ? kedge_channel_open_tcp("127.0.0.1", h->at, NULL,
						      MS, &ch)
			     : kedge_channel_open_shm(h->at, NULL, MS, &ch)));
	return ch;
}

static struct kedge_channel *accept_one(const struct host *h)
{
	struct kedge_channel *ch = NULL;

	CHILD_CHECK(!kedge_listener_accept(h->l, MS, &ch));
	return ch;
}

static void host_open(struct host *h, bool tcp)
{
	char text[KEDGE_ADDRESS_MAX];

	memset(h, 0, sizeof(*h));
	h->tcp = tcp;
	snprintf(h->at, sizeof(h->at), "@kedge-test-fork-%d", (int)getpid());
	if (!tcp) {
		CHILD_CHECK(!kedge_listener_open_shm(h->at, NULL, &h->l));
		return;
	}
	CHILD_CHECK(!kedge_listener_open_tcp("127.0.0.1", "0", NULL, &h->l));
	CHILD_CHECK(!kedge_listener_address(h->l, text, sizeof(text)));
	snprintf(h->at, sizeof(h->at), "%s", strrchr(text, ':'));
}

static void live_on(void)
{
	alarm(2 * CHILD_TIMEOUT);
	for (;;)
		pause();
}

/* Connects, has a child that lives on, and ends, or executes a program. */
static void peer_with_a_child(const struct host *h, bool executes, int tell)
{
	struct kedge_channel *ch = connect_to(h);
	pid_t pid = fork();

	CHILD_CHECK(ch && pid >= 0);
	if (!pid) {
		pid = getpid();
		CHILD_CHECK(write(tell, &pid, sizeof(pid)) == sizeof(pid));
		live_on();
	}
	if (executes)
		execl("/bin/sleep", "sleep", "100", NULL);
	_exit(0);
}

struct how {
	bool tcp;
	bool executes;
};

static int end_shows(void *arg)
{
	const struct how *how = arg;
	struct kedge_channel *ch;
	struct host h;
	pid_t pid, child;
	int p[2];

	host_open(&h, how->tcp);
	CHILD_CHECK(!pipe(p));
	pid = fork_one();
	if (!pid)
		peer_with_a_child(&h, how->executes, p[1]);
	ch = accept_one(&h);
	CHILD_CHECK(read(p[0], &child, sizeof(child)) == sizeof(child));
	sees_the_end(ch);
	CHILD_CHECK(!kill(child, SIGKILL));
	kill(pid, SIGKILL);
	kedge_channel_close(ch);
	kedge_listener_close(h.l);
	return 0;
}

static void the_end_of_a_peer_shows_though_its_child_lives(void **state)
{
	struct how how[] = { { false, false }, { false, true },
			     { true, false }, { true, true } };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(how); i++)
		if (in_child(end_shows, &how[i]))
			fail_msg("over %s, %s", how[i].tcp ? "tcp" : "shm",
				 how[i].executes ? "exec" : "exit");
}

/* A listener's process ends, a child of it lives: nobody listens there. */
static int nobody_listens(void *arg)
{
	bool tcp = *(const bool *)arg;
	struct kedge_channel *ch;
	struct host h;
	pid_t pid;
	int p[2], rc;

	CHILD_CHECK(!pipe(p));
	if (!fork()) {
		host_open(&h, tcp);
		CHILD_CHECK(write(p[1], &h, sizeof(h)) == sizeof(h));
		if (fork())
			_exit(0);
		/* fork() has returned: what it closes in a child is closed. */
		pid = getpid();
		CHILD_CHECK(write(p[1], &pid, sizeof(pid)) == sizeof(pid));
		live_on();
	}
	wait(NULL);
	CHILD_CHECK(read(p[0], &h, sizeof(h)) == sizeof(h));
	CHILD_CHECK(read(p[0], &pid, sizeof(pid)) == sizeof(pid));
	rc = tcp ? kedge_channel_open_tcp("127.0.0.1", h.at, NULL, 2000, &ch)
		 : kedge_channel_open_shm(h.at, NULL, 2000, &ch);
	kill(pid, SIGKILL);
	CHILD_CHECK(rc == -ECONNREFUSED);
	return 0;
}

static void a_listener_ends_with_its_process(void **state)
{
	bool over_tcp[] = { false, true };

	assert_int_equal(in_child(nobody_listens, &over_tcp[0]), 0);
	assert_int_equal(in_child(nobody_listens, &over_tcp[1]), 0);
}

/* In a forked child: what has the numbers now is the child's own. */
static void child_closes(const struct host *h, struct kedge_channel *ch)
{
	int fd[64], i;

	for (i = 0; i < 64; i++)
		fd[i] = open("/dev/null", O_RDONLY);
	CHILD_CHECK(fd[63] >= 0);
	kedge_channel_close(ch);
	kedge_listener_close(h->l);
	for (i = 0; i < 64; i++)
		CHILD_CHECK(fcntl(fd[i], F_GETFD) >= 0);
	_exit(0);
}

static void child_opens_one(const struct host *h, struct kedge_channel *ch)
{
	struct kedge_channel *own = connect_to(h);
	struct kedge_completion c;
	char in[8];
	ssize_t n;

	kedge_channel_close(ch);
	kedge_listener_close(h->l);
	CHILD_CHECK(!kedge_channel_recv(own, in, 8, 0, 0, 0, NULL));
	while (!(n = kedge_channel_poll(own, &c, 1)))
		;
	CHILD_CHECK(n == 1 && !c.status);
	kedge_channel_close(own);
	_exit(0);
}

static int fork_and_close(void *arg)
{
	struct kedge_channel *ch, *other;
	bool tcp = *(const bool *)arg;
	struct host h;
	int status;
	pid_t pid;

	host_open(&h, tcp);
	pid = fork_one();
	if (!pid) {
		ch = connect_to(&h);
		for (;;)
			pause();
	}
	ch = accept_one(&h);
	peers = fork_one();
	if (!peers)
		child_closes(&h, ch);
	CHILD_CHECK(waitpid(peers, &status, 0) == peers && !status);
	peers = fork_one();
	if (!peers)
		child_opens_one(&h, ch);
	other = accept_one(&h);
	CHILD_CHECK(kedge_channel_send(other, "x", 1, 1, 0, NULL) == 1);
	CHILD_CHECK(waitpid(peers, &status, 0) == peers && !status);
	/* The parent's goes on. */
	CHILD_CHECK(!kedge_channel_wait(ch, 0));
	CHILD_CHECK(kedge_channel_send(ch, "x", 1, 1, 0, NULL) == 1);
	kill(pid, SIGKILL);
	sees_the_end(ch);
	kedge_channel_close(other);
	kedge_channel_close(ch);
	kedge_listener_close(h.l);
	return 0;
}

static void a_child_closes_nothing_of_its_own(void **state)
{
	bool over_tcp[] = { false, true };

	assert_int_equal(in_child(fork_and_close, &over_tcp[0]), 0);
	assert_int_equal(in_child(fork_and_close, &over_tcp[1]), 0);
}

/* ---- forks while others open and close ---- */

/* Its first channel, as that of its parent's other threads. */
static int first_in_a_child(void *arg)
{
	struct kedge_channel *ch = channel_to_a_child();

	(void)arg;
	kill(peers, SIGKILL);
	kedge_channel_close(ch);
	return 0;
}

static void *open_first(void *arg)
{
	(void)arg;
	first_in_a_child(NULL);
	return NULL;
}

/* In a process that has had no channel: other threads make their first ones. */
static int forks_at_the_first(void *arg)
{
	pthread_t t;
	int status;
	pid_t pid;

	(void)arg;
	CHILD_CHECK(!pthread_create(&t, NULL, open_first, NULL));
	pid = fork_one();
	if (!pid) {
		alarm(CHILD_TIMEOUT / 2);
		_exit(first_in_a_child(NULL));
	}
	CHILD_CHECK(waitpid(pid, &status, 0) == pid && !status);
	pthread_join(t, NULL);
	return 0;
}

/* Handlers are there before any lock that they are to take. */
static void a_child_of_the_first_moment_opens_its_own(void **state)
{
	int i;

	assert_true(fork_handlers_cnt >= 2);
#ifdef __SANITIZE_ADDRESS__
	/* Its atfork handlers came with LLVM 18; the child of the test below starts no
	 * thread and allocates nothing. */
	print_message("skipped: AddressSanitizer's allocator may be locked in a child "
		      "that was forked while another thread used it\n");
	skip();
#endif
	for (i = 0; i < 20; i++)
		assert_int_equal(in_child(forks_at_the_first, NULL), 0);
}

static _Atomic bool stop_opening, stop_accepting;

static void *open_and_close(void *arg)
{
	struct host h = *(struct host *)arg;
	struct kedge_channel *ch;

	while (!atomic_load(&stop_opening)) {
		ch = connect_to(&h);
		kedge_channel_close(ch);
	}
	return NULL;
}

static void *accept_and_close(void *arg)
{
	struct host *h = arg;
	struct kedge_channel *ch;
	int rc;

	while (!atomic_load(&stop_accepting)) {
		rc = kedge_listener_accept(h->l, 100, &ch);
		CHILD_CHECK(!rc || rc == -ETIMEDOUT);
		if (!rc)
			kedge_channel_close(ch);
	}
	return NULL;
}

/* No socket is left in any child, whenever it was forked. */
static unsigned int sockets(void)
{
	char path[32], to[32];
	unsigned int cnt = 0;
	ssize_t n;
	int fd;

	for (fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof(to) - 1);
		cnt += n > 7 && !strncmp(to, "socket:", 7);
	}
	return cnt;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FORKS 20 /* each copies the shadow's page tables */
#else
#define FORKS 200
#endif

static int fork_meanwhile(void *arg)
{
	bool tcp = *(const bool *)arg;
	unsigned int before = sockets();
	pthread_t t[2];
	struct host h;
	int i, status;
	pid_t pid;

	host_open(&h, tcp);
	CHILD_CHECK(!pthread_create(&t[0], NULL, accept_and_close, &h));
	CHILD_CHECK(!pthread_create(&t[1], NULL, open_and_close, &h));
	for (i = 0; i < FORKS; i++) {
		pid = fork();
		CHILD_CHECK(pid >= 0);
		if (!pid)
			_exit(sockets() > before);
		CHILD_CHECK(waitpid(pid, &status, 0) == pid && !status);
	}
	atomic_store(&stop_opening, true);
	pthread_join(t[1], NULL);
	atomic_store(&stop_accepting, true);
	pthread_join(t[0], NULL);
	kedge_listener_close(h.l);
	return 0;
}

static void no_child_has_a_socket_whenever_it_is_forked(void **state)
{
	bool over_tcp[] = { false, true };

	assert_int_equal(in_child(fork_meanwhile, &over_tcp[0]), 0);
	assert_int_equal(in_child(fork_meanwhile, &over_tcp[1]), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			descriptors_closed_by_the_application_are_let_alone),
		cmocka_unit_test(
			a_channel_after_close_range_sees_its_peer_die),
		cmocka_unit_test(a_wait_needs_no_more_than_its_open_had),
		cmocka_unit_test(a_channel_does_not_keep_the_process_alive),
		cmocka_unit_test(a_thread_of_ours_has_a_small_stack),
		cmocka_unit_test(the_end_of_a_peer_shows_though_its_child_lives),
		cmocka_unit_test(a_listener_ends_with_its_process),
		cmocka_unit_test(a_child_closes_nothing_of_its_own),
		cmocka_unit_test(a_child_of_the_first_moment_opens_its_own),
		cmocka_unit_test(no_child_has_a_socket_whenever_it_is_forked),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
