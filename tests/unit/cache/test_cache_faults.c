// SPDX-License-Identifier: BSD-2-Clause
/*
 * Each step of opening a cache, of a miss and of a hint made to fail in turn:
 * a clear error or a registration that is right; none stale, none lost.
 */
#include "cases.h"
#include "fakes/faults.h"

static struct nodev *dev;
static char *mem;
static unsigned int fds, threads;
static long live;

#define PAGES 16

static int setup(void **state)
{
	struct kedge_cache *c;
	const struct kedge_mr *mr;

	dev = nodev_new();
	mem = new_pages(PAGES);
	/* Makes the objects that are kept for the process. */
	assert_int_equal(kedge_cache_open(dev->dev, NULL, NULL, &c), 0);
	assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
	kedge_cache_put(c, mr);
	kedge_cache_close(c);
	fds = open_fds();
	threads = threads_now();
	return 0;
}

static int teardown(void **state)
{
	free_pages(mem, PAGES);
	nodev_free(dev);
	return 0;
}

static struct kedge_cache *open_cache(void)
{
	struct kedge_cache_opts o = { .size = sizeof(o), .hint_threads = 4 };
	struct kedge_cache *c = NULL;

	o.chunk_bytes = page_len();
	live = fault_live();
	assert_int_equal(kedge_cache_open(dev->dev, NULL, &o, &c), 0);
	return c;
}

static void close_cache(struct kedge_cache *c)
{
	kedge_cache_close(c);
	assert_int_equal(dev->live, 0);
	assert_int_equal(dev->wrong, 0);
	assert_int_equal(open_fds(), fds);
	assert_true(threads_are(threads));
	/* This thread's record stays until it next needs one. */
	assert_in_range(fault_live(), live - 1, live + 1);
}

/* A registration of it is alive, and gone when the memory is exchanged. */
static void must_work(struct kedge_cache *c)
{
	const struct kedge_mr *mr = NULL;
	uint64_t handle;

	assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
	handle = mr->device_handle;
	assert_true(dev->alive[handle]);
	kedge_cache_put(c, mr);
	pages_at(mem, 1);
	assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
	assert_int_not_equal(mr->device_handle, handle);
	assert_true(dev->alive[mr->device_handle]);
	kedge_cache_put(c, mr);
}

static int undo_every_step_of_open(uint32_t flags)
{
	struct kedge_cache_opts o = { .size = sizeof(o), .flags = flags };
	struct kedge_cache *const before = (struct kedge_cache *)0x1;
	int step, rc, hit = 1, errors = 0;

	for (step = 1; hit; step++) {
		struct kedge_cache *c = before;

		live = fault_live();
		fault_at(step);
		rc = kedge_cache_open(dev->dev, NULL, &o, &c);
		hit = fault_hit();
		fault_at(0);
		if (rc) {
			if (rc != -ENOMEM && rc != -EMFILE && rc != -EAGAIN)
				fail_msg("step %d, %s: %d", step, fault_name(),
					 rc);
			assert_ptr_equal(c, before);
			errors++;
			assert_int_equal(fault_live(), live);
			continue;
		}
		must_work(c);
		close_cache(c);
	}
	print_message("%d steps, %d of them needed\n", step - 2, errors);
	return errors;
}

static void open_undoes_every_step(void **state)
{
	int without = undo_every_step_of_open(0);

	assert_true(without >= 4);
	/* The thread, what it is known by, and what wakes it. */
	assert_int_equal(undo_every_step_of_open(KEDGE_CACHE_RESYNC),
			 without + 3);
}

static void a_miss_fails_or_is_right(void **state)
{
	const struct kedge_mr *const before = (const struct kedge_mr *)0x1;
	int step, rc, hit = 1, errors = 0;

	for (step = 1; hit; step++) {
		struct kedge_cache *c = open_cache();
		const struct kedge_mr *mr = before;

		fault_at(step);
		rc = kedge_cache_get(c, mem, 1, 0, &mr);
		hit = fault_hit();
		fault_at(0);
		if (rc) {
			if (rc != -ENOMEM && rc != -ENOSPC)
				fail_msg("step %d, %s: %d", step, fault_name(),
					 rc);
			assert_ptr_equal(mr, before);
			assert_int_equal(dev->live, 0);
			errors++;
		} else {
			assert_true(dev->alive[mr->device_handle]);
			kedge_cache_put(c, mr);
		}
		must_work(c);
		close_cache(c);
	}
	print_message("%d steps, %d of them needed\n", step - 2, errors);
}

