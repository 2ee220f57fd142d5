// SPDX-License-Identifier: BSD-2-Clause
/* See fake_etcd.h. A thread takes connections, one each serves them. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include <kedge/etcd.h>

#include "fake_etcd.h"

#define HEADER "\"header\":{\"cluster_id\":\"1\",\"member_id\":\"2\",\"revision\":\"3\"}"
#define PLACE  "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC"

const struct kedge_place fake_place = {
	"BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
};

static const char *const paths[] = {
	[RANGE] = "/v3/kv/range",
	[TXN] = "/v3/kv/txn",
	[GRANT] = "/v3/lease/grant",
	[KEEPALIVE] = "/v3/lease/keepalive",
	[REVOKE] = "/v3/lease/revoke",
	[AUTHENTICATE] = "/v3/auth/authenticate",
	[OTHER] = "",
};

struct conn {
	struct fake *f;
	int fd;
};

/* The string that is @key's value in @body. */
static void value_of(char *to, size_t room, const char *body, const char *key)
{
	const char *at = strstr(body, key);

	to[0] = '\0';
	if (at && strlen(at) > strlen(key))
		snprintf(to, room, "%.*s", (int)strcspn(at + strlen(key), "\""),
			 at + strlen(key));
}

/* Writes etcd's answer into @to. */
static void as_etcd(struct fake *f, enum fake_path path, const char *body, char *to, size_t room)
{
	char text[1024];

	switch (path) {
	case RANGE:
		value_of(text, sizeof(text), body, "\"key\":\"");
		snprintf(to, room, "{" HEADER ",\"kvs\":[{\"key\":\"%s\",\"create_revision\":\"2\","
			 "\"value\":\"" PLACE "\"}],\"count\":\"1\"}", text);
		return;
	case TXN:
		snprintf(to, room, "{" HEADER ",\"succeeded\":true,\"responses\":[]}");
		return;
	case GRANT:
		value_of(text, sizeof(text), body, "\"TTL\":\"");
		snprintf(to, room, "{" HEADER ",\"ID\":\"%u\",\"TTL\":\"%s\"}",
			 700 + ++f->granted, text);
		return;
	case KEEPALIVE:
		value_of(text, sizeof(text), body, "\"ID\":\"");
		snprintf(to, room, "{\"result\":{" HEADER ",\"ID\":\"%s\",\"TTL\":\"1\"}}\n", text);
		return;
	case AUTHENTICATE:
		snprintf(to, room, "{" HEADER ",\"token\":\"token.%u\"}", f->cnt[path]);
		return;
	default:
		snprintf(to, room, "{" HEADER "}");
	}
}

static void put(int fd, const void *data, size_t len)
{
	send(fd, data, len, MSG_NOSIGNAL);
}

static void wait_for_end(int fd)
{
	char byte;

	while (recv(fd, &byte, 1, 0) > 0)
		;
}

static void flood(int fd)
{
	char letters[4096];

	memset(letters, 'a', sizeof(letters));
	while (send(fd, letters, sizeof(letters), MSG_NOSIGNAL) > 0)
		;
}

static void answer(int fd, const struct fake_reply *r, const char *text)
{
	char head[256];
	size_t len = r->len ? r->len : strlen(text);

	snprintf(head, sizeof(head), "HTTP/1.1 %u X\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\n\r\n", r->status ? r->status : 200, len);
	put(fd, head, strlen(head));
	put(fd, text, len);
}

static void reply(struct conn *c, const struct fake_reply *r, const char *text)
{
	struct linger now = { 1, 0 };
	size_t len = r->len ? r->len : r->body ? strlen(r->body) : 0;

	switch (r->how) {
	case ANSWER:
		answer(c->fd, r, text);
		break;
	case RAW:
		put(c->fd, r->body, len);
		break;
	case RESET:
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		break;
	case HOLD:
		wait_for_end(c->fd);
		break;
	case FLOOD:
		put(c->fd, r->body, len);
		flood(c->fd);
		break;
	case CUT:
		break;
	}
}

static enum fake_path path_of(const char *head)
{
	enum fake_path p;

	for (p = 0; p < OTHER; p++)
		if (!strncmp(head, "POST ", 5) && !strncmp(head + 5, paths[p], strlen(paths[p])) &&
		    head[5 + strlen(paths[p])] == ' ')
			break;
	return p;
}

static void note_token(struct fake *f, const char *head, const char *end)
{
	const char *at = strstr(head, "Authorization: ");

	f->token[0] = '\0';
	if (at && at < end)
		snprintf(f->token, sizeof(f->token), "%.*s", (int)strcspn(at + 15, "\r\n"),
			 at + 15);
}

