// SPDX-License-Identifier: BSD-2-Clause
/*
 * Leases, time and users, with a server on loopback in etcd's place: who has a lease, how it is
 * renewed, what is told when it is gone, servers that do not answer, and tokens that end.
 */
#include <kedge/etcd.h>

#include "clock.h"
#include "fake_etcd.h"

#define LONG_MS 60000
/* After which libcurl, which counts by itself, is not waited for. */
#define LATER_MS 1000
#define STEP_MS 20
#define HOUR_MS 3600000
#define THREADS 8
#define H	"{\"header\":{}"

static struct fake *f;
static struct kedge_directory *d;
static unsigned int threads;

static int setup(void **state)
{
	f = fake_start();
	d = open_at(f->url, 1);
	threads = threads_now();
	return 0;
}

static int teardown(void **state)
{
	kedge_directory_close(d);
	fake_end(f);
	return 0;
}

/* Time passes up to where the thread has asked for so many renewals. */
static void wait_for_renewals(unsigned int cnt)
{
	cnt += fake_cnt(f, KEEPALIVE);
	MOVE_UNTIL(STEP_MS, fake_cnt(f, KEEPALIVE) >= cnt);
}

static int find(void)
{
	struct kedge_place p;

	return kedge_directory_find(d, 1, &p, LONG_MS);
}

static int put(void)
{
	struct kedge_place to = place_of('B');

	return kedge_directory_replace(d, 1, NULL, &to, LONG_MS);
}

static int take_away(void)
{
	struct kedge_place from = place_of('B');

	return kedge_directory_replace(d, 1, &from, NULL, LONG_MS);
}

static void no_lease(enum fake_path path, int times)
{
	fake_set(f, path, (struct fake_reply){ .status = 404, .times = times, .body =
		"{\"message\":\"etcdserver: requested lease not found\",\"code\":5}" });
}

static void only_a_writer_has_a_lease(void **state)
{
	assert_int_equal(find(), 0);
	assert_int_equal(take_away(), 0);
	assert_int_equal(fake_cnt(f, GRANT), 0);
	WAIT_FOR(!atomic_load(&f->conns));
	assert_true(threads_are(threads));
	kedge_directory_close(d);
	assert_int_equal(fake_cnt(f, REVOKE), 0);
	d = open_at(f->url, 1);
	assert_int_equal(put(), 0);
	assert_int_equal(fake_cnt(f, GRANT), 1);
	assert_string_equal(fake_body(f, GRANT), "{\"TTL\":\"1\"}");
}

static void it_is_renewed_until_close(void **state)
{
	assert_int_equal(put(), 0);
	wait_for_renewals(3);
	assert_string_equal(fake_body(f, KEEPALIVE), "{\"ID\":\"701\"}");
	assert_int_equal(find(), 0);
	kedge_directory_close(d);
	d = NULL;
	assert_int_equal(fake_cnt(f, REVOKE), 1);
	assert_string_equal(fake_body(f, REVOKE), "{\"ID\":\"701\"}");
	WAIT_FOR(!atomic_load(&f->conns));
	assert_true(threads_are(threads));
	assert_int_equal(fake_cnt(f, GRANT), 1);
}

/* Once, by whichever call is next; then a new lease is taken. */
static void a_loss_is_told_once(void **state)
{
	assert_int_equal(put(), 0);
	fake_set(f, KEEPALIVE, (struct fake_reply){
		.body = "{\"result\":" H ",\"ID\":\"701\"}}" });
	MOVE_UNTIL(STEP_MS, find() == -EKEYEXPIRED);
	fake_set(f, KEEPALIVE, (struct fake_reply){ 0 });
	assert_non_null(strstr(kedge_strerror(-EKEYEXPIRED), "lease"));
	assert_int_equal(fake_cnt(f, GRANT), 1);
	assert_int_equal(find(), 0);
	assert_int_equal(put(), 0);
	assert_int_equal(fake_cnt(f, GRANT), 2);
	assert_non_null(strstr(fake_body(f, TXN), "\"lease\":\"702\""));
	MOVE_UNTIL(STEP_MS, strstr(fake_body(f, KEEPALIVE), "702"));
	assert_int_equal(find(), 0);
	assert_int_equal(put(), 0);
}

static void a_writer_learns_of_the_loss_by_itself(void **state)
{
	unsigned int txns;

	assert_int_equal(put(), 0);
	no_lease(TXN, 1);
	txns = fake_cnt(f, TXN);
	assert_int_equal(put(), -EKEYEXPIRED);
	assert_int_equal(fake_cnt(f, TXN), txns + 1);
	assert_int_equal(put(), 0);
	assert_int_equal(fake_cnt(f, GRANT), 2);
}

