/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers of etcd, as JSON: of a size that is bounded, from a host that may be any. Each
 * function takes a text of @len bytes and gives 0 or a negative errno; -EPROTO says that it is
 * not that answer, with a reason. Results are set on 0 alone.
 */
#ifndef DIRECTORY_ETCD_ANSWER_H
#define DIRECTORY_ETCD_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include <kedge/directory.h>

#define TOKEN_MAX 4096u /* bytes, with the 0 at its end */
#define WHY_MAX	  128u

/* The answer to a question for one key. */
struct found {
	const char *key; /* in base64, as it was asked for */
	struct kedge_place place;
};

/* A lease: its id, positive, and the seconds that etcd gives it. */
struct granted {
	int64_t id;
	uint32_t ttl_s;
};

/* An error: gRPC's number of it, or 0, and its text without control characters. */
struct failure {
	int64_t code;
	char why[WHY_MAX];
};

/* @result: struct found; also -ENOENT: there is no such key. */
int answer_find(const char *text, size_t len, void *result);
/* @result is not used; also -ESTALE: the comparison failed. */
int answer_replace(const char *text, size_t len, void *result);
/* @result: struct granted. */
int answer_grant(const char *text, size_t len, void *result);
/* @result: struct granted, with the id that is asked about; also -ENOKEY: there is no such
 * lease any more. */
int answer_renew(const char *text, size_t len, void *result);
/* @result is not used: it is an answer. */
int answer_revoke(const char *text, size_t len, void *result);
/* @result: TOKEN_MAX bytes. */
int answer_token(const char *text, size_t len, void *result);
/* A text that is no such error is told by its first characters. */
void answer_failure(const char *text, size_t len, struct failure *f);

#endif /* DIRECTORY_ETCD_ANSWER_H */