/* True: there is a whole request, which is answered and kept. */
static bool serve_request(struct conn *c, char *text)
{
	char *body = strstr(text, "\r\n\r\n"), *at = strstr(text, "Content-Length: ");
	struct fake *f = c->f;
	struct fake_reply r;
	enum fake_path p;
	char own[2048];

	if (!body || !at || strlen(body + 4) < (size_t)atoi(at + 16))
		return false;
	p = path_of(text);
	pthread_mutex_lock(&f->lock);
	f->cnt[p]++;
	note_token(f, text, body);
	snprintf(f->body[p], sizeof(f->body[p]), "%s", body + 4);
	r = f->on[p];
	if (r.times && !--f->on[p].times)
		f->on[p] = (struct fake_reply){ 0 };
	as_etcd(f, p, body + 4, own, sizeof(own));
	pthread_mutex_unlock(&f->lock);
	reply(c, &r, r.body ? r.body : own);
	return true;
}

static void *serve(void *arg)
{
	struct conn *c = arg;
	char text[8192] = "";
	size_t len = 0;
	ssize_t n;

	do {
		n = recv(c->fd, text + len, sizeof(text) - 1 - len, 0);
		len += n > 0 ? (size_t)n : 0;
		text[len] = '\0';
	} while (n > 0 && !serve_request(c, text));
	close(c->fd);
	atomic_fetch_sub(&c->f->conns, 1);
	free(c);
	return NULL;
}

static void *take_conns(void *arg)
{
	struct fake *f = arg;
	pthread_attr_t attr;
	pthread_t t;
	struct conn *c;
	int fd;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (;;) {
		fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);
		/* A test may leave the process no descriptors for a while. */
		if (fd < 0 && errno == EMFILE) {
			usleep(1000);
			continue;
		}
		if (fd < 0)
			break;
		c = malloc(sizeof(*c));
		*c = (struct conn){ f, fd };
		atomic_fetch_add(&f->conns, 1);
		if (pthread_create(&t, &attr, serve, c))
			abort();
	}
	pthread_attr_destroy(&attr);
	return NULL;
}

struct fake *fake_start(void)
{
	struct sockaddr_in a = { AF_INET, 0, { htonl(INADDR_LOOPBACK) }, { 0 } };
	socklen_t len = sizeof(a);
	struct fake *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	pthread_mutex_init(&f->lock, NULL);
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(f->fd, 64), 0);
	assert_int_equal(getsockname(f->fd, (struct sockaddr *)&a, &len), 0);
	f->port = ntohs(a.sin_port);
	snprintf(f->url, sizeof(f->url), "http://127.0.0.1:%u", f->port);
	assert_int_equal(pthread_create(&f->thread, NULL, take_conns, f), 0);
	return f;
}

void fake_end(struct fake *f)
{
	shutdown(f->fd, SHUT_RDWR);
	pthread_join(f->thread, NULL);
	close(f->fd);
	WAIT_FOR(!atomic_load(&f->conns));
	pthread_mutex_destroy(&f->lock);
	free(f);
}

void fake_set(struct fake *f, enum fake_path path, struct fake_reply r)
{
	pthread_mutex_lock(&f->lock);
	f->on[path] = r;
	pthread_mutex_unlock(&f->lock);
}

unsigned int fake_cnt(struct fake *f, enum fake_path path)
{
	unsigned int n;

	pthread_mutex_lock(&f->lock);
	n = f->cnt[path];
	pthread_mutex_unlock(&f->lock);
	return n;
}

const char *fake_body(struct fake *f, enum fake_path path)
{
	static char text[4096];

	pthread_mutex_lock(&f->lock);
	strcpy(text, f->body[path]);
	pthread_mutex_unlock(&f->lock);
	return text;
}

const char *fake_token(struct fake *f)
{
	static char text[256];

	pthread_mutex_lock(&f->lock);
	strcpy(text, f->token);
	pthread_mutex_unlock(&f->lock);
	return text;
}

struct kedge_place place_of(char c)
{
	struct kedge_place p;

	memset(p.bytes, c, sizeof(p.bytes));
	return p;
}

struct kedge_directory *open_at(const char *endpoints, uint32_t ttl_s)
{
	struct kedge_etcd_opts o = {
		.size = sizeof(o), .endpoints = endpoints, .ttl_s = ttl_s,
	};
	struct kedge_directory *d = NULL;

	assert_int_equal(kedge_directory_open_etcd(&o, &d), 0);
	assert_non_null(d);
	return d;
}

/* A socket that is bound and does not listen keeps its port to the end. */
void dead_url(char url[64])
{
	struct sockaddr_in a = { AF_INET, 0, { htonl(INADDR_LOOPBACK) }, { 0 } };
	static int fd = -1;
	socklen_t len = sizeof(a);

	if (fd < 0) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	}
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	snprintf(url, 64, "http://127.0.0.1:%u", ntohs(a.sin_port));
}
