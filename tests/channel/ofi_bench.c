// SPDX-License-Identifier: BSD-2-Clause
/*
 * Bandwidth of one direction: kedge's channel over its own TCP transport, and the
 * same pattern by libfabric's own calls, as its fi_msg_bw and fi_rma_bw have it: so many
 * messages under way, buffers used again, and a word of the receiver at the
 * end. The connecting side sends and prints Gbit/s.
 *
 *	ofi_bench serve|connect kedge|msg|rma PROVIDER NODE PORT LEN COUNT WINDOW
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kedge/kedge.h>
#include <kedge/ofi.h>
#include <kedge/tcp.h>

#include "ofi_bench.h"

#define BATCH 16

static struct kedge_channel *open_end(const struct bench *b)
{
	struct kedge_channel *ch = NULL;
	struct kedge_listener *l;
	int rc, tries = 0;

	if (b->serve) {
		rc = kedge_listener_open_ofi(b->provider, b->node, b->port,
					     NULL, &l); /* "tcp" is our own */
		if (rc)
			BENCH_DIE("listen: %s", kedge_strerror(rc));
		rc = kedge_listener_accept(l, 20000, &ch);
		kedge_listener_close(l);
	} else {
		do {
			rc = kedge_channel_open_ofi(b->provider, b->node,
						    b->port, NULL, 5000, &ch);
			if (rc)
				usleep(20000);
		} while (rc && ++tries < 200);
	}
	if (rc)
		BENCH_DIE("open: %s", kedge_strerror(rc));
	return ch;
}

/* Completions, each of which frees a place in the window. */
static uint64_t take(struct kedge_channel *ch)
{
	struct kedge_completion c[BATCH];
	ssize_t i, n = kedge_channel_poll(ch, c, BATCH);

	if (n < 0)
		BENCH_DIE("poll: %s", kedge_strerror((int)n));
	for (i = 0; i < n; i++)
		if (c[i].status)
			BENCH_DIE("message: %s", kedge_strerror(c[i].status));
	return (uint64_t)n;
}

static void receive_all(const struct bench *b, struct kedge_channel *ch)
{
	uint64_t posted = 0, done = 0;
	int rc;

	while (done < b->cnt) {
		while (posted < b->cnt && posted < done + b->window) {
			rc = kedge_channel_recv(
				ch, b->buf + posted % b->window * b->len,
				b->len, 1, UINT64_MAX, 0, NULL);
			if (rc)
				BENCH_DIE("recv: %s", kedge_strerror(rc));
			posted++;
		}
		done += take(ch);
	}
	rc = kedge_channel_send(ch, "done", 4, 2, 0, NULL);
	if (rc < 0)
		BENCH_DIE("send: %s", kedge_strerror(rc));
	while (!rc)
		rc = (int)take(ch);
}

static void send_all(const struct bench *b, struct kedge_channel *ch)
{
	uint64_t posted = 0, done = 0;
	char word[4];
	int rc;

	while (done < b->cnt) {
		while (posted < b->cnt && posted < done + b->window) {
			rc = kedge_channel_send(
				ch, b->buf + posted % b->window * b->len,
				b->len, 1, 0, NULL);
			if (rc < 0)
				BENCH_DIE("send: %s", kedge_strerror(rc));
			posted++;
			done += (uint64_t)rc;
		}
		done += take(ch);
	}
	rc = kedge_channel_recv(ch, word, 4, 2, UINT64_MAX, 0, NULL);
	if (rc)
		BENCH_DIE("recv: %s", kedge_strerror(rc));
	while (!take(ch))
		;
}

double bench_kedge(const struct bench *b)
{
	struct kedge_channel *ch = open_end(b);
	struct bench warm = *b;
	double start;

	warm.cnt = b->window;
	if (b->serve) {
		receive_all(&warm, ch);
		start = now_sec();
		receive_all(b, ch);
	} else {
		send_all(&warm, ch);
		start = now_sec();
		send_all(b, ch);
	}
	start = now_sec() - start;
	kedge_channel_close(ch);
	return start;
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	double sec;

	if (argc != 9)
		BENCH_DIE("usage: serve|connect kedge|msg|rma PROVIDER NODE "
			  "PORT LEN COUNT WINDOW");
	b.serve = !strcmp(argv[1], "serve");
	b.provider = argv[3];
	b.node = argv[4];
	b.port = argv[5];
	b.len = strtoull(argv[6], NULL, 0);
	b.cnt = strtoull(argv[7], NULL, 0);
	b.window = (unsigned int)strtoul(argv[8], NULL, 0);
	if (!b.len || !b.cnt || !b.window || b.window > 64)
		BENCH_DIE("LEN, COUNT and WINDOW (up to 64) are numbers");
	b.buf = mmap(NULL, b.window * b.len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (b.buf == MAP_FAILED)
		BENCH_DIE("no memory");
	alarm(120);
	if (!strcmp(argv[2], "kedge"))
		sec = bench_kedge(&b);
	else
		sec = bench_raw(&b, !strcmp(argv[2], "rma"));
	if (!b.serve)
		printf("%.3f\n", (double)(b.len * b.cnt) * 8e-9 / sec);
	return 0;
}
