// SPDX-License-Identifier: BSD-2-Clause
/* See way.h. */
#include "fake_fabric.h"
#include "way.h"

#define LOOPBACK  "127.0.0.1"
#define CASES_MAX 64

static const struct way ways[] = {
	{ .name = "mapped" },
	{ .name = "stream", .served = true },
	{ .name = "tcp", .node = LOOPBACK, .served = true },
	{ .name = "lease", .node = LOOPBACK, .served = true, .leased = true,
	  .use = fake_fabric_use },
};

static struct way chosen;
const struct way *way = &chosen;

bool region_with(const char *variant)
{
	const char *with = getenv("TEST_REGION_WITH");

	return with && !strcmp(with, variant);
}

int test_rounds(int gate, int whole)
{
	const char *s = getenv("KEDGE_TEST_ROUNDS");

	return s ? atoi(s) : (int)by_circle((uint32_t)gate, (uint32_t)whole);
}

static const struct way *find_way(const char *name)
{
	const struct way *w;

	for (w = ways; w < ways + sizeof(ways) / sizeof(*ways); w++)
		if (!strcmp(w->name, name))
			return w;
	for (w = adapter_ways; w->name; w++)
		if (!strcmp(w->name, name))
			return w;
	return NULL;
}

/* Before a process of the test is forked, so that all share what the adapters count. */
static bool choose_way(const char *usual)
{
	const char *name = getenv("TEST_REGION_BY");
	const struct way *found = find_way(name ? name : usual);
	int rc;

	if (!found) {
		fprintf(stderr, "TEST_REGION_BY: this program has no way \"%s\"\n", name);
		return false;
	}
	chosen = *found;
	if (chosen.node_env)
		chosen.node = getenv(chosen.node_env);
	rc = fake_fabric_begin();
	if (!rc && way->use)
		rc = way->use(way->provider);
	if (rc)
		fprintf(stderr, "%s: %s\n", way->name, kedge_strerror(rc));
	return !rc;
}

static bool is_for_way(const struct CMUnitTest *t)
{
	switch ((uintptr_t)t->initial_state) {
	case FOR_MAPPED:
		return !way->served;
	case FOR_SERVED:
		return way->served && !way->leased;
	default:
		return true;
	}
}

int suite_run(const struct suite *s, const char *only)
{
	struct CMUnitTest tests[CASES_MAX];
	size_t i, cnt = 0;

	if (s->first)
		s->first();
	if (s->by && !choose_way(s->by))
		return 1;
	if (s->may_run && !s->may_run())
		return 77;
	for (i = 0; i < s->cnt; i++)
		if (is_for_way(&s->tests[i])) {
			assert_true(cnt < CASES_MAX);
			tests[cnt++] = s->tests[i];
		}
	if (only)
		cmocka_set_test_filter(only);
	return _cmocka_run_group_tests(s->name, tests, cnt, s->begin, s->end);
}
