// SPDX-License-Identifier: BSD-2-Clause
/* Channels that are opened while their program waits for other things, too. */
#include <poll.h>
#include <stdlib.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <pthread.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "channel/meet/listen.h"
#include "clock.h"
#include "core.h"

/* ---- steps that fail ---- */

static __thread int fail_at;

static bool fails(void)
{
	return fail_at && !--fail_at;
}

#define WRAP(type, name, params, args, failed)                                 \
	type __real_##name params;                                             \
	type __wrap_##name params;                                             \
	type __wrap_##name params                                              \
	{                                                                      \
		if (fails())                                                   \
			return failed;                                         \
		return __real_##name args;                                     \
	}

WRAP(void *, calloc, (size_t n, size_t len), (n, len), NULL)
WRAP(void *, malloc, (size_t len), (len), NULL)
WRAP(char *, strdup, (const char *s), (s), NULL)
WRAP(int, socketpair, (int domain, int type, int protocol, int sv[2]),
     (domain, type, protocol, sv), (errno = EMFILE, -1))
WRAP(int, pthread_create,
     (pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg),
     (t, a, f, arg), EAGAIN)

/* ---- a thread that is just before it sleeps ---- */

enum { FREE, HELD, THERE };

static _Atomic int sleeper, polls;

int __real_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms);

int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
	int held = HELD;

	polls++;
	/* Connected, and waiting for what the listener says. */
	if (p->events == POLLIN)
		atomic_compare_exchange_strong(&sleeper, &held, THERE);
	while (atomic_load(&sleeper) == THERE)
		usleep(1000);
	return __real_poll(p, n, ms);
}

/* ---- both ends ---- */

static char path[40];
static char port[8];
static struct kedge_channel_opts opts;

static int setup(void **state)
{
	opts = (struct kedge_channel_opts){ .size = sizeof(opts) };
	snprintf(path, sizeof(path), "@kedge-connector-%d", (int)getpid());
	return 0;
}

/* A port that was free a moment ago. */
static void find_port(void)
{
	struct kedge_channel_opts o;
	struct tcp_listener *l;

	assert_int_equal(kedge__channel_opts(&o, NULL), 0);
	assert_int_equal(tcp_listen(NULL, ":0", &o, 0, &l), 0);
	snprintf(port, sizeof(port), ":%u", tcp_listener_port(l));
	tcp_listener_close(l);
}

static void begin(bool tcp, struct kedge_listener **l,
		  struct kedge_connector **c)
{
	if (!tcp) {
		assert_int_equal(kedge_listener_open_shm(path, &opts, l), 0);
		assert_int_equal(kedge_connector_open_shm(path, &opts, 60000,
							  c), 0);
		return;
	}
	/* A port alone is an address. */
	find_port();
	assert_int_equal(kedge_listener_open_tcp(NULL, port, &opts, l), 0);
	assert_int_equal(kedge_connector_open_tcp(NULL, port + 1, &opts, 60000,
						  c), 0);
}

/* In one thread, which waits for both of them at once. */
static void meet(struct kedge_listener *l, struct kedge_connector *c,
		 struct kedge_channel **a, struct kedge_channel **b)
{
	struct pollfd p[] = {
		{ .fd = kedge_connector_fd(c), .events = POLLIN },
		{ .fd = kedge_listener_fd(l), .events = POLLIN },
	};
	int rc;

	*a = *b = NULL;
	while (!*a || !*b) {
		assert_true(poll(p, 2, 60000) > 0);
		if (p[1].revents) {
			rc = kedge_listener_accept(l, 0, b);
			assert_true(!rc || rc == -ETIMEDOUT);
			if (!rc)
				p[1].fd = -1;
		}
		if (p[0].revents) {
			assert_int_equal(kedge_connector_finish(c, a), 0);
			p[0].fd = -1;
		}
	}
}

static void talk(struct kedge_channel *a, struct kedge_channel *b)
{
	struct kedge_completion done;
	char text[8] = "";
	ssize_t n;

	assert_int_equal(kedge_channel_recv(b, text, 8, 1, UINT64_MAX, 0, NULL),
			 0);
	assert_true(kedge_channel_send(a, "hello", 5, 1, 0, NULL) >= 0);
	do {
		kedge_channel_poll(a, NULL, 0);
		n = kedge_channel_poll(b, &done, 1);
		assert_true(n >= 0);
	} while (!n);
	assert_int_equal(done.status, 0);
	assert_string_equal(text, "hello");
}

static void connects_beside(bool tcp)
{
	struct kedge_channel *a, *b, *again = NULL;
	struct kedge_connector *c = NULL;
	struct kedge_listener *l = NULL;

	begin(tcp, &l, &c);
	/* The listener has not looked yet. */
	assert_int_equal(kedge_connector_finish(c, &again), -EINPROGRESS);
	assert_null(again);
	meet(l, c, &a, &b);
	assert_int_equal(kedge_connector_finish(c, &again), -EINVAL);
	kedge_connector_close(c);
	kedge_listener_close(l);
	talk(a, b);
	talk(b, a);
	kedge_channel_close(a);
	kedge_channel_close(b);
}

