// SPDX-License-Identifier: BSD-2-Clause
/*
 * The directory in etcd, with a server on loopback in etcd's place: its requests, and the handling
 * of answers that are wrong, cut, endless or missing. A request that was not answered
 * is never told as "not done", nor sent twice.
 */
#include <sys/resource.h>

#include <kedge/etcd.h>

#include "fake_etcd.h"

#define LONG_MS 60000

static struct fake *f;
static struct kedge_directory *d;

static int setup(void **state)
{
	f = fake_start();
	d = open_at(f->url, 0);
	return 0;
}

static int teardown(void **state)
{
	kedge_directory_close(d);
	fake_end(f);
	return 0;
}

static int find(void)
{
	struct kedge_place p = { { 9 } }, was = p;
	int rc = kedge_directory_find(d, 0x123, &p, LONG_MS);

	if (rc)
		assert_memory_equal(&p, &was, sizeof(p));
	return rc;
}

static int replace(void)
{
	struct kedge_place from = place_of('A'), to = place_of('B');

	return kedge_directory_replace(d, 0x123, &from, &to, LONG_MS);
}

static void a_place_is_found(void **state)
{
	struct kedge_place p;

	assert_int_equal(kedge_directory_find(d, 0xabcdef, &p, LONG_MS), 0);
	assert_memory_equal(&p, &fake_place, sizeof(p));
	/* "/kedge/regions/0000000000abcdef" */
	assert_string_equal(fake_body(f, RANGE),
			    "{\"key\":\"L2tlZGdlL3JlZ2lvbnMvMDAwMDAwMDAwMGFiY2RlZg==\"}");
	assert_string_equal(fake_token(f), "");
	/* One that only looks has no lease. */
	assert_int_equal(fake_cnt(f, GRANT), 0);
}

#define KEY "\"key\":\"L2tlZGdlL3JlZ2lvbnMvMDAwMDAwMDAwMGFiY2RlZg==\""
#define A64 "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB"
#define B64 "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC"

static void a_replacement_is_one_transaction(void **state)
{
	struct kedge_place from = place_of('A'), to = place_of('B');

	assert_int_equal(kedge_directory_replace(d, 0xabcdef, &from, NULL, LONG_MS), 0);
	assert_string_equal(fake_body(f, TXN),
			    "{\"compare\":[{" KEY ",\"target\":\"VALUE\",\"value\":\"" A64 "\"}],"
			    "\"success\":[{\"request_delete_range\":{" KEY "}}]}");
	assert_int_equal(fake_cnt(f, GRANT), 0);
	assert_int_equal(kedge_directory_replace(d, 0xabcdef, &from, &to, LONG_MS), 0);
	assert_string_equal(fake_body(f, TXN),
			    "{\"compare\":[{" KEY ",\"target\":\"VALUE\",\"value\":\"" A64 "\"}],"
			    "\"success\":[{\"request_put\":{" KEY ",\"value\":\"" B64 "\","
			    "\"lease\":\"701\"}}]}");
	assert_string_equal(fake_body(f, GRANT), "{\"TTL\":\"30\"}");
	assert_int_equal(kedge_directory_replace(d, 0xabcdef, NULL, &to, LONG_MS), 0);
	assert_string_equal(fake_body(f, TXN),
			    "{\"compare\":[{" KEY ",\"target\":\"CREATE\","
			    "\"create_revision\":\"0\"}],\"success\":[{\"request_put\":{" KEY ","
			    "\"value\":\"" B64 "\",\"lease\":\"701\"}}]}");
	assert_int_equal(fake_cnt(f, GRANT), 1);
	assert_int_equal(fake_cnt(f, TXN), 3);
}

static void the_prefix_is_the_callers(void **state)
{
	struct kedge_etcd_opts o = { .size = sizeof(o), .endpoints = f->url, .prefix = "x" };
	struct kedge_directory *other;
	struct kedge_place p;

	assert_int_equal(kedge_directory_open_etcd(&o, &other), 0);
	assert_int_equal(kedge_directory_find(other, UINT64_MAX, &p, LONG_MS), 0);
	/* "xffffffffffffffff" */
	assert_string_equal(fake_body(f, RANGE), "{\"key\":\"eGZmZmZmZmZmZmZmZmZmZmY=\"}");
	kedge_directory_close(other);
}

