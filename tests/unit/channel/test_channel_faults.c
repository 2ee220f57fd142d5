// SPDX-License-Identifier: BSD-2-Clause
/*
 * Each step of opening a channel and a listener, and of sending and
 * receiving, made to fail in turn: a clear error or another way to do it,
 * nothing left behind, a peer that hears of it soon, and next time it works.
 */
#include "channel_pair.h"
#include "channel/internal.h"
#include "clock.h"
#include "fakes/faults.h"
#include "pages/landing.h"

#define SOON   (3000 * 1000000ull)
#define LONG   (2 * MIB)
#define SHORT  ((size_t)3000)
#define MSGS   3
#define MANY   100
#define IDLE   5000 /* turns in which nothing moves: it rests */

/* Of this process: several may run at a time. */
static char at[64];

static unsigned int fds, threads, contexts_kept;
static long live;
static char *out, *in;

static const struct kedge_channel_opts small = {
	.size = sizeof(small),
	.timeout_ms = 60000,
	.heap_bytes = 8 * MIB,
	.pool_bytes = 8 * MIB,
};

/* ---- two ends, one of which is another thread's ---- */

enum how { OPEN_FD, OPEN_SHM, ACCEPT };

struct peer {
	enum how how;
	int fd;
	struct kedge_listener *l;
	struct kedge_channel *ch;
	uint64_t took;
	int rc;
	atomic_bool alone; /* the other end has failed: nobody comes */
	atomic_bool back;  /* the other end's call has returned */
	pthread_t thread;
};

static int open_by(const struct peer *p, struct kedge_channel **ch)
{
	switch (p->how) {
	case OPEN_FD:
		return kedge_channel_open_fd(p->fd, &small, 2000, ch);
	case OPEN_SHM:
		return kedge_channel_open_shm(at, &small, 2000, ch);
	case ACCEPT:
		return kedge_listener_accept(p->l, 2000, ch);
	}
	return -EINVAL;
}

/* A listener keeps who is about to be accepted from one call to the next. */
static int accept_unless_alone(struct peer *p)
{
	bool alone;
	int rc;

	do {
		alone = atomic_load(&p->alone);
		rc = kedge_listener_accept(p->l, alone ? 0 : 300, &p->ch);
	} while (rc == -ETIMEDOUT && !alone);
	return rc;
}

static void *run_peer(void *arg)
{
	struct peer *p = arg;
	uint64_t since = now_ns();

	if (p->how == ACCEPT)
		p->rc = accept_unless_alone(p);
	else
		p->rc = open_by(p, &p->ch);
	p->took = now_ns() - since;
	/* Who waits for this one has its time out soon. */
	while (p->rc && p->how == OPEN_SHM && !atomic_load(&p->back)) {
		test_clock_move_ms(100);
		usleep(1000);
	}
	return NULL;
}

static void peer_starts(struct peer *p)
{
	assert_int_equal(pthread_create(&p->thread, NULL, run_peer, p), 0);
}

/* One that waits by a name for who never comes has its time out soon. */
static void peer_ends(struct peer *p, int failed)
{
	while (failed && p->how != OPEN_FD && pthread_tryjoin_np(p->thread, NULL)) {
		test_clock_move_ms(100);
		usleep(1000);
	}
	if (!failed || p->how == OPEN_FD)
		pthread_join(p->thread, NULL);
}

/* An errno to be expected, in more words than its own. */
static void says_why(int rc, int step)
{
	static const int known[] = { EMFILE, ENOMEM, EPERM, EACCES, EPROTO,
				     EADDRINUSE, EBADF, ETOOMANYREFS, EIO,
				     ENOBUFS, EAGAIN, ETIMEDOUT, ECONNRESET };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (rc == -known[i] &&
		    strcmp(kedge_strerror(rc), strerrordesc_np(-rc)))
			return;
	fail_msg("step %d, %s: %d, %s", step, fault_name(), rc,
		 kedge_strerror(rc));
}

/* ---- what is held, and that it works ---- */

static void begin(void)
{
	contexts_kept = fault_contexts();
	fds = open_fds() - fault_context_fds();
	threads = threads_now();
	live = fault_live();
}

static void nothing_is_left(int step)
{
	unsigned int now;

	if (fault_contexts() != contexts_kept)
		begin();
	/* Before what it may have open. */
	if (!threads_are(threads))
		fail_msg("step %d, %s: a thread", step, fault_name());
	now = open_fds() - fault_context_fds();
	if (now != fds)
		fail_msg("step %d, %s: %u descriptors, not %u", step,
			 fault_name(), now, fds);
	if (fault_live() != live)
		fail_msg("step %d, %s: %ld more allocations or mappings",
			 step, fault_name(), fault_live() - live);
}

