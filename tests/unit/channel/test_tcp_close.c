// SPDX-License-Identifier: BSD-2-Clause
/*
 * Closing a channel over TCP whose peer does not poll: nothing is waited for, and
 * all that was sent arrives. Calls that wait are counted.
 */
#include <kedge/tcp.h>

#include "base/base.h"
#include "channel_pair.h"
#include "fakes/wrapped.h"

#define MSGS 3000u
#define MSG  8000u

WRAPPED(poll);
WRAPPED(usleep);
WRAPPED(nanosleep);

static __thread bool watched;
static _Atomic unsigned int waits;

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout)
{
	waits += watched && timeout;
	return __real_poll(p, n, timeout);
}

int __wrap_usleep(useconds_t us)
{
	waits += watched;
	return __real_usleep(us);
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
	waits += watched;
	return __real_nanosleep(t, left);
}

static void close_at_once(struct end *e)
{
	waits = 0;
	watched = true;
	kedge_channel_close(e->ch);
	watched = false;
	e->ch = NULL;
	assert_int_equal(waits, 0);
}

/* Everything that was complete here, to the last byte, and then the end. */
static void all_comes(unsigned int cnt)
{
	static char in[MSG];
	struct kedge_completion c;
	unsigned int got = 0;
	ssize_t n;

	while (got < cnt) {
		assert_int_equal(kedge_channel_recv(b.ch, in, MSG, ANY, 0,
						    NULL), 0);
		do {
			n = kedge_channel_poll(b.ch, &c, 1);
			assert_true(n >= 0);
		} while (!n);
		assert_int_equal(c.status, 0);
		assert_int_equal(c.tag, got);
		assert_true(is_filled(in, MSG, got));
		got++;
	}
	WAIT_FOR(kedge_channel_poll(b.ch, &c, 1) == -ECONNRESET);
}

/* As many as the peer allows: more than a socket takes that nobody reads. */
static unsigned int send_many(void)
{
	static char out[MSG];
	unsigned int i;

	for (i = 0; i < MSGS; i++) {
		fill(out, MSG, i);
		if (kedge_channel_send(a.ch, out, MSG, i, 0, NULL) != 1)
			break;
	}
	return i;
}

static void what_was_sent_arrives(void **state)
{
	const struct kedge_channel_opts o = { .size = sizeof(o),
					      .unexpected_bytes = 64u << 20 };
	unsigned int cnt;

	open_pair(&o, &o);
	cnt = send_many();
	assert_true(cnt > 10);
	close_at_once(&a);
	all_comes(cnt);
	close_at_once(&b);
}

/* A socket with something unread forgets, when it is closed, what it has not
 * sent. */
static void so_it_does_with_something_unread(void **state)
{
	const struct kedge_channel_opts o = { .size = sizeof(o),
					      .unexpected_bytes = 64u << 20 };
	static char text[MSG];
	unsigned int cnt;

	open_pair(&o, &o);
	assert_int_equal(kedge_channel_send(b.ch, text, MSG, 1, 0, NULL), 1);
	cnt = send_many();
	close_at_once(&a);
	kedge_channel_send(b.ch, text, MSG, 1, 0, NULL);
	all_comes(cnt);
	close_at_once(&b);
}

/* More than is on its way while nobody reads, and less than the kernel takes. */
#define KEPT 200u
/* One, and two names of folders. */
#define ALONE 3u

static void send_and_end(const char *port, int fd)
{
	static char out[MSG];
	unsigned int i;

	CHILD_CHECK(!kedge_channel_open_tcp("127.0.0.1", port, NULL, 5000,
					    &a.ch));
	for (i = 0; i < KEPT; i++) {
		fill(out, MSG, i);
		CHILD_CHECK(kedge_channel_send(a.ch, out, MSG, i, 0, NULL) == 1);
	}
	kedge_channel_close(a.ch);
	CHILD_CHECK(write(fd, "x", 1) == 1);
	exit(0);
}

/* Its kernel would close the socket, to which something is still to come, and forget
 * what it has not sent. */
static void so_it_does_though_its_process_ends(void **state)
{
	char address[KEDGE_ADDRESS_MAX], c;
	struct kedge_listener *l;
	struct pollfd end;
	int p[2], status;
	pid_t pid;

	need_threads_after_fork();
	/* A child never frees what a thread of its parent was sending for channels that are
	 * closed: that thread may have been inside. LeakSanitizer tells of it. */
	assert_true(threads_are(ALONE));
	assert_int_equal(kedge_listener_open_tcp("127.0.0.1", "0", NULL, &l), 0);
	kedge_listener_address(l, address, sizeof(address));
	assert_int_equal(pipe(p), 0);
	fflush(stdout);
	pid = fork();
	if (!pid)
		send_and_end(strrchr(address, ':'), p[1]);
	close(p[1]);
	assert_int_equal(kedge_listener_accept(l, -1, &b.ch), 0);
	assert_int_equal(read(p[0], &c, 1), 1);
	/* One that does not wait for us ends meanwhile. */
	end = (struct pollfd){ .fd = p[0] };
	poll(&end, 1, 300);
	assert_int_equal(kedge_channel_send(b.ch, "x", 1, 1, 0, NULL), 1);
	all_comes(KEPT);
	close(p[0]);
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	close_at_once(&b);
	kedge_listener_close(l);
}

static void a_message_under_way_is_given_up(void **state)
{
	static char out[4 << 20], in[4 << 20];

	open_pair(NULL, NULL);
	put(&a, out, sizeof(out), 1);
	post(&b, in, sizeof(in), TAG(1), 0);
	turn(&a);
	turn(&b);
	turn(&a);
	close_at_once(&a);
	while (!b.cnt)
		turn(&b);
	assert_int_equal(b.done[0].status, -ECONNRESET);
	close_at_once(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_sent_arrives),
		cmocka_unit_test(so_it_does_with_something_unread),
		cmocka_unit_test(so_it_does_though_its_process_ends),
		cmocka_unit_test(a_message_under_way_is_given_up),
	};

	setenv("TEST_CHANNEL_OVER", "tcp", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
