// SPDX-License-Identifier: BSD-2-Clause
/* Answers of etcd: those that etcd 3.4 gives, and those that no etcd gives. */
#include "core.h"
#include "directory/etcd/answer.h"

#define H      "\"header\":{\"cluster_id\":\"324952591200643719\",\"revision\":\"3\"}"
#define B48    "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC"
#define KV(v)  "{" H ",\"kvs\":[{\"key\":\"Zm9v\",\"version\":\"1\",\"value\":" v "}]}"

static int find(const char *text, struct found *f)
{
	char *exact = malloc(strlen(text) + 1);
	int rc;

	/* As it comes, without a 0. */
	memcpy(exact, text, strlen(text));
	rc = answer_find(exact, strlen(text), f);
	free(exact);
	return rc;
}

static void a_place_is_found(void **state)
{
	struct found f = { .key = "Zm9v" };

	assert_int_equal(find(KV("\"" B48 "\""), &f), 0);
	assert_int_equal(f.place.bytes[0], 'B');
	assert_int_equal(f.place.bytes[47], 'B');
	assert_int_equal(find("{" H "}", &f), -ENOENT);
}

static void other_answers_are_no_places(void **state)
{
	static const char *const texts[] = {
		"", "{}", "[]", "null", "\"", "{", "x", "{" H, "{" H "}}", "{\"header\":1}",
		"{\"kvs\":[]}", "{" H ",\"kvs\":[]}", "{" H ",\"kvs\":{}}", "{" H ",\"kvs\":null}",
		"{" H ",\"kvs\":[1]}", "{" H ",\"kvs\":[{}]}",
		"{" H ",\"kvs\":[{\"key\":\"Zm9v\"}]}",
		"{" H ",\"kvs\":[{\"key\":\"Zm8v\",\"value\":\"" B48 "\"}]}",
		"{" H ",\"kvs\":[{\"key\":7,\"value\":\"" B48 "\"}]}",
		"{" H ",\"kvs\":[{\"value\":\"" B48 "\"}]}",
		"{" H ",\"kvs\":[{\"key\":\"Zm9v\",\"value\":\"" B48 "\"},"
		"{\"key\":\"Zm9v\",\"value\":\"" B48 "\"}]}",
		"{" H "," H ",\"kvs\":[{\"key\":\"Zm9v\",\"value\":\"" B48 "\"}]}",
		KV("\"\""), KV("7"), KV("null"), KV("[]"), KV("\"Qg==\""), KV("\"" B48 "Qg==\""),
		KV("\"" B48 "=\""), KV("\"" B48 "!\""), KV("\"!" B48 "\""), KV("\" " B48 "\""),
		KV("\"" B48 "\\u0000\""), KV("\"\\ud800\""), KV("\"\xff\xfe\""),
	};
	const struct kedge_place before = { { 9 } };
	struct found f = { .key = "Zm9v", .place = before };
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (find(texts[i], &f) != -EPROTO)
			fail_msg("it was taken: %s", texts[i]);
		assert_memory_equal(&f.place, &before, sizeof(before));
	}
}

/* A parser that calls itself for each level needs more stack than a thread may have. */
static void depth_is_bounded(void **state)
{
	static char text[100000];
	struct found f = { .key = "Zm9v" };

	memset(text, '[', sizeof(text));
	assert_int_equal(answer_find(text, sizeof(text), &f), -EPROTO);
	memset(text, '{', sizeof(text));
	assert_int_equal(answer_find(text, sizeof(text), &f), -EPROTO);
	/* Brackets in strings are none. */
	assert_int_equal(find("{" H ",\"x\":\"[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[\"}", &f), -ENOENT);
	assert_int_equal(find("{" H ",\"x\":[[[[[[[[[[[[[[]]]]]]]]]]]]]]}", &f), -ENOENT);
	assert_int_equal(find("{" H ",\"x\":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}", &f), -EPROTO);
}

static int replaced(const char *text)
{
	return answer_replace(text, strlen(text), NULL);
}

static void a_replacement_is_done_or_not(void **state)
{
	assert_int_equal(replaced("{" H ",\"succeeded\":true,\"responses\":[{}]}"), 0);
	assert_int_equal(replaced("{" H "}"), -ESTALE);
	assert_int_equal(replaced("{" H ",\"succeeded\":false}"), -ESTALE);
	/* A field left out means "no" in etcd's answers alone. */
	assert_int_equal(replaced("{}"), -EPROTO);
	assert_int_equal(replaced("{\"succeeded\":true}"), -EPROTO);
	assert_int_equal(replaced("{" H ",\"succeeded\":\"true\"}"), -EPROTO);
	assert_int_equal(replaced("{" H ",\"succeeded\":1}"), -EPROTO);
	assert_int_equal(replaced("{" H ",\"succeeded\":null}"), -EPROTO);
	assert_int_equal(replaced("{" H ",\"succeeded\":true"), -EPROTO);
}

static int granted(const char *text, struct granted *g)
{
	return answer_grant(text, strlen(text), g);
}

