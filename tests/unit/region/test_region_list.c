// SPDX-License-Identifier: BSD-2-Clause
/* Lists of regions: what they show, and to whom. */
#include <sys/resource.h>

#include "listed.h"
#include "target.h"

#define MANY	 200 /* regions: more than three packets have */
#define HANDLES	 300 /* more than are gone through */
#define PIECES	 ((size_t)1 << 20) /* an access of four pieces */
#define CROWD	 10000

/* ---- what is listed ---- */

static void each_region_is_there_as_it_is(void **state)
{
	const struct kedge_region_opts o = { .size = sizeof(o), .max_len = 4 * LEN };
	struct listed_regions l = { NULL, 0 };
	struct kedge_region *other;
	struct kedge_region_entry *e;
	char *at;

	at = region_at();
	assert_int_equal(kedge_region_create(2 * LEN, &o, &other), 0);
	kedge_region_budget_set(64 * LEN);
	list_of(getpid(), &l);
	kedge_region_budget_set(UINT64_MAX);
	assert_int_equal(l.cnt, 2);
	e = l.e[0].addr == (uintptr_t)at ? &l.e[0] : &l.e[1];
	assert_int_equal(e->addr, (uintptr_t)at);
	assert_int_equal(e->status, 0);
	assert_int_equal(e->pid, getpid());
	assert_int_equal(e->uid, geteuid());
	assert_int_equal(e->gid, getegid());
	assert_int_equal(e->state, KEDGE_REGION_HERE);
	assert_int_equal(e->len, LEN);
	assert_int_equal(e->page_size, sysconf(_SC_PAGESIZE));
	assert_int_equal(e->handles, 1);
	assert_int_equal(e->mapped + e->local + e->tcp, 1);
	assert_int_equal(e->mapped, !way->served);
	assert_int_equal(e->budget_limit, 64 * LEN);
	assert_int_equal(e->budget_used, 3 * LEN);
	e = &l.e[e == l.e];
	assert_int_equal(e->len, 2 * LEN);
	assert_int_equal(e->max_len, 4 * LEN);
	assert_int_equal(e->handles, 0);
	assert_int_equal(e->mapped + e->local + e->tcp, 0);
	assert_int_equal(e->budget_limit, 64 * LEN);
	assert_string_equal(e->to, "");
	assert_int_equal(kedge_region_grow(other, 3 * LEN), 0);
	assert_int_equal(kedge_region_trim(region, LEN / 2), 0);
	list_of(getpid(), &l);
	assert_int_equal(l.e[0].len + l.e[1].len, 3 * LEN + LEN / 2);
	kedge_region_close(other);
	assert_int_equal(only().len, LEN / 2);
	assert_int_equal(only().budget_limit, UINT64_MAX);
	free(l.e);
}

static void what_was_done_with_it_is_counted(void **state)
{
	struct kedge_region_entry e;
	struct kedge_handle more;

	begin_remote(NULL);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(only().suspended, 2);
	assert_int_equal(kedge_region_resume(region), 0);
	assert_int_equal(kedge_region_resume(region), 0);
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	/* A move is no suspension of the program's, nor is a change of the length. */
	assert_int_equal(kedge_region_trim(region, LEN / 2), 0);
	assert_int_equal(kedge_region_advertise(region, NULL, &more), 0);
	assert_int_equal(only().handles, 2);
	assert_int_equal(kedge_region_revoke(region, &more), 0);
	e = only();
	assert_int_equal(e.suspended, 0);
	assert_int_equal(e.suspensions, 2);
	assert_int_equal(e.moves, 1);
	assert_int_equal(e.handles, 1);
	assert_int_equal(e.revoked, 1);
	assert_int_equal(e.expired, 0);
	assert_int_equal(e.migrations, 0);
	kedge_remote_close(remote);
	WAIT_FOR(only().mapped + only().local + only().tcp == 0);
	kedge_region_close(region);
}