/* No entry was bound to it: the call takes another one and goes on. */
static void an_unused_lease_is_not_missed(void **state)
{
	no_lease(TXN, 1);
	assert_int_equal(put(), 0);
	assert_int_equal(fake_cnt(f, GRANT), 2);
	assert_int_equal(fake_cnt(f, TXN), 2);
	assert_int_equal(find(), 0);
	kedge_directory_close(d);
	d = open_at(f->url, 1);
	no_lease(TXN, 0);
	assert_int_equal(put(), -EPROTO);
	fake_set(f, TXN, (struct fake_reply){ .body = H "}" });
	assert_int_equal(put(), -ESTALE);
	fake_set(f, TXN, (struct fake_reply){ 0 });
	no_lease(TXN, 1);
	assert_int_equal(put(), 0);
}

/* It may have been written. */
static void a_lease_whose_entry_is_not_known_is_missed(void **state)
{
	fake_set(f, TXN, (struct fake_reply){ .how = CUT, .times = 1 });
	assert_int_equal(put(), -EINPROGRESS);
	no_lease(TXN, 1);
	assert_int_equal(put(), -EKEYEXPIRED);
	assert_int_equal(put(), 0);
}

/* That etcd does not answer says nothing of the lease. */
static void renewing_goes_on_whatever_comes(void **state)
{
	static const struct fake_reply replies[] = {
		{ .status = 503, .body = "" }, { .how = CUT }, { .body = "{}" },
		{ .body = "{\"error\":{\"grpc_code\":14,\"message\":\"no leader\"}}" },
		{ .status = 403, .body = "" }, { .how = HOLD },
		{ .body = "{\"result\":" H ",\"ID\":\"9\"}}" },
	};
	size_t i;

	assert_int_equal(put(), 0);
	for (i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		fake_set(f, KEEPALIVE, replies[i]);
		wait_for_renewals(2);
		assert_int_equal(find(), 0);
	}
	fake_set(f, KEEPALIVE, (struct fake_reply){ 0 });
	wait_for_renewals(2);
	assert_int_equal(put(), 0);
	assert_int_equal(fake_cnt(f, GRANT), 1);
}

/* Neither the thread's request nor its own is waited for long. */
static void close_does_not_hang(void **state)
{
	assert_int_equal(put(), 0);
	fake_set(f, KEEPALIVE, (struct fake_reply){ .how = HOLD });
	fake_set(f, REVOKE, (struct fake_reply){ .how = HOLD });
	wait_for_renewals(1);
	test_clock_hurry(100);
	kedge_directory_close(d);
	test_clock_rest();
	d = NULL;
	assert_true(threads_are(threads + (unsigned int)atomic_load(&f->conns)));
}

/* A process ends with its last thread, of which kedge's is none. */
static int end_main_thread(void *arg)
{
	d = open_at(f->url, 60);
	CHILD_CHECK(!put());
	pthread_exit(NULL);
	return 1;
}

static void the_thread_keeps_no_process(void **state)
{
	assert_int_equal(in_child(end_main_thread, NULL), 0);
	assert_int_equal(fake_cnt(f, TXN), 1);
}

static void *put_one(void *arg)
{
	return (void *)(intptr_t)put();
}

static void all_threads_have_one_lease(void **state)
{
	pthread_t t[THREADS];
	void *rc;
	int i;

	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, put_one, NULL), 0);
	for (i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(t[i], &rc), 0);
		assert_null(rc);
	}
	assert_int_equal(fake_cnt(f, GRANT), 1);
	assert_int_equal(fake_cnt(f, TXN), THREADS);
}

static void without_a_lease_it_was_not_done(void **state)
{
	static const struct {
		struct fake_reply reply;
		int rc;
	} grants[] = {
		{ { .status = 503, .body = "" }, -EHOSTUNREACH }, { { .how = CUT }, -EHOSTUNREACH },
		{ { .body = H "}" }, -EPROTO }, { { .status = 404, .body = "" }, -EPROTO },
		{ { .status = 404, .body = "{\"message\":\"m\",\"code\":5}" }, -EPROTO },
		{ { .body = H ",\"ID\":\"-4\",\"TTL\":\"1\"}" }, -EPROTO },
		{ { .status = 403, .body = "" }, -EACCES },
	};
	size_t i;

	for (i = 0; i < sizeof(grants) / sizeof(grants[0]); i++) {
		fake_set(f, GRANT, grants[i].reply);
		assert_int_equal(put(), grants[i].rc);
		assert_int_equal(fake_cnt(f, TXN), 0);
	}
	fake_set(f, GRANT, (struct fake_reply){ 0 });
	assert_int_equal(put(), 0);
}

