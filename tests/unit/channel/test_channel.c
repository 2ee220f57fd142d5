// SPDX-License-Identifier: BSD-2-Clause
/*
 * Families of cases over the transport that TEST_CHANNEL_OVER names.
 *
 *	test_channel FAMILY [CASE]
 */
#include "cases.h"

static const struct {
	const char *name;
	int (*run)(void);
} families[] = {
	{ "messages", family_messages },
	{ "cancel", family_cancel },
	{ "ends", family_ends },
	{ "seldom", family_seldom },
	{ "word", family_word },
	{ "match", family_match },
	{ "pieces", family_pieces },
	{ "access", family_access },
};

int main(int argc, char **argv)
{
	int rc = pair_begin();
	size_t i;

	if (rc)
		return rc;
	cmocka_set_test_filter(argc > 2 ? argv[2] : NULL);
	for (i = 0; argc > 1 && i < ARRAY_SIZE(families); i++)
		if (!strcmp(argv[1], families[i].name))
			return families[i].run();
	fprintf(stderr, "usage: test_channel FAMILY [CASE]\n");
	return 1;
}
