// SPDX-License-Identifier: BSD-2-Clause
/*
 * Each call of the system's and of libc's fails in turn as a line by libfabric is made: the error
 * has a reason, what was begun is undone, and the next attempt succeeds.
 */
#include "core.h"
#include "refuse.h"
#include "region/fabric/fabric.h"

#include <kedge/ofi.h>

#define LEN   ((size_t)64 << 10)
#define STEPS 100u

static const unsigned char here[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };
static const struct fabric *f;
static const _Atomic bool over;

static int failing(unsigned int step, int (*fn)(void))
{
	int rc;

	fail_from(step);
	rc = fn();
	atomic_store(&fail_at, 0);
	return rc;
}

/* Once all of them have been named. */
static bool is_last(unsigned int step)
{
	return atomic_load(&calls) < step;
}

static int use(void)
{
	return kedge_region_use_ofi("tcp", NULL);
}

static char *at;

/* An owner's end, a peer's, and a put from here to there. */
static int put_by_new_lines(void)
{
	struct fabric_line *owner = NULL, *peer = NULL;
	const struct fabric_range unused = { 0 };
	struct fabric_loan *loan = NULL;
	struct fabric_end theirs, ours;
	uint32_t key;
	int rc;

	f = fabric();
	rc = f->lend(here, at, LEN, true, &loan, &key);
	if (!rc)
		rc = f->open(here, loan, &owner, &theirs);
	if (!rc)
		rc = f->open(here, NULL, &peer, &ours);
	if (!rc)
		rc = f->join(owner, &ours);
	if (!rc)
		rc = f->join(peer, &theirs);
	if (!rc)
		rc = f->put(peer, &unused, 7, "x", 1, &over, UINT64_MAX);
	if (peer)
		f->close(peer);
	if (owner)
		f->close(owner);
	if (loan)
		f->unlend(loan);
	return rc;
}

static void begin_child(unsigned int step)
{
	unsigned int threads = threads_now();
	int rc = failing(step, use);
	const bool last = is_last(step);

	if (rc) {
		CHILD_CHECK(*kedge_strerror(rc));
		CHILD_CHECK(!fabric());
		while (threads_now() != threads)
			usleep(1000);
		CHILD_CHECK(!use());
	}
	CHILD_CHECK(!put_by_new_lines());
	CHILD_CHECK(at[7] == 'x');
	_exit(last ? 1 : 0);
}

/* In processes of their own, as each has one thread for that. */
static void its_beginning_is_undone(void **state)
{
	unsigned int step;
	int status = 0;
	pid_t pid;

	for (step = 1; step < STEPS && !status; step++) {
		at[7] = 0;
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			begin_child(step);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	assert_in_range(step, 5, STEPS - 1);
}

static void lines_are_undone(void **state)
{
	const int with[] = { ENOMEM, EMFILE };
	unsigned int step, maps, n, failed = 0;
	int rc;

	assert_int_equal(use(), 0);
	assert_int_equal(put_by_new_lines(), 0);
	for (n = 0; n < 2; n++) {
		fail_with = with[n];
		for (step = 1; step < STEPS; step++) {
			maps = map_lines();
			rc = failing(step, put_by_new_lines);
			if (rc) {
				assert_true(*kedge_strerror(rc));
				failed++;
			}
			if (is_last(step))
				break;
			at[7] = 0;
			assert_int_equal(put_by_new_lines(), 0);
			assert_int_equal(at[7], 'x');
		}
		assert_true(step < STEPS);
		/* libfabric keeps some. */
		assert_in_range(map_lines(), 1, maps + 8);
	}
	assert_true(failed > 10);
	fail_with = ENOMEM;
}

const long counted_calls[] = { SYS_close_range, SYS_epoll_create1, SYS_signalfd4,
			       SYS_epoll_ctl, SYS_mremap, 0 };

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_beginning_is_undone),
		cmocka_unit_test(lines_are_undone),
	};

	at = __real_mmap64(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return at == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