static void connects_over_shm(void **state)
{
	connects_beside(false);
}

static void connects_over_tcp_by_a_port_alone(void **state)
{
	connects_beside(true);
}

static void a_secret_is_copied(void **state)
{
	static const char secret[] = "sixteen bytes are enough";
	struct kedge_connector *c = NULL;
	struct kedge_listener *l = NULL;
	struct kedge_channel *a, *b;
	char text[sizeof(secret)];

	memcpy(text, secret, sizeof(text));
	opts.secret = text;
	opts.secret_len = sizeof(text);
	begin(true, &l, &c);
	memset(text, 0, sizeof(text));
	meet(l, c, &a, &b);
	kedge_connector_close(c);
	kedge_listener_close(l);
	kedge_channel_close(a);
	kedge_channel_close(b);
}

static void a_failure_is_told_with_its_reason(void **state)
{
	struct kedge_channel *ch = NULL;
	struct kedge_connector *c;
	struct pollfd p = { .events = POLLIN };

	find_port();
	assert_int_equal(kedge_connector_open_tcp("127.0.0.1", port, NULL, 5000,
						  &c), 0);
	p.fd = kedge_connector_fd(c);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_int_equal(kedge_connector_finish(c, &ch), -ECONNREFUSED);
	assert_non_null(strstr(kedge_strerror(-ECONNREFUSED), port));
	assert_int_equal(kedge_connector_finish(c, &ch), -ECONNREFUSED);
	assert_null(ch);
	kedge_connector_close(c);
}

static void the_channel_may_be_left(void **state)
{
	struct kedge_connector *c = NULL;
	struct kedge_listener *l = NULL;
	struct kedge_completion done;
	struct kedge_channel *b;
	struct pollfd p = { .events = POLLIN };

	kedge_connector_close(NULL);
	begin(true, &l, &c);
	assert_int_equal(kedge_listener_accept(l, 60000, &b), 0);
	p.fd = kedge_connector_fd(c);
	assert_int_equal(poll(&p, 1, 60000), 1);
	kedge_connector_close(c);
	while (!kedge_channel_poll(b, &done, 1))
		kedge_channel_wait(b, 1000);
	assert_int_equal(kedge_channel_poll(b, &done, 1), -ECONNRESET);
	kedge_channel_close(b);
	kedge_listener_close(l);
}

static unsigned int threads(void)
{
	struct stat st;

	assert_int_equal(stat("/proc/self/task", &st), 0);
	return (unsigned int)st.st_nlink - 2;
}

static unsigned int at_first;

/* All that were started have ended. */
static void await_threads(void)
{
	while (threads() > at_first)
		usleep(1000);
}

/* A socket that listens, and says nothing to who connects. */
static int silence(bool tcp)
{
	struct sockaddr_un u = { .sun_family = AF_UNIX };
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t len = sizeof(in);
	int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	if (tcp) {
		assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
		assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len),
				 0);
		snprintf(port, sizeof(port), ":%u", ntohs(in.sin_port));
	} else {
		memcpy(u.sun_path + 1, path + 1, strlen(path) - 1);
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				  strlen(path));
		assert_int_equal(bind(fd, (struct sockaddr *)&u, len), 0);
	}
	assert_int_equal(listen(fd, 0), 0);
	return fd;
}

static void begin_in_vain(bool tcp, struct kedge_connector **c)
{
	if (tcp)
		assert_int_equal(kedge_connector_open_tcp("127.0.0.1", port,
							  NULL, -1, c), 0);
	else
		assert_int_equal(kedge_connector_open_shm(path, NULL, -1, c),
				 0);
}

/* Without a timeout; in the handshake, and before it, where the listener is full. */
static void an_attempt_ends_with_its_connector(void **state)
{
	struct kedge_connector *c[4];
	struct kedge_channel *ch;
	int tcp, fd;
	size_t i;

	for (tcp = 0; tcp < 2; tcp++) {
		fd = silence(tcp);
		polls = 0;
		for (i = 0; i < ARRAY_SIZE(c); i++)
			begin_in_vain(tcp, &c[i]);
		WAIT_FOR(polls >= (int)ARRAY_SIZE(c));
		for (i = 0; i < ARRAY_SIZE(c); i++) {
			assert_int_equal(kedge_connector_finish(c[i], &ch),
					 -EINPROGRESS);
			kedge_connector_close(c[i]);
		}
		await_threads();
		close(fd);
	}
}

