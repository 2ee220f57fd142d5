// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peer whose host is gone, and one that only computes.
 *
 *	gone serve NODE PORT	a peer; it says "ready", and reads nothing before
 *				it reads a line
 *	gone idle NODE PORT	waits without anything under way
 *	gone send NODE PORT	waits with a message under way
 *	gone full NODE PORT	the same until the peer's window is full
 *
 * The last three say "ready" and wait until the peer is gone (exit status 0), or
 * has read everything and said so (2).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kedge/kedge.h>

#define TIMEOUT_MS 2000
#define MSG	   32768u
#define MSGS	   1024u /* of which none is received before all are sent */

static char buf[MSG];

static void __attribute__((noreturn)) die(const char *what, int rc)
{
	fprintf(stderr, "gone: %s: %s\n", what, kedge_strerror(rc));
	exit(1);
}

/* Until a receive is complete: 0, or why none will be. */
static int wait_one(struct kedge_channel *ch)
{
	struct kedge_completion c;
	ssize_t n;
	int rc;

	for (;;) {
		n = kedge_channel_poll(ch, &c, 1);
		if (n < 0 || (n && (c.status || c.flags)))
			return n < 0 ? (int)n : c.status;
		if (n)
			continue;
		rc = kedge_channel_wait(ch, -1);
		if (rc < 0 && rc != -EINTR)
			return rc;
	}
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

static int serve(const char *node, const char *port,
		 const struct kedge_channel_opts *o)
{
	struct kedge_listener *l;
	struct kedge_channel *ch;
	char line[8];
	unsigned int i;
	int rc = kedge_listener_open_tcp(node, port, o, &l);

	if (rc)
		die("listen", rc);
	rc = kedge_listener_accept(l, 60000, &ch);
	if (rc)
		die("accept", rc);
	ready();
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	for (i = 0; i < MSGS; i++) {
		rc = kedge_channel_recv(ch, buf, MSG, 1, ~0ull, 0, NULL);
		if (!rc)
			rc = wait_one(ch);
		if (rc)
			die("recv", rc);
	}
	kedge_channel_send(ch, buf, 8, 2, 0, NULL);
	kedge_channel_close(ch);
	kedge_listener_close(l);
	return 0;
}

/*
 * Until it listens, and until what the kernel still holds for the host that was
 * gone is given up: the last question for its address, asked while the wire was
 * cut, fails a connection begun since.
 */
static struct kedge_channel *dial(const char *node, const char *port,
				  const struct kedge_channel_opts *o)
{
	struct kedge_channel *ch;
	int rc;

	do {
		rc = kedge_channel_open_tcp(node, port, o, 60000, &ch);
		if (rc == -ECONNREFUSED || rc == -EHOSTUNREACH)
			usleep(50000);
	} while (rc == -ECONNREFUSED || rc == -EHOSTUNREACH);
	if (rc)
		die("connect", rc);
	return ch;
}

int main(int argc, char **argv)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.eager_max = MSG,
					.host_timeout_ms = TIMEOUT_MS,
					.unexpected_bytes = 512u << 20 };
	unsigned int cnt, i;
	struct kedge_channel *ch;
	int rc;

	if (argc != 4)
		return 1;
	alarm(120);
	if (!strcmp(argv[1], "serve"))
		return serve(argv[2], argv[3], &o);
	ch = dial(argv[2], argv[3], &o);
	kedge_channel_recv(ch, buf, MSG, 2, ~0ull, 0, NULL);
	cnt = strcmp(argv[1], "full") ? 0 : MSGS;
	ready();
	/* By then the script has cut the wire. */
	if (!strcmp(argv[1], "send") && getchar() != EOF)
		cnt = 1;
	for (i = 0; i < cnt; i++) {
		rc = kedge_channel_send(ch, buf, MSG, 1, 0, NULL);
		if (rc < 0)
			die("send", rc);
	}
	rc = wait_one(ch);
	if (rc && rc != -ECONNRESET)
		die("wait", rc);
	kedge_channel_close(ch);
	return rc ? 0 : 2;
}
