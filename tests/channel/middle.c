// SPDX-License-Identifier: BSD-2-Clause
/*
 * A man in the middle of a TCP channel: between two honest ends that may share a
 * secret stands a relay that flips bits, leaves bytes out, adds some, or cuts the
 * connection, from the first byte on or after the handshake. Its changes of data
 * can go unseen, as docs/channel.md says; but neither end crashes or hangs, each
 * operation ends once, no byte beside a buffer changes, and a failure is told.
 *
 * middle [SEEDS [FIRST]]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/kedge.h>
#include <kedge/tcp.h>

#include "base/base.h"
#include "channel/meet/listen.h"
#include "channel/tcp/internal.h"
#include "clock.h"
#include "hostile.h"

#define OPS   12u
#define EDGE  64u
#define BYTE  0x5a
#define LONG  300000u
#define HANGS 60u /* seconds for a seed, and then it hangs */
#define MS    60u
#define QUIET_MS 5 /* the ends wait for what was left out: time passes for them */
#define MEET(p) ((p)->harm == NONE ? 20000 : 300) /* ms for a handshake */

enum harm { NONE, FLIP, LEAVE_OUT, ADD, CUT, HARMS };

struct plan {
	struct rng rng;
	enum harm harm;
	uint64_t from;	/* bytes that pass before it begins */
	uint32_t every; /* bytes, in the mean */
	bool secret;
};

static struct plan plan_of(uint64_t seed)
{
	struct plan p = { .rng = { seed * 2654435761u + 1 } };

	p.harm = (enum harm)(seed % HARMS);
	p.from = below(&p.rng, 2) ? below(&p.rng, 200)
				  : 200 + below(&p.rng, 400000);
	p.every = 1u << below(&p.rng, 18);
	p.secret = below(&p.rng, 2);
	return p;
}

/* ---- the honest ends ---- */

struct op {
	uint8_t *base;
	size_t len;
	bool done;
};

struct end {
	struct kedge_channel *ch;
	struct rng rng;
	struct op op[2 * OPS];
	bool harmed;
};

static void __attribute__((noreturn)) bad(const char *what)
{
	fprintf(stderr, "%s\n", what);
	abort();
}

static void fill_opts(const struct plan *p, struct kedge_channel_opts *o)
{
	*o = (struct kedge_channel_opts){ .size = sizeof(*o) };
	/* An undisturbed connection has all the time that it takes. */
	if (p->harm != NONE) {
		o->timeout_ms = MS;
		o->peer_timeout_ms = MS;
	}
	if (p->secret) {
		o->secret = "between the two of us";
		o->secret_len = 21;
	}
}

static void begin(struct end *e, uint32_t i, bool is_recv)
{
	struct op *o = &e->op[i];
	int rc;

	o->len = is_recv ? LONG : below(&e->rng, 3) ? below(&e->rng, 3000)
						    : below(&e->rng, LONG);
	o->base = malloc(o->len + 2 * EDGE);
	if (!o->base)
		bad("no memory");
	memset(o->base, BYTE, o->len + 2 * EDGE);
	rc = is_recv ? kedge_channel_recv(e->ch, o->base + EDGE, o->len, 0, 0,
					  i, NULL)
		     : kedge_channel_send(e->ch, o->base + EDGE, o->len,
					  below(&e->rng, 5), i, NULL);
	o->done = rc != 0;
	if (rc < 0 && !e->harmed)
		bad("an operation fails, though nothing was changed");
}

static void completed(struct end *e, const struct kedge_completion *c)
{
	struct op *o;
	size_t i;

	if (c->user >= 2 * OPS || e->op[c->user].done)
		bad("a completion of nothing, or the second");
	o = &e->op[c->user];
	o->done = true;
	if (c->status > 0 || (!c->status && c->len > o->len))
		bad("a completion that cannot be");
	if (c->status && !e->harmed)
		bad("a message fails, though nothing was changed");
	for (i = 0; !e->harmed && i < c->len; i++)
		if (o->base[EDGE + i] != BYTE)
			bad("a message has changed");
}

