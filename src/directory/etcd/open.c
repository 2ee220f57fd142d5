// SPDX-License-Identifier: BSD-2-Clause
/*
 * The directory in etcd: its options, and its two operations as requests to etcd. A replacement
 * is one transaction, which compares and writes.
 */
#include <curl/curl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/process/cancel.h"
#include "directory/etcd/internal.h"

#define OPTS_V1	      STRUCT_END(struct kedge_etcd_opts, pad)
#define TTL_DEFAULT   30u
#define TTL_MAX	      86400u
#define ENDPOINT_MAX  512u
#define DEFAULT_PREFIX "/kedge/regions/"
#define PLACE64_MAX   80u /* bytes of a place in base64, with the 0 */
#define LEASE_TRIES   3

/* ---- operations ---- */

static void encode(char *to, size_t room, const void *bytes, size_t len)
{
	sodium_bin2base64(to, room, bytes, len, sodium_base64_VARIANT_ORIGINAL);
}

static void encode_key(const struct etcd *e, uint64_t region, char key64[KEY64_MAX])
{
	char key[PREFIX_MAX + 17];
	int len = snprintf(key, sizeof(key), "%s%016llx", e->prefix, (unsigned long long)region);

	encode(key64, KEY64_MAX, key, (size_t)len);
}

static int find(void *ctx, uint64_t region, struct kedge_place *place, int timeout_ms)
{
	struct etcd *e = ctx;
	char key[KEY64_MAX], body[KEY64_MAX + 32];
	struct found f = { .key = key };
	const struct request r = {
		.path = "/v3/kv/range",
		.body = body,
		.deadline = clock_deadline(timeout_ms),
		.parse = answer_find,
		.result = &f,
	};
	int rc = lease_check(e);

	if (rc)
		return rc;
	encode_key(e, region, key);
	snprintf(body, sizeof(body), "{\"key\":\"%s\"}", key);
	rc = user_post(e, &r);
	if (!rc)
		*place = f.place;
	return rc == -ENOKEY || rc == -EOPNOTSUPP
		       ? kedge_reason(-EPROTO, "etcd does not know what was asked") : rc;
}

/* A transaction in JSON. A key without an entry has 0 as the revision that created it. */
static void write_replace(char *body, const char *key, const struct kedge_place *from,
			  const struct kedge_place *to, int64_t lease)
{
	char place[PLACE64_MAX];

	body += sprintf(body, "{\"compare\":[{\"key\":\"%s\",", key);
	if (from) {
		encode(place, sizeof(place), from->bytes, sizeof(from->bytes));
		body += sprintf(body, "\"target\":\"VALUE\",\"value\":\"%s\"}]", place);
	} else {
		body += sprintf(body, "\"target\":\"CREATE\",\"create_revision\":\"0\"}]");
	}
	if (to) {
		encode(place, sizeof(place), to->bytes, sizeof(to->bytes));
		sprintf(body, ",\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\","
			"\"lease\":\"%lld\"}}]}", key, place, (long long)lease);
	} else {
		sprintf(body, ",\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}}]}", key);
	}
}

/* -ENOKEY: etcd has no such lease any more, and has not replaced the place. */
static int replace_once(struct etcd *e, const char *key, const struct kedge_place *from,
			const struct kedge_place *to, uint64_t deadline)
{
	char body[BODY_MAX];
	const struct request r = {
		.path = "/v3/kv/txn",
		.body = body,
		.deadline = deadline,
		.once = true,
		.parse = answer_replace,
	};
	int64_t lease = 0;
	int rc = lease_check(e);

	if (!rc && to)
		rc = lease_get(e, deadline, &lease);
	if (rc)
		return rc;
	write_replace(body, key, from, to, lease);
	rc = user_post(e, &r);
	if (to && (!rc || rc == -EINPROGRESS))
		lease_used(e, lease);
	if (to && rc == -ENOKEY)
		lease_gone(e, lease);
	return rc;
}

static int replace(void *ctx, uint64_t region, const struct kedge_place *from,
		   const struct kedge_place *to, int timeout_ms)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	char key[KEY64_MAX];
	int tries, rc = -ENOKEY;

	encode_key(ctx, region, key);
	for (tries = 0; rc == -ENOKEY && tries < LEASE_TRIES; tries++)
		rc = replace_once(ctx, key, from, to, deadline);
	return rc == -ENOKEY || rc == -EOPNOTSUPP
		       ? kedge_reason(-EPROTO, "etcd does not know a lease that it granted") : rc;
}

/* ---- open and close ---- */

static void wipe(char *secret)
{
	if (secret)
		sodium_memzero(secret, strlen(secret));
	free(secret);
}

static void etcd_free(struct etcd *e)
{
	free(e->endpoints);
	free(e->prefix);
	free(e->user);
	wipe(e->password);
	free(e->ca);
	free(e->cert);
	free(e->key);
	wipe(e->token);
	free(e);
}

/* A child has no thread, and perhaps a lock that a thread of the parent's had taken. */
static void close_etcd(void *ctx)
{
	struct etcd *e = ctx;

	if (e->pid == getpid()) {
		lease_end(e);
		pthread_cond_destroy(&e->changed);
		pthread_mutex_destroy(&e->lock);
	}
	etcd_free(e);
}

static bool has_part(CURLU *u, CURLUPart part)
{
	char *text = NULL;
	bool has = !curl_url_get(u, part, &text, 0);

	curl_free(text);
	return has;
}

