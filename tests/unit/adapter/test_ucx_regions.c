// SPDX-License-Identifier: BSD-2-Clause
/* Regions of UCX's caches that are dropped before a lookup, by a cache that is only a list. */
#include "cases.h"
#include "regions.h"

#define LEN	((size_t)4 << 12)
#define MAX	200
#define THREADS 3
#define ROUNDS	300

int __real_kedge_watch_add(struct kedge_notifier *nf, const void *addr, size_t len,
			   uint64_t cookie);
int __real_kedge_watch_remove(struct kedge_notifier *nf, uint64_t cookie);
int __wrap_kedge_watch_add(struct kedge_notifier *nf, const void *addr, size_t len,
			   uint64_t cookie);
int __wrap_kedge_watch_remove(struct kedge_notifier *nf, uint64_t cookie);

static struct regions *t;
static char *at;

/* ---- the cache above: regions that are not found any more, and a lock that it may have ---- */

struct entry {
	struct region r;
	uintptr_t start; /* of the cache itself, as UCX has them: they stay as they are */
	size_t len;
	_Atomic bool found;
};

static struct entry *_Atomic entries[MAX];
static _Atomic bool locked;
static _Atomic unsigned int drops, wide_drops;

static bool loses; /* drops */

static bool drop(uintptr_t start, size_t len)
{
	struct entry *e;
	size_t i;

	drops++;
	wide_drops += len > LEN * MAX;
	if (loses)
		return false;
	for (i = 0; i < MAX && !locked; i++) {
		e = entries[i];
		if (e && e->start < start + len && start < e->start + e->len)
			e->found = false;
	}
	return true;
}

static bool found(const struct region *r)
{
	return ((const struct entry *)r->above)->found;
}

static int said;

static void say(int rc)
{
	said = rc;
}

static const struct regions_ops ops = { .drop = drop, .found = found, .say = say };

static void add(struct entry *e, size_t slot, void *p, size_t len)
{
	e->start = (uintptr_t)p;
	e->len = len;
	e->found = true;
	entries[slot] = e;
	regions_begin(t, &e->r, e, (uintptr_t)p, len);
}

static bool end(struct entry *e, size_t slot)
{
	bool ours = regions_end(t, &e->r);

	entries[slot] = NULL;
	return ours;
}

/* ---- the notifier's calls ---- */

static _Thread_local bool adding;
static void (*in_add)(void);
static int add_rc;
static bool removed_early;

int __wrap_kedge_watch_add(struct kedge_notifier *nf, const void *addr, size_t len,
			   uint64_t cookie)
{
	int rc;

	if (add_rc < 0)
		return add_rc;
	adding = true;
	rc = __real_kedge_watch_add(nf, addr, len, cookie);
	if (in_add)
		in_add();
	adding = false;
	return rc ? rc : add_rc;
}

int __wrap_kedge_watch_remove(struct kedge_notifier *nf, uint64_t cookie)
{
	removed_early |= adding;
	return __real_kedge_watch_remove(nf, cookie);
}

/* ---- */

static void *map(void *where)
{
	int fixed = where ? MAP_FIXED : 0;
	char *p = mmap(where, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1,
		       0);

	assert_ptr_not_equal(p, MAP_FAILED);
	memset(p, 1, LEN);
	return p;
}

static uint64_t watches(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_notifier_info(regions_notifier(t), &info), 0);
	return info.watches;
}

static int setup(void **state)
{
	at = map(NULL);
	if (t)
		return 0;
	assert_int_equal(regions_open(&ops, &t), 0);
	if (!regions_notifier(t)) {
		print_message("nothing can be watched here: %s\n", kedge_strerror(said));
		exit(77);
	}
	return 0;
}

static int teardown(void **state)
{
	add_rc = 0;
	in_add = NULL;
	locked = false;
	assert_int_equal(regions_going(t), 0);
	assert_int_equal(watches(), 0);
	return munmap(at, LEN);
}

static void settle(void)
{
	regions_settle(t, (uintptr_t)at, LEN);
}

static void a_region_that_has_not_changed_stays(void **state)
{
	struct entry e;
	unsigned int before;

	add(&e, 0, at, LEN);
	settle();
	before = drops;
	settle();
	assert_true(e.found);
	assert_int_equal(drops, before);
	assert_true(end(&e, 0));
}

static void a_region_that_has_changed_is_dropped_before_a_lookup(void **state)
{
	struct entry e;

	add(&e, 0, at, LEN);
	map(at);
	settle();
	assert_false(e.found);
	assert_int_equal(regions_going(t), 0);
	/* It is held still; its watch is over. */
	assert_int_equal(watches(), 0);
	assert_true(end(&e, 0));
}

static void a_part_is_enough(void **state)
{
	struct entry e;

	add(&e, 0, at, LEN);
	madvise(at + 4096, 4096, MADV_DONTNEED);
	settle();
	assert_false(e.found);
	assert_true(end(&e, 0));
}

