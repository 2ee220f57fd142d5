// SPDX-License-Identifier: BSD-2-Clause
/*
 * Requests to etcd by libcurl: a connection for each (internal.h has why), to one endpoint after
 * the other. A request that must not be made twice goes to another endpoint only if it was not
 * sent to the one before: libcurl says so by the call of before_request(), which comes when the
 * connection is there, and its certificate looked at.
 */
#include <curl/curl.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "directory/etcd/internal.h"

#define ANSWER_MAX 16384u
#define LATER_MS   1000u
#define LOOK_NS	   1000000000u /* whether the directory is to be closed */
#define URL_MAX	   640u

struct transfer {
	const struct etcd *e;
	const struct request *r;
	CURLcode code;
	long status;
	int err; /* of socket() */
	bool sent;
	bool too_long;
	size_t len; /* of text */
	char url[URL_MAX];
	char error[CURL_ERROR_SIZE];
	char head[TOKEN_MAX + 32];
	char text[ANSWER_MAX];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode usable;

/* libcurl is never cleaned up: the program may use it, too, and end later. */
static void init_once(void)
{
	usable = curl_global_init(CURL_GLOBAL_DEFAULT);
}

int http_init(void)
{
	pthread_once(&once, init_once);
	return usable ? kedge_reason(-ENOMEM, "libcurl cannot begin: %s",
				     curl_easy_strerror(usable))
		      : 0;
}

/* ---- calls by libcurl ---- */

static size_t take_text(char *at, size_t one, size_t len, void *arg)
{
	struct transfer *t = arg;

	(void)one; /* 1 */
	if (len > sizeof(t->text) - t->len) {
		t->too_long = true;
		return 0;
	}
	memcpy(t->text + t->len, at, len);
	t->len += len;
	return len;
}

static int before_request(void *arg, char *to, char *from, int to_port, int from_port)
{
	struct transfer *t = arg;

	(void)to;
	(void)from;
	(void)to_port;
	(void)from_port;
	t->sent = true;
	return CURL_PREREQFUNC_OK;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct transfer *t = arg;
	int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);

	(void)purpose;
	if (fd >= 0)
		return fd;
	t->err = errno;
	return CURL_SOCKET_BAD;
}

/* ---- one request to one endpoint ---- */

static bool set_http(CURL *c, struct transfer *t, struct curl_slist *head)
{
	bool bad = false;

	bad |= curl_easy_setopt(c, CURLOPT_URL, t->url) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_PROXY, "") != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 1L) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_POSTFIELDS, t->r->body) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_HTTPHEADER, head) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->error) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) != CURLE_OK;
	/* A look-up of a name that takes too long is left to its thread, not waited for. */
	bad |= curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L) != CURLE_OK;
	return !bad;
}

static bool set_calls(CURL *c, struct transfer *t)
{
	bool bad = false;

	bad |= curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_text) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_WRITEDATA, t) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_PREREQFUNCTION, before_request) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_PREREQDATA, t) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, t) != CURLE_OK;
	return !bad;
}

static bool set_tls(CURL *c, const struct etcd *e)
{
	bool bad = false;

	bad |= curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) != CURLE_OK;
	if (e->ca) {
		bad |= curl_easy_setopt(c, CURLOPT_CAINFO, e->ca) != CURLE_OK;
		bad |= curl_easy_setopt(c, CURLOPT_CAPATH, NULL) != CURLE_OK;
	}
	if (e->cert) {
		bad |= curl_easy_setopt(c, CURLOPT_SSLCERT, e->cert) != CURLE_OK;
		bad |= curl_easy_setopt(c, CURLOPT_SSLKEY, e->key) != CURLE_OK;
	}
	return !bad;
}

static bool set_times(CURL *c, long connect_ms, long all_ms)
{
	return !curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, connect_ms) &&
	       !curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, all_ms);
}

static bool add_line(struct curl_slist **list, const char *line)
{
	struct curl_slist *l = curl_slist_append(*list, line);

	if (l)
		*list = l;
	return l;
}

static bool is_stopped(const struct transfer *t)
{
	return t->r->by_thread && atomic_load_explicit(&t->e->stop, memory_order_relaxed);
}

/*
 * libcurl counts its times by itself, in real time, and its errors say more of them: it is first.
 * The clock ends what a test has moved over.
 */