static bool all_done(const struct end *e)
{
	uint32_t i;

	for (i = 0; i < 2 * OPS && e->op[i].done; i++)
		;
	return i == 2 * OPS;
}

static void finish(struct end *e)
{
	struct op *o;
	size_t i;

	for (o = e->op; o < e->op + 2 * OPS; o++) {
		for (i = 0; i < EDGE; i++)
			if (o->base[i] != BYTE ||
			    o->base[EDGE + o->len + i] != BYTE)
				bad("a byte beside a buffer has changed");
		free(o->base);
	}
}

static void use(struct kedge_channel *ch, const struct plan *p, uint64_t seed)
{
	struct end e = { .ch = ch, .rng = { seed },
			 .harmed = p->harm != NONE };
	struct kedge_completion c[8];
	ssize_t n = 0, i;
	uint32_t k;

	for (k = 0; k < OPS; k++)
		begin(&e, k, true);
	for (; k < 2 * OPS; k++)
		begin(&e, k, false);
	while (n >= 0 && !all_done(&e)) {
		kedge_channel_wait(ch, 5);
		n = kedge_channel_poll(ch, c, 8);
		for (i = 0; i < n; i++)
			completed(&e, &c[i]);
	}
	if (n < 0 && !e.harmed)
		bad("the channel ends, though nothing was changed");
	kedge_channel_close(ch);
	finish(&e);
}

static void connects(const struct plan *p, uint64_t seed, unsigned int port)
{
	struct kedge_channel_opts o;
	struct kedge_channel *ch;
	char service[8];
	int rc;

	fill_opts(p, &o);
	snprintf(service, sizeof(service), "%u", port);
	rc = kedge_channel_open_tcp("127.0.0.1", service, &o, MEET(p), &ch);
	if (!rc)
		use(ch, p, seed * 2);
	else if (p->harm == NONE)
		bad(kedge_strerror(rc));
}

/* It tells @where its port is: a listener is no child's of who opened it. */
static void accepts(const struct plan *p, uint64_t seed, int where)
{
	struct tcp_listener *l = NULL;
	unsigned int port;
	struct kedge_channel_opts o, opts;
	struct transport_peer peer;
	struct kedge_channel *ch;
	struct clofork sock;
	int rc;

	fill_opts(p, &o);
	rc = kedge__channel_opts(&opts, &o);
	if (!rc)
		rc = tcp_listen("127.0.0.1", "0", &opts, 0, &l);
	if (rc)
		bad(kedge_strerror(rc));
	port = tcp_listener_port(l);
	if (write(where, &port, sizeof(port)) != sizeof(port))
		bad("nobody reads the port");
	rc = tcp_listener_accept(l, MEET(p), &sock, &peer);
	if (!rc)
		rc = tcp_channel(&sock, &opts, &peer, &ch);
	if (!rc)
		use(ch, p, seed * 2 + 1);
	else if (p->harm == NONE)
		bad(kedge_strerror(rc));
	tcp_listener_close(l);
}

/* ---- the one between ---- */

struct flow {
	int from, to;
	uint64_t bytes;
	bool over;
};

/* Changes @n bytes at @in: returns how many are at @out, which has room for twice. */
static size_t harm(struct plan *p, struct flow *f, const uint8_t *in, size_t n,
		   uint8_t *out)
{
	size_t i, k = 0;

	for (i = 0; i < n; i++) {
		out[k++] = in[i];
		if (f->bytes++ < p->from || below(&p->rng, p->every))
			continue;
		switch (p->harm) {
		case FLIP:
			out[k - 1] ^= (uint8_t)(1u << below(&p->rng, 8));
			break;
		case LEAVE_OUT:
			k--;
			break;
		case ADD:
			out[k++] = (uint8_t)below(&p->rng, 256);
			break;
		case CUT:
			f->over = true;
			return k;
		default:
			break;
		}
	}
	return k;
}

