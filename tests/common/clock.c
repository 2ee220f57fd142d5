// SPDX-License-Identifier: BSD-2-Clause
/* See clock.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/clock/clock.h"
#include "clock.h"

#define SLICE_NS 1000000u

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

void test_clock_end(void)
{
	struct clock_page *page = kedge__clock;

	kedge__clock = NULL;
	munmap(page, sizeof(*page));
}
