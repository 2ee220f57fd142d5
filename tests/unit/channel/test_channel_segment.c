// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages whose buffers are in segments: the other process attaches them, and what it copies
 * is what the owner has at that moment, whatever the owner does with that memory. The peer is
 * a process of its own, which answers each message with what it got.
 *
 * Segments are of converted memory, whether the module is loaded or not.
 */
#include <kedge/segment.h>

#include "channel/shm/internal.h"
#include "channel_child.h"
#include "clock.h"
#include "segment/place.h"
#include "fakes/wrapped.h"

#define LEN  ((size_t)1 << 20)
#define TAG  7
#define LAST 8 /* of the message that ends the peer */
#define HOLD 9 /* its answer is not finished, once the peer stores it by itself */

static struct kedge_listener *l;
static struct kedge_channel *ch;

/* ---- the buffers ---- */

static uint64_t *memory(void)
{
	uint64_t *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* Each case's own. */
static uint64_t *out, *in;

static int begin_case(void **state)
{
	out = memory();
	in = memory();
	return child_limit(state);
}

static int end_case(void **state)
{
	munmap(out, LEN);
	munmap(in, LEN);
	return 0;
}

/* ---- messages ---- */

static void finish(struct kedge_channel *on, struct kedge_completion *c)
{
	ssize_t n = 0;

	while (!n)
		n = wait_and_poll(on, c);
	CHILD_CHECK(n == 1);
	CHILD_CHECK(!c->status);
}

static void say(struct kedge_channel *on, const void *buf, size_t len, uint64_t tag)
{
	struct kedge_completion c;
	int rc = kedge_channel_send(on, buf, len, tag, 0, NULL);

	CHILD_CHECK(rc >= 0);
	if (!rc)
		finish(on, &c);
}

static uint64_t hear(struct kedge_channel *on, void *buf, size_t len)
{
	struct kedge_completion c;

	CHILD_CHECK(!kedge_channel_recv(on, buf, len, 0, 0, 0, NULL));
	finish(on, &c);
	CHILD_CHECK(c.len == len);
	return c.tag;
}

static uint64_t attached(struct kedge_channel *on)
{
	struct kedge_channel_stats st = { .size = sizeof(st) };

	assert_int_equal(kedge_channel_stats(on, &st), 0);
	return st.attached;
}

static void write_words(uint64_t *p, uint64_t seed)
{
	size_t i;

	for (i = 0; i < LEN / 8; i++)
		p[i] = seed + i;
}

static bool has_words(const uint64_t *p, uint64_t seed)
{
	size_t i;

	for (i = 0; i < LEN / 8 && p[i] == seed + i; i++)
		;
	return i == LEN / 8;
}

/* ---- a sender that is held up ---- */

static bool holds; /* this process's next look at where it has stored */
static char *stored;

WRAPPED(theirs_use);
WRAPPED(theirs_valid);

struct theirs *__wrap_theirs_use(struct shm *s, const struct segment_place *p, uint64_t len,
				 bool writes, char **at)
{
	struct theirs *t = __real_theirs_use(s, p, len, writes, at);

	stored = t && writes ? *at : NULL;
	return t;
}

/* It has claimed a chunk, which is not done; then it is told to go on, and stores. */
bool __wrap_theirs_valid(struct theirs *t)
{
	char c = 'h';

	if (holds && stored) {
		holds = false;
		CHILD_CHECK(write(child_sock[1], &c, 1) == 1 && read(child_sock[1], &c, 1) == 1);
		memset(stored, 0xee, LEN);
	}
	return __real_theirs_valid(t);
}

static bool is_held(void)
{
	char c;

	return recv(child_sock[0], &c, 1, MSG_DONTWAIT) == 1;
}

/* ---- the peer ---- */

static bool peer_shares; /* its buffer is a segment, too */

/* False: the channel has ended. */
static bool say_held_up(struct kedge_channel *on, const void *buf)
{
	struct kedge_completion c;
	ssize_t n = 0;

	holds = true;
	CHILD_CHECK(!kedge_channel_send(on, buf, LEN, HOLD, 0, NULL));
	while (!n)
		n = wait_and_poll(on, &c);
	holds = false;
	return n > 0 && c.status != -ECONNRESET;
}

static void echo(void)
{
	struct kedge_segment *s = NULL;
	struct kedge_channel *on;
	bool goes_on = true;
	uint64_t tag;
	char *buf;

	CHILD_CHECK(!kedge_channel_open_shm(child_path, NULL, LIMIT * 1000, &on));
	buf = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHILD_CHECK(buf != MAP_FAILED);
	if (peer_shares)
		CHILD_CHECK(!kedge_segment_make(buf, LEN, NULL, &s));
	do {
		tag = hear(on, buf, LEN);
		if (tag == HOLD)
			goes_on = say_held_up(on, buf);
		else
			say(on, buf, LEN, tag);
	} while (tag != LAST && goes_on);
	kedge_channel_close(on);
	kedge_segment_remove(s);
}

static pid_t begin(bool shares)
{
	pid_t pid;

	peer_shares = shares;
	assert_int_equal(kedge_listener_open_shm(child_path, NULL, &l), 0);
	pid = child_begin(echo);
	assert_int_equal(kedge_listener_accept(l, LIMIT * 1000, &ch), 0);
	return pid;
}

static void finish_peer(pid_t pid)
{
	say(ch, out, LEN, LAST);
	hear(ch, in, LEN);
	child_ends_well(pid);
	kedge_channel_close(ch);
	kedge_listener_close(l);
}

/* There and back: what comes back is what went. */
static void turn(uint64_t seed)
{
	write_words(out, seed);
	say(ch, out, LEN, TAG);
	hear(ch, in, LEN);
	assert_true(has_words(in, seed));
}

static const struct kedge_segment_opts converted = { .size = sizeof(converted),
						     .backend = KEDGE_SEGMENT_CONVERT };

static struct kedge_segment *share(void *p)
{
	struct kedge_segment *s;

	assert_int_equal(kedge_segment_make(p, LEN, &converted, &s), 0);
	return s;
}

/* Its thread has ended when a case makes a process. */
static int can_convert(void **state)
{
	struct segment_memos m = { .next = 0 };
	struct segment_place place;
	uint64_t *p = memory();
	struct kedge_segment *s;
	int rc = kedge_segment_make(p, LEN, &converted, &s);
	bool shown = !rc && segment_place(&m, p, LEN, &place);

	segment_memos_fini(&m);
	if (!rc)
		kedge_segment_remove(s);
	munmap(p, LEN);
	if (shown)
		return 0;
	printf("skipped: %s\n", rc ? kedge_strerror(rc)
				    : "PROCMAP_QUERY is of Linux 6.11");
	exit(77);
}

/* Turns until the peer copies by what it has attached, or this side does. */
static void until_attached(struct kedge_segment *s, uint64_t *seed)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	uint64_t was = attached(ch);

	do {
		turn(++*seed);
		assert_int_equal(kedge_segment_info(s, &i), 0);
	} while (!i.grants && attached(ch) == was);
}