/* The put too: whatever fails in it, the registration is neither lost nor
 * ended twice. Another thread's record has the reference. */
static void a_put_never_fails(void **state)
{
	int step, hit = 1;

	for (step = 1; hit; step++) {
		struct kedge_cache *c = open_cache();
		const struct kedge_mr *mr;

		assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
		pages_at(mem, 1);
		fault_at(step);
		kedge_cache_flush(c);
		kedge_cache_put(c, mr);
		hit = fault_hit();
		fault_at(0);
		assert_int_equal(dev->live, 0);
		must_work(c);
		close_cache(c);
	}
}

static void a_hint_does_what_it_can(void **state)
{
	size_t len = PAGES * page_len();
	int step, hit = 1;
	ssize_t n;

	for (step = 1; hit; step++) {
		struct kedge_cache *c = open_cache();

		fault_at(step);
		n = kedge_cache_hint(c, mem, len, 0);
		hit = fault_hit();
		fault_at(0);
		if (n < 0)
			assert_true(n == -ENOMEM || n == -ENOSPC ||
				    n == -EOPNOTSUPP);
		else
			assert_int_equal(n, dev->live * page_len());
		must_work(c);
		close_cache(c);
	}
}

/* All of the pieces, or none of them held. */
static void pieces_come_together_or_not(void **state)
{
	struct kedge_piece p[PAGES];
	int step, hit = 1;
	ssize_t n;

	for (step = 1; hit; step++) {
		struct kedge_cache *c = open_cache();

		fault_at(step);
		n = kedge_cache_getv(c, mem, PAGES * page_len(), 0, p, PAGES);
		hit = fault_hit();
		fault_at(0);
		if (n < 0)
			assert_true(n == -ENOMEM || n == -ENOSPC);
		else
			assert_int_equal(n, PAGES);
		kedge_cache_putv(c, p, n > 0 ? (size_t)n : 0);
		kedge_cache_flush(c);
		assert_int_equal(dev->live, 0);
		must_work(c);
		close_cache(c);
	}
}

static void a_resync_does_what_it_can(void **state)
{
	size_t len = PAGES * page_len();
	int step, hit = 1;
	ssize_t n;

	for (step = 1; hit; step++) {
		struct kedge_cache *c = open_cache();

		kedge_cache_hint(c, mem, len, 0);
		pages_at(mem, PAGES / 2);
		fault_at(step);
		n = kedge_cache_resync(c, NULL, 0);
		hit = fault_hit();
		fault_at(0);
		if (n < 0)
			assert_true(n == -ENOMEM || n == -ENOSPC);
		else
			assert_true((size_t)n <= len / 2);
		must_work(c);
		close_cache(c);
	}
}

/* With a pointer for each get, which may be what there is no memory for. */
static void a_get_that_is_verified_is_held_or_not(void **state)
{
	int step, rc, hit = 1, errors = 0;

	setenv("KEDGE_VERIFY", "1", 1);
	assert_true(undo_every_step_of_open(0) > 4);
	pieces_come_together_or_not(state);
	for (step = 1; hit; step++) {
		struct kedge_cache *c = open_cache();
		const struct kedge_mr *mr = NULL;

		fault_at(step);
		rc = kedge_cache_get(c, mem, 1, 0, &mr);
		hit = fault_hit();
		fault_at(0);
		errors += !!rc;
		kedge_cache_put(c, mr);
		kedge_cache_flush(c);
		assert_int_equal(dev->live, 0);
		must_work(c);
		close_cache(c);
	}
	assert_true(errors > 0);
	unsetenv("KEDGE_VERIFY");
}

static void a_promise_is_made_or_not(void **state)
{
	struct kedge_cache *c = open_cache();

	fault_at(1);
	assert_int_equal(kedge_cache_vouch(c, mem, 1), -ENOMEM);
	fault_at(0);
	assert_int_equal(kedge_cache_unvouch(c, mem, 1), -ENOENT);
	assert_int_equal(kedge_cache_vouch(c, mem, 1), 0);
	close_cache(c);
}

#define NEEDED need_uffd
#include "test_cache_faults.cases.h"