static void what_cannot_be_watched_is_dropped_before_the_next_lookup(void **state)
{
	struct entry e;

	add_rc = -EOPNOTSUPP;
	add(&e, 0, at, LEN);
	assert_int_equal(regions_going(t), 1);
	settle();
	assert_false(e.found);
	assert_true(end(&e, 0));
}

static void pages_on_their_way_out_are_not_kept(void **state)
{
	struct entry e;

	add_rc = KEDGE_WATCH_PROVISIONAL;
	add(&e, 0, at, LEN);
	settle();
	assert_false(e.found);
	assert_true(end(&e, 0));
}

/* UCX has its lock, and keeps the event; or it has no memory for that. */
static void a_region_that_is_found_still_is_told_of_again(void **state)
{
	struct entry e, later;
	unsigned int before;
	uint64_t since;

	add(&e, 0, at, LEN);
	map(at);
	locked = true;
	settle();
	assert_true(e.found);
	assert_int_equal(regions_going(t), 1);
	before = drops;
	settle();
	assert_true(drops > before);
	/* So it is told of what a lookup has found, but not of what began later. */
	since = regions_settle(t, 0, 0);
	add(&later, 1, at, LEN);
	assert_true(regions_may_be_stale(t));
	assert_true(regions_is_stale(t, &e.r, since));
	assert_false(regions_is_stale(t, &later.r, since));
	map(at);
	settle();
	assert_false(regions_is_stale(t, &later.r, since));
	assert_true(regions_is_stale(t, &later.r, regions_settle(t, 0, 0)));
	assert_true(end(&later, 1));
	locked = false;
	settle();
	assert_false(e.found);
	assert_int_equal(regions_going(t), 0);
	assert_false(regions_may_be_stale(t));
	assert_true(end(&e, 0));
}

static void a_region_that_ends_does_not_go_any_more(void **state)
{
	struct entry e, other;
	char *p = map(NULL);

	locked = true;
	add(&e, 0, at, LEN);
	add(&other, 1, p, LEN);
	map(at);
	map(p);
	settle();
	assert_int_equal(regions_going(t), 2);
	assert_true(end(&e, 0));
	assert_true(end(&other, 1));
	assert_int_equal(regions_going(t), 0);
	munmap(p, LEN);
}

static void change_and_look(void)
{
	in_add = NULL;
	map(at);
	settle();
}

/* A watch that is being added cannot be removed; it was left behind, and its events came when the
 * region was no more. */
static void a_change_while_its_watch_begins_ends_that_watch_later(void **state)
{
	struct entry e;

	removed_early = false;
	in_add = change_and_look;
	add(&e, 0, at, LEN);
	assert_false(removed_early);
	settle();
	assert_false(e.found);
	assert_int_equal(watches(), 0);
	assert_true(end(&e, 0));
}

static void more_than_are_told_of_at_once(void **state)
{
	static struct entry many[MAX];
	char *p = new_map(LEN * MAX);
	size_t i;

	for (i = 0; i < MAX; i++)
		add(&many[i], i, p + i * LEN, LEN);
	munmap(p, LEN * MAX);
	settle();
	for (i = 0; i < MAX; i++)
		assert_false(many[i].found);
	for (i = 0; i < MAX; i++)
		end(&many[i], i);

	/* They are going without an event. */
	add_rc = -EFAULT;
	for (i = 0; i < MAX; i++)
		add(&many[i], i, p + i * LEN, LEN);
	settle();
	for (i = 0; i < MAX; i++)
		assert_false(many[i].found);
	for (i = 0; i < MAX; i++)
		end(&many[i], i);
}

/* ---- a cache that says whether a drop is lost, and of no region whether it is found ---- */

static unsigned int anews;

static void anew(void)
{
	anews++;
}

static const struct regions_ops blind_ops = { .drop = drop, .say = say, .anew = anew };

/* One of each is enough: they are never closed. */
static struct regions *saved, *blind;

static int begin_blind(void **state)
{
	setup(state);
	if (!blind)
		assert_int_equal(regions_open(&blind_ops, &blind), 0);
	saved = t;
	t = blind;
	return 0;
}

static int end_blind(void **state)
{
	assert_int_equal(regions_going(t), 0);
	loses = false;
	t = saved;
	return teardown(state);
}

static void what_is_dropped_is_told_of_once(void **state)
{
	unsigned int before;
	struct entry e;

	add(&e, 0, at, LEN);
	map(at);
	settle();
	assert_false(e.found);
	before = drops;
	settle();
	assert_int_equal(drops, before);
	assert_int_equal(regions_going(t), 0);
	assert_true(end(&e, 0));
}

