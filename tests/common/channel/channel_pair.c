// SPDX-License-Identifier: BSD-2-Clause
/* See channel_pair.h. */
#include <pthread.h>
#include <sys/socket.h>

#include <kedge/connector.h>
#include <kedge/tcp.h>

#include "channel/internal.h"
#include "channel_pair.h"
#include "clock.h"

#define MEET_MS 60000
#define MARK	(UINT64_C(0xfeed) << 48) /* a tag of no case */

struct end a, b;

/* ---- over shared memory ---- */

static int shm_open(struct meeting *m)
{
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m->sv);
}

static int shm_accept(struct meeting *m, struct kedge_channel **ch)
{
	return kedge_channel_open_fd(m->sv[1], m->opts, MEET_MS, ch);
}

static int shm_connect(struct meeting *m, const struct kedge_channel_opts *o,
		       struct kedge_channel **ch)
{
	return kedge_channel_open_fd(m->sv[0], o, MEET_MS, ch);
}

static void shm_forked(struct meeting *m, bool child)
{
	close(m->sv[child ? 1 : 0]);
}

static const struct meeting_ops shm_ops = {
	.open = shm_open,
	.accept = shm_accept,
	.connect = shm_connect,
	.forked = shm_forked,
};

/* ---- over TCP ---- */

static int tcp_open(struct meeting *m)
{
	char text[KEDGE_ADDRESS_MAX];
	int rc = kedge_listener_open_tcp("127.0.0.1", "0", m->opts, &m->l);

	if (rc)
		return rc;
	rc = kedge_listener_address(m->l, text, sizeof(text));
	snprintf(m->port, sizeof(m->port), "%s", strrchr(text, ':'));
	return rc;
}

static int tcp_accept(struct meeting *m, struct kedge_channel **ch)
{
	return kedge_listener_accept(m->l, MEET_MS, ch);
}

static int tcp_connect(struct meeting *m, const struct kedge_channel_opts *o,
		       struct kedge_channel **ch)
{
	return kedge_channel_open_tcp("127.0.0.1", m->port, o, MEET_MS, ch);
}

static void tcp_close(struct meeting *m)
{
	kedge_listener_close(m->l);
}

static const struct meeting_ops tcp_ops = {
	.open = tcp_open,
	.accept = tcp_accept,
	.connect = tcp_connect,
	.close = tcp_close,
};

const struct meeting_ops *meeting_ops[OVERS] = { &shm_ops, &tcp_ops };

/* ---- pairs ---- */

enum over pair_over(void)
{
	const char *over = getenv("TEST_CHANNEL_OVER");

	if (!over || !strcmp(over, "shm"))
		return OVER_SHM;
	return strcmp(over, "tcp") ? OVER_OFI : OVER_TCP;
}

void need_shm(const char *why)
{
	if (pair_over() == OVER_SHM)
		return;
	print_message("skipped: %s\n", why);
	skip();
}

int pair_missing(void)
{
	const struct meeting_ops *ops = meeting_ops[pair_over()];

	if (ops)
		return ops->missing ? ops->missing() : 0;
	printf("skipped: without libfabric\n");
	return 77;
}

int pair_begin(void)
{
	test_clock_begin();
	return pair_missing();
}

struct opening {
	struct meeting m;
	struct kedge_channel *ch;
	int rc;
};

static void *open_other(void *arg)
{
	struct opening *o = arg;

	o->rc = meeting_ops[pair_over()]->accept(&o->m, &o->ch);
	return NULL;
}

static const struct meeting_ops *begin(struct opening *o)
{
	const struct meeting_ops *ops = meeting_ops[pair_over()];

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	assert_int_equal(ops->open(&o->m), 0);
	return ops;
}

static void end_meeting(const struct meeting_ops *ops, struct meeting *m)
{
	if (ops->close)
		ops->close(m);
}

void open_pair(const struct kedge_channel_opts *oa,
	       const struct kedge_channel_opts *ob)
{
	struct opening other = { .m.opts = ob };
	const struct meeting_ops *ops = begin(&other);
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, open_other, &other), 0);
	assert_int_equal(ops->connect(&other.m, oa, &a.ch), 0);
	pthread_join(thread, NULL);
	assert_int_equal(other.rc, 0);
	b.ch = other.ch;
	end_meeting(ops, &other.m);
}

pid_t open_child(void (*fn)(struct kedge_channel *ch))
{
	struct opening o = { .ch = NULL };
	const struct meeting_ops *ops;
	struct kedge_channel *ch;
	pid_t pid;

	need_threads_after_fork();
	ops = begin(&o);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(CHILD_TIMEOUT);
		if (ops->forked)
			ops->forked(&o.m, true);
		CHILD_CHECK(!ops->connect(&o.m, NULL, &ch));
		fn(ch);
		_exit(0);
	}
	if (ops->forked)
		ops->forked(&o.m, false);
	assert_int_equal(ops->accept(&o.m, &b.ch), 0);
	end_meeting(ops, &o.m);
	return pid;
}

