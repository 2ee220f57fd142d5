// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_region_suites SUITE [CASE]: the cases of a family, or those that CASE is a pattern of, by
 * the way that TEST_REGION_BY names (tests/common/region/way.h). SUITE may be "contract".
 */
#include "suites.h"

static const struct suite *const suites[] = {
	&suite_migrate,	 &suite_migrate_kills, &suite_recommit, &suite_recommit_others,
	&suite_region_adapter, &suite_remote, &suite_remote_closed, &suite_remote_load,
	&suite_remote_peers, &suite_submit, &suite_submit_ends,
};

int main(int argc, char **argv)
{
	size_t i;

	if (argc == 2 && !strcmp(argv[1], "contract"))
		return contract_run();
	for (i = 0; argc > 1 && i < sizeof(suites) / sizeof(*suites); i++)
		if (!strcmp(suites[i]->name, argv[1]))
			return suite_run(suites[i], argc > 2 ? argv[2] : NULL);
	fprintf(stderr, "usage: test_region_suites SUITE [CASE]\n");
	return 1;
}
