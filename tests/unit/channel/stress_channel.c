// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two threads, each with one end of a channel, send each other messages of
 * random lengths at the same time, into buffers of all kinds, and cancel some.
 * A message that completes without an error is whole.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/base.h"
#include "core.h"

#define WINDOW	 8
#define LEN_MAX	 ((size_t)5 << 20)

static uint32_t messages; /* each way */
static _Atomic int sides_done;

struct side {
	int fd;
	uint32_t way;
	uint64_t seed;
	uint32_t good;
	uint32_t bad;
	int failed; /* line */
};

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static size_t length_of(uint64_t i)
{
	uint64_t s = i * 0x9e3779b97f4a7c15u + 1;
	uint64_t r = next_random(&s);

	switch (r % 8) {
	case 0:
		return LEN_MAX - r / 8 % 5000;
	case 1:
		return 4096 * (r / 8 % 100);
	case 2:
	case 3:
		return r / 8 % 300000;
	}
	return r / 8 % 9000;
}

static void fill(char *p, size_t len, uint64_t i)
{
	size_t k;

	for (k = 0; k + 8 <= len; k += 8)
		memcpy(p + k, &(uint64_t){ i << 32 ^ k * 77 }, 8);
	for (; k < len; k++)
		p[k] = (char)i;
}

static bool is_filled(const char *p, size_t len, uint64_t i)
{
	uint64_t v;
	size_t k;

	for (k = 0; k + 8 <= len; k += 8) {
		memcpy(&v, p + k, 8);
		if (v != (i << 32 ^ k * 77))
			return false;
	}
	for (; k < len; k++)
		if (p[k] != (char)i)
			return false;
	return true;
}

struct slot {
	char *buf;
	uint64_t i;
	bool busy;
};

struct run {
	struct side *side;
	struct kedge_channel *ch;
	struct slot in[WINDOW];
	struct slot out[WINDOW];
	uint64_t sent, posted, done_in, done_out;
};

static char *new_buffer(struct run *r, int n)
{
	if (n % 3 == 0)
		return kedge_channel_alloc(r->ch, LEN_MAX);
	if (n % 3 == 1)
		return (char *)malloc(LEN_MAX + 64) + 16 * (n % 4);
	return mmap(NULL, LEN_MAX, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void free_buffer(int n, char *buf)
{
	if (n % 3 == 1)
		free(buf - 16 * (n % 4));
	else if (n % 3 == 2)
		munmap(buf, LEN_MAX);
}

static void post_some(struct run *r)
{
	struct slot *s = &r->in[r->posted % WINDOW];

	while (r->posted < messages && !s->busy) {
		s->busy = true;
		s->i = r->posted;
		if (kedge_channel_recv(r->ch, s->buf, LEN_MAX, s->i,
				       UINT64_MAX, s->i % WINDOW, NULL))
			r->side->failed = __LINE__;
		s = &r->in[++r->posted % WINDOW];
	}
}

static void send_some(struct run *r)
{
	struct slot *s = &r->out[r->sent % WINDOW];
	uint64_t op;
	int rc;

	while (r->sent < messages && !s->busy) {
		s->i = r->sent;
		fill(s->buf, length_of(s->i), s->i);
		rc = kedge_channel_send(r->ch, s->buf, length_of(s->i), s->i,
					WINDOW + s->i % WINDOW, &op);
		if (rc < 0)
			r->side->failed = __LINE__;
		s->busy = !rc;
		r->done_out += rc == 1;
		s = &r->out[++r->sent % WINDOW];
	}
}

static void finish(struct run *r, const struct kedge_completion *c)
{
	struct slot *s = c->flags & KEDGE_COMPLETION_RECV
				 ? &r->in[c->user] : &r->out[c->user - WINDOW];

	s->busy = false;
	if (c->status) {
		r->side->failed = __LINE__;
		return;
	}
	if (!(c->flags & KEDGE_COMPLETION_RECV)) {
		r->done_out++;
		return;
	}
	r->done_in++;
	if (c->len == length_of(s->i) && is_filled(s->buf, c->len, s->i))
		r->side->good++;
	else
		r->side->bad++;
}

static void *run_side(void *arg)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	struct kedge_completion c[4];
	struct run r = { .side = arg };
	ssize_t n, i;

	o.way = r.side->way;
	if (kedge_channel_open_fd(r.side->fd, &o, 20000, &r.ch)) {
		r.side->failed = __LINE__;
		return NULL;
	}
	for (i = 0; i < WINDOW; i++) {
		r.in[i].buf = new_buffer(&r, (int)i);
		r.out[i].buf = new_buffer(&r, (int)i + 1);
	}
	while (!r.side->failed &&
	       (r.done_in < messages || r.done_out < messages)) {
		post_some(&r);
		send_some(&r);
		n = kedge_channel_poll(r.ch, c, ARRAY_SIZE(c));
		if (n < 0)
			r.side->failed = __LINE__;
		for (i = 0; i < n; i++)
			finish(&r, &c[i]);
	}
	/* The side that is done first goes on for the other. */
	sides_done++;
	while (sides_done < 2)
		kedge_channel_poll(r.ch, c, 1);
	/* The channel's memory goes with it. */
	kedge_channel_close(r.ch);
	for (i = 0; i < WINDOW; i++) {
		free_buffer((int)i, r.in[i].buf);
		free_buffer((int)i + 1, r.out[i].buf);
	}
	return NULL;
}

static void both_ways(uint32_t way)
{
	struct side s[2] = { { .way = way }, { .way = way } };
	pthread_t t[2];
	int sv[2], i;

	sides_done = 0;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	for (i = 0; i < 2; i++) {
		s[i].fd = sv[i];
		assert_int_equal(pthread_create(&t[i], NULL, run_side, &s[i]),
				 0);
	}
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < 2; i++) {
		assert_int_equal(s[i].failed, 0);
		assert_int_equal(s[i].bad, 0);
		assert_int_equal(s[i].good, messages);
	}
}

static void threads_exchange_messages_by_any_way(void **state)
{
	both_ways(KEDGE_WAY_AUTO);
}

static void threads_exchange_messages_by_copies(void **state)
{
	both_ways(KEDGE_WAY_COPY);
}

static void threads_exchange_messages_by_page_swaps(void **state)
{
	both_ways(KEDGE_WAY_SWAP);
}

static void threads_exchange_messages_by_direct_reads(void **state)
{
	both_ways(KEDGE_WAY_DIRECT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_exchange_messages_by_any_way),
		cmocka_unit_test(threads_exchange_messages_by_copies),
		cmocka_unit_test(threads_exchange_messages_by_page_swaps),
		cmocka_unit_test(threads_exchange_messages_by_direct_reads),
	};

	messages = test_part(1000);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
