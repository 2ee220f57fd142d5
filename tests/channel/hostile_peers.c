// SPDX-License-Identifier: BSD-2-Clause
/*
 * An honest user of a channel with a hostile peer. For all that the peer does,
 * every operation ends once, in time, a completion fits its operation, no byte
 * beside the buffers changes, the channel leaves nothing, and the process lives.
 *
 * hostile_peers [SEEDS [FIRST]]
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "hostile.h"

#define OPS	 48u
#define EDGE	 64u
#define BYTE	 0x5a
#define MS_SEED	 30u
#define ENDS	 60u /* seconds for a seed, and then it hangs */
#define WITNESS	 (4u << 20)

struct op {
	bool busy, is_recv, is_heap;
	uint64_t op;
	uint8_t *base, *buf;
	size_t len;
};

struct honest {
	uint64_t seed;
	struct rng rng;
	struct kedge_channel *ch;
	struct op op[OPS];
	unsigned int live;
	uint64_t deadline;
};

/* The course of it, to see that it ran. */
static uint64_t ends[3], sent, received, failed;
static uint8_t *witness;

static void __attribute__((noreturn, format(printf, 2, 3)))
bad(const struct honest *h, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "seed %llu: ", (unsigned long long)h->seed);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	abort();
}

/* ---- buffers ---- */

static bool all_are(const uint8_t *at, size_t len)
{
	while (len--)
		if (*at++ != BYTE)
			return false;
	return true;
}

static void buffer_get(struct honest *h, struct op *o)
{
	o->is_heap = !below(&h->rng, 4);
	o->base = o->is_heap ? kedge_channel_alloc(h->ch, o->len + 2 * EDGE)
			     : NULL;
	if (!o->base) {
		o->is_heap = false;
		o->base = malloc(o->len + 2 * EDGE);
	}
	if (!o->base)
		bad(h, "no memory");
	o->buf = o->base + EDGE;
	memset(o->base, BYTE, EDGE);
	memset(o->buf + o->len, BYTE, EDGE);
	if (!o->is_recv)
		memset(o->buf, BYTE, o->len);
}

/* Bytes in the heap may be changed by the peer. */
static void buffer_check(struct honest *h, const struct op *o)
{
	if (o->is_heap)
		return;
	if (!all_are(o->base, EDGE) || !all_are(o->buf + o->len, EDGE))
		bad(h, "a byte beside a buffer of %zu has changed", o->len);
	if (!o->is_recv && !all_are(o->buf, o->len))
		bad(h, "a byte that was sent has changed");
}

static void buffer_put(struct honest *h, struct op *o)
{
	if (o->is_heap && h->ch)
		kedge_channel_free(h->ch, o->base);
	else if (!o->is_heap)
		free(o->base);
	o->base = NULL;
}

static void over(struct honest *h, struct op *o)
{
	buffer_check(h, o);
	buffer_put(h, o);
	o->busy = false;
	h->live--;
}

/* ---- what it does ---- */

static size_t length(struct honest *h)
{
	switch (below(&h->rng, 4)) {
	case 0:
		return below(&h->rng, 64);
	case 1:
		return below(&h->rng, 20000);
	}
	return below(&h->rng, 1u << 20);
}

static void post(struct honest *h)
{
	static const uint64_t masks[] = { UINT64_MAX, UINT64_MAX, 1, 0 };
	struct op *o = &h->op[below(&h->rng, OPS)];
	uint64_t tag = below(&h->rng, 8);
	int rc;

	if (o->busy)
		return;
	o->is_recv = below(&h->rng, 3);
	o->len = length(h);
	buffer_get(h, o);
	if (o->is_recv)
		rc = kedge_channel_recv(h->ch, o->buf, o->len, tag,
					masks[below(&h->rng, 4)],
					(uint64_t)(o - h->op), &o->op);
	else
		rc = kedge_channel_send(h->ch, o->buf, o->len, tag,
					(uint64_t)(o - h->op), &o->op);
	o->busy = true;
	h->live++;
	if (rc)
		over(h, o);
	if (rc < 0 && rc != -ECONNRESET && rc != -EPROTO)
		bad(h, "posting: %s", kedge_strerror(rc));
}

static void cancel(struct honest *h)
{
	struct op *o = &h->op[below(&h->rng, OPS)];
	int rc = o->busy ? kedge_channel_cancel(h->ch, o->op) : 0;

	if (rc && rc != -ENOENT)
		bad(h, "cancelling: %s", kedge_strerror(rc));
}