/* A short and a long message. */
static void must_work(void)
{
	uint64_t end = clock_ns() + 3 * SOON;
	static unsigned int seed;

	seed++;
	a.cnt = b.cnt = 0;
	memset(out, (int)seed, LONG);
	memset(in, 0, 2 * LONG);
	post(&b, in, LONG, TAG(1), 0);
	post(&b, in + LONG, SHORT, TAG(2), 0);
	put(&a, out, LONG, 1);
	put(&a, out, SHORT, 2);
	while (a.cnt < 1 || b.cnt < 2) {
		assert_true(turn(&a) >= 0);
		assert_true(turn(&b) >= 0);
		assert_true(clock_ns() < end);
	}
	assert_int_equal(a.done[0].status, 0);
	assert_int_equal(b.done[0].status, 0);
	assert_int_equal(b.done[1].status, 0);
	assert_memory_equal(in, out, LONG);
	assert_memory_equal(in + LONG, out, SHORT);
	a.cnt = b.cnt = 0;
}

static void works_and_closes(struct kedge_channel *one,
			     struct kedge_channel *other)
{
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	a.ch = one;
	b.ch = other;
	must_work();
	close_pair();
}

/* ---- opening ---- */

/* The peer of an end that came to nothing is told, when it opens or later. */
static void hears_of_it(struct peer *p, int step)
{
	uint64_t end = clock_ns() + SOON;
	struct kedge_completion c;
	ssize_t n = p->rc;

	while (!p->rc && n >= 0 && clock_ns() < end)
		n = kedge_channel_poll(p->ch, &c, 1);
	if (n != -ECONNRESET && n != -ETIMEDOUT && n != -EPROTO)
		fail_msg("step %d, %s: the peer is told %zd", step,
			 fault_name(), n);
	if (!p->rc)
		kedge_channel_close(p->ch);
	else if (p->how == OPEN_FD)
		close(p->fd);
}

static bool open_with_a_fault(int step, struct peer *me, struct peer *other,
			      int *errors)
{
	struct kedge_channel *const before = (struct kedge_channel *)0x1;
	struct kedge_channel *ch = before;
	int rc, hit;

	other->ch = NULL;
	atomic_store(&other->alone, false);
	atomic_store(&other->back, false);
	peer_starts(other);
	fault_at(step);
	rc = open_by(me, &ch);
	hit = fault_hit();
	fault_at(0);
	atomic_store(&other->back, true);
	if (rc) {
		says_why(rc, step);
		assert_ptr_equal(ch, before);
		(*errors)++;
		atomic_store(&other->alone, true);
		/* The caller closes a socket that is of no use. */
		if (me->how == OPEN_FD)
			close(me->fd);
	}
	peer_ends(other, rc);
	if (other->took > SOON)
		fail_msg("step %d, %s: the peer waits", step, fault_name());
	if (!rc) {
		assert_int_equal(other->rc, 0);
		works_and_closes(ch, other->ch);
		return hit;
	}
	hears_of_it(other, step);
	open_pair(&small, &small);
	works_and_closes(a.ch, b.ch);
	return hit;
}

static void every_step_of_an_open_fd(void **state)
{
	struct peer me = { OPEN_FD }, other = { OPEN_FD };
	int sv[2], step = 0, errors = 0;
	bool hit;

	begin();
	do {
		step++;
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
		me.fd = sv[0];
		other.fd = sv[1];
		hit = open_with_a_fault(step, &me, &other, &errors);
		nothing_is_left(step);
	} while (hit);
	print_message("%d steps, %d of them needed\n", step - 1, errors);
	assert_true(errors > 20);
}

static void every_step_of(enum how mine, enum how others)
{
	struct peer me = { mine }, other = { others };
	struct kedge_listener *l = NULL;
	int step = 0, errors = 0;
	bool hit;

	begin();
	do {
		step++;
		assert_int_equal(kedge_listener_open_shm(at, &small, &l), 0);
		me.l = other.l = l;
		hit = open_with_a_fault(step, &me, &other, &errors);
		kedge_listener_close(l);
		nothing_is_left(step);
	} while (hit);
	print_message("%d steps, %d of them needed\n", step - 1, errors);
	assert_true(errors > 20);
}

static void every_step_of_an_accept(void **state)
{
	every_step_of(ACCEPT, OPEN_SHM);
}

static void every_step_of_an_open_shm(void **state)
{
	every_step_of(OPEN_SHM, ACCEPT);
}