/* A process whose main thread has ended, and that waits for nobody else. */
static void it_keeps_no_process(void **state)
{
	struct kedge_connector *c;
	int fd, status;
	pid_t pid;

#ifdef __SANITIZE_THREAD__
	print_message("skipped: ThreadSanitizer has a thread of its own\n");
	skip();
#endif
	fd = silence(true);
	pid = fork();
	if (!pid) {
		begin_in_vain(true, &c);
		pthread_exit(NULL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(fd);
}

#define LOOK_MS 1000

/*
 * The numbers are another's afterwards: what is there is left alone. @late: the
 * thread had looked at them just before.
 */
static void touches_no_other_descriptors(bool late)
{
	struct kedge_connector *c = NULL;
	int sv[2], fd = silence(true), first, second;
	char byte;

	atomic_store(&sleeper, late ? HELD : FREE);
	begin_in_vain(true, &c);
	while (late && atomic_load(&sleeper) != THERE)
		usleep(1000);
	first = kedge_connector_fd(c);
	/* The other end has the number that comes next, or one after it. */
	for (second = first + 1; fcntl(second, F_GETFD) < 0; second++)
		;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	assert_true(dup2(sv[0], first) == first);
	assert_true(dup2(sv[0], second) == second);
	atomic_store(&sleeper, FREE);
	kedge_connector_close(c);
	/* Nobody can reach the attempt: it ends though the listener lives, when it looks. */
	MOVE_UNTIL(LOOK_MS, threads() == at_first);
	assert_int_equal(send(sv[0], "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(recv(sv[1], &byte, 1, 0), 1);
	assert_int_equal(recv(sv[1], &byte, 1, MSG_DONTWAIT), -1);
	close(first);
	close(second);
	close(sv[0]);
	close(sv[1]);
	close(fd);
}

static void it_touches_no_other_descriptors(void **state)
{
	touches_no_other_descriptors(false);
}

static void it_ends_though_it_sleeps_on_anothers(void **state)
{
	touches_no_other_descriptors(true);
}

static void a_child_has_none(void **state)
{
	struct kedge_connector *c = NULL;
	struct kedge_listener *l = NULL;
	struct kedge_channel *a = NULL, *b;
	int status, rc;
	pid_t pid;

	begin(false, &l, &c);
	pid = fork();
	if (!pid) {
		rc = kedge_connector_finish(c, &a);
		kedge_connector_close(c);
		_exit(rc == -ECHILD ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	meet(l, c, &a, &b);
	kedge_connector_close(c);
	kedge_listener_close(l);
	kedge_channel_close(a);
	kedge_channel_close(b);
}

static void arguments_are_checked(void **state)
{
	struct kedge_channel_opts small = { .size = 4 };
	struct kedge_connector *c = NULL;
	struct kedge_channel *ch = NULL;

	assert_int_equal(kedge_connector_open_shm(NULL, NULL, 0, &c), -EINVAL);
	assert_int_equal(kedge_connector_open_shm(path, NULL, 0, NULL),
			 -EINVAL);
	assert_int_equal(kedge_connector_open_shm(path, &small, 0, &c),
			 -EINVAL);
	assert_int_equal(kedge_connector_open_tcp(NULL, NULL, NULL, 0, &c),
			 -EINVAL);
	assert_int_equal(kedge_connector_open_tcp(NULL, "1", NULL, 0, NULL),
			 -EINVAL);
	opts.secret = path;
	opts.secret_len = SECRET_MAX + 1;
	assert_int_equal(kedge_connector_open_tcp(NULL, "1", &opts, 0, &c),
			 -EINVAL);
	assert_int_equal(kedge_connector_finish(NULL, &ch), -EINVAL);
	assert_int_equal(kedge_connector_fd(NULL), -EINVAL);
	assert_null(c);
}

static void open_undoes_every_step(void **state)
{
	static const char secret[] = "sixteen bytes are enough";
	struct kedge_connector *c = NULL;
	int step, rc;

	find_port();
	opts.secret = secret;
	opts.secret_len = sizeof(secret);
	for (step = 1;; step++) {
		fail_at = step;
		rc = kedge_connector_open_tcp("127.0.0.1", port, &opts, 0, &c);
		fail_at = 0;
		if (!rc)
			break;
		assert_true(rc == -ENOMEM || rc == -EMFILE || rc == -EAGAIN);
		assert_null(c);
	}
	/* Itself, the secret, two names, the descriptor, the thread. */
	assert_int_equal(step - 1, 6);
	kedge_connector_close(c);
}

static void *nothing(void *arg)
{
	return arg;
}

#define TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(connects_over_shm),
		TEST(connects_over_tcp_by_a_port_alone),
		TEST(a_secret_is_copied),
		TEST(a_failure_is_told_with_its_reason),
		TEST(the_channel_may_be_left),
		TEST(an_attempt_ends_with_its_connector),
		TEST(it_keeps_no_process),
		TEST(it_touches_no_other_descriptors),
		TEST(it_ends_though_it_sleeps_on_anothers),
		TEST(a_child_has_none),
		TEST(arguments_are_checked),
		TEST(open_undoes_every_step),
	};
	pthread_t first;

	/* ThreadSanitizer has one of its own from the first on. */
	if (pthread_create(&first, NULL, nothing, NULL) ||
	    pthread_join(first, NULL))
		return 1;
	at_first = threads();
	test_clock_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