static void what_its_program_has_unmapped_is_told(void **state)
{
	munmap(region_at() + page_len(), page_len());
	assert_int_equal(only().missing,
			 query(region).flags & KEDGE_REGION_WATCHED ? page_len() : 0);
	assert_int_equal(kedge_region_recommit(region, 0, 0, NULL), 0);
	assert_int_equal(only().missing, 0);
}

static void expired_handles_are_told_unless_they_are_many(void **state)
{
	const struct kedge_handle_opts o = { .size = sizeof(o), .expires_ms = 1 };
	struct kedge_handle h;
	int i;

	make_region(LEN, NULL);
	assert_int_equal(kedge_region_advertise(region, &o, &h), 0);
	WAIT_FOR(only().expired == 1);
	assert_int_equal(only().handles, 2);
	for (i = 2; i < HANDLES; i++)
		assert_int_equal(kedge_region_advertise(region, NULL, &h), 0);
	assert_int_equal(only().handles, HANDLES);
	assert_int_equal(only().expired, KEDGE_REGION_UNKNOWN);
	kedge_region_close(region);
}

/* Those that the owner does, by each way; an access of several pieces is one. */
static void accesses_that_the_owner_does_are_counted(void **state)
{
	const struct kedge_handle_opts by_stream = { .size = sizeof(by_stream),
						     .flags = KEDGE_HANDLE_SERVED };
	const struct kedge_handle_opts by_tcp = { .size = sizeof(by_tcp), .node = "127.0.0.1",
						  .flags = KEDGE_HANDLE_SERVED };
	struct kedge_remote *stream, *tcp, *mapped;
	static char bytes[PIECES];
	struct kedge_region_entry e;
	uint64_t old;

	assert_int_equal(kedge_region_create(PIECES, NULL, &region), 0);
	assert_int_equal(kedge_region_advertise(region, NULL, &handle), 0);
	mapped = open_it();
	assert_int_equal(kedge_region_advertise(region, &by_stream, &handle), 0);
	stream = open_it();
	assert_int_equal(kedge_region_advertise(region, &by_tcp, &handle), 0);
	handle.bytes[16] ^= 1; /* as if it were of another host */
	tcp = open_it();
	assert_int_equal(kedge_remote_put(mapped, 0, bytes, PIECES, SOON_MS), 0);
	e = only();
	assert_int_equal(e.mapped, 1);
	assert_int_equal(e.local, 1);
	assert_int_equal(e.tcp, 1);
	assert_int_equal(e.served, 0);
	assert_int_equal(kedge_remote_put(stream, 0, bytes, PIECES, SOON_MS), 0);
	assert_int_equal(kedge_remote_get(tcp, 0, bytes, 10, SOON_MS), 0);
	assert_int_equal(kedge_remote_fetch_add(tcp, 0, 1, &old, SOON_MS), 0);
	assert_int_equal(kedge_remote_get(stream, PIECES, bytes, 1, SOON_MS), -EFAULT);
	remote_len(stream);
	e = only();
	assert_int_equal(e.served, 3);
	assert_int_equal(e.served_bytes, PIECES + 10 + 8);
	kedge_remote_close(mapped);
	kedge_remote_close(stream);
	kedge_remote_close(tcp);
	kedge_region_close(region);
}

/* ---- states ---- */

static void *moves(void *unused)
{
	return (void *)(intptr_t)kedge_region_move(region, NULL, -1, NULL);
}

