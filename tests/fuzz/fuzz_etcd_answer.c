// SPDX-License-Identifier: BSD-2-Clause
/* Answers in etcd's place: what is taken is whole and within its bounds, what is not leaves the
 * result as it was. */
#include "feed.h"

#include "directory/etcd/answer.h"

static void try_find(const char *text, size_t len)
{
	const struct kedge_place before = { { 9 } };
	struct found f = { .key = "Zm9v", .place = before };
	int rc = answer_find(text, len, &f);

	CHECK(!rc || rc == -ENOENT || rc == -EPROTO);
	CHECK(!rc || !memcmp(&f.place, &before, sizeof(before)));
}

static void try_leases(const char *text, size_t len)
{
	struct granted g = { 7, 6 };
	int rc = answer_grant(text, len, &g);

	CHECK(!rc || rc == -EPROTO);
	CHECK(rc ? g.id == 7 && g.ttl_s == 6 : g.id > 0 && g.ttl_s && g.ttl_s <= INT32_MAX);
	g = (struct granted){ 7, 6 };
	rc = answer_renew(text, len, &g);
	CHECK(!rc || rc == -EPROTO || rc == -ENOKEY);
	CHECK(g.id == 7 && g.ttl_s && (!rc || g.ttl_s == 6));
}

static void try_token(const char *text, size_t len)
{
	char *token = malloc(TOKEN_MAX);
	size_t i;

	CHECK(token);
	if (!answer_token(text, len, token)) {
		CHECK(memchr(token, '\0', TOKEN_MAX) && token[0]);
		for (i = 0; token[i]; i++)
			CHECK(token[i] > ' ' && token[i] < 0x7f);
	}
	free(token);
}

static void try_failure(const char *text, size_t len)
{
	struct failure f;
	size_t i;

	answer_failure(text, len, &f);
	CHECK(memchr(f.why, '\0', sizeof(f.why)));
	for (i = 0; f.why[i]; i++)
		CHECK(f.why[i] >= ' ' && f.why[i] < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = exact_copy(data, size);
	int rc;

	try_find(text, size);
	rc = answer_replace(text, size, NULL);
	CHECK(!rc || rc == -ESTALE || rc == -EPROTO);
	try_leases(text, size);
	rc = answer_revoke(text, size, NULL);
	CHECK(!rc || rc == -EPROTO);
	try_token(text, size);
	try_failure(text, size);
	free(text);
	return 0;
}
