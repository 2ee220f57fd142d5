// SPDX-License-Identifier: BSD-2-Clause
/* main() of the tests that have no more to do in theirs. */
#include <fnmatch.h>

#include "cases.h"

/* With an argument, those cases alone whose names it matches. */
static bool is_known(const char *pattern)
{
	size_t i;

	for (i = 0; i < main_cases.cnt; i++)
		if (!fnmatch(pattern, main_cases.cases[i].name, 0))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const struct main_cases *m = &main_cases;

	if (argc > 1 && !is_known(argv[1])) {
		fprintf(stderr, "%s: no case is called %s\n", m->name, argv[1]);
		return 2;
	}
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	if (m->needed && m->needed())
		return 77;
	return _cmocka_run_group_tests(m->name, m->cases, m->cnt, NULL, NULL) ? 1 : 0;
}