/* A peer that is inside is shown, and a move that waits for it. */
static void a_region_that_moves_says_so(void **state)
{
	pthread_t thread;
	struct gate *g;
	void *rc;

	sig_lock(&shares_lock);
	g = list_entry(region->conns.next, struct conn, of_region)->gate;
	sig_unlock(&shares_lock);
	assert_int_equal(only().inside, 0);
	atomic_fetch_add(&g->inside, 3);
	assert_int_equal(only().inside, 1); /* a peer: how often is its word */
	assert_int_equal(pthread_create(&thread, NULL, moves, NULL), 0);
	WAIT_FOR(only().state == KEDGE_REGION_MOVING && only().suspended == 1);
	atomic_fetch_sub(&g->inside, 3);
	pthread_join(thread, &rc);
	assert_int_equal((intptr_t)rc, 0);
	assert_int_equal(only().state, KEDGE_REGION_HERE);
	assert_int_equal(only().moves, 1);
}

struct route {
	struct kedge_invitation *invitation;
	struct kedge_region *next;
	struct listed_regions seen; /* before the last round */
	bool refuses;
	int rc;
};

static void *accepts(void *arg)
{
	struct route *w = arg;

	w->rc = kedge_invitation_accept(w->invitation, SOON_MS, &w->next);
	return NULL;
}

static int looks(void *arg)
{
	struct route *w = arg;

	if (list_within(getpid(), SOON_MS, &w->seen))
		return -EIO;
	return w->refuses ? -ECANCELED : 0;
}

static int go(struct route *w, const char *node)
{
	const struct kedge_invitation_opts i = { .size = sizeof(i), .node = node };
	const struct kedge_migrate_opts o = { .size = sizeof(o), .freeze = looks, .arg = w };
	struct kedge_handle h;
	pthread_t thread;
	int rc;

	assert_int_equal(kedge_invitation_open(&i, &w->invitation, &h), 0);
	assert_int_equal(pthread_create(&thread, NULL, accepts, w), 0);
	rc = migrate_patiently(region, &h, &o, NULL);
	pthread_join(thread, NULL);
	return rc;
}

static const struct kedge_region_entry *in_state(const struct listed_regions *l, uint32_t state)
{
	size_t i;

	for (i = 0; i < l->cnt; i++)
		if (l->e[i].state == state)
			return &l->e[i];
	fail_msg("none is in state %u", state);
	return NULL;
}

static void a_region_that_migrates_says_so_and_where_to(void **state)
{
	struct route w = { .refuses = true };
	struct listed_regions l = { NULL, 0 };
	const struct kedge_region_entry *e;

	make_region(LEN, NULL);
	assert_int_equal(go(&w, NULL), -ECANCELED);
	assert_int_equal(w.seen.cnt, 2);
	assert_int_equal(in_state(&w.seen, KEDGE_REGION_MIGRATING)->len, LEN);
	assert_int_equal(in_state(&w.seen, KEDGE_REGION_COMING)->len, LEN);
	kedge_invitation_close(w.invitation);
	assert_int_equal(only().state, KEDGE_REGION_HERE);
	assert_int_equal(only().migrations, 1);
	w.refuses = false;
	assert_int_equal(go(&w, "127.0.0.1"), 0);
	list_of(getpid(), &l);
	assert_int_equal(l.cnt, 2);
	e = in_state(&l, KEDGE_REGION_LEFT);
	assert_int_equal(e->len, 0);
	assert_int_equal(e->handles, 0);
	assert_int_equal(e->migrations, 2);
	assert_int_equal(e->to_pid, getpid());
	assert_int_equal(strncmp(e->to, "127.0.0.1:", 10), 0);
	e = in_state(&l, KEDGE_REGION_HERE);
	assert_int_equal(e->handles, 1);
	assert_int_equal(e->len, LEN);
	assert_int_equal(e->migrations, 1);
	kedge_region_close(region);
	assert_int_equal(only().addr, e->addr);
	kedge_region_close(w.next);
	kedge_invitation_close(w.invitation);
	free(w.seen.e);
	free(l.e);
}

/* ---- many ---- */

static struct kedge_region *many[MANY];

static void make_many(void)
{
	const struct kedge_region_opts o = { .size = sizeof(o), .max_len = 1 };
	int i;

	for (i = 0; i < MANY; i++)
		assert_int_equal(kedge_region_create(1, &o, &many[i]), 0);
	assert_int_equal(kedge_region_advertise(many[0], NULL, &handle), 0);
}