static void a_lost_drop_is_said_again(void **state)
{
	struct entry e;

	add(&e, 0, at, LEN);
	map(at);
	loses = true;
	assert_true(regions_settle(t, (uintptr_t)at, LEN) == REGIONS_LOST);
	assert_true(regions_settle(t, 0, 0) == REGIONS_LOST);
	assert_true(e.found);
	loses = false;
	assert_false(regions_settle(t, 0, 0) == REGIONS_LOST);
	assert_false(e.found);
	assert_int_equal(regions_going(t), 0);
	assert_true(end(&e, 0));
}

static int child_loses(struct entry *e)
{
	unsigned int before = wide_drops;

	if (regions_process(t) != 1 || anews != 1)
		return 1;
	/* No region is on a list: the drop of all is what is lost. */
	loses = true;
	if (regions_settle(t, 0, 0) != REGIONS_LOST || regions_settle(t, 0, 0) != REGIONS_LOST)
		return 2;
	loses = false;
	if (regions_settle(t, 0, 0) == REGIONS_LOST || wide_drops != before + 3 || e->found)
		return 3;
	settle();
	return wide_drops == before + 3 && anews == 1 ? 0 : 4;
}

static void a_child_says_again_that_all_has_gone(void **state)
{
	struct entry e;
	pid_t pid;

	need_threads_after_fork();
	add(&e, 0, at, LEN);
	settle();
	anews = 0;
	pid = fork();
	if (!pid)
		_exit(child_loses(&e));
	ended_well(pid);
	assert_int_equal(regions_process(t), 0);
	assert_true(end(&e, 0));
}

/* ---- forks ---- */

static int child_looks(struct entry *e, struct entry *own)
{
	unsigned int before = wide_drops;

	settle();
	if (e->found || wide_drops != before + 1)
		return 1;
	/* It is the parent's registration. */
	if (end(e, 0))
		return 2;
	/* The child keeps its own, and is told of changes. */
	add(own, 0, at, LEN);
	settle();
	if (!own->found || wide_drops != before + 1)
		return 3;
	map(at);
	settle();
	return own->found ? 4 : end(own, 0) ? 0 : 5;
}

static void a_child_has_none_of_its_parents_regions(pid_t (*make)(void))
{
	struct entry e, own;
	pid_t pid;

	add(&e, 0, at, LEN);
	settle();
	pid = make();
	if (!pid)
		_exit(child_looks(&e, &own));
	ended_well(pid);
	settle();
	assert_true(e.found);
	assert_true(end(&e, 0));
}

static pid_t by_instruction(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void a_forked_child(void **state)
{
	need_threads_after_fork();
	a_child_has_none_of_its_parents_regions(fork);
}

static void a_child_made_by_a_system_call(void **state)
{
	need_threads_after_fork();
	a_child_has_none_of_its_parents_regions(by_instruction);
}

/* ---- threads: memory of a region that has ended is used again at once ---- */

/* They are freed when all threads have ended: another one may look at their ranges. */
static struct entry *ended[THREADS][ROUNDS];

static void *storm(void *arg)
{
	const size_t slot = (size_t)(uintptr_t)arg;
	char *p = map(NULL);
	struct entry *e;
	int i, bad = 0;

	for (i = 0; i < ROUNDS; i++) {
		e = calloc(1, sizeof(*e));
		if (!e)
			break;
		add(e, slot, p, LEN);
		if (i & 1)
			map(p);
		regions_settle(t, (uintptr_t)p, LEN);
		bad += (i & 1) && e->found;
		/* The list of the test has no lock for what others look at. */
		entries[slot] = NULL;
		sched_yield();
		regions_end(t, &e->r);
		memset(&e->r, 0xff, sizeof(e->r));
		ended[slot][i] = e;
	}
	munmap(p, LEN);
	return (void *)(uintptr_t)bad;
}

static void threads_find_no_region_that_has_changed(void **state)
{
	pthread_t all[THREADS];
	size_t i, k;

	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&all[i], NULL, storm, (void *)(uintptr_t)i), 0);
	join_threads(all, THREADS);
	for (i = 0; i < THREADS; i++)
		for (k = 0; k < ROUNDS; k++)
			free(ended[i][k]);
}

#define BLIND(f) cmocka_unit_test_setup_teardown(f, begin_blind, end_blind)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_region_that_has_not_changed_stays),
		CASE(a_region_that_has_changed_is_dropped_before_a_lookup),
		CASE(a_part_is_enough),
		CASE(what_cannot_be_watched_is_dropped_before_the_next_lookup),
		CASE(pages_on_their_way_out_are_not_kept),
		CASE(a_region_that_is_found_still_is_told_of_again),
		CASE(a_region_that_ends_does_not_go_any_more),
		CASE(a_change_while_its_watch_begins_ends_that_watch_later),
		CASE(more_than_are_told_of_at_once),
		BLIND(what_is_dropped_is_told_of_once),
		BLIND(a_lost_drop_is_said_again),
		BLIND(a_child_says_again_that_all_has_gone),
		CASE(a_forked_child),
		CASE(a_child_made_by_a_system_call),
		CASE(threads_find_no_region_that_has_changed),
	};

	return RUN(tests);
}
