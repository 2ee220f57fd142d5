// SPDX-License-Identifier: BSD-2-Clause
/* main() of the tests that have no more to do in theirs. */
#include "cases.h"

int main(void)
{
	const struct main_cases *m = &main_cases;

	if (m->needed && m->needed())
		return 77;
	return _cmocka_run_group_tests(m->name, m->cases, m->cnt, NULL, NULL) ? 1 : 0;
}