/* An answer, and the errors of a question and of a replacement that it is given to. */
struct wrong {
	struct fake_reply reply;
	int find, replace;
};

#define ERROR(status_, text, code) { .status = status_, .body = \
	"{\"error\":\"" text "\",\"message\":\"" text "\",\"code\":" code "}" }
#define BODY(text) { .body = text }
#define WIRE(text) { .how = RAW, .body = text }

static const struct wrong wrong[] = {
	{ ERROR(400, "etcdserver: user name is empty", "3"), -EACCES, -EACCES },
	{ ERROR(400, "etcdserver: authentication failed, x", "3"), -EACCES, -EACCES },
	{ ERROR(400, "invalid character", "3"), -EPROTO, -EPROTO },
	{ ERROR(401, "etcdserver: invalid auth token", "16"), -EACCES, -EACCES },
	{ ERROR(403, "etcdserver: permission denied", "7"), -EACCES, -EACCES },
	{ ERROR(404, "etcdserver: requested lease not found", "5"), -EPROTO, -EKEYEXPIRED },
	{ { .status = 404, .body = "Not Found\n" }, -EPROTO, -EPROTO },
	{ ERROR(429, "etcdserver: mvcc: database space exceeded", "8"), -ENOSPC, -ENOSPC },
	{ ERROR(429, "etcdserver: too many requests", "8"), -EBUSY, -EBUSY },
	{ ERROR(503, "etcdserver: request timed out", "14"), -EHOSTUNREACH, -EINPROGRESS },
	{ ERROR(500, "oops", "2"), -EHOSTUNREACH, -EINPROGRESS },
	{ ERROR(504, "context deadline exceeded", "4"), -EHOSTUNREACH, -EINPROGRESS },
	{ { .status = 408, .body = "" }, -EPROTO, -EINPROGRESS },
	{ { .status = 302, .body = "moved" }, -EPROTO, -EINPROGRESS },
	{ { .status = 201, .body = "{}" }, -EPROTO, -EINPROGRESS },
	{ BODY("{}"), -EPROTO, -EINPROGRESS },
	{ BODY("<html>"), -EPROTO, -EINPROGRESS },
	{ BODY("{\"header\":{},\"kvs\":7,\"succeeded\":7}"), -EPROTO, -EINPROGRESS },
	{ { .how = CUT }, -EHOSTUNREACH, -EINPROGRESS },
	{ { .how = RESET }, -EHOSTUNREACH, -EINPROGRESS },
	{ WIRE("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"header\":"), -EHOSTUNREACH,
	  -EINPROGRESS },
	{ WIRE("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), -EHOSTUNREACH,
	  -EINPROGRESS },
	{ WIRE("HTTP/1.1 200 OK\r\nContent-Le"), -EPROTO, -EINPROGRESS },
	{ WIRE("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"), -EPROTO, -EINPROGRESS },
	{ WIRE("HTTP/1.1 200 OK\r\n\r\n"), -EPROTO, -EINPROGRESS },
	{ WIRE("HTTP/1.1 20"), -EHOSTUNREACH, -EINPROGRESS },
	{ WIRE("SSH-2.0-OpenSSH_9.2\r\n"), -EPROTO, -EINPROGRESS },
	{ WIRE("{\"header\":{},\"succeeded\":true}"), -EPROTO, -EINPROGRESS },
	{ { .how = FLOOD, .body = "HTTP/1.1 200 OK\r\n\r\n{" }, -EPROTO, -EINPROGRESS },
	{ { .how = FLOOD, .body = "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{" },
	  -EPROTO, -EINPROGRESS },
	{ { .how = FLOOD, .body = "HTTP/1.1 200 OK\r\nX: " }, 0, -EINPROGRESS },
	{ { .how = FLOOD, .body = "HTTP/1.1 200 " }, 0, -EINPROGRESS },
	{ { .how = FLOOD, .body = "a" }, 0, -EINPROGRESS },
};

static void wrong_answers_are_errors(void **state)
{
	unsigned int fds, cnt;
	size_t i;
	int rc;

	assert_int_equal(find(), 0);
	assert_int_equal(replace(), 0);
	WAIT_FOR(!atomic_load(&f->conns));
	fds = open_fds();
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		fake_set(f, RANGE, wrong[i].reply);
		fake_set(f, TXN, wrong[i].reply);
		rc = find();
		/* The error of endless heads is libcurl's own affair. */
		if (rc != wrong[i].find && (wrong[i].find || !rc))
			fail_msg("%zu: found: %d: %s", i, rc, kedge_strerror(rc));
		cnt = fake_cnt(f, TXN);
		rc = replace();
		if (rc != wrong[i].replace)
			fail_msg("%zu: replaced: %d: %s", i, rc, kedge_strerror(rc));
		assert_true(strlen(kedge_strerror(rc)) > 0);
		assert_int_equal(fake_cnt(f, TXN), cnt + 1);
	}
	fake_set(f, RANGE, (struct fake_reply){ 0 });
	fake_set(f, TXN, (struct fake_reply){ 0 });
	assert_int_equal(find(), 0);
	assert_int_equal(replace(), 0);
	WAIT_FOR(!atomic_load(&f->conns));
	assert_int_equal(open_fds(), fds);
}