/* ---- time ---- */

static void an_endpoint_that_hangs_is_passed_over(void **state)
{
	struct fake *g = fake_start();
	struct kedge_directory *both;
	struct kedge_place p;
	char urls[160];

	fake_set(f, RANGE, (struct fake_reply){ .how = HOLD });
	snprintf(urls, sizeof(urls), "%s,%s", f->url, g->url);
	both = open_at(urls, 0);
	/* The first has half of it, and the second what is left. */
	test_clock_hurry_by(500, LONG_MS / 2 + LATER_MS);
	assert_int_equal(kedge_directory_find(both, 1, &p, LONG_MS), 0);
	test_clock_rest();
	/* From then on it comes first. */
	assert_int_equal(kedge_directory_find(both, 1, &p, LONG_MS), 0);
	assert_true(fake_cnt(f, RANGE) <= 2);
	kedge_directory_close(both);
	fake_end(g);
}

static void time_is_heeded(void **state)
{
	struct kedge_place p = place_of('A');

	assert_int_equal(kedge_directory_find(d, 1, &p, 0), -ETIMEDOUT);
	assert_int_equal(kedge_directory_replace(d, 1, &p, NULL, 0), -ETIMEDOUT);
	assert_int_equal(kedge_directory_replace(d, 1, NULL, &p, 0), -ETIMEDOUT);
	assert_int_equal(fake_cnt(f, RANGE), 0);
	assert_int_equal(fake_cnt(f, TXN), 0);
	assert_int_equal(fake_cnt(f, GRANT), 0);
	fake_set(f, RANGE, (struct fake_reply){ .how = HOLD });
	fake_set(f, TXN, (struct fake_reply){ .how = HOLD });
	fake_set(f, GRANT, (struct fake_reply){ .how = HOLD });
	test_clock_hurry(50);
	assert_int_equal(kedge_directory_find(d, 1, &p, 200), -ETIMEDOUT);
	/* The lease is asked for before the place is. */
	assert_int_equal(kedge_directory_replace(d, 1, NULL, &p, 200), -ETIMEDOUT);
	test_clock_rest();
	assert_int_equal(fake_cnt(f, TXN), 0);
	WAIT_FOR(!atomic_load(&f->conns));
}

static void a_replacement_that_hangs_is_not_known(void **state)
{
	struct kedge_place p = place_of('A');
	unsigned int asked;
	int rc;

	fake_set(f, TXN, (struct fake_reply){ .how = HOLD });
	/* "Not asked" is another error, of a machine that is too slow to ask in that time. */
	test_clock_hurry(20);
	do {
		asked = fake_cnt(f, TXN);
		rc = kedge_directory_replace(d, 1, &p, NULL, 300);
	} while (rc == -ETIMEDOUT && fake_cnt(f, TXN) == asked);
	test_clock_rest();
	assert_int_equal(rc, -EINPROGRESS);
	assert_int_equal(fake_cnt(f, TXN), asked + 1);
}

static void *put_hour(void *arg)
{
	struct kedge_place to = place_of('C');

	return (void *)(intptr_t)kedge_directory_replace(d, 2, NULL, &to, HOUR_MS);
}

/* A thread that has asked for the lease asks for all. */
static void a_lease_that_another_thread_asks_for_is_waited_for(void **state)
{
	pthread_t t;
	void *rc;

	fake_set(f, GRANT, (struct fake_reply){ .how = HOLD });
	assert_int_equal(pthread_create(&t, NULL, put_hour, NULL), 0);
	WAIT_FOR(fake_cnt(f, GRANT));
	test_clock_hurry(LONG_MS / 20);
	assert_int_equal(put(), -ETIMEDOUT);
	assert_true(reason_says(-ETIMEDOUT, "has not granted"));
	test_clock_rest();
	assert_int_equal(fake_cnt(f, GRANT), 1);
	test_clock_hurry(HOUR_MS / 20);
	pthread_join(t, &rc);
	test_clock_rest();
	assert_int_equal((intptr_t)rc, -ETIMEDOUT);
	assert_int_equal(fake_cnt(f, TXN), 0);
}

/* ---- users ---- */

static struct kedge_directory *open_as(const char *user, const char *password)
{
	struct kedge_etcd_opts o = {
		.size = sizeof(o), .endpoints = f->url, .user = user, .password = password,
	};
	struct kedge_directory *as = NULL;