static void close_many(void)
{
	int i;

	for (i = 0; i < MANY; i++)
		kedge_region_close(many[i]);
}

static void many_regions_are_in_order_and_each_is_there_once(void **state)
{
	struct listed_regions l = { NULL, 0 };
	size_t i;

	make_many();
	list_of(getpid(), &l);
	assert_int_equal(l.cnt, MANY);
	for (i = 1; i < MANY; i++)
		assert_true(l.e[i - 1].addr < l.e[i].addr);
	for (i = 0; i < MANY - LIST_ITEMS; i++) {
		kedge_region_close(many[i]);
		many[i] = NULL;
	}
	if (!many[0])
		assert_int_equal(kedge_region_advertise(many[MANY - 1], NULL, &handle), 0);
	list_of(getpid(), &l);
	assert_int_equal(l.cnt, LIST_ITEMS); /* one that is full, and no more */
	close_many();
	free(l.e);
}

/* Between two questions: also the one at which the list goes on. */
static void regions_are_made_and_closed_within_a_list(void **state)
{
	struct kedge_region *late;
	static struct packet p;
	uint64_t last;
	int fd, i;

	make_many();
	fd = stranger(&handle);
	assert_int_equal(ask_once(fd, &p), sizeof(p));
	assert_true(p.head.more);
	assert_int_equal(p.head.seq, list_question.seq);
	assert_int_equal(p.head.cnt, LIST_ITEMS);
	last = p.item[LIST_ITEMS - 1].serial;
	for (i = LIST_ITEMS - 3; i < (int)LIST_ITEMS + 3; i++) {
		kedge_region_close(many[i]);
		many[i] = NULL;
	}
	assert_int_equal(kedge_region_create(1, NULL, &late), 0);
	assert_int_equal(ask_once(fd, &p), sizeof(p));
	assert_int_equal(p.item[0].serial, last + 4);
	for (i = 2 * LIST_ITEMS + 3; p.head.more; i += p.head.cnt)
		assert_true(ask_once(fd, &p) > 0);
	assert_int_equal(i, MANY + 1);
	/* The next question is for a list of its own. */
	assert_int_equal(ask_once(fd, &p), sizeof(p));
	assert_int_equal(p.item[LIST_ITEMS - 4].serial, last - 3);
	close(fd);
	kedge_region_close(late);
	close_many();
}

/* It takes as many descriptors, and 40 MiB of locked memory. */
static void ten_thousand_are_told(void **state)
{
	const struct kedge_region_opts o = { .size = sizeof(o), .max_len = 1 };
	static struct kedge_region *crowd[CROWD];
	struct listed_regions l = { NULL, 0 };
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct rlimit fds, before;
	int i, n, rc = 0;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	fds = before;
	fds.rlim_cur = fds.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &fds), 0);
	begin_remote(NULL);
	for (n = 0; n < CROWD && !rc; n += !rc)
		rc = kedge_region_create(1, &o, &crowd[n]);
	if (!rc) {
		list_of(getpid(), &l);
		assert_int_equal(l.cnt, CROWD + 1);
		for (i = 1; i <= CROWD; i++)
			assert_true(l.e[i - 1].addr < l.e[i].addr);
		assert_int_equal(l.e[0].budget_used, LEN + CROWD * page);
	}
	for (i = 0; i < n; i++)
		kedge_region_close(crowd[i]);
	free(l.e);
	end_remote();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	if (rc) {
		print_message("skipped: %d regions are all that can be had\n", n);
		skip();
	}
}

/* ---- processes and users ---- */