/* ---- cases ---- */

static void a_senders_segment_is_copied_from(void **state)
{
	uint64_t seed = 1;
	pid_t pid = begin(false);
	struct kedge_segment *s = share(out);

	until_attached(s, &seed);
	turn(1000);
	turn(2000);
	finish_peer(pid);
	kedge_segment_remove(s);
}

static void both_sides_have_segments(void **state)
{
	uint64_t seed = 1;
	pid_t pid = begin(true);
	struct kedge_segment *s = share(out), *t = share(in);

	while (!attached(ch))
		turn(++seed);
	turn(1000);
	finish_peer(pid);
	kedge_segment_remove(s);
	kedge_segment_remove(t);
}

/* The peer's segment is stored into while it reads, so both processors copy. */
static void a_sender_stores_a_part(void **state)
{
	uint64_t seed = 1, was, stored_by_it;
	pid_t pid = begin(true);

	do {
		write_words(out, ++seed);
		was = attached(ch);
		say(ch, out, LEN, TAG);
		stored_by_it = attached(ch) - was;
		hear(ch, in, LEN);
		assert_true(has_words(in, seed));
	} while (!stored_by_it);
	assert_true(stored_by_it <= LEN);
	finish_peer(pid);
}

/* True: the peer has claimed a chunk of the message to @in, and is held up amid it. */
static bool is_held_up(uint64_t seed, uint64_t *name)
{
	struct kedge_completion c;
	ssize_t n;

	write_words(out, seed);
	say(ch, out, LEN, HOLD);
	assert_int_equal(kedge_channel_recv(ch, in, LEN, 0, 0, 0, name), 0);
	for (;;) {
		if (is_held())
			return true;
		n = kedge_channel_poll(ch, &c, 1);
		assert_true(n >= 0);
		if (n)
			return false;
		/* The sender has time to claim a chunk, on one processor, too. */
		usleep(100);
	}
}

static void let_it_go_on(void)
{
	assert_int_equal(write(child_sock[0], "g", 1), 1);
}

struct scene {
	struct kedge_segment *segment;
	uint64_t seed;
	uint64_t name; /* of the receive */
	pid_t pid;
};

/* A message into @in is under way, and its sender is held up. */
static void hold_up(struct scene *s)
{
	*s = (struct scene){ .seed = 1 };
	s->pid = begin(false);
	s->segment = share(in);
	while (!is_held_up(++s->seed, &s->name))
		;
}

/* Memory that became private meanwhile: the receiver copies that chunk. */
static void what_is_stored_in_vain_is_copied_again(void **state)
{
	struct kedge_completion c;
	struct scene s;
	pid_t child;

	hold_up(&s);
	child = fork();
	if (!child)
		_exit(0);
	child_ends_well(child);
	let_it_go_on();
	finish(ch, &c);
	assert_true(has_words(in, s.seed));
	finish_peer(s.pid);
	kedge_segment_remove(s.segment);
}