static void what_is_not_there_is_told(void **state)
{
	fake_set(f, RANGE, (struct fake_reply)BODY("{\"header\":{}}"));
	fake_set(f, TXN, (struct fake_reply)BODY("{\"header\":{}}"));
	assert_int_equal(find(), -ENOENT);
	assert_int_equal(replace(), -ESTALE);
}

/* A connection that was used before and is cut would have libcurl send it once more. */
static void a_replacement_is_sent_once(void **state)
{
	int i;

	for (i = 0; i < 3; i++)
		assert_int_equal(replace(), 0);
	fake_set(f, TXN, (struct fake_reply){ .how = CUT, .times = 1 });
	assert_int_equal(replace(), -EINPROGRESS);
	assert_int_equal(fake_cnt(f, TXN), 4);
	fake_set(f, TXN, (struct fake_reply){ .how = RESET, .times = 1 });
	assert_int_equal(replace(), -EINPROGRESS);
	assert_int_equal(fake_cnt(f, TXN), 5);
	assert_int_equal(replace(), 0);
}

/* ---- several endpoints ---- */

/* A question goes to the next one, a replacement that was sent does not. */
static void with_second(struct fake_reply first)
{
	struct fake *g = fake_start();
	unsigned int asked;
	char urls[160];

	kedge_directory_close(d);
	snprintf(urls, sizeof(urls), "%s,%s/", f->url, g->url);
	d = open_at(urls, 0);
	fake_set(f, RANGE, first);
	fake_set(f, TXN, first);
	assert_int_equal(find(), 0);
	assert_int_equal(fake_cnt(g, RANGE), 1);
	/* The second one comes first now. */
	asked = fake_cnt(f, RANGE);
	assert_int_equal(find(), 0);
	assert_int_equal(fake_cnt(f, RANGE), asked);
	/* Begin anew. */
	kedge_directory_close(d);
	d = open_at(urls, 0);
	assert_int_equal(replace(), -EINPROGRESS);
	assert_int_equal(fake_cnt(g, TXN), 0);
	kedge_directory_close(d);
	fake_end(g);
	d = open_at(f->url, 0);
}

static void an_endpoint_that_fails_is_passed_over(void **state)
{
	with_second((struct fake_reply){ .status = 503, .body = "" });
	with_second((struct fake_reply){ .how = CUT });
}

