// SPDX-License-Identifier: BSD-2-Clause
/* Announced changes: what kedge_hook_begin() and kedge_hook_end() do. */
#include "notifier.h"

#include <kedge/hooks.h>

#include "base/base.h"

#define LEN ((size_t)1 << 20)

static const char *backend;
static char *mem;

static int setup(void **state)
{
	struct kedge_notifier_opts opts = { .size = sizeof(opts),
					    .backend = backend };

	kedge_hook_attach(KEDGE_BLIND_RAW);
	mem = new_map(LEN);
	return kedge_notifier_open(&opts, &nf);
}

/* The one event that waits, and nothing else. */
static struct kedge_event only_event(void)
{
	struct kedge_event ev[4];

	assert_int_equal(kedge_notifier_read(nf, ev, 4), 2);
	assert_int_equal(ev[1].kind, KEDGE_EVENT_LAST);
	assert_int_equal(ev[1].generation, kedge_notifier_generation(nf));
	return ev[0];
}

static void expect_quiet(void)
{
	struct kedge_event ev[4];

	assert_int_equal(kedge_notifier_read(nf, ev, 4), 1);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_LAST);
}

static void it_is_seen_before_it_happens(void **state)
{
	struct kedge_hook hook;
	struct kedge_event ev;
	uint64_t before;

	assert_int_equal(kedge_watch_add(nf, mem, 65536, 7), 0);
	before = kedge_notifier_generation(nf);
	errno = 99;
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, mem + 4096, 4096);
	assert_int_equal(errno, 99);
	assert_int_not_equal(kedge_notifier_generation(nf), before);
	ev = only_event();
	assert_int_equal(ev.cookie, 7);
	assert_int_equal(ev.kind, KEDGE_EVENT_UNMAP);
	assert_int_equal(ev.flags, 0);
	assert_int_equal(ev.start, (uintptr_t)mem + 4096);
	assert_int_equal(ev.end, (uintptr_t)mem + 8192);
	kedge_hook_end(&hook);
	assert_int_equal(errno, 99);
	expect_quiet();
}

/* free() may unmap, and dlclose() unmaps somewhere: such an event says that it is unsure. */
static void what_is_only_possible_is_told_as_such(void **state)
{
	struct kedge_hook hook;
	struct kedge_event ev;

	assert_int_equal(kedge_watch_add(nf, mem, 65536, 7), 0);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP | KEDGE_HOOK_TELL_ONLY, mem, 4096);
	kedge_hook_end(&hook);
	ev = only_event();
	assert_int_equal(ev.kind, KEDGE_EVENT_UNMAP);
	assert_int_equal(ev.flags, KEDGE_EVENT_UNSURE);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, NULL, (size_t)mem + 4096);
	kedge_hook_end(&hook);
	ev = only_event();
	assert_int_equal(ev.flags, KEDGE_EVENT_UNSURE);
	/* Of several that are told at once one is enough. */
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP | KEDGE_HOOK_TELL_ONLY, mem, 4096);
	kedge_hook_end(&hook);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, mem + 8192, 4096);
	kedge_hook_end(&hook);
	ev = only_event();
	assert_int_equal(ev.flags, KEDGE_EVENT_UNSURE);
}

static void what_is_added_meanwhile_is_not_kept(void **state)
{
	struct kedge_hook hook;

	assert_int_equal(kedge_watch_add(nf, mem, 65536, 1), 0);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, mem, 65536);
	assert_int_equal(kedge_watch_add(nf, mem + 8192, 4096, 2),
			 KEDGE_WATCH_PROVISIONAL);
	kedge_hook_end(&hook);
	assert_int_equal(kedge_watch_add(nf, mem + 16384, 4096, 3), 0);
}

static void memory_nobody_watches_moves_nothing(void **state)
{
	uint64_t before;
	struct kedge_hook hook;

	assert_int_equal(kedge_watch_add(nf, mem, 4096, 1), 0);
	before = kedge_notifier_generation(nf);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, mem + LEN / 2, 4096);
	kedge_hook_end(&hook);
	assert_int_equal(kedge_notifier_generation(nf), before);
	expect_quiet();
}

static void nonsense_does_nothing(void **state)
{
	struct kedge_hook hook;

	assert_int_equal(kedge_watch_add(nf, mem, 4096, 1), 0);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, mem, 0);
	kedge_hook_end(&hook);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, mem, SIZE_MAX);
	kedge_hook_end(&hook);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, (void *)-4096ul, 4096);
	kedge_hook_end(&hook);
	expect_quiet();
}

/* Announced and done, then mapped anew: it must not count as watched. */
static void what_was_announced_is_watched_anew(void **state)
{
	struct kedge_hook hook;

	assert_int_equal(kedge_watch_add(nf, mem, 65536, 1), 0);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, mem, 65536);
	assert_int_equal(syscall(SYS_munmap, mem, 65536), 0);
	kedge_hook_end(&hook);
	assert_ptr_equal((void *)syscall(SYS_mmap, mem, 65536, PROT_READ,
					 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
					 -1, 0L), mem);
	assert_int_equal(kedge_watch_add(nf, mem, 65536, 2), -EOPNOTSUPP);
}

/* A registration in the middle would split what an mremap() is about to move. */
static void nothing_is_registered_while_mappings_move(void **state)
{
	struct kedge_notifier *own;
	char *p = new_pages(2), *q = new_pages(1);
	struct kedge_hook hook;

	if (need_uffd())
		skip();
	own = open_uffd();
	kedge_hook_begin(&hook, KEDGE_EVENT_REMAP | KEDGE_HOOK_ONE_MAPPING, p,
			 2 * page_len());
	assert_int_equal(kedge_watch_add(own, q, 1, 1), -EBUSY);
	kedge_hook_end(&hook);
	assert_int_equal(kedge_watch_add(own, q, 1, 1), 0);
	kedge_notifier_close(own);
}

#define LISTED NF_CASE
#include "test_announce.cases.h"

static int run(const char *name)
{
	backend = name;
	return cmocka_run_group_tests_name(name, cases, NULL, NULL);
}

int main(void)
{
	int failed = run("hooks");

	if (!need_uffd())
		failed += run("uffd");
	return failed ? 1 : 0;
}