	assert_int_equal(kedge_directory_open_etcd(&o, &as), 0);
	return as;
}

static int users_setup(void **state)
{
	f = fake_start();
	d = open_as("me", "pass\"word\\\n");
	return 0;
}

static void refuse_token(enum fake_path path, int times)
{
	fake_set(f, path, (struct fake_reply){ .status = 401, .times = times, .body =
		"{\"error\":\"x\",\"message\":\"etcdserver: invalid auth token\",\"code\":16}" });
}

static void a_token_is_kept(void **state)
{
	assert_int_equal(find(), 0);
	assert_string_equal(fake_body(f, AUTHENTICATE), "{\"name\":\"me\",\"password\":"
			    "\"pass\\u0022word\\u005c\\u000a\"}");
	assert_string_equal(fake_token(f), "token.1");
	assert_int_equal(put(), 0);
	assert_string_equal(fake_token(f), "token.1");
	assert_int_equal(fake_cnt(f, AUTHENTICATE), 1);
}

static void a_token_that_has_ended_is_got_anew(void **state)
{
	assert_int_equal(put(), 0);
	refuse_token(TXN, 1);
	assert_int_equal(put(), 0);
	assert_string_equal(fake_token(f), "token.2");
	fake_set(f, RANGE, (struct fake_reply){ .status = 400, .times = 1, .body =
		"{\"message\":\"etcdserver: revision of auth store is old\",\"code\":3}" });
	assert_int_equal(find(), 0);
	assert_string_equal(fake_token(f), "token.3");
	refuse_token(TXN, 0);
	assert_int_equal(put(), -EACCES);
	/* Not for ever. */
	assert_true(fake_cnt(f, AUTHENTICATE) <= 6);
}

static void a_user_may_not_be_let_in(void **state)
{
	static const struct {
		struct fake_reply reply;
		int rc;
	} replies[] = {
		{ { .status = 400, .body = "{\"message\":\"etcdserver: authentication failed, "
					   "invalid user ID or password\",\"code\":3}" }, -EACCES },
		{ { .status = 401, .body = "" }, -EACCES },
		{ { .status = 503, .body = "" }, -EHOSTUNREACH },
		{ { .how = CUT }, -EHOSTUNREACH },
		{ { .body = H "}" }, -EPROTO },
		{ { .body = H ",\"token\":\"a\\r\\nHost: b\"}" }, -EPROTO },
	};
	size_t i;

	for (i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		fake_set(f, AUTHENTICATE, replies[i].reply);
		assert_int_equal(find(), replies[i].rc);
		assert_int_equal(take_away(), replies[i].rc);
	}
	assert_int_equal(fake_cnt(f, RANGE), 0);
	assert_int_equal(fake_cnt(f, TXN), 0);
}

static void etcd_may_have_no_users(void **state)
{
	fake_set(f, AUTHENTICATE, (struct fake_reply){ .status = 412, .body =
		"{\"message\":\"etcdserver: authentication is not enabled\",\"code\":9}" });
	assert_int_equal(find(), 0);
	assert_string_equal(fake_token(f), "");
	assert_int_equal(find(), 0);
	assert_int_equal(fake_cnt(f, AUTHENTICATE), 1);
	/* Until it has. */
	fake_set(f, AUTHENTICATE, (struct fake_reply){ 0 });
	refuse_token(RANGE, 1);
	assert_int_equal(find(), 0);
	assert_string_equal(fake_token(f), "token.2");
}

#define LEASE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
#define USER(t)	 cmocka_unit_test_setup_teardown(t, users_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LEASE(only_a_writer_has_a_lease),
		LEASE(it_is_renewed_until_close),
		LEASE(a_loss_is_told_once),
		LEASE(a_writer_learns_of_the_loss_by_itself),
		LEASE(an_unused_lease_is_not_missed),
		LEASE(a_lease_whose_entry_is_not_known_is_missed),
		LEASE(renewing_goes_on_whatever_comes),
		LEASE(close_does_not_hang),
		LEASE(the_thread_keeps_no_process),
		LEASE(all_threads_have_one_lease),
		LEASE(without_a_lease_it_was_not_done),
		LEASE(an_endpoint_that_hangs_is_passed_over),
		LEASE(time_is_heeded),
		LEASE(a_replacement_that_hangs_is_not_known),
		LEASE(a_lease_that_another_thread_asks_for_is_waited_for),
		USER(a_token_is_kept),
		USER(a_token_that_has_ended_is_got_anew),
		USER(a_user_may_not_be_let_in),
		USER(etcd_may_have_no_users),
	};

	test_clock_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
