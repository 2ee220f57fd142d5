// SPDX-License-Identifier: BSD-2-Clause
/* See clock.h. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock/clock.h"
#include "clock.h"

#define SLICE_NS 1000000u

static pthread_t hurrying;
static uint64_t step_ms, left_ms;
static _Atomic int resting;

void test_clock_begin(void)
{
	struct clock_page *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(page, MAP_FAILED);
	assert_null(kedge__clock);
	atomic_store(&page->slice_ns, SLICE_NS);
	kedge__clock = page;
}

void test_clock_move_ms(uint64_t ms)
{
	atomic_fetch_add(&kedge__clock->shift_ns, ms * 1000000u);
}

static void *hurry(void *unused)
{
	for (; !atomic_load(&resting) && left_ms; left_ms -= step_ms) {
		step_ms = left_ms < step_ms ? left_ms : step_ms;
		test_clock_move_ms(step_ms);
		usleep(1000);
	}
	return unused;
}

void test_clock_hurry(uint64_t ms)
{
	test_clock_hurry_by(ms, UINT64_MAX);
}

void test_clock_hurry_by(uint64_t ms, uint64_t all_ms)
{
	step_ms = ms;
	left_ms = all_ms;
	atomic_store(&resting, 0);
	assert_int_equal(pthread_create(&hurrying, NULL, hurry, NULL), 0);
}

void test_clock_rest(void)
{
	atomic_store(&resting, 1);
	pthread_join(hurrying, NULL);
}

void test_clock_end(void)
{
	struct clock_page *page = kedge__clock;

	kedge__clock = NULL;
	munmap(page, sizeof(*page));
}