static CURLcode run(CURLM *m, const struct transfer *t, uint64_t connected_by, uint64_t until)
{
	uint64_t end;
	int running, left;

	while (!curl_multi_perform(m, &running)) {
		if (!running)
			return curl_multi_info_read(m, &left)->data.result;
		if (is_stopped(t))
			return CURLE_ABORTED_BY_CALLBACK;
		end = t->sent ? until : connected_by;
		if (clock_ns() >= end)
			return CURLE_OPERATION_TIMEDOUT;
		curl_multi_poll(m, NULL, 0, clock_wait_ms(clock_sooner(end, LOOK_NS)), NULL);
	}
	return CURLE_OUT_OF_MEMORY;
}

static void perform(struct transfer *t, long connect_ms, long all_ms)
{
	const uint64_t connected_by = clock_after_ms((uint64_t)connect_ms + LATER_MS);
	const uint64_t until = clock_after_ms((uint64_t)all_ms + LATER_MS);
	CURLM *m = curl_multi_init();
	struct curl_slist *head = NULL;
	CURL *c = curl_easy_init();

	t->code = CURLE_OUT_OF_MEMORY;
	t->error[0] = '\0';
	t->status = 0;
	t->err = 0;
	t->sent = t->too_long = false;
	t->len = 0;
	if (c && m && add_line(&head, "Content-Type: application/json") &&
	    (!t->head[0] || add_line(&head, t->head)) && set_http(c, t, head) &&
	    set_calls(c, t) && set_tls(c, t->e) && set_times(c, connect_ms, all_ms) &&
	    !curl_multi_add_handle(m, c)) {
		t->code = run(m, t, connected_by, until);
		curl_multi_remove_handle(m, c);
	}
	if (!t->code)
		curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &t->status);
	curl_easy_cleanup(c);
	curl_multi_cleanup(m);
	curl_slist_free_all(head);
}

/* SIGPIPE is kept out, as TLS libraries write without MSG_NOSIGNAL. One that the program has
 * pending already stays. */
