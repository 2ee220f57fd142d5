// SPDX-License-Identifier: BSD-2-Clause
/* The contract: the same short list of cases for each way, of the families that have them all. */
#include "remote.h"
#include "suites.h"

static void the_way_is_the_one_asked_for(void **state)
{
	begin_remote(NULL);
	assert_int_equal(way_of(remote), way->leased ? KEDGE_REMOTE_RDMA
					 : way->served ? KEDGE_REMOTE_SERVED
						       : KEDGE_REMOTE_MAPPED);
	puts_byte(remote, LEN - 1, 'w');
	region_at()[7] = 'y';
	gets_byte(remote, 7, 'y');
	end_remote();
}

/*
 * A guess may be that of a handle which was there before, so it comes first. A region that has
 * migrated keeps its former owner's thread, so these come last.
 */
static const struct {
	const struct suite *of;
	const char *name;
} cases[] = {
	{ &suite_remote, "a_guess_is_refused" },
	{ &suite_remote, "another_process_puts_and_gets" },
	{ &suite_remote_peers, "peers_of_a_killed_owner_are_told" },
	{ &suite_remote, "what_is_beyond_fails_alone" },
	{ &suite_remote, "numbers_are_changed_atomically" },
	{ &suite_remote, "several_parts_are_one_access" },
	{ &suite_remote, "a_handle_gives_what_it_says" },
	{ &suite_remote, "a_part_is_no_more" },
	{ &suite_submit, "operations_of_a_thread_are_in_order" },
	{ &suite_submit, "each_operation_does_what_the_call_does" },
	{ &suite_submit, "what_must_wait_does_not_keep_the_thread" },
	{ &suite_submit, "its_time_is_over_alone" },
	{ &suite_remote, "a_suspended_region_is_waited_for" },
	{ &suite_remote, "a_revoked_handle_ends_alone" },
	{ &suite_remote, "a_closed_region_has_no_peers" },
	{ &suite_remote_load, "whatever_the_owner_does" },
	{ &suite_recommit, "all_of_it" },
	{ &suite_remote, "it_grows_and_is_trimmed_under_a_handle" },
	{ &suite_remote, "it_is_moved_under_a_handle" },
	{ &suite_migrate, "peers_go_on" },
	{ &suite_migrate, "a_region_goes_with_its_handles" },
	{ &suite_migrate, "what_is_suspended_stays" },
};

#define CASES (sizeof(cases) / sizeof(*cases))

static const struct CMUnitTest *find_case(const struct suite *of, const char *name)
{
	size_t i;

	for (i = 0; i < of->cnt; i++)
		if (!strcmp(of->tests[i].name, name))
			return &of->tests[i];
	fprintf(stderr, "%s has no case \"%s\"\n", of->name, name);
	exit(1);
}

int contract_run(void)
{
	struct CMUnitTest tests[CASES + 1] = {
		[CASES] = cmocka_unit_test(the_way_is_the_one_asked_for),
	};
	const struct suite s = { "contract", SUITE_OF(tests), .by = "mapped" };
	size_t i;

	for (i = 0; i < CASES; i++)
		tests[i] = *find_case(cases[i].of, cases[i].name);
	/* It is short in the whole, too, where the families have all rounds. */
	unsetenv("TESTS_WHOLE");
	return suite_run(&s, NULL);
}