static void what_cannot_be_listed_is_refused(void **state)
{
	struct kedge_regions_opts o = { .size = sizeof(o) };
	struct kedge_regions *const before = (void *)&o, *s = before;
	struct kedge_region_entry e = { .size = 8 };

	assert_int_equal(kedge_regions_open(&o, NULL), -EINVAL);
	o.flags = 1;
	assert_int_equal(kedge_regions_open(&o, &s), -EINVAL);
	o = (struct kedge_regions_opts){ .size = sizeof(o), .pid = -1 };
	assert_int_equal(kedge_regions_open(&o, &s), -EINVAL);
	o = (struct kedge_regions_opts){ .size = 8 };
	assert_int_equal(kedge_regions_open(&o, &s), -EINVAL);
	assert_ptr_equal(s, before);
	o = (struct kedge_regions_opts){ .size = sizeof(o), .pid = getpid() };
	assert_int_equal(kedge_regions_open(&o, &s), 0);
	assert_int_equal(kedge_regions_next(NULL, &e), -EINVAL);
	assert_int_equal(kedge_regions_next(s, NULL), -EINVAL);
	assert_int_equal(kedge_regions_next(s, &e), -EINVAL);
	e.size = sizeof(e);
	assert_int_equal(kedge_regions_next(s, &e), 1);
	assert_int_equal(kedge_regions_next(s, &e), 0);
	kedge_regions_close(s);
	kedge_regions_close(NULL);
}

static void makes_one(void *len)
{
	CHILD_CHECK(!kedge_region_create(*(size_t *)len, NULL, &region));
	CHILD_CHECK(!kedge_region_advertise(region, NULL, &handle));
}

static void closes_the_parents_and_makes_one(void *len)
{
	kedge_region_close(region);
	makes_one(len);
}

/* A child has none of its parent's regions, and may list those of both. */
static void a_child_has_a_list_of_its_own(void **state)
{
	struct listed_regions l = { NULL, 0 };
	size_t len = 2 * LEN;
	pid_t pid;

	need_threads_after_fork();
	pid = child(closes_the_parents_and_makes_one, &len);
	list_of(pid, &l);
	assert_int_equal(l.cnt, 1);
	assert_int_equal(l.e[0].len, 2 * LEN);
	assert_int_equal(l.e[0].budget_used, 2 * LEN);
	assert_int_equal(only().len, LEN);
	kill_child(pid);
	pid = fork_child();
	if (!pid) {
		CHILD_CHECK(!list_within(getppid(), SOON_MS, &l));
		CHILD_CHECK(l.cnt == 1 && l.e[0].len == LEN && l.e[0].pid == getppid());
		_exit(0);
	}
	reap(pid);
	free(l.e);
}

static void a_stopped_owner_is_said_to_be(void **state)
{
	struct listed_regions l = { NULL, 0 };
	size_t len = LEN;
	pid_t pid;

	need_threads_after_fork();
	pid = child(makes_one, &len);
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	assert_int_equal(list_within(pid, SHORT_MS, &l), 0);
	assert_int_equal(l.cnt, 1);
	assert_int_equal(l.e[0].status, -ETIMEDOUT);
	assert_int_equal(l.e[0].pid, pid);
	assert_int_equal(l.e[0].uid, geteuid());
	kill(pid, SIGCONT);
	list_of(pid, &l);
	assert_int_equal(l.cnt, 1);
	assert_int_equal(l.e[0].status, 0);
	kill_child(pid);
	list_of(pid, &l);
	assert_int_equal(l.cnt, 0);
	free(l.e);
}

static void need_root(void)
{
	if (geteuid()) {
		print_message("skipped: only root can be another user\n");
		skip();
	}
	need_threads_after_fork();
}

