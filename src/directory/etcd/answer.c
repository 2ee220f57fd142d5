// SPDX-License-Identifier: BSD-2-Clause
/*
 * See answer.h. Numbers of 64 bits come as strings, as JSON's numbers have 53; zeros and false
 * are left out. An answer that says yes or no by what is left out has to have a header, so that
 * an empty object of some other server is not taken for "no".
 */
#include "directory/etcd/answer.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define DEPTH_MAX 16
#define TTL_MAX	  INT32_MAX

/*
 * The depth is looked at before, as the parser calls itself for each level, on the stack of a
 * thread that is the program's. Brackets within strings do not count.
 */
static bool is_flat(const char *text, size_t len)
{
	bool quoted = false;
	int depth = 0;
	size_t i;

	for (i = 0; i < len; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else if (!quoted && (text[i] == '{' || text[i] == '['))
			depth++;
		else if (!quoted && (text[i] == '}' || text[i] == ']'))
			depth--;
		if (depth > DEPTH_MAX)
			return false;
	}
	return true;
}

static json_t *load(const char *text, size_t len)
{
	return is_flat(text, len) ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

static int malformed(const char *what)
{
	return kedge_reason(-EPROTO, "etcd's answer has no %s as etcd 3.4 gives it", what);
}

/* The object that an answer is, with its header. NULL: it is something else; the reason is set. */
static json_t *open_answer(const char *text, size_t len)
{
	json_t *o = load(text, len);

	if (json_is_object(json_object_get(o, "header")))
		return o;
	json_decref(o);
	malformed("JSON");
	return NULL;
}

/* A number of 64 bits, as a string of digits or as a number. False: it is something else. */
static bool number_of(const json_t *v, int64_t *n)
{
	const char *s = json_string_value(v);
	char *end;

	if (json_is_integer(v)) {
		*n = json_integer_value(v);
		return true;
	}
	if (!s || !(*s == '-' || (*s >= '0' && *s <= '9')))
		return false;
	errno = 0;
	*n = strtoll(s, &end, 10);
	return !errno && !*end && strlen(s) == json_string_length(v);
}

static int take_place(const json_t *kv, struct found *f)
{
	const json_t *v = json_object_get(kv, "value");
	const char *key = json_string_value(json_object_get(kv, "key"));
	struct kedge_place place;
	const char *end;
	size_t len;

	if (!key || strcmp(key, f->key))
		return malformed("key that was asked for");
	/* An empty value is left out. */
	if (!json_is_string(v) ||
	    sodium_base642bin(place.bytes, sizeof(place.bytes), json_string_value(v),
			      json_string_length(v), NULL, &len, &end,
			      sodium_base64_VARIANT_ORIGINAL) ||
	    len != sizeof(place.bytes) || end != json_string_value(v) + json_string_length(v))
		return kedge_reason(-EPROTO, "etcd's entry for the region is not of kedge: it is "
				    "not %zu bytes", sizeof(place.bytes));
	f->place = place;
	return 0;
}

int answer_find(const char *text, size_t len, void *result)
{
	const json_t *kvs;
	json_t *o = open_answer(text, len);
	int rc;

	if (!o)
		return -EPROTO;
	kvs = json_object_get(o, "kvs");
	if (!kvs)
		rc = kedge_reason(-ENOENT, "etcd has no place for that region");
	else if (!json_is_array(kvs) || json_array_size(kvs) != 1)
		rc = malformed("single entry");
	else
		rc = take_place(json_array_get(kvs, 0), result);
	json_decref(o);
	return rc;
}

int answer_replace(const char *text, size_t len, void *result)
{
	const json_t *yes;
	json_t *o = open_answer(text, len);
	int rc = 0;

	if (!o)
		return -EPROTO;
	yes = json_object_get(o, "succeeded");
	if (yes && !json_is_boolean(yes))
		rc = malformed("\"succeeded\"");
	else if (!json_is_true(yes))
		rc = kedge_reason(-ESTALE, "the place of the region is another than was expected");
	json_decref(o);
	return rc;
}

/* The lease that an object has. */
static int take_lease(const json_t *o, struct granted *g)
{
	int64_t id, ttl;

	if (!number_of(json_object_get(o, "ID"), &id) || id <= 0)
		return malformed("lease");
	if (!number_of(json_object_get(o, "TTL"), &ttl) || ttl <= 0 || ttl > TTL_MAX)
		return malformed("time of a lease");
	*g = (struct granted){ id, (uint32_t)ttl };
	return 0;
}

int answer_grant(const char *text, size_t len, void *result)
{
	json_t *o = open_answer(text, len);
	int rc;

	if (!o)
		return -EPROTO;
	rc = take_lease(o, result);
	json_decref(o);
	return rc;
}

/* A stream of answers, of which the first is the one: in an object "result". */
int answer_renew(const char *text, size_t len, void *result)
{
	struct granted *g = result, now;
	json_t *o = load(text, len);
	const json_t *r = json_object_get(o, "result");
	int64_t id;
	int rc;

	if (!json_is_object(json_object_get(r, "header")) ||
	    !number_of(json_object_get(r, "ID"), &id) || id != g->id) {
		rc = malformed("renewed lease");
	} else if (!json_object_get(r, "TTL")) {
		rc = kedge_reason(-ENOKEY, "etcd has no such lease any more");
	} else {
		rc = take_lease(r, &now);
		if (!rc)
			*g = now;
	}
	json_decref(o);
	return rc;
}

int answer_revoke(const char *text, size_t len, void *result)
{
	json_t *o = open_answer(text, len);

	json_decref(o);
	return o ? 0 : -EPROTO;
}

/* A token has printable characters alone, as it becomes a line of the next request's head. */
int answer_token(const char *text, size_t len, void *result)
{
	const json_t *v;
	json_t *o = open_answer(text, len);
	size_t i, n;
	int rc = 0;

	if (!o)
		return -EPROTO;
	v = json_object_get(o, "token");
	n = json_string_length(v);
	if (!n || n >= TOKEN_MAX)
		rc = malformed("token");
	for (i = 0; !rc && i < n; i++)
		if (json_string_value(v)[i] <= ' ' || json_string_value(v)[i] > '~')
			rc = malformed("token");
	if (!rc)
		memcpy(result, json_string_value(v), n + 1);
	json_decref(o);
	return rc;
}

void answer_failure(const char *text, size_t len, struct failure *f)
{
	json_t *o = load(text, len);
	const json_t *m = json_object_get(o, "message");
	size_t i, n = len;

	*f = (struct failure){ 0 };
	if (!json_is_string(m))
		m = json_object_get(o, "error");
	if (json_is_string(m)) {
		text = json_string_value(m);
		n = json_string_length(m);
		if (!number_of(json_object_get(o, "code"), &f->code))
			f->code = 0;
	}
	for (i = 0; i < n && i < sizeof(f->why) - 1; i++)
		f->why[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : ' ';
	while (i && f->why[i - 1] == ' ')
		f->why[--i] = '\0';
	json_decref(o);
}
