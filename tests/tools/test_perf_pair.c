// SPDX-License-Identifier: BSD-2-Clause
/*
 * When kedge perf gives a pair up: not for a batch that takes long, but where no message
 * comes. The clock is the rank's, which moves it and waits until its parent has looked, so
 * that no delay decides.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/perf/perf.h"

#define MESSAGES 3

/* Shared with the ranks. */
static struct {
	_Atomic unsigned int now; /* seconds */
	_Atomic unsigned int looks;
} *timer;

static char said[200];

/* ---- what pair.c calls ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	*ts = (struct timespec){ .tv_sec = (time_t)timer->now };
	timer->looks++;
	return 0;
}

void util_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
}

int util_fail(int rc, const char *fmt, ...)
{
	snprintf(said, sizeof(said), "%s: %d", fmt, rc);
	return CMD_CANNOT;
}

void util_progress_at(struct util_progress *p, uint64_t done)
{
}

void perf_rank_run(struct perf_rank *r, const struct perf_req *req,
		   struct perf_rep *rep)
{
}

int perf_remote_run(struct perf_pair *pair, const struct perf_req *req,
		    struct perf_rep rep[2], struct util_progress *progress,
		    uint64_t done)
{
	return CMD_CANNOT;
}

void perf_remote_stop(struct perf_pair *pair)
{
}

/* ---- the ranks ---- */

/* The first look may have begun before. */
static void be_seen(void)
{
	unsigned int from = timer->looks;

	while (timer->looks - from < 2)
		usleep(1000);
}

/* @cnt: what is asked of a rank 0. Each message takes two thirds of the patience that
 * one has; 0: it gets none. */
static void batch(struct perf_moved *moved, uint64_t cnt)
{
	if (!cnt) {
		/* Patience begins at the first look. */
		be_seen();
		timer->now += 121;
	}
	while (!cnt)
		pause();
	while (cnt--) {
		be_seen();
		timer->now += 80;
		be_seen();
		moved->cnt++;
	}
}

void perf_rank_child(int fd, void *arg)
{
	const struct perf_child *c = arg;
	struct perf_rep rep = { 0 };
	struct perf_req req;

	proc_send(fd, &rep, sizeof(rep));
	while (!proc_recv(fd, &req, sizeof(req))) {
		if (!c->rank)
			batch(c->moved, req.cnt);
		proc_send(fd, &rep, sizeof(rep));
	}
}

/* ---- */

static int ask(uint64_t cnt)
{
	static const struct perf_side side = { .name = "side" };
	struct perf_pair pair = { .cfg = { .side = &side, .name = "way" } };
	struct perf_req req = { .kind = PERF_RUN, .cnt = cnt };
	struct perf_rep rep[2];
	int rc = perf_pair_start(&pair);

	assert_int_equal(rc, 0);
	rc = perf_pair_run(&pair, &req, rep, NULL, 0);
	perf_pair_stop(&pair, rc);
	assert_null(pair.moved);
	return rc;
}

static void a_batch_takes_as_long_as_its_messages(void **state)
{
	assert_int_equal(ask(MESSAGES), 0);
	assert_true(timer->now > 120);
}

static void a_pair_that_nothing_comes_to_is_given_up(void **state)
{
	assert_int_equal(ask(0), CMD_CANNOT);
	assert_string_equal(said, "side, way: nothing has come for 120 s");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_takes_as_long_as_its_messages),
		cmocka_unit_test(a_pair_that_nothing_comes_to_is_given_up),
	};

	timer = mmap(NULL, sizeof(*timer), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (timer == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
