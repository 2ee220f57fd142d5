// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener over TCP with 200 descriptors, and processes that connect to it: 400
 * that say nothing, one that floods it with nonsense, an honest one. The honest
 * one gets in while all others are there; the listener neither blocks nor turns
 * round in circles.
 *
 *	strangers
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "channel/meet/listen.h"

#define SILENT 400
#define FDS    200

#define DIE(...)                                                       \
	do {                                                           \
		fprintf(stderr, "strangers: " __VA_ARGS__);            \
		fputc('\n', stderr);                                   \
		exit(1);                                               \
	} while (0)

static unsigned int port;

static void limit(rlim_t fds)
{
	struct rlimit r;

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = fds < r.rlim_max ? fds : r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r))
		DIE("setrlimit: %s", strerror(errno));
}

static int dial(void)
{
	const struct sockaddr_in a = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		return -1;
	if (!connect(fd, (const struct sockaddr *)&a, sizeof(a)))
		return fd;
	close(fd);
	return -1;
}

/* Starts a child that does @what and writes a byte to @out when it is at it. */
static pid_t start(void (*what)(int out), int *out)
{
	int p[2];
	pid_t pid;

	if (pipe(p))
		DIE("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		DIE("fork: %s", strerror(errno));
	if (!pid) {
		close(p[0]);
		what(p[1]);
		_exit(0);
	}
	close(p[1]);
	*out = p[0];
	return pid;
}

static void tell(int out)
{
	if (write(out, "", 1) != 1)
		_exit(1);
}

static void be_silent(int out)
{
	int i;

	limit(1024);
	for (i = 0; i < SILENT; i++)
		if (dial() < 0)
			_exit(1);
	tell(out);
	pause();
}

static void flood(int out)
{
	char junk[512];
	int i, fd;

	memset(junk, 0x5a, sizeof(junk));
	for (i = 0;; i++) {
		fd = dial();
		if (fd < 0)
			continue;
		send(fd, junk, (size_t)(i % 512), MSG_NOSIGNAL);
		if (i == 20)
			tell(out);
		close(fd);
	}
}

static void be_honest(int out)
{
	struct kedge_channel *ch;
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = kedge_channel_open_tcp("127.0.0.1", service, NULL, 60000, &ch);
	if (rc)
		DIE("the honest one: %s", kedge_strerror(rc));
	kedge_channel_send(ch, "hello", 5, 1, 0, NULL);
	kedge_channel_close(ch);
	tell(out);
}

static void wait_byte(int fd, const char *who)
{
	char c;

	if (read(fd, &c, 1) != 1)
		DIE("%s failed", who);
	close(fd);
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* The next that is let in, which is the honest one. */
static void meet(struct tcp_listener *l)
{
	struct transport_peer peer;
	struct clofork sock;
	int rc;

	rc = tcp_listener_accept(l, 60000, &sock, &peer);
	if (rc)
		DIE("accept: %s", kedge_strerror(rc));
	clofork_close(&sock);
}

static double cpu_sec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* With nothing but silence to listen to. */
static void rests(struct tcp_listener *l)
{
	struct transport_peer peer;
	double before = cpu_sec();
	struct clofork sock;
	int rc = tcp_listener_accept(l, 1000, &sock, &peer);

	if (rc != -ETIMEDOUT)
		DIE("accept: %d", rc);
	if (cpu_sec() - before > 0.3)
		DIE("accept took %.2f s of a CPU to wait for one",
		    cpu_sec() - before);
}

int main(void)
{
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	struct tcp_listener *l;
	struct clofork sock;
	int rc, out, honest_out;
	pid_t silent, flooder, honest;

	alarm(200);
	rc = kedge__channel_opts(&opts, NULL);
	limit(FDS);
	if (!rc)
		rc = tcp_listen("127.0.0.1", "0", &opts, 0, &l);
	if (rc)
		DIE("listen: %s", kedge_strerror(rc));
	port = tcp_listener_port(l);

	silent = start(be_silent, &out);
	/* The backlog holds them; those beyond it wait for accept(). */
	for (rc = 0; rc < 100; rc++)
		if (tcp_listener_accept(l, 20, &sock, &peer) != -ETIMEDOUT)
			DIE("a silent one was let in");
	wait_byte(out, "silence");
	honest = start(be_honest, &honest_out);
	meet(l);
	wait_byte(honest_out, "the honest one");
	waitpid(honest, NULL, 0);
	rests(l);
	printf("%d silent strangers\n", SILENT);

	flooder = start(flood, &out);
	wait_byte(out, "the flood");
	honest = start(be_honest, &honest_out);
	meet(l);
	wait_byte(honest_out, "the honest one");
	waitpid(honest, NULL, 0);
	printf("a flood beside\n");
	stop(flooder);
	stop(silent);
	tcp_listener_close(l);
	return 0;
}