static void *run_close(void *arg)
{
	kedge_channel_close(arg);
	return NULL;
}

void close_a(void)
{
	struct timespec soon = { 0, 0 };
	pthread_t thread;

	if (pair_over() != OVER_OFI) {
		kedge_channel_close(a.ch);
	} else {
		assert_int_equal(pthread_create(&thread, NULL, run_close, a.ch), 0);
		while (pthread_timedjoin_np(thread, NULL, &soon)) {
			kedge_channel_poll(b.ch, NULL, 0);
			if (b.ch->dead)
				test_clock_move_ms(10);
		}
	}
	a.ch = NULL;
}

void close_unheard(struct end *e)
{
	if (pair_over() == OVER_OFI)
		test_clock_hurry(100);
	kedge_channel_close(e->ch);
	if (pair_over() == OVER_OFI)
		test_clock_rest();
	e->ch = NULL;
}

/* Side by side where each waits for the other. */
void close_pair(void)
{
	pthread_t thread;

	if (pair_over() != OVER_OFI || !a.ch || !b.ch) {
		kedge_channel_close(a.ch);
		kedge_channel_close(b.ch);
	} else {
		assert_int_equal(pthread_create(&thread, NULL, run_close, a.ch), 0);
		kedge_channel_close(b.ch);
		pthread_join(thread, NULL);
	}
	a.ch = b.ch = NULL;
}

/* ---- turns ---- */

ssize_t turn(struct end *e)
{
	ssize_t n = kedge_channel_poll(e->ch, e->done + e->cnt,
				       ARRAY_SIZE(e->done) - e->cnt);

	if (n > 0)
		e->cnt += (size_t)n;
	return n;
}

void turns(size_t on_a, size_t on_b)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;
	unsigned int n;

	for (n = 1; a.cnt < on_a || b.cnt < on_b; n++) {
		turn(&a);
		turn(&b);
		if (n % 4096 == 0 && now_ns() > end)
			break;
	}
	assert_int_equal(a.cnt, on_a);
	assert_int_equal(b.cnt, on_b);
}

/* True if @e has the completion of a mark, which it takes out. */
static bool take_mark(struct end *e, uint32_t flags)
{
	size_t i;

	for (i = 0; i < e->cnt; i++)
		if (e->done[i].tag == MARK && e->done[i].flags == flags)
			break;
	if (i == e->cnt)
		return false;
	memmove(e->done + i, e->done + i + 1, (--e->cnt - i) * sizeof(*e->done));
	return true;
}

/* Packets are in order: what @from had said is heard when this is. */
static void say_mark(struct end *from, struct end *to)
{
	bool sent, came = false;
	char in;

	post(to, &in, 1, TAG(MARK), 0);
	sent = put(from, "m", 1, MARK);
	while (!sent || !came) {
		turn(from);
		turn(to);
		sent = sent || take_mark(from, 0);
		came = came || take_mark(to, KEDGE_COMPLETION_RECV);
	}
}

void many_turns(void)
{
	int i;

	for (i = 0; i < 1000; i++) {
		turn(&a);
		turn(&b);
	}
	/* An abort, its answer, and the end of that; what the network has takes longer. */
	for (i = 0; i < 4 && pair_over() == OVER_OFI; i++) {
		say_mark(&a, &b);
		say_mark(&b, &a);
	}
}

/*
 * Byte i is i * 7 + i / 4096 * 13 + seed: within 4096 bytes that is a piece of a table, which
 * begins where 7 times the index is the first byte. (183 is the inverse of 7.) Pieces are
 * copied and compared by calls of libc, as sanitizers take their time for each byte here.
 */
#define PIECE 4096u

static char pattern[PIECE + 256];

__attribute__((constructor)) static void make_pattern(void)
{
	size_t i;

	for (i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)(i * 7);
}

static const char *piece(size_t i, unsigned int seed)
{
	return pattern + (uint8_t)((i / PIECE * 13 + seed) * 183);
}

static size_t piece_len(size_t i, size_t len)
{
	return len - i < PIECE ? len - i : PIECE;
}

void fill(char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i += PIECE)
		memcpy(p + i, piece(i, seed), piece_len(i, len));
}

bool is_filled(const char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i += PIECE)
		if (memcmp(p + i, piece(i, seed), piece_len(i, len)))
			return false;
	return true;
}

void post(struct end *e, void *buf, size_t len, uint64_t tag, uint64_t mask,
	  uint64_t user)
{
	assert_int_equal(kedge_channel_recv(e->ch, buf, len, tag, mask, user,
					    NULL), 0);
}

int put(struct end *e, const void *buf, size_t len, uint64_t tag)
{
	int rc = kedge_channel_send(e->ch, buf, len, tag, 77, NULL);

	assert_in_range(rc, 0, 1);
	return rc;
}