static void a_cancelled_receive_waits_for_the_store(void **state)
{
	struct kedge_completion c;
	struct scene s;
	int i;

	hold_up(&s);
	assert_int_equal(kedge_channel_cancel(ch, s.name), 0);
	for (i = 0; i < 100; i++)
		assert_int_equal(kedge_channel_poll(ch, &c, 1), 0);
	let_it_go_on();
	while (!kedge_channel_poll(ch, &c, 1))
		;
	assert_int_equal(c.status, -ECANCELED);
	finish_peer(s.pid);
	kedge_segment_remove(s.segment);
}

/* The channel ends, and the buffer is the program's; the peer goes on then. */
static void what_is_stored_late_is_nobodys(void **state)
{
	struct scene s;

	hold_up(&s);
	test_clock_begin();
	test_clock_hurry(100);
	kedge_channel_close(ch);
	test_clock_rest();
	test_clock_end();
	write_words(in, 5);
	let_it_go_on();
	child_ends_well(s.pid);
	assert_true(has_words(in, 5));
	kedge_listener_close(l);
	kedge_segment_remove(s.segment);
	assert_true(has_words(in, 5));
}

/* The program does to its buffer what it may between two messages, and knows where it is then:
 * another thread may have taken the addresses that were unmapped. */
static uint64_t *change(uint64_t *p, unsigned int how)
{
	void *q = p;

	switch (how) {
	case 0:
		munmap(p, LEN);
		q = mmap(p, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(q, MAP_FAILED);
		return q;
	case 1:
		madvise(p, LEN, MADV_DONTNEED);
		break;
	case 2: /* in part */
		madvise((char *)p + LEN / 2, LEN / 4, MADV_DONTNEED);
		break;
	case 3:
		q = mmap(p, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		assert_ptr_equal(q, p);
	}
	return q;
}

static void what_changes_is_never_old(void **state)
{
	uint64_t seed = 1;
	struct kedge_segment *s, *t;
	pid_t pid = begin(true);
	unsigned int how;

	for (how = 0; how < 8; how++) {
		s = share(out);
		t = share(in);
		until_attached(s, &seed);
		if (how < 4)
			out = change(out, how % 4);
		else
			in = change(in, how % 4);
		turn(seed += 1000);
		turn(seed += 1000);
		kedge_segment_remove(s);
		kedge_segment_remove(t);
		turn(seed += 1000);
	}
	finish_peer(pid);
}

/* ---- while messages are under way ---- */

static _Atomic bool stops;

static void *fork_and_fork(void *arg)
{
	pid_t pid;

	while (!atomic_load(&stops)) {
		pid = fork();
		if (!pid)
			_exit(0);
		if (pid > 0)
			waitpid(pid, NULL, 0);
		usleep(500);
	}
	return arg;
}

static void *make_and_remove(void *arg)
{
	struct kedge_segment *s;

	while (!atomic_load(&stops)) {
		if (!kedge_segment_make(arg, LEN, NULL, &s))
			kedge_segment_remove(s);
		usleep(500);
	}
	return NULL;
}

static void while_another_thread(void *(*does)(void *), bool shared)
{
	uint64_t seed = 1;
	pid_t pid = begin(true);
	struct kedge_segment *s = share(out), *t = shared ? share(in) : NULL;
	pthread_t thread;
	int i;

	atomic_store(&stops, false);
	assert_int_equal(pthread_create(&thread, NULL, does, in), 0);
	for (i = 0; i < 40; i++)
		turn(seed += 1000);
	atomic_store(&stops, true);
	pthread_join(thread, NULL);
	finish_peer(pid);
	kedge_segment_remove(s);
	kedge_segment_remove(t);
}

static void another_thread_forks(void **state)
{
	while_another_thread(fork_and_fork, true);
}

static void another_thread_makes_and_removes(void **state)
{
	while_another_thread(make_and_remove, false);
}

static void a_peer_that_dies_is_told(void **state)
{
	uint64_t seed = 1;
	pid_t pid = begin(true);
	struct kedge_segment *s = share(out);
	struct kedge_completion c;
	ssize_t n = 0;

	until_attached(s, &seed);
	assert_int_equal(kedge_channel_recv(ch, in, LEN, 0, 0, 0, NULL), 0);
	child_kill(pid);
	while (n >= 0)
		n = wait_and_poll(ch, &c);
	assert_int_equal(n, -ECONNRESET);
	kedge_channel_close(ch);
	kedge_listener_close(l);
	kedge_segment_remove(s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_case, end_case)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_senders_segment_is_copied_from),
		TEST(both_sides_have_segments),
		TEST(a_sender_stores_a_part),
		TEST(what_is_stored_in_vain_is_copied_again),
		TEST(a_cancelled_receive_waits_for_the_store),
		TEST(what_is_stored_late_is_nobodys),
		TEST(what_changes_is_never_old),
		TEST(another_thread_forks),
		TEST(another_thread_makes_and_removes),
		TEST(a_peer_that_dies_is_told),
	};

	return cmocka_run_group_tests(tests, can_convert, NULL);
}