static void pass_on(struct plan *p, struct flow *f)
{
	static uint8_t in[16384], out[2 * sizeof(in)];
	ssize_t n = recv(f->from, in, sizeof(in), 0);
	size_t len, at;

	if (n <= 0) {
		f->over = true;
		return;
	}
	len = harm(p, f, in, (size_t)n, out);
	for (at = 0; at < len; at += (size_t)n) {
		n = send(f->to, out + at, len - at, MSG_NOSIGNAL);
		if (n <= 0) {
			f->over = true;
			return;
		}
	}
}

/* Both may be so full that a send waits for a peer that waits for us. */
static void relay(struct plan *p, int one, int other)
{
	struct flow flow[2] = { { one, other, 0, false },
				{ other, one, 0, false } };
	struct timeval second = { 1, 0 };
	struct pollfd fds[2];
	size_t i;

	for (i = 0; i < 2; i++)
		setsockopt(flow[i].from, SOL_SOCKET, SO_SNDTIMEO, &second,
			   sizeof(second));
	while (!flow[0].over && !flow[1].over) {
		for (i = 0; i < 2; i++)
			fds[i] = (struct pollfd){ flow[i].from, POLLIN, 0 };
		if (!poll(fds, 2, p->harm == NONE ? -1 : QUIET_MS))
			test_clock_move_ms(MS);
		for (i = 0; i < 2; i++)
			if (fds[i].revents)
				pass_on(p, &flow[i]);
	}
}

static struct sockaddr_in local(unsigned int port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
}

static int listen_somewhere(unsigned int *port)
{
	struct sockaddr_in a = local(0);
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    listen(fd, 4) || getsockname(fd, (struct sockaddr *)&a, &len))
		bad("no socket");
	*port = ntohs(a.sin_port);
	return fd;
}

/* Either end has little time to meet the other: it may have given up already. */
static int accept_from(pid_t pid, int listening)
{
	struct pollfd f[2] = {
		{ .fd = listening, .events = POLLIN },
		{ .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN },
	};
	int one = -1;

	if (f[1].fd < 0)
		bad("no pidfd");
	while (poll(f, 2, -1) < 1)
		;
	if (f[0].revents)
		one = accept(listening, NULL, NULL);
	close(f[1].fd);
	return one;
}

static void stand_between(struct plan *p, int listening, pid_t client,
			  unsigned int port)
{
	const struct sockaddr_in a = local(port);
	int one = accept_from(client, listening);
	int other = socket(AF_INET, SOCK_STREAM, 0);

	if (other < 0)
		bad("no socket");
	if (one >= 0 && !connect(other, (const struct sockaddr *)&a, sizeof(a)))
		relay(p, one, other);
	else if (p->harm == NONE)
		bad("no connection");
	if (one >= 0)
		close(one);
	close(other);
}

/* ---- a seed ---- */

static void ends_well(pid_t pid, uint64_t seed, const char *who)
{
	int status;

	if (waitpid(pid, &status, 0) == pid && !status)
		return;
	fprintf(stderr, "seed %llu: %s: status 0x%x\n",
		(unsigned long long)seed, who, (unsigned int)status);
	exit(1);
}

static pid_t child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		bad("no process");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(HANGS);
	}
	return pid;
}

static void session(uint64_t seed)
{
	struct plan p = plan_of(seed);
	unsigned int near, far;
	int fd, where[2];
	pid_t a, b;

	if (pipe(where))
		bad("no pipe");
	fd = listen_somewhere(&near);
	a = child();
	if (!a) {
		accepts(&p, seed, where[1]);
		exit(0);
	}
	close(where[1]);
	if (read(where[0], &far, sizeof(far)) != sizeof(far))
		bad("no port");
	close(where[0]);
	b = child();
	if (!b) {
		connects(&p, seed, near);
		exit(0);
	}
	stand_between(&p, fd, b, far);
	close(fd);
	ends_well(a, seed, "who accepts");
	ends_well(b, seed, "who connects");
}

int main(int argc, char **argv)
{
	uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : 50;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, i;

	signal(SIGPIPE, SIG_IGN);
	test_clock_begin();
	for (i = 0; i < seeds; i++) {
		alarm(2 * HANGS);
		session(first + i);
	}
	printf("%llu connections\n", (unsigned long long)seeds);
	return 0;
}