static void every_step_of_a_listener(void **state)
{
	struct kedge_listener *const before = (struct kedge_listener *)0x1;
	char path[] = "/tmp/kedge-test-XXXXXX";
	int step = 0, errors = 0, rc, hit;
	struct kedge_listener *l;

	assert_ptr_not_equal(mkdtemp(path), NULL);
	assert_int_equal(chdir(path), 0);
	begin();
	do {
		step++;
		l = before;
		fault_at(step);
		rc = kedge_listener_open_shm("socket", &small, &l);
		hit = fault_hit();
		fault_at(0);
		if (rc) {
			says_why(rc, step);
			assert_ptr_equal(l, before);
			errors++;
		} else {
			kedge_listener_close(l);
		}
		nothing_is_left(step);
		assert_int_equal(access("socket", F_OK), -1);
	} while (hit);
	assert_int_equal(chdir("/"), 0);
	rmdir(path);
	print_message("%d steps, %d of them needed\n", step - 1, errors);
	assert_true(errors >= 5);
}

/* ---- sending and receiving ---- */

/* The outcome of a message at one of its ends. */
struct half {
	uint64_t op;
	int posted; /* what the call said: 1 is over at once */
	int status; /* of its completion; 1 is none yet */
};

static struct half sent[MSGS], received[MSGS];

static size_t len_of(size_t i)
{
	return i == 1 ? SHORT : LONG;
}

static void send_one(size_t i)
{
	struct half *h = &sent[i];

	h->posted = kedge_channel_send(a.ch, out, len_of(i), i, i, &h->op);
	assert_true(h->posted >= 0 || h->posted == -ENOMEM);
	h->status = h->posted == 1 ? 0 : 1;
}

static void recv_one(size_t i)
{
	struct half *h = &received[i];

	h->posted = kedge_channel_recv(b.ch, in + i * LONG, LONG, TAG(i), i,
				       &h->op);
	assert_true(!h->posted || h->posted == -ENOMEM);
	h->status = 1;
}

static bool take(struct end *e)
{
	struct half *h;
	size_t i;

	e->cnt = 0;
	assert_true(turn(e) >= 0);
	for (i = 0; i < e->cnt; i++) {
		h = e->done[i].flags & KEDGE_COMPLETION_RECV
			    ? &received[e->done[i].user]
			    : &sent[e->done[i].user];
		assert_int_equal(h->status, 1);
		h->status = e->done[i].status;
		assert_true(h->status <= 0);
	}
	return e->cnt;
}

/* Until it rests. */
static void let_run(void)
{
	int idle = 0;

	while (idle < IDLE) {
		bool took = take(&a);

		took |= take(&b);
		idle = took ? 0 : idle + 1;
		if (idle > IDLE / 2 && !a.ch->live_ops && !b.ch->live_ops)
			return;
	}
}

/* A side that waits for a message, or a receive, that never was, gives up. */
static void left_alone(struct kedge_channel *ch, struct half *h,
		       const struct half *other, int step)
{
	if (h->posted || h->status != 1)
		return;
	if (other->posted >= 0)
		fail_msg("step %d, %s: it hangs (%d)", step, fault_name(),
			 other->status);
	assert_int_equal(kedge_channel_cancel(ch, h->op), 0);
}

static int outcome(int step)
{
	int failed = 0;
	size_t i;

	for (i = 0; i < MSGS; i++) {
		if (sent[i].posted < 0 || received[i].posted < 0) {
			failed++;
			continue;
		}
		assert_true(sent[i].status <= 0 && received[i].status <= 0);
		failed += received[i].status < 0;
		if (received[i].status && received[i].status != -EFAULT)
			says_why(received[i].status, step);
		else if (received[i].status == 0 &&
			 (sent[i].status ||
			  memcmp(in + i * LONG, out, len_of(i))))
			fail_msg("step %d, %s: message %zu", step,
				 fault_name(), i);
	}
	return failed;
}

/* A long message for which a receive waits, a short and a long one that come
 * early; with as much as possible made anew, by opening a channel for it. */