static void a_dead_endpoint_is_passed_over(void **state)
{
	char dead[64], urls[160];
	struct kedge_directory *both, *none;
	struct kedge_place p, to = place_of('B');

	dead_url(dead);
	snprintf(urls, sizeof(urls), "%s,%s", dead, f->url);
	both = open_at(urls, 0);
	assert_int_equal(kedge_directory_find(both, 1, &p, LONG_MS), 0);
	assert_int_equal(kedge_directory_replace(both, 1, NULL, &to, LONG_MS), 0);
	assert_int_equal(kedge_directory_find(both, 1, &p, -1), 0);
	kedge_directory_close(both);
	snprintf(urls, sizeof(urls), "%s,%s", dead, dead);
	none = open_at(urls, 0);
	assert_int_equal(kedge_directory_find(none, 1, &p, LONG_MS), -EHOSTUNREACH);
	assert_non_null(strstr(kedge_strerror(-EHOSTUNREACH), dead));
	assert_int_equal(kedge_directory_find(none, 1, &p, -1), -EHOSTUNREACH);
	assert_int_equal(kedge_directory_replace(none, 1, NULL, &to, LONG_MS), -EHOSTUNREACH);
	assert_int_equal(kedge_directory_replace(none, 1, &to, NULL, LONG_MS), -EHOSTUNREACH);
	kedge_directory_close(none);
}

/* It has its share of the time, the next one what is left. */
/* ---- the process ---- */

static int use_parents(void *arg)
{
	struct kedge_place p = place_of('A');

	CHILD_CHECK(kedge_directory_find(d, 1, &p, LONG_MS) == -ECHILD);
	CHILD_CHECK(kedge_directory_replace(d, 1, NULL, &p, LONG_MS) == -ECHILD);
	kedge_directory_close(d);
	return 0;
}

static void a_child_leaves_the_parents_entries(void **state)
{
	assert_int_equal(replace(), 0);
	assert_int_equal(in_child(use_parents, NULL), 0);
	assert_int_equal(fake_cnt(f, REVOKE), 0);
	assert_int_equal(find(), 0);
	assert_int_equal(replace(), 0);
	assert_int_equal(fake_cnt(f, GRANT), 1);
}

/* A proxy that the environment names is for the program's own requests. */
static void the_environment_names_no_proxy(void **state)
{
	char dead[64];

	dead_url(dead);
	setenv("http_proxy", dead, 1);
	setenv("ALL_PROXY", dead, 1);
	assert_int_equal(find(), 0);
	unsetenv("http_proxy");
	unsetenv("ALL_PROXY");
}