/* An endpoint has a scheme, a host and perhaps a port; libcurl adds the path "/". */
static bool is_endpoint(const char *url)
{
	CURLU *u = curl_url();
	char *scheme = NULL, *path = NULL;
	bool ok;

	ok = u && strstr(url, "://") && strlen(url) < ENDPOINT_MAX &&
	     !curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER) &&
	     !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) &&
	     !curl_url_get(u, CURLUPART_PATH, &path, 0) &&
	     (!strcmp(scheme, "http") || !strcmp(scheme, "https")) && !strcmp(path, "/") &&
	     !has_part(u, CURLUPART_QUERY) && !has_part(u, CURLUPART_FRAGMENT);
	curl_free(scheme);
	curl_free(path);
	curl_url_cleanup(u);
	return ok;
}

static int take_endpoints(struct etcd *e)
{
	char *save = NULL, *at = strtok_r(e->endpoints, ",", &save);

	for (; at; at = strtok_r(NULL, ",", &save)) {
		if (e->endpoint_cnt == ENDPOINTS_MAX)
			return kedge_reason(-EINVAL, "more than %u endpoints of etcd",
					    ENDPOINTS_MAX);
		if (!is_endpoint(at))
			return kedge_reason(-EINVAL, "an endpoint of etcd is like "
					    "http://host:2379, not %.100s", at);
		if (at[strlen(at) - 1] == '/')
			at[strlen(at) - 1] = '\0';
		e->endpoint[e->endpoint_cnt++] = at;
	}
	return e->endpoint_cnt ? 0 : kedge_reason(-EINVAL, "no endpoint of etcd is given");
}

static int check_texts(const struct kedge_etcd_opts *o)
{
	if (o->flags || o->pad)
		return kedge_reason(-EINVAL, "unknown flags %#x", o->flags | o->pad);
	if (!o->endpoints)
		return kedge_reason(-EINVAL, "no endpoint of etcd is given");
	if (o->prefix && strlen(o->prefix) > PREFIX_MAX)
		return kedge_reason(-EINVAL, "a prefix has at most %u bytes", PREFIX_MAX);
	if (!o->user != !o->password)
		return kedge_reason(-EINVAL, "a user and a password come together");
	if (o->user && (!*o->user || strlen(o->user) > USER_MAX || strlen(o->password) > USER_MAX))
		return kedge_reason(-EINVAL, "a user, or a password, has 1 to %u bytes", USER_MAX);
	if (!o->cert != !o->key)
		return kedge_reason(-EINVAL, "a certificate and its key come together");
	if (o->ttl_s > TTL_MAX)
		return kedge_reason(-EINVAL, "a lease is for at most %u seconds", TTL_MAX);
	return 0;
}

static int check_file(const char *path)
{
	return !path || !access(path, R_OK) ? 0 : kedge_reason(-errno, "%.120s: %s", path,
							       strerror(errno));
}

static int check_files(const struct kedge_etcd_opts *o)
{
	int rc = check_file(o->ca);

	if (!rc)
		rc = check_file(o->cert);
	return rc ? rc : check_file(o->key);
}

static bool copy(char **to, const char *text)
{
	*to = text ? strdup(text) : NULL;
	return *to || !text;
}

static int copy_texts(struct etcd *e, const struct kedge_etcd_opts *o)
{
	if (copy(&e->endpoints, o->endpoints) && copy(&e->user, o->user) &&
	    copy(&e->prefix, o->prefix ? o->prefix : DEFAULT_PREFIX) &&
	    copy(&e->password, o->password) && copy(&e->ca, o->ca) && copy(&e->cert, o->cert) &&
	    copy(&e->key, o->key))
		return 0;
	return kedge_reason(-ENOMEM, "no memory for a directory");
}

static int init_locks(struct etcd *e)
{
	int rc = pthread_mutex_init(&e->lock, NULL);

	if (rc)
		return -rc;
	rc = clock_cond_init(&e->changed);
	if (rc)
		pthread_mutex_destroy(&e->lock);
	return -rc;
}

static const struct kedge_directory_ops ops = {
	.size = sizeof(ops),
	.find = find,
	.replace = replace,
	.close = close_etcd,
};

static int check_opts(const struct kedge_etcd_opts *o)
{
	int rc = check_texts(o);

	if (!rc)
		rc = check_files(o);
	return rc ? rc : http_init();
}

int kedge_directory_open_etcd(const struct kedge_etcd_opts *user, struct kedge_directory **out)
{
	struct kedge_etcd_opts o;
	struct etcd *e;
	NO_CANCEL();
	int rc;

	if (!user || !out)
		return kedge_reason(-EINVAL, "%s is NULL", user ? "the result" : "the options");
	rc = kedge__opts_copy(&o, sizeof(o), OPTS_V1, user);
	if (!rc)
		rc = check_opts(&o);
	if (rc)
		return rc;

	e = calloc(1, sizeof(*e));
	if (!e)
		return kedge_reason(-ENOMEM, "no memory for a directory");
	e->pid = getpid();
	e->ttl_s = o.ttl_s ? o.ttl_s : TTL_DEFAULT;
	rc = copy_texts(e, &o);
	if (!rc)
		rc = take_endpoints(e);
	if (rc)
		goto free_etcd;
	rc = init_locks(e);
	if (rc)
		goto free_etcd;
	rc = kedge_directory_open(&ops, e, out);
	if (rc)
		goto fini_locks;
	return 0;

fini_locks:
	pthread_cond_destroy(&e->changed);
	pthread_mutex_destroy(&e->lock);
free_etcd:
	etcd_free(e);
	return rc;
}