static void leases_are_numbers(void **state)
{
	static const char *const wrong[] = {
		"{" H "}", "{" H ",\"ID\":\"1\"}", "{" H ",\"TTL\":\"1\"}",
		"{" H ",\"ID\":\"0\",\"TTL\":\"1\"}", "{" H ",\"ID\":\"-1\",\"TTL\":\"1\"}",
		"{" H ",\"ID\":\"9223372036854775808\",\"TTL\":\"1\"}",
		"{" H ",\"ID\":\"1 \",\"TTL\":\"1\"}", "{" H ",\"ID\":\" 1\",\"TTL\":\"1\"}",
		"{" H ",\"ID\":\"0x1\",\"TTL\":\"1\"}", "{" H ",\"ID\":\"\",\"TTL\":\"1\"}",
		"{" H ",\"ID\":1.5,\"TTL\":\"1\"}", "{" H ",\"ID\":\"1\",\"TTL\":\"0\"}",
		"{" H ",\"ID\":\"1\",\"TTL\":\"-5\"}", "{" H ",\"ID\":\"1\",\"TTL\":[]}",
		"{" H ",\"ID\":\"1\",\"TTL\":\"2147483648\"}", "{\"ID\":\"1\",\"TTL\":\"1\"}",
		"{" H ",\"ID\":\"1\",\"TTL\":99999999999999999999}",
	};
	struct granted g = { 5, 6 };
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		if (granted(wrong[i], &g) != -EPROTO)
			fail_msg("it was taken: %s", wrong[i]);
		assert_int_equal(g.id, 5);
		assert_int_equal(g.ttl_s, 6);
	}
	assert_int_equal(granted("{" H ",\"ID\":\"9223372036854775807\",\"TTL\":\"30\"}", &g), 0);
	assert_int_equal(g.id, INT64_MAX);
	assert_int_equal(g.ttl_s, 30);
	assert_int_equal(granted("{" H ",\"ID\":7,\"TTL\":2147483647}", &g), 0);
	assert_int_equal(g.id, 7);
	assert_int_equal(g.ttl_s, INT32_MAX);
}

static void a_renewal_is_of_the_lease(void **state)
{
	static const char *const wrong[] = {
		"{" H ",\"ID\":\"7\",\"TTL\":\"3\"}",
		"{\"result\":{\"ID\":\"7\",\"TTL\":\"3\"}}",
		"{\"result\":{" H ",\"ID\":\"8\",\"TTL\":\"3\"}}",
		"{\"result\":{" H ",\"TTL\":\"3\"}}", "{\"result\":[]}", "{\"result\":null}",
		"{\"result\":{" H ",\"ID\":\"7\",\"TTL\":\"x\"}}",
		"{\"error\":{\"grpc_code\":14,\"message\":\"no leader\"}}",
	};
	struct granted g = { 7, 6 };
	const char *text = "{\"result\":{" H ",\"ID\":\"7\",\"TTL\":\"3\"}}\n";
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(answer_renew(wrong[i], strlen(wrong[i]), &g), -EPROTO);
	assert_int_equal(g.ttl_s, 6);
	assert_int_equal(answer_renew(text, strlen(text), &g), 0);
	assert_int_equal(g.ttl_s, 3);
	text = "{\"result\":{" H ",\"ID\":\"7\"}}\n";
	assert_int_equal(answer_renew(text, strlen(text), &g), -ENOKEY);
	/* One that has no lease of the number is no news of this one. */
	text = "{\"result\":{" H ",\"ID\":\"8\"}}\n";
	assert_int_equal(answer_renew(text, strlen(text), &g), -EPROTO);
}

static int token(const char *text, char *to)
{
	return answer_token(text, strlen(text), to);
}

/* It is a line of the next request. */
static void a_token_is_one_word(void **state)
{
	static const char *const wrong[] = {
		"{" H "}", "{" H ",\"token\":\"\"}", "{" H ",\"token\":7}",
		"{" H ",\"token\":\"a\\r\\nX: y\"}", "{" H ",\"token\":\"a b\"}",
		"{" H ",\"token\":\"\\u00e9\"}", "{" H ",\"token\":\"\\u007f\"}",
		"{\"token\":\"a\"}",
	};
	char to[TOKEN_MAX] = "before", text[TOKEN_MAX + 100];
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(token(wrong[i], to), -EPROTO);
	assert_string_equal(to, "before");
	assert_int_equal(token("{" H ",\"token\":\"KjplDcK.19\"}", to), 0);
	assert_string_equal(to, "KjplDcK.19");
	snprintf(text, sizeof(text), "{" H ",\"token\":\"%0*d\"}", (int)TOKEN_MAX - 1, 0);
	assert_int_equal(token(text, to), 0);
	assert_int_equal(strlen(to), TOKEN_MAX - 1);
	snprintf(text, sizeof(text), "{" H ",\"token\":\"%0*d\"}", (int)TOKEN_MAX, 0);
	assert_int_equal(token(text, to), -EPROTO);
}

static struct failure failure(const char *text)
{
	struct failure f;

	answer_failure(text, strlen(text), &f);
	return f;
}

static void failures_are_told_in_words(void **state)
{
	char text[1000];
	struct failure f = failure("{\"error\":\"e\",\"message\":\"etcdserver: no\",\"code\":5}");

	assert_int_equal(f.code, 5);
	assert_string_equal(f.why, "etcdserver: no");
	f = failure("{\"error\":\"e\"}");
	assert_int_equal(f.code, 0);
	assert_string_equal(f.why, "e");
	f = failure("Not Found\n");
	assert_string_equal(f.why, "Not Found");
	f = failure("");
	assert_string_equal(f.why, "");
	f = failure("{\"message\":\"a\\nb\\u001b[31m\"}");
	assert_string_equal(f.why, "a b [31m");
	f = failure("\x1b[31m\xff");
	assert_string_equal(f.why, " [31m");
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	f = failure(text);
	assert_int_equal(strlen(f.why), WHY_MAX - 1);
	f = failure("{\"message\":\"m\",\"code\":\"x\"}");
	assert_int_equal(f.code, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_place_is_found),
		cmocka_unit_test(other_answers_are_no_places),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(a_replacement_is_done_or_not),
		cmocka_unit_test(leases_are_numbers),
		cmocka_unit_test(a_renewal_is_of_the_lease),
		cmocka_unit_test(a_token_is_one_word),
		cmocka_unit_test(failures_are_told_in_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
