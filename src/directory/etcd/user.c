// SPDX-License-Identifier: BSD-2-Clause
/*
 * Requests in the name of a user. etcd gives a token for the name and the password, and takes it
 * for some minutes; it forgets all tokens as it starts anew. A request that is refused for its
 * token was not carried out, so it is made once more, with a new token.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "directory/etcd/internal.h"

#define TRIES 3 /* a token may end between two requests, but not time and again */

/* A JSON string. @to has room for 6 bytes of each, two quotes and the 0. */
static char *quote(char *to, const char *text)
{
	*to++ = '"';
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
			to += sprintf(to, "\\u%04x", (unsigned char)*text);
		else
			*to++ = *text;
	*to++ = '"';
	*to = '\0';
	return to;
}

/* The token goes with the requests that follow. */
static int keep_token(struct etcd *e, const char *text)
{
	char *token = strdup(text), *was;

	if (!token)
		return kedge_reason(-ENOMEM, "no memory for etcd's token");
	pthread_mutex_lock(&e->lock);
	was = e->token;
	e->token = token;
	pthread_mutex_unlock(&e->lock);
	free(was);
	return 0;
}

/* An empty token says that etcd does not look at users: they are not enabled. */
static int ask_token(struct etcd *e, const struct request *for_this, char *token)
{
	char body[6 * 2 * USER_MAX + 64], *at = body;
	const struct request r = {
		.path = "/v3/auth/authenticate",
		.body = body,
		.deadline = for_this->deadline,
		.by_thread = for_this->by_thread,
		.parse = answer_token,
		.result = token,
	};
	int rc;

	at = quote(stpcpy(at, "{\"name\":"), e->user);
	at = quote(stpcpy(at, ",\"password\":"), e->password);
	stpcpy(at, "}");
	token[0] = '\0';
	rc = http_post(e, &r, NULL);
	sodium_memzero(body, sizeof(body));
	if (rc == TOKEN_REFUSED || rc == -ENOKEY)
		return kedge_reason(-EACCES, "etcd does not let the user %.60s in", e->user);
	if (rc && rc != -EOPNOTSUPP)
		return rc;
	return keep_token(e, token);
}

/* False: no token was asked for yet. */
static bool have_token(struct etcd *e, char *token)
{
	bool have;

	pthread_mutex_lock(&e->lock);
	have = e->token;
	if (have)
		strcpy(token, e->token);
	pthread_mutex_unlock(&e->lock);
	return have;
}

int user_post(struct etcd *e, const struct request *r)
{
	char token[TOKEN_MAX];
	int tries, rc = TOKEN_REFUSED;

	if (!e->user)
		rc = http_post(e, r, NULL);
	for (tries = 0; e->user && rc == TOKEN_REFUSED && tries < TRIES; tries++) {
		/* The kept token is tried first, and not a second time. */
		rc = tries || !have_token(e, token) ? ask_token(e, r, token) : 0;
		if (!rc)
			rc = http_post(e, r, token[0] ? token : NULL);
	}
	sodium_memzero(token, sizeof(token));
	if (rc == TOKEN_REFUSED)
		return kedge_reason(-EACCES, e->user ? "etcd refuses the token that it gave"
						     : "etcd wants a user and a password");
	return rc;
}
