// SPDX-License-Identifier: BSD-2-Clause
/*
 * A channel over shared memory whose two ends are threads of this process: random messages in
 * both directions at once, every byte looked at, by each way of receiving one after the other.
 * Between processes it is "kedge torture --channel" that does as much.
 *
 *	stress_channel COUNT
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <kedge/kedge.h>

#define WINDOW	 8
#define LEN_MAX	 ((size_t)4 << 20)
#define LIMIT_MS 60000 /* of what does not hang */

static const uint32_t ways[] = { KEDGE_WAY_AUTO, KEDGE_WAY_DIRECT,
				 KEDGE_WAY_SWAP, KEDGE_WAY_REGISTER,
				 KEDGE_WAY_COPY };

struct side {
	int fd;
	uint32_t way;
	uint64_t seed, cnt;
	int serve;
	struct kedge_channel *ch;
	char *out[WINDOW], *in[WINDOW]; /* of all kinds: */
	char *heap[2 * WINDOW], *mapped[2 * WINDOW];
	int out_busy[WINDOW], in_busy[WINDOW];
	uint64_t sent, send_done, posted, received;
};

#define DIE(...)                                                       \
	do {                                                           \
		fprintf(stderr, "stress_channel: " __VA_ARGS__);             \
		fputc('\n', stderr);                                   \
		exit(1);                                               \
	} while (0)

static uint64_t mix(uint64_t v)
{
	v += UINT64_C(0x9e3779b97f4a7c15);
	v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
	return v ^ v >> 31;
}

/* Of message @i in one direction. */
static uint64_t name_of(const struct side *s, int from_server, uint64_t i)
{
	return mix(s->seed * 2 + (uint64_t)from_server) + i;
}

static size_t len_of(uint64_t name)
{
	unsigned int bits = (unsigned int)(mix(name) % 23);

	return mix(name + 77) % (((size_t)1 << bits) + (bits & 1)) % LEN_MAX;
}

static void fill(char *to, size_t len, uint64_t name)
{
	uint64_t word;
	size_t i, n;

	for (i = 0; i < len; i += n) {
		n = len - i < 8 ? len - i : 8;
		word = name * UINT64_C(0x9e3779b97f4a7c15) ^ i;
		memcpy(to + i, &word, n);
	}
}

static void verify(const char *at, size_t len, uint64_t name)
{
	uint64_t word;
	size_t i, n;

	for (i = 0; i < len; i += n) {
		n = len - i < 8 ? len - i : 8;
		word = name * UINT64_C(0x9e3779b97f4a7c15) ^ i;
		if (memcmp(at + i, &word, n))
			DIE("message of %zu bytes is wrong at %zu", len, i);
	}
}

static void post(struct side *s)
{
	while (s->posted < s->cnt && !s->in_busy[s->posted % WINDOW]) {
		char *to = s->in[s->posted % WINDOW];
		int rc;

		memset(to, 0xdb, 64);
		rc = kedge_channel_recv(s->ch, to, LEN_MAX, s->posted,
					UINT64_MAX, s->posted, NULL);
		if (rc)
			DIE("recv: %s", kedge_strerror(rc));
		s->in_busy[s->posted++ % WINDOW] = 1;
	}
	while (s->sent < s->cnt && !s->out_busy[s->sent % WINDOW]) {
		uint64_t name = name_of(s, s->serve, s->sent);
		char *from = s->out[s->sent % WINDOW];
		int rc;

		fill(from, len_of(name), name);
		rc = kedge_channel_send(s->ch, from, len_of(name), s->sent,
					s->sent, NULL);
		if (rc < 0)
			DIE("send: %s", kedge_strerror(rc));
		s->out_busy[s->sent++ % WINDOW] = !rc;
		s->send_done += (uint64_t)rc;
	}
}