static bool one_exchange(uint32_t way, int step, int *failed)
{
	struct kedge_channel_opts o = small;
	int hit, i;

	o.way = way;
	/* With a timer the peer's memory is not reached. */
	if (way != KEDGE_WAY_COPY)
		o.timeout_ms = 0;
	open_pair(&o, &o);
	/* Pages are made when a message has been seen, by the pool's thread or here. */
	for (i = 0; i < 50 && way == KEDGE_WAY_SWAP && !b.ch->st.swapped; i++)
		for (must_work(); landing_make();)
			;
	memset(out, 0x31 + step % 64, LONG);
	memset(in, 0, MSGS * LONG);
	madvise(in, MSGS * LONG, MADV_DONTNEED);
	fault_at(step);
	recv_one(0);
	for (i = 0; i < MSGS; i++)
		send_one((size_t)i);
	for (i = 0; i < 8; i++)
		take(&b);
	recv_one(1);
	recv_one(2);
	let_run();
	hit = fault_hit();
	fault_at(0);
	let_run();
	for (i = 0; i < MSGS; i++) {
		left_alone(a.ch, &sent[i], &received[i], step);
		left_alone(b.ch, &received[i], &sent[i], step);
	}
	let_run();
	*failed += outcome(step);
	if (a.ch->live_ops || b.ch->live_ops)
		fail_msg("step %d, %s: %u and %u operations never end", step,
			 fault_name(), a.ch->live_ops, b.ch->live_ops);
	must_work();
	close_pair();
	return hit;
}

static void every_step_of_messages(void **state)
{
	uint32_t way = *(const uint32_t *)*state;
	int step = 0, failed = 0;
	bool hit;

	one_exchange(way, 0, &failed);
	assert_int_equal(failed, 0);
	begin();
	do {
		step++;
		hit = one_exchange(way, step, &failed);
		nothing_is_left(step);
	} while (hit);
	print_message("way %u: %d steps, %d messages failed\n", way, step - 1,
		      failed);
	assert_true(step > 4);
}

/* More operations and completions than there is room for at first. An operation
 * that could not be posted can be posted again. */
static bool many_with_a_fault(int step, int *refused)
{
	uint64_t end = clock_ns() + 3 * SOON;
	static char to[MANY], from[MANY];
	size_t i, got = 0;
	int hit;

	open_pair(&small, &small);
	fault_at(step);
	for (i = 0; i < MANY; i++) {
		from[i] = (char)(step + i);
		if (!kedge_channel_recv(b.ch, to + i, 1, TAG(i), i, NULL))
			continue;
		(*refused)++;
		post(&b, to + i, 1, TAG(i), i);
	}
	hit = fault_hit();
	fault_at(0);
	for (i = 0; i < MANY; i++)
		assert_int_equal(put(&a, from + i, 1, i), 1);
	for (; got < MANY; got += b.cnt, b.cnt = 0)
		assert_true(turn(&b) >= 0 && clock_ns() < end);
	assert_memory_equal(to, from, MANY);
	must_work();
	close_pair();
	return hit;
}

static void every_step_of_many(void **state)
{
	int step = 0, refused = 0;
	bool hit;

	begin();
	do {
		step++;
		hit = many_with_a_fault(step, &refused);
		nothing_is_left(step);
	} while (hit);
	print_message("%d steps, %d refused\n", step - 1, refused);
	/* Two parts of a table, and completions. */
	assert_true(refused >= 5);
}

/* Makes the objects that are kept for the process. */
static int setup(void **state)
{
	int failed = 0;

	test_clock_begin();
	out = aligned_alloc(LONG, LONG);
	in = mmap(NULL, (MSGS + 1) * LONG, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!out || in == MAP_FAILED)
		return -1;
	in = (char *)round_up((uintptr_t)in, LONG);
	/* Objects that are kept for good are there from now on. */
	one_exchange(KEDGE_WAY_COPY, 0, &failed);
	one_exchange(KEDGE_WAY_AUTO, 0, &failed);
	one_exchange(KEDGE_WAY_SWAP, 0, &failed);
	return failed;
}

static int teardown(void **state)
{
	free(out);
	return 0;
}

#define BY_WAY(w) cmocka_unit_test_prestate(every_step_of_messages, (w))

int main(void)
{
	static uint32_t ways[] = { KEDGE_WAY_COPY, KEDGE_WAY_DIRECT,
				   KEDGE_WAY_REGISTER, KEDGE_WAY_SWAP,
				   KEDGE_WAY_AUTO };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_step_of_an_open_fd),
		cmocka_unit_test(every_step_of_an_accept),
		cmocka_unit_test(every_step_of_an_open_shm),
		cmocka_unit_test(every_step_of_a_listener),
		cmocka_unit_test(every_step_of_many),
		BY_WAY(&ways[0]),
		BY_WAY(&ways[1]),
		BY_WAY(&ways[2]),
		BY_WAY(&ways[3]),
		BY_WAY(&ways[4]),
	};

	snprintf(at, sizeof(at), "@kedge-test-faults-%d", (int)getpid());
	return cmocka_run_group_tests_name("channel_faults", tests, setup,
					   teardown);
}