static void perform_quietly(struct transfer *t, long connect_ms, long all_ms)
{
	const struct timespec now = { 0, 0 };
	sigset_t pipe, before, pending;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigemptyset(&pending);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	perform(t, connect_ms, all_ms);
	if (!sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- the outcome of a request ---- */

static int lost(const struct transfer *t, const char *how)
{
	return kedge_reason(-EINPROGRESS, "%s was asked and %s: it may have been done", t->url,
			    how);
}

/* libcurl's own text of this request, or else its general one. */
static const char *words(const struct transfer *t)
{
	return t->error[0] ? t->error : curl_easy_strerror(t->code);
}

static bool is_of_certificates(CURLcode code)
{
	return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
	       code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR ||
	       code == CURLE_SSL_INVALIDCERTSTATUS;
}

/* A request without an answer. Another endpoint is tried where @other is set. */
static int judge_failure(const struct transfer *t, bool *other)
{
	int rc = -EHOSTUNREACH;

	if (t->r->once && t->sent)
		return lost(t, words(t));
	if (t->code == CURLE_OUT_OF_MEMORY)
		return kedge_reason(-ENOMEM, "no memory for a request to etcd");
	if (t->code == CURLE_ABORTED_BY_CALLBACK)
		return kedge_reason(-ECANCELED, "the directory is closed");
	if (t->err == EMFILE || t->err == ENFILE || t->err == ENOMEM)
		return kedge_reason(-t->err, "no socket to ask etcd by: %s", strerror(t->err));
	*other = true;
	if (t->too_long)
		return kedge_reason(-EPROTO, "%s answers more than %u bytes: is it etcd?", t->url,
				    ANSWER_MAX);
	if (t->code == CURLE_OPERATION_TIMEDOUT)
		rc = -ETIMEDOUT;
	else if (is_of_certificates(t->code))
		rc = -EKEYREJECTED;
	else if (t->code == CURLE_WEIRD_SERVER_REPLY || t->code == CURLE_UNSUPPORTED_PROTOCOL)
		rc = -EPROTO;
	return kedge_reason(rc, "%s: %s", t->url, words(t));
}

/* etcd's own words tell some errors apart that have one number. */
static bool says(const struct failure *f, const char *words)
{
	return strstr(f->why, words);
}

/* The error of a request that was not carried out, as the number of its answer says; or 0. */
static int judge_refusal(const struct transfer *t, const struct failure *f)
{
	switch (t->status) {
	case 401:
		return TOKEN_REFUSED;
	case 400:
		/* An empty token was sent, of a time when users were not enabled yet. */
		if (says(f, "revision of auth store") || says(f, "user name is empty"))
			return TOKEN_REFUSED;
		if (says(f, "authentication failed"))
			return kedge_reason(-EACCES, "%s: %s", t->url, f->why);
		break;
	case 403:
		return kedge_reason(-EACCES, "%s: %s", t->url, f->why);
	case 404:
		if (f->code)
			return kedge_reason(-ENOKEY, "%s: %s", t->url, f->why);
		break;
	case 412:
		if (says(f, "authentication is not enabled"))
			return kedge_reason(-EOPNOTSUPP, "%s: %s", t->url, f->why);
		break;
	case 429:
		return kedge_reason(says(f, "space exceeded") ? -ENOSPC : -EBUSY, "%s: %s", t->url,
				    f->why);
	default:
		return 0;
	}
	return kedge_reason(-EPROTO, "%s answers %ld: %s", t->url, t->status, f->why);
}

static int judge_answer(const struct transfer *t, bool *other)
{
	struct failure f;
	int rc;

	if (t->status == 200) {
		rc = t->r->parse(t->text, t->len, t->r->result);
		return rc == -EPROTO && t->r->once ? lost(t, "its answer is not etcd's") : rc;
	}
	answer_failure(t->text, t->len, &f);
	rc = judge_refusal(t, &f);
	if (rc)
		return rc;
	if (t->r->once)
		return lost(t, f.why[0] ? f.why : "its answer is not etcd's");
	*other = true;
	return kedge_reason(t->status >= 500 ? -EHOSTUNREACH : -EPROTO, "%s answers %ld: %s",
			    t->url, t->status, f.why);
}

/* A share of the time until @deadline, in milliseconds, for one of @cnt; 0: the time is over. */
static long share_of(uint64_t deadline, unsigned int cnt)
{
	uint64_t now = clock_ns(), ms;

	if (deadline == UINT64_MAX)
		return PATIENCE_MS;
	if (now >= deadline)
		return 0;
	ms = (deadline - now) / 1000000u / cnt;
	return ms < 1 ? 1 : ms < INT32_MAX ? (long)ms : INT32_MAX;
}

/* The error becomes -ETIMEDOUT; the reason of the last endpoint stays a part of it. */
static int time_is_over(int rc)
{
	char why[200];

	if (rc == -ETIMEDOUT)
		return rc;
	snprintf(why, sizeof(why), "%s", rc ? kedge_strerror(rc) : "it was not asked");
	return kedge_reason(-ETIMEDOUT, "no answer of etcd in time; %s", why);
}

int http_post(struct etcd *e, const struct request *r, const char *token)
{
	struct transfer *t = malloc(sizeof(*t));
	unsigned int i, at, first;
	long share = 1;
	bool other = true;
	int rc = 0;

	if (!t)
		return kedge_reason(-ENOMEM, "no memory for a request to etcd");
	t->e = e;
	t->r = r;
	t->head[0] = '\0';
	if (token)
		snprintf(t->head, sizeof(t->head), "Authorization: %s", token);
	first = atomic_load_explicit(&e->first, memory_order_relaxed);
	for (i = 0; other && i < e->endpoint_cnt; i++) {
		share = share_of(r->deadline, e->endpoint_cnt - i);
		if (!share)
			break;
		at = (first + i) % e->endpoint_cnt;
		snprintf(t->url, sizeof(t->url), "%s%s", e->endpoint[at], r->path);
		perform_quietly(t, share, r->once ? share_of(r->deadline, 1) : share);
		other = false;
		rc = t->code ? judge_failure(t, &other) : judge_answer(t, &other);
		if (!other && !t->code)
			atomic_store_explicit(&e->first, at, memory_order_relaxed);
	}
	if (other && (!share || !share_of(r->deadline, 1)))
		rc = time_is_over(rc);
	sodium_memzero(t, sizeof(*t)); /* a token */
	free(t);
	return rc;
}