static void a_pending_signal_stays(void **state)
{
	sigset_t pipe, before, pending;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	raise(SIGPIPE);
	assert_int_equal(find(), 0);
	sigpending(&pending);
	assert_true(sigismember(&pending, SIGPIPE));
	assert_int_equal(sigwaitinfo(&pipe, NULL), SIGPIPE);
	assert_int_equal(find(), 0);
	sigpending(&pending);
	assert_false(sigismember(&pending, SIGPIPE));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void without_descriptors_it_says_so(void **state)
{
	struct rlimit was, few;
	int rc, rc2;

	assert_int_equal(find(), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	rc = find();
	rc2 = replace();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_true(rc == -EMFILE || rc == -ENOMEM);
	assert_true(rc2 == -EMFILE || rc2 == -ENOMEM);
	assert_int_equal(find(), 0);
}

/* It acts at the program's next cancellation point, of which the call has none. No variable is on
 * the stack, which AddressSanitizer does not follow there. */
static void *look_cancelled(void *arg)
{
	static struct kedge_place p;

	pthread_cancel(pthread_self());
	atomic_store((_Atomic int *)arg, kedge_directory_find(d, 1, &p, LONG_MS));
	pthread_testcancel();
	return NULL;
}

static void a_call_is_no_cancellation_point(void **state)
{
	_Atomic int rc = 1;
	pthread_t t;
	void *end;

	assert_int_equal(pthread_create(&t, NULL, look_cancelled, &rc), 0);
	assert_int_equal(pthread_join(t, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	assert_int_equal(rc, 0);
}

/* ---- options ---- */

static void refuse(struct kedge_etcd_opts *o, int rc)
{
	struct kedge_directory *const before = (struct kedge_directory *)0x1;
	struct kedge_directory *other = before;

	o->size = o->size ? o->size : sizeof(*o);
	assert_int_equal(kedge_directory_open_etcd(o, &other), rc);
	assert_ptr_equal(other, before);
	assert_true(strlen(kedge_strerror(rc)) > 0);
}

static void wrong_endpoints_are_refused(void **state)
{
	static const char *const urls[] = {
		"", ",", "localhost:2379", "localhost", "ftp://h", "file:///etc/passwd",
		"http://", "http://u:p@h", "http://h/path", "http://h?q", "http://h#f",
		"http://h:99999", "http://a,gopher://b", "http://h h", "http://h\r\nX: y",
		"//h:2379", "http://a,http://b,http://c,http://d,http://e,http://f,http://g,"
		"http://h,http://i,http://j,http://k,http://l,http://m,http://n,http://o,"
		"http://p,http://q",
	};
	struct kedge_etcd_opts o = { .size = sizeof(o) };
	char longest[1000];
	size_t i;

	refuse(&o, -EINVAL);
	for (i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		o.endpoints = urls[i];
		refuse(&o, -EINVAL);
	}
	memset(longest, 'a', sizeof(longest));
	memcpy(longest, "http://", 7);
	longest[sizeof(longest) - 1] = '\0';
	o.endpoints = longest;
	refuse(&o, -EINVAL);
}

static void other_options_are_looked_at(void **state)
{
	static const char text[300] = { [0 ... 298] = 'a' };
	const struct kedge_etcd_opts good = { .size = sizeof(good), .endpoints = "http://h" };
	struct {
		struct kedge_etcd_opts o;
		uint64_t more;
	} newer = { good, 1 };
	struct kedge_directory *other;
	struct kedge_etcd_opts o;

#define REFUSE(rc, ...)                       \
	do {                                  \
		const struct kedge_etcd_opts set_ = { __VA_ARGS__ }; \
		o = set_;                     \
		o.endpoints = "http://h";     \
		refuse(&o, rc);               \
	} while (0)
	REFUSE(-EINVAL, .flags = 1);
	REFUSE(-EINVAL, .pad = 1);
	REFUSE(-EINVAL, .ttl_s = 86401);
	REFUSE(-EINVAL, .prefix = text);
	REFUSE(-EINVAL, .user = "a");
	REFUSE(-EINVAL, .password = "a");
	REFUSE(-EINVAL, .user = "", .password = "a");
	REFUSE(-EINVAL, .user = text, .password = "a");
	REFUSE(-EINVAL, .user = "a", .password = text);
	REFUSE(-EINVAL, .cert = "/dev/null");
	REFUSE(-EINVAL, .key = "/dev/null");
	REFUSE(-ENOENT, .ca = "/nowhere/ca");
	REFUSE(-ENOENT, .cert = "/nowhere/cert", .key = "/dev/null");
	REFUSE(-ENOENT, .cert = "/dev/null", .key = "/nowhere/key");
	REFUSE(-EINVAL, .size = 71);
#undef REFUSE
	/* As programs that are compiled with the first version have it. */
	o = good;
	o.size = 72;
	assert_int_equal(kedge_directory_open_etcd(&o, &other), 0);
	kedge_directory_close(other);
	newer.o.size = sizeof(newer);
	refuse(&newer.o, -E2BIG);
	newer.more = 0;
	assert_int_equal(kedge_directory_open_etcd(&newer.o, &other), 0);
	kedge_directory_close(other);
	assert_int_equal(kedge_directory_open_etcd(NULL, &other), -EINVAL);
	assert_int_equal(kedge_directory_open_etcd(&good, NULL), -EINVAL);
}

#define fake_case(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_case(a_place_is_found),
		fake_case(a_replacement_is_one_transaction),
		fake_case(the_prefix_is_the_callers),
		fake_case(wrong_answers_are_errors),
		fake_case(what_is_not_there_is_told),
		fake_case(a_replacement_is_sent_once),
		fake_case(an_endpoint_that_fails_is_passed_over),
		fake_case(a_dead_endpoint_is_passed_over),
		fake_case(a_child_leaves_the_parents_entries),
		fake_case(the_environment_names_no_proxy),
		fake_case(a_pending_signal_stays),
		fake_case(without_descriptors_it_says_so),
		fake_case(a_call_is_no_cancellation_point),
		cmocka_unit_test(wrong_endpoints_are_refused),
		cmocka_unit_test(other_options_are_looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
