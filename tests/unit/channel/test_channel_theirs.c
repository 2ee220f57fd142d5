// SPDX-License-Identifier: BSD-2-Clause
/*
 * The peer's segments, attached for messages: whose they may be, and what becomes of them when
 * the owner changes its memory. The owner is another program, so that this one may have threads.
 */
#include <dirent.h>

#include "channel/shm/internal.h"
#include "core.h"

#define LEN	 ((size_t)1 << 20)
#define WINDOW	 ((size_t)1 << 30) /* what is attached at once */
#define LONG_LEN (WINDOW + LEN / 2)

/* ---- the owner: its segment's id, then a byte for each change ---- */

enum { CHANGE = 'c', MAKE = 'm', LONG = 'l', END = 'e' };

static struct kedge_segment *share(char *p, size_t len)
{
	const struct kedge_segment_opts o = { .size = sizeof(o),
					      .backend = KEDGE_SEGMENT_CONVERT };
	struct kedge_segment_id id = { { 0, 0 } };
	struct kedge_segment *s = NULL;

	memset(p + len - LEN, 3, LEN);
	if (!kedge_segment_make(p, len, &o, &s))
		kedge_segment_id(s, &id);
	CHILD_CHECK(write(0, &id, sizeof(id)) == sizeof(id));
	return s;
}

static void own(void)
{
	char *p = mmap(NULL, LONG_LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct kedge_segment *s;
	char c = 0;

	CHILD_CHECK(p != MAP_FAILED);
	s = share(p, LEN);
	while (c != END) {
		CHILD_CHECK(read(0, &c, 1) == 1);
		if (c == CHANGE)
			madvise(p, LEN / 2, MADV_DONTNEED);
		if (c == MAKE || c == LONG) {
			kedge_segment_remove(s);
			s = share(p, c == MAKE ? LEN : LONG_LEN);
		} else {
			CHILD_CHECK(write(0, &c, 1) == 1);
		}
	}
	kedge_segment_remove(s);
}

/* ---- this side ---- */

static int sock;
static pid_t owner;
static struct shm s;
static struct segment_place place;

static bool hear_id(void)
{
	place = (struct segment_place){ .off = 0 };
	assert_int_equal(read(sock, &place.id, sizeof(place.id)), sizeof(place.id));
	return place.id.word[0];
}

static void owner_does(char c)
{
	assert_int_equal(write(sock, &c, 1), 1);
	if (c != MAKE && c != LONG)
		assert_int_equal(read(sock, &c, 1), 1);
}

static int begin(void **state)
{
	uint64_t nonce[2], at;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		return -1;
	owner = fork();
	if (!owner) {
		alarm(CHILD_TIMEOUT);
		dup2(sv[1], 0);
		execl("/proc/self/exe", "owner", "owner", NULL);
		_exit(1);
	}
	close(sv[1]);
	sock = sv[0];
	if (!hear_id()) {
		printf("skipped: memory cannot be converted here\n");
		exit(77);
	}
	s = (struct shm){ .pid = owner };
	return peer_table_get(nonce, &at) || peer_get(owner, sock, true, &s.peer);
}

static int end(void **state)
{
	int status;

	owner_does(END);
	theirs_close(&s);
	peer_put(s.peer);
	peer_table_put();
	close(sock);
	return waitpid(owner, &status, 0) != owner || status;
}

static bool is_there(size_t off, size_t len)
{
	const struct segment_place p = { place.id, off };

	return theirs_has(&s, &p, len);
}

static void until_there(size_t off, size_t len)
{
	WAIT_FOR(is_there(off, len));
}

/* Asked for once, and decided. */
static void ask_and_wait(void)
{
	is_there(0, LEN);
	WAIT_FOR(!theirs_asks(&s));
}

static void a_peers_segment_is_attached(void **state)
{
	struct theirs *t;
	char *at;

	until_there(0, LEN);
	t = theirs_use(&s, &place, LEN, false, &at);
	assert_non_null(t);
	assert_int_equal(at[0], 3);
	assert_int_equal(at[LEN - 1], 3);
	assert_true(theirs_valid(t));
	theirs_unuse(t);
}

static void a_part_beyond_it_is_not(void **state)
{
	until_there(0, LEN);
	assert_false(is_there(1, LEN));
	assert_false(is_there(LEN, 1));
	assert_false(is_there(UINT64_MAX, 2));
	WAIT_FOR(!theirs_asks(&s));
	assert_true(is_there(LEN - 1, 1));
}

static void a_third_process_is_not_reached(void **state)
{
	s.pid = getppid();
	ask_and_wait();
	assert_false(is_there(0, LEN));
	WAIT_FOR(!theirs_asks(&s));
	assert_false(is_there(0, LEN));
	WAIT_FOR(!theirs_asks(&s));
}

/* Used meanwhile, it is not given back; what it was asked for again has the rest. */
static void what_has_gone_is_not_valid(void **state)
{
	struct theirs *t;
	char *at;

	until_there(0, LEN);
	t = theirs_use(&s, &place, LEN, false, &at);
	assert_non_null(t);
	owner_does(CHANGE);
	assert_false(theirs_valid(t));
	assert_int_equal(at[LEN - 1], 3);
	assert_false(is_there(0, LEN));
	assert_false(theirs_asks(&s));
	theirs_unuse(t);
	until_there(LEN / 2, LEN / 2);
	assert_false(is_there(0, LEN));
	WAIT_FOR(!theirs_asks(&s));
}

/* After one, two, four, ... messages. */
static void what_is_refused_is_asked_for_seldom(void **state)
{
	unsigned int asked = 0, i;

	s.pid = getppid();
	for (i = 0; i < 100; i++) {
		is_there(0, LEN);
		asked += theirs_asks(&s);
		WAIT_FOR(!theirs_asks(&s));
	}
	assert_true(asked <= 8);
}

static bool has_thread(const char *name)
{
	char path[300], line[32];
	bool has = false;
	struct dirent *e;
	DIR *d = opendir("/proc/self/task");
	FILE *f;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "re");
		if (f && fgets(line, sizeof(line), f))
			has |= !strncmp(line, name, strlen(name));
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return has;
}