static ssize_t poll_once(struct honest *h)
{
	struct kedge_completion c[8];
	ssize_t n = kedge_channel_poll(h->ch, c, ARRAY_SIZE(c)), i;
	struct op *o;

	for (i = 0; i < n; i++) {
		o = &h->op[c[i].user];
		if (c[i].user >= OPS || !o->busy ||
		    o->is_recv != !!(c[i].flags & KEDGE_COMPLETION_RECV))
			bad(h, "an operation ends that there is not");
		if (!c[i].status && c[i].len > o->len)
			bad(h, "%llu bytes in a buffer of %zu",
			    (unsigned long long)c[i].len, o->len);
		received += o->is_recv && !c[i].status;
		sent += !o->is_recv && !c[i].status;
		failed += !!c[i].status;
		if (c[i].status > 0 || c[i].status < -4095)
			bad(h, "status %d", c[i].status);
		over(h, o);
	}
	return n;
}

static int use(struct honest *h)
{
	ssize_t n = 0;

	while (n >= 0 && clock_ns() < h->deadline) {
		post(h);
		if (!below(&h->rng, 8))
			cancel(h);
		n = poll_once(h);
		if (!n && !below(&h->rng, 16))
			kedge_channel_wait(h->ch, 1);
	}
	if (n < 0 && n != -ECONNRESET && n != -EPROTO)
		bad(h, "the channel ended: %s", kedge_strerror((int)n));
	if (n < 0 && h->live)
		bad(h, "the channel ended, and %u operations have not",
		    h->live);
	return (int)n;
}

/* ---- a session ---- */

static unsigned int entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;

	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static unsigned int areas(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:kedge-channel") != NULL;
	if (f)
		fclose(f);
	return n;
}

static void options(struct honest *h, struct kedge_channel_opts *o)
{
	static const uint32_t ways[] = { KEDGE_WAY_AUTO, KEDGE_WAY_DIRECT,
					 KEDGE_WAY_SWAP, KEDGE_WAY_COPY,
					 KEDGE_WAY_REGISTER };

	*o = (struct kedge_channel_opts){ .size = sizeof(*o) };
	o->way = ways[below(&h->rng, ARRAY_SIZE(ways))];
	o->unexpected_cnt = below(&h->rng, 2) ? 0
					      : 1 + (uint32_t)below(&h->rng, 8);
	o->timeout_ms = below(&h->rng, 3) ? 0 : 5;
	o->heap_bytes = 16u << 20;
	o->flags = below(&h->rng, 4) ? 0 : KEDGE_CHANNEL_NO_CMA;
}

static void finish(struct honest *h, pid_t pid, int rc)
{
	bool alive = !below(&h->rng, 64);
	unsigned int i;

	if (!alive)
		kill(pid, SIGKILL);
	kedge_channel_close(h->ch);
	h->ch = NULL;
	if (alive)
		kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (i = 0; i < OPS; i++)
		if (h->op[i].busy)
			over(h, &h->op[i]);
	if (!all_are(witness, WITNESS))
		bad(h, "memory that is in no operation has changed");
	ends[rc == -EPROTO ? 0 : rc == -ECONNRESET ? 1 : 2]++;
}

static void session(uint64_t seed)
{
	struct honest h = { .seed = seed, .rng = { seed * 2 + 1 } };
	struct kedge_channel_opts o;
	int sv[2], rc;
	pid_t pid;

	options(&h, &o);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		bad(&h, "socketpair: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		bad(&h, "fork: %s", strerror(errno));
	if (!pid) {
		close(sv[0]);
		hostile_peer(sv[1], seed);
	}
	close(sv[1]);
	rc = kedge_channel_open_fd(sv[0], &o, 60000, &h.ch);
	if (rc)
		bad(&h, "opening: %s", kedge_strerror(rc));
	h.deadline = clock_ns() + MS_SEED * 1000000u;
	finish(&h, pid, use(&h));
}

int main(int argc, char **argv)
{
	uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : 300;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, i;
	unsigned int fds = 0, threads = 0;

	witness = malloc(WITNESS);
	if (!witness)
		return 1;
	memset(witness, BYTE, WITNESS);
	for (i = 0; i < seeds; i++) {
		alarm(ENDS);
		session(first + i);
		/* The library and sanitizers keep some from the first ones
		 * on. */
		if (i == seeds / 2) {
			fds = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
		}
	}
	if (seeds > 1 && entries("/proc/self/fd") > fds + 3) {
		fprintf(stderr, "%u descriptors, not %u\n",
			entries("/proc/self/fd"), fds);
		return 1;
	}
	if (areas() || entries("/proc/self/task") > threads) {
		fprintf(stderr, "%u areas and %u threads are left\n", areas(),
			entries("/proc/self/task") - threads);
		return 1;
	}
	printf("%llu channels: %llu broken, %llu reset, %llu open to the end; "
	       "%llu received, %llu sent, %llu failed\n",
	       (unsigned long long)seeds, (unsigned long long)ends[0],
	       (unsigned long long)ends[1], (unsigned long long)ends[2],
	       (unsigned long long)received, (unsigned long long)sent,
	       (unsigned long long)failed);
	free(witness);
	return 0;
}