static void take(struct side *s, const struct kedge_completion *c)
{
	uint64_t name;

	if (c->status)
		DIE("message %llu: %s", (unsigned long long)c->tag,
		    kedge_strerror(c->status));
	if (!(c->flags & KEDGE_COMPLETION_RECV)) {
		s->send_done++;
		s->out_busy[c->user % WINDOW] = 0;
		return;
	}
	name = name_of(s, !s->serve, c->tag);
	if (c->len != len_of(name))
		DIE("message %llu has %llu bytes",
		    (unsigned long long)c->tag, (unsigned long long)c->len);
	verify(s->in[c->tag % WINDOW], c->len, name);
	s->in_busy[c->user % WINDOW] = 0;
	s->received++;
}

static void run(struct side *s)
{
	struct kedge_completion c[16];
	ssize_t i, n;

	post(s);
	while (s->send_done < s->cnt || s->received < s->cnt) {
		n = kedge_channel_poll(s->ch, c, 16);
		if (n < 0)
			DIE("poll: %s", kedge_strerror((int)n));
		for (i = 0; i < n; i++)
			take(s, &c[i]);
		/* Every other time by waiting. */
		if (!n && s->received & 1)
			kedge_channel_wait(s->ch, 1000);
		post(s);
	}
}

/* Of the channel, of malloc() at an odd place, or mapped: number @i of the side's. */
static char *buffer(struct side *s, int i)
{
	char *p;

	if (i % 3 == 0) {
		p = kedge_channel_alloc(s->ch, LEN_MAX);
		if (p)
			return p;
	}
	if (i % 3 == 1) {
		s->heap[i] = malloc(LEN_MAX + 64);
		if (!s->heap[i])
			DIE("no memory");
		return s->heap[i] + 16 * (i % 4);
	}
	p = mmap(NULL, LEN_MAX, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		DIE("no memory");
	s->mapped[i] = p;
	return p;
}

static void buffers_get(struct side *s)
{
	int i;

	for (i = 0; i < WINDOW; i++) {
		s->in[i] = buffer(s, i);
		s->out[i] = buffer(s, WINDOW + i);
	}
}

/* The channel's own are gone with that. */
static void close_side(struct side *s)
{
	int i;

	kedge_channel_close(s->ch);
	for (i = 0; i < 2 * WINDOW; i++) {
		free(s->heap[i]);
		if (s->mapped[i])
			munmap(s->mapped[i], LEN_MAX);
		s->heap[i] = s->mapped[i] = NULL;
	}
}

static _Atomic int sides_done;

static void *run_thread(void *arg)
{
	struct side *s = arg;
	struct kedge_channel_opts opts = { .size = sizeof(opts), .way = s->way };
	int rc = kedge_channel_open_fd(s->fd, &opts, LIMIT_MS, &s->ch);

	if (rc)
		DIE("open: %s", kedge_strerror(rc));
	buffers_get(s);
	run(s);
	/* The side that is done first goes on for the other. */
	atomic_fetch_add(&sides_done, 1);
	while (atomic_load(&sides_done) < 2)
		kedge_channel_poll(s->ch, NULL, 0);
	close_side(s);
	return NULL;
}

int main(int argc, char **argv)
{
	const uint64_t cnt = argc == 2 ? strtoull(argv[1], NULL, 0) : 0;
	pthread_t thread[2];
	struct side s[2];
	int sv[2], k;
	size_t i;

	if (!cnt)
		DIE("usage: stress_channel COUNT");
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
			DIE("socketpair");
		atomic_store(&sides_done, 0);
		for (k = 0; k < 2; k++) {
			s[k] = (struct side){ .seed = 5 + i, .cnt = cnt, .serve = k,
					      .fd = sv[k], .way = ways[i] };
			if (pthread_create(&thread[k], NULL, run_thread, &s[k]))
				DIE("no thread");
		}
		for (k = 0; k < 2; k++)
			pthread_join(thread[k], NULL);
		printf("%s: %llu messages each way, right\n",
		       kedge_way_name(ways[i]), (unsigned long long)cnt);
	}
	return 0;
}
