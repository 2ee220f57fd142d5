// SPDX-License-Identifier: BSD-2-Clause
/*
 * The directory in a real etcd, which the test starts on loopback and ends: many that replace the
 * same place, holders that are killed or stopped, an etcd that goes and comes, users, and
 * certificates. Skipped where there is no etcd.
 */
#include <kedge/etcd.h>

#include "clock.h"
#include "etcd_server.h"
#include "fake_etcd.h"

#define LONG_MS	  60000
#define ROUNDS	  20
#define RACERS	  8
#define PROCESSES 4
#define TTL_S	  1 /* the least that etcd gives */

static struct server *s;

static int start(void **state)
{
	s = server_start(NULL);
	return 0;
}

static int end(void **state)
{
	server_end(s);
	return 0;
}

static int find(struct kedge_directory *d, uint64_t region, char *who)
{
	struct kedge_place p, want;
	int rc = kedge_directory_find(d, region, &p, LONG_MS);

	if (!rc) {
		want = place_of((char)p.bytes[0]);
		assert_memory_equal(&p, &want, sizeof(p));
		*who = (char)p.bytes[0];
	}
	return rc;
}

/* 0: no place. */
static int swap(struct kedge_directory *d, uint64_t region, char from, char to)
{
	const struct kedge_place a = place_of(from), b = place_of(to);

	return kedge_directory_replace(d, region, from ? &a : NULL, to ? &b : NULL, LONG_MS);
}

static void places_are_kept(void **state)
{
	struct kedge_directory *d = open_at(s->url, 0), *other = open_at(s->url, 0);
	char who = 0;

	assert_int_equal(find(d, 1, &who), -ENOENT);
	assert_int_equal(swap(d, 1, 'A', 'B'), -ESTALE);
	assert_int_equal(swap(d, 1, 'A', 0), -ESTALE);
	assert_int_equal(swap(d, 1, 0, 'A'), 0);
	assert_int_equal(swap(d, 1, 0, 'B'), -ESTALE);
	assert_int_equal(find(other, 1, &who), 0);
	assert_int_equal(who, 'A');
	assert_int_equal(find(other, 2, &who), -ENOENT);
	assert_int_equal(swap(other, 1, 'B', 'C'), -ESTALE);
	assert_int_equal(swap(other, 1, 'A', 'C'), 0);
	assert_int_equal(swap(other, 1, 'C', 'C'), 0);
	assert_int_equal(find(d, 1, &who), 0);
	assert_int_equal(who, 'C');
	assert_int_equal(swap(d, UINT64_MAX, 0, 'Z'), 0);
	assert_int_equal(swap(d, 5, 0, 'E'), 0);
	assert_int_equal(swap(d, 5, 'E', 0), 0);
	assert_int_equal(find(d, 5, &who), -ENOENT);
	/* Its own entries are gone; that which the other one took over stays. */
	kedge_directory_close(d);
	assert_int_equal(find(other, UINT64_MAX, &who), -ENOENT);
	assert_int_equal(find(other, 1, &who), 0);
	kedge_directory_close(other);
	d = open_at(s->url, 0);
	assert_int_equal(find(d, 1, &who), -ENOENT);
	kedge_directory_close(d);
}

/* ---- races ---- */

static pthread_barrier_t line;
static _Atomic int wins[ROUNDS], others;

struct racer {
	struct kedge_directory *d;
	char name;
};

static void *race(void *arg)
{
	const struct racer *r = arg;
	int i, rc;

	for (i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&line);
		rc = swap(r->d, 100 + (uint64_t)i, 0, r->name);
		if (!rc)
			atomic_fetch_add(&wins[i], 1);
		else if (rc != -ESTALE)
			atomic_fetch_add(&others, 1);
	}
	return NULL;
}