static void many_segments_have_room_for_some(void **state)
{
	unsigned int i;

	until_there(0, LEN);
	for (i = 0; i < THEIRS + 8; i++) {
		owner_does(MAKE);
		assert_true(hear_id());
		until_there(0, LEN);
	}
	/* Threads of ours have come and gone, and none of the program's. */
	assert_true(has_thread("kedge-segment"));
	assert_false(has_thread("kedge-keeper"));
}

static _Atomic int fails; /* the next call, of this thread */
static pthread_t tester;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
	if (pthread_equal(pthread_self(), tester) && atomic_exchange(&fails, 0))
		return EAGAIN;
	return __real_pthread_create(t, a, run, arg);
}

/* No thread is to be had: the message goes without, and a later one asks again. */
static void without_a_thread_it_is_asked_for_later(void **state)
{
	tester = pthread_self();
	atomic_store(&fails, 1);
	assert_false(is_there(0, LEN));
	assert_int_equal(atomic_load(&fails), 0);
	assert_false(theirs_asks(&s));
	until_there(0, LEN);
}

/* Where one window ends and the next begins. */
static void what_crosses_a_border_is_attached(void **state)
{
	const struct segment_place *at = &place;
	struct segment_place p;
	struct theirs *t;
	char *mem;

	owner_does(LONG);
	assert_true(hear_id());
	p = (struct segment_place){ at->id, LONG_LEN - LEN };
	until_there(p.off, LEN);
	t = theirs_use(&s, &p, LEN, false, &mem);
	assert_non_null(t);
	assert_int_equal(mem[0], 3);
	assert_int_equal(mem[LEN - 1], 3);
	theirs_unuse(t);
	assert_true(is_there(p.off, LEN));
	assert_false(theirs_asks(&s));
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(a_peers_segment_is_attached),
		CASE(a_part_beyond_it_is_not),
		CASE(a_third_process_is_not_reached),
		CASE(what_has_gone_is_not_valid),
		CASE(what_is_refused_is_asked_for_seldom),
		CASE(many_segments_have_room_for_some),
		CASE(what_crosses_a_border_is_attached),
		CASE(without_a_thread_it_is_asked_for_later),
	};

	if (argc > 1) {
		own();
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