static void another_user_is_told_nothing(void **state)
{
	struct listed_regions l = { NULL, 0 };
	struct region_answer a;
	pid_t pid;
	int fd;

	need_root();
	pid = fork_child();
	if (!pid) {
		CHILD_CHECK(!setresuid(NOBODY, NOBODY, NOBODY));
		CHILD_CHECK(!list_within(getppid(), SOON_MS, &l));
		CHILD_CHECK(l.cnt == 1 && l.e[0].status == -EACCES);
		CHILD_CHECK(l.e[0].pid == getppid() && !l.e[0].addr && !l.e[0].len);
		/* By hand, as it need not be kedge that asks. */
		fd = stranger(&handle);
		CHILD_CHECK(fd >= 0);
		ask_list(fd, 0);
		if (recv(fd, &a, sizeof(a), 0) < 0)
			CHILD_CHECK(recv(fd, &a, sizeof(a), 0) == sizeof(a));
		CHILD_CHECK(a.magic == REGION_MAGIC && a.rc == -EACCES);
		_exit(0);
	}
	reap(pid);
}

static void makes_one_as_root_then_one_as_nobody(void *len)
{
	makes_one(len);
	CHILD_CHECK(!setresuid(NOBODY, NOBODY, NOBODY));
	makes_one(len);
}

/* And a process that became another user's since it connected is not told either. */
static void regions_stay_those_of_the_user_that_made_them(void **state)
{
	struct listed_regions l = { NULL, 0 };
	static struct packet p;
	struct region_answer a;
	size_t len = 4096;
	pid_t pid, asker;
	int fd;

	need_root();
	pid = child(makes_one_as_root_then_one_as_nobody, &len);
	list_of(pid, &l);
	assert_int_equal(l.cnt, 2);
	/* The kernel says of its socket that it is root's, whatever it is now. */
	asker = fork();
	assert_true(asker >= 0);
	if (!asker) {
		CHILD_CHECK(!setresuid(NOBODY, NOBODY, NOBODY));
		CHILD_CHECK(!list_within(pid, SOON_MS, &l));
		CHILD_CHECK(l.cnt == 1 && l.e[0].status == -EACCES);
		_exit(0);
	}
	reap(asker);
	kill_child(pid);
	/* Root's socket, asked by hand by the user that the owner is now. */
	begin_remote(NULL);
	fd = stranger(&handle);
	assert_int_equal(ask_once(fd, &p), sizeof(p.head) + sizeof(p.item[0]));
	assert_int_equal(setresuid(NOBODY, NOBODY, 0), 0);
	assert_int_equal(ask_once(fd, &p), sizeof(p.head) + sizeof(p.item[0]));
	close(fd);
	fd = stranger(&handle);
	assert_int_equal(ask_once(fd, &p), sizeof(p.head));
	assert_int_equal(setresuid(0, 0, 0), 0);
	assert_true(ask_list(fd, 0));
	assert_int_equal(recv(fd, &a, sizeof(a), 0), sizeof(a));
	assert_int_equal(a.rc, -EACCES);
	close(fd);
	free(l.e);
	end_remote();
}

static const struct CMUnitTest tests[] = {
	remote_case(each_region_is_there_as_it_is),
	cmocka_unit_test(what_was_done_with_it_is_counted),
	remote_case(what_its_program_has_unmapped_is_told),
	cmocka_unit_test(expired_handles_are_told_unless_they_are_many),
	cmocka_unit_test(accesses_that_the_owner_does_are_counted),
	remote_case(a_region_that_moves_says_so),
	cmocka_unit_test(a_region_that_migrates_says_so_and_where_to),
	cmocka_unit_test(many_regions_are_in_order_and_each_is_there_once),
	cmocka_unit_test(regions_are_made_and_closed_within_a_list),
	cmocka_unit_test(ten_thousand_are_told),
	remote_case(what_cannot_be_listed_is_refused),
	remote_case(a_child_has_a_list_of_its_own),
	cmocka_unit_test(a_stopped_owner_is_said_to_be),
	remote_case(another_user_is_told_nothing),
	cmocka_unit_test(regions_stay_those_of_the_user_that_made_them),
};

const struct suite suite = { "region_list", SUITE_OF(tests), .by = "mapped" };