/* Half of them share a directory. */
static void one_thread_wins(void **state)
{
	struct racer r[RACERS];
	pthread_t t[RACERS];
	int i;

	assert_int_equal(pthread_barrier_init(&line, NULL, RACERS), 0);
	for (i = 0; i < RACERS; i++) {
		r[i].d = i && i < RACERS / 2 ? r[0].d : open_at(s->url, 0);
		r[i].name = (char)('a' + i);
		assert_int_equal(pthread_create(&t[i], NULL, race, &r[i]), 0);
	}
	for (i = 0; i < RACERS; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	for (i = 0; i < ROUNDS; i++)
		assert_int_equal(wins[i], 1);
	assert_int_equal(others, 0);
	for (i = 0; i < RACERS; i++)
		if (!i || i >= RACERS / 2)
			kedge_directory_close(r[i].d);
	pthread_barrier_destroy(&line);
}

/* A number that each process adds to as often; every lost addition shows. */
static int count(void *arg)
{
	struct kedge_directory *d = open_at(s->url, 0);
	struct kedge_place p, q;
	uint64_t n;
	int i, rc;

	for (i = 0; i < ROUNDS; i++) {
		do {
			CHILD_CHECK(!kedge_directory_find(d, 7, &p, LONG_MS));
			memcpy(&n, p.bytes, sizeof(n));
			n++;
			q = p;
			memcpy(q.bytes, &n, sizeof(n));
			rc = kedge_directory_replace(d, 7, &p, &q, LONG_MS);
			CHILD_CHECK(!rc || rc == -ESTALE);
		} while (rc);
	}
	/* Its end without a close: entries stay until the lease is over. */
	return 0;
}

static void no_process_loses_a_replacement(void **state)
{
	struct kedge_place zero = { { 0 } };
	struct kedge_directory *d;
	pid_t pid[PROCESSES];
	uint64_t n;
	int i, status;

	need_threads_after_fork();
	d = open_at(s->url, 0);
	assert_int_equal(kedge_directory_replace(d, 7, NULL, &zero, LONG_MS), 0);
	fflush(NULL);
	for (i = 0; i < PROCESSES; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(count(NULL));
	}
	for (i = 0; i < PROCESSES; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(kedge_directory_find(d, 7, &zero, LONG_MS), 0);
	memcpy(&n, zero.bytes, sizeof(n));
	assert_int_equal(n, PROCESSES * ROUNDS);
	kedge_directory_close(d);
}

/* ---- leases ---- */

/* In memory that the holder and the test share. */
struct holder {
	_Atomic int put, go, lost, again;
	pid_t pid;
};

/* Keeps a place; puts it back once it has learned of its loss, then waits to be killed. */
static void hold(struct holder *h)
{
	struct kedge_directory *d = open_at(s->url, TTL_S);
	char who;
	int rc;

	CHILD_CHECK(!swap(d, 9, 0, 'H'));
	atomic_store(&h->put, 1);
	while (!atomic_load(&h->go))
		usleep(1000);
	do
		rc = find(d, 9, &who);
	while (!rc || rc == -ENOENT || rc == -EHOSTUNREACH);
	CHILD_CHECK(rc == -EKEYEXPIRED);
	atomic_store(&h->lost, 1);
	CHILD_CHECK(!swap(d, 9, 0, 'I'));
	atomic_store(&h->again, 1);
	for (;;)
		pause();
}

static struct holder *start_holder(void)
{
	struct holder *h = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	need_threads_after_fork();
	assert_ptr_not_equal(h, MAP_FAILED);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(3 * CHILD_TIMEOUT);
		hold(h);
		_exit(1);
	}
	h->pid = pid;
	WAIT_FOR(atomic_load(&h->put));
	return h;
}

static void end_holder(struct holder *h)
{
	int status;

	assert_int_equal(kill(h->pid, SIGKILL), 0);
	assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
	assert_true(WIFSIGNALED(status));
	munmap(h, 4096);
}

static void a_killed_holder_vanishes(void **state)
{
	struct holder *h = start_holder();
	struct kedge_directory *d = open_at(s->url, 0);
	char who = 0;

	assert_int_equal(find(d, 9, &who), 0);
	assert_int_equal(who, 'H');
	end_holder(h);
	WAIT_FOR(find(d, 9, &who) == -ENOENT);
	assert_int_equal(swap(d, 9, 0, 'N'), 0);
	kedge_directory_close(d);
}

static void a_stopped_holder_learns_of_its_loss(void **state)
{
	struct holder *h = start_holder();
	struct kedge_directory *d = open_at(s->url, 0);
	char who = 0;

	assert_int_equal(find(d, 9, &who), 0);
	assert_int_equal(kill(h->pid, SIGSTOP), 0);
	WAIT_FOR(find(d, 9, &who) == -ENOENT);
	atomic_store(&h->go, 1);
	assert_int_equal(kill(h->pid, SIGCONT), 0);
	WAIT_FOR(atomic_load(&h->again));
	assert_true(h->lost);
	assert_int_equal(find(d, 9, &who), 0);
	assert_int_equal(who, 'I');
	end_holder(h);
	kedge_directory_close(d);
}

/* A number that is a string in an answer. */
static void number_in(const char *path, const char *body, const char *name, char to[64])
{
	char *answer = server_post(s, path, body), *at = strstr(answer, name);

	if (!at)
		fail_msg("%s %s: %s", path, body, answer);
	snprintf(to, 64, "%.*s", (int)strcspn(at + strlen(name), "\""), at + strlen(name));
	free(answer);
}

/* etcd has its lease at less time, which it counts by itself, then at more: by the thread alone. */
static void the_thread_renews_the_lease(void **state)
{
	struct kedge_directory *d = open_at(s->url, 9);
	char id[64], body[128], left[64] = "";
	int before;

	assert_int_equal(swap(d, 11, 0, 'T'), 0);
	/* "/kedge/regions/000000000000000b" */
	number_in("/v3/kv/range", "{\"key\":\"L2tlZGdlL3JlZ2lvbnMvMDAwMDAwMDAwMDAwMDAwYg==\"}",
		  "\"lease\":\"", id);
	snprintf(body, sizeof(body), "{\"ID\":\"%s\"}", id);
	do {
		before = atoi(left);
		number_in("/v3/lease/timetolive", body, "\"TTL\":\"", left);
		assert_true(atoi(left) >= 0);
		usleep(20000);
	} while (!before || atoi(left) >= before);
	before = atoi(left);
	test_clock_move_ms(3000);
	do {
		number_in("/v3/lease/timetolive", body, "\"TTL\":\"", left);
		assert_true(atoi(left) >= 0);
	} while (atoi(left) <= before);
	kedge_directory_close(d);
}

/* ---- an etcd that goes and comes ---- */

static void an_etcd_that_comes_back_has_the_places(void **state)
{
	struct kedge_directory *d = open_at(s->url, 30);
	char who = 0;

	assert_int_equal(swap(d, 20, 0, 'A'), 0);
	server_stop(s);
	assert_int_equal(find(d, 20, &who), -EHOSTUNREACH);
	assert_int_equal(swap(d, 20, 'A', 'B'), -EHOSTUNREACH);
	server_go_on(s);
	assert_int_equal(find(d, 20, &who), 0);
	assert_int_equal(who, 'A');
	assert_int_equal(swap(d, 20, 'A', 'B'), 0);
	kedge_directory_close(d);
}

struct counter {
	struct kedge_directory *d;
	_Atomic uint64_t done; /* the number that was replaced last */
	int rc;		       /* of the one after that */
};

static struct kedge_place number(uint64_t n)
{
	struct kedge_place p = { { 0 } };

	memcpy(p.bytes, &n, sizeof(n));
	return p;
}

static void *count_on(void *arg)
{
	struct counter *c = arg;
	struct kedge_place from, to;

	while (!c->rc) {
		from = number(c->done);
		to = number(c->done + 1);
		c->rc = kedge_directory_replace(c->d, 22, &from, &to, LONG_MS);
		if (!c->rc)
			atomic_fetch_add(&c->done, 1);
	}
	return NULL;
}

/* A change said to be done is there, one said not to be is not. */
static void a_killed_etcd_has_what_was_done(void **state)
{
	struct counter c = { .d = open_at(s->url, 60) };
	struct kedge_place p = number(0);
	pthread_t t;
	uint64_t n;
	int i;

	assert_int_equal(kedge_directory_replace(c.d, 22, NULL, &p, LONG_MS), 0);
	for (i = 0; i < 3; i++) {
		n = c.done;
		c.rc = 0;
		assert_int_equal(pthread_create(&t, NULL, count_on, &c), 0);
		WAIT_FOR(atomic_load(&c.done) >= n + 5);
		server_kill(s);
		assert_int_equal(pthread_join(t, NULL), 0);
		assert_true(c.rc == -EHOSTUNREACH || c.rc == -EINPROGRESS);
		server_go_on(s);
		assert_int_equal(kedge_directory_find(c.d, 22, &p, LONG_MS), 0);
		memcpy(&n, p.bytes, sizeof(n));
		assert_true(n == c.done || (c.rc == -EINPROGRESS && n == c.done + 1));
		c.done = n;
	}
	kedge_directory_close(c.d);
}

/* It has the connection and answers when it goes on, if at all. On a machine that is too slow to
 * ask in that time, once more. */
static void an_etcd_that_is_stopped_leaves_it_open(void **state)
{
	struct kedge_directory *d = open_at(s->url, 60);
	const struct kedge_place a = place_of('A'), b = place_of('B');
	struct kedge_place p;
	siginfo_t stopped;
	char who = 0;
	int rc;

	assert_int_equal(swap(d, 21, 0, 'A'), 0);
	assert_int_equal(kill(s->pid, SIGSTOP), 0);
	/* Threads of it go on for a moment. */
	assert_int_equal(waitid(P_PID, (id_t)s->pid, &stopped, WSTOPPED), 0);
	test_clock_hurry(20);
	assert_int_equal(kedge_directory_find(d, 21, &p, 300), -ETIMEDOUT);
	do
		rc = kedge_directory_replace(d, 21, &a, &b, 300);
	while (rc == -ETIMEDOUT);
	test_clock_rest();
	assert_int_equal(rc, -EINPROGRESS);
	assert_int_equal(kill(s->pid, SIGCONT), 0);
	/* The same call once more decides it. */
	do
		rc = swap(d, 21, 'A', 'B');
	while (rc == -EINPROGRESS);
	assert_true(!rc || rc == -ESTALE);
	assert_int_equal(find(d, 21, &who), 0);
	assert_int_equal(who, 'B');
	kedge_directory_close(d);
}

static void one_of_two_endpoints_is_enough(void **state)
{
	char dead[64], urls[200];
	struct kedge_directory *d;
	char who = 0;

	dead_url(dead);
	snprintf(urls, sizeof(urls), "%s,%s", dead, s->url);
	d = open_at(urls, 0);
	assert_int_equal(swap(d, 30, 0, 'A'), 0);
	assert_int_equal(find(d, 30, &who), 0);
	kedge_directory_close(d);
	snprintf(urls, sizeof(urls), "%s,%s", s->url, dead);
	d = open_at(urls, 0);
	assert_int_equal(find(d, 30, &who), -ENOENT);
	assert_int_equal(swap(d, 30, 0, 'A'), 0);
	server_stop(s);
	assert_int_equal(find(d, 30, &who), -EHOSTUNREACH);
	server_go_on(s);
	assert_int_equal(find(d, 30, &who), 0);
	kedge_directory_close(d);
}

/* ---- users ---- */

static void ask(const char *path, const char *body)
{
	char *answer = server_post(s, path, body);

	if (!strstr(answer, "\"header\""))
		fail_msg("%s %s: %s", path, body, answer);
	free(answer);
}

static struct kedge_directory *open_as(const char *user, const char *password)
{
	struct kedge_etcd_opts o = {
		.size = sizeof(o), .endpoints = s->url, .user = user, .password = password,
	};
	struct kedge_directory *d = NULL;

	assert_int_equal(kedge_directory_open_etcd(&o, &d), 0);
	return d;
}

static void users_have_passwords(void **state)
{
	struct kedge_directory *d = open_as("owner", "pw"), *peer = open_as("peer", "pw2");
	struct kedge_directory *wrong = open_as("owner", "no"), *bare = open_at(s->url, 0);
	char who = 0;

	/* Before etcd has users a name does no harm. */
	assert_int_equal(find(d, 40, &who), -ENOENT);
	ask("/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"r\"}");
	ask("/v3/auth/user/add", "{\"name\":\"owner\",\"password\":\"pw\"}");
	ask("/v3/auth/user/add", "{\"name\":\"peer\",\"password\":\"pw2\"}");
	ask("/v3/auth/role/add", "{\"name\":\"root\"}");
	ask("/v3/auth/role/add", "{\"name\":\"write\"}");
	ask("/v3/auth/role/add", "{\"name\":\"read\"}");
	/* All keys of "/kedge/" up to "/kedge0". */
	ask("/v3/auth/role/grant", "{\"name\":\"write\",\"perm\":{\"permType\":\"READWRITE\","
	    "\"key\":\"L2tlZGdlLw==\",\"range_end\":\"L2tlZGdlMA==\"}}");
	ask("/v3/auth/role/grant", "{\"name\":\"read\",\"perm\":{\"permType\":\"READ\","
	    "\"key\":\"L2tlZGdlLw==\",\"range_end\":\"L2tlZGdlMA==\"}}");
	ask("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
	ask("/v3/auth/user/grant", "{\"user\":\"owner\",\"role\":\"write\"}");
	ask("/v3/auth/user/grant", "{\"user\":\"peer\",\"role\":\"read\"}");
	ask("/v3/auth/enable", "{}");
	assert_int_equal(swap(d, 40, 0, 'A'), 0);
	assert_int_equal(find(peer, 40, &who), 0);
	assert_int_equal(swap(peer, 40, 'A', 'B'), -EACCES);
	assert_int_equal(find(wrong, 40, &who), -EACCES);
	assert_int_equal(swap(wrong, 40, 'A', 'B'), -EACCES);
	assert_int_equal(find(bare, 40, &who), -EACCES);
	/* It has no token of before, and asks for another. */
	server_stop(s);
	server_go_on(s);
	assert_int_equal(find(d, 40, &who), 0);
	assert_int_equal(who, 'A');
	assert_int_equal(swap(d, 40, 'A', 'C'), 0);
	kedge_directory_close(wrong);
	kedge_directory_close(bare);
	kedge_directory_close(d);
	assert_int_equal(find(peer, 40, &who), -ENOENT);
	kedge_directory_close(peer);
}

/* ---- certificates ---- */

static int start_tls(void **state)
{
	s = server_start("--auto-tls");
	return 0;
}

static void certificates_are_looked_at(void **state)
{
	struct kedge_etcd_opts o = { .size = sizeof(o), .endpoints = s->url };
	struct kedge_directory *d = NULL;
	char ca[300], who = 0;

	/* It is of an authority that the system does not know: etcd's own. */
	d = open_at(s->url, 0);
	assert_int_equal(find(d, 1, &who), -EKEYREJECTED);
	assert_int_equal(swap(d, 1, 0, 'A'), -EKEYREJECTED);
	assert_int_equal(swap(d, 1, 'A', 0), -EKEYREJECTED);
	kedge_directory_close(d);
	snprintf(ca, sizeof(ca), "%s/data/fixtures/client/cert.pem", s->dir);
	o.ca = ca;
	assert_int_equal(kedge_directory_open_etcd(&o, &d), 0);
	assert_int_equal(find(d, 1, &who), -ENOENT);
	assert_int_equal(swap(d, 1, 0, 'A'), 0);
	assert_int_equal(find(d, 1, &who), 0);
	kedge_directory_close(d);
	o.ca = "/dev/null";
	assert_int_equal(kedge_directory_open_etcd(&o, &d), 0);
	assert_int_equal(find(d, 1, &who), -EKEYREJECTED);
	kedge_directory_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_kept),
		cmocka_unit_test(one_thread_wins),
		cmocka_unit_test(no_process_loses_a_replacement),
		cmocka_unit_test(a_killed_holder_vanishes),
		cmocka_unit_test(a_stopped_holder_learns_of_its_loss),
		cmocka_unit_test(the_thread_renews_the_lease),
		cmocka_unit_test(an_etcd_that_comes_back_has_the_places),
		cmocka_unit_test(a_killed_etcd_has_what_was_done),
		cmocka_unit_test(an_etcd_that_is_stopped_leaves_it_open),
		cmocka_unit_test(one_of_two_endpoints_is_enough),
	};
	const struct CMUnitTest users[] = { cmocka_unit_test(users_have_passwords) };
	const struct CMUnitTest tls[] = { cmocka_unit_test(certificates_are_looked_at) };

	if (!server_there()) {
		puts("skipped: there is no etcd (Debian: etcd-server)");
		return 77;
	}
	test_clock_begin();
	return cmocka_run_group_tests_name("etcd", tests, start, end) +
	       cmocka_run_group_tests_name("users", users, start, end) +
	       cmocka_run_group_tests_name("certificates", tls, start_tls, end);
}
