// SPDX-License-Identifier: BSD-2-Clause
/* Each step of a trace's beginning made to fail in turn, in a process of its own: the program goes
 * on without it, is told once, and keeps no descriptor. */
#include <kedge/hooks.h>

#include "../../fakes/faults.h"
#include "published.h"

#define REFUSED	 2 /* the notifier itself */
#define NOT_COME 3 /* to that step */
#define NOT_OURS 4

static unsigned int said;
static char last[512];

static void note(void *unused, int severity, const char *text)
{
	said++;
	snprintf(last, sizeof(last), "%s", text);
}

static void announce(char *p)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, p, page_len());
	kedge_hook_end(&hook);
}

static int one(void *step)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };
	unsigned int fds = open_fds();
	struct kedge_notifier *nf;
	char *p = new_pages(1);
	int rc, hit;

	kedge_log_set(note, NULL, KEDGE_LOG_WARN);
	setenv("KEDGE_TRACE", path_of("trace"), 1);
	fault_at(*(int *)step);
	rc = kedge_notifier_open(&o, &nf);
	hit = fault_hit();
	fault_at(0);
	if (rc)
		return REFUSED;
	CHILD_CHECK(kedge_watch_add(nf, p, page_len(), 1) >= 0);
	announce(p);
	kedge_notifier_close(nf);
	if (!hit) {
		CHILD_CHECK(!said);
		exit(NOT_COME);
	}
	if (!said || !strstr(last, "changes are not written to"))
		return NOT_OURS;
	CHILD_CHECK(said == 1 && open_fds() == fds);
	return 0;
}

static void a_trace_that_is_not_to_be_had(void **state)
{
	unsigned int ours = 0;
	int step, status = 0;

	for (step = 1; status != NOT_COME << 8; step++) {
		unlink(path_of("trace"));
		status = in_child(one, &step);
		assert_true(status == 0 || status == REFUSED << 8 || status == NOT_COME << 8 ||
			    status == NOT_OURS << 8);
		ours += !status;
	}
	/* The file, the ring, the thread. */
	assert_true(ours >= 3);
	assert_non_null(strstr(text_of_file(path_of("trace")), "kind=remove"));
	unlink(path_of("trace"));
}

#define LISTED PLAIN
#include "test_trace_faults.cases.h"

int main(void)
{
	int failed = need_uffd();

	if (failed)
		return failed;
	folder_begin();
	failed = cmocka_run_group_tests(cases, NULL, NULL);
	folder_end();
	return failed;
}
