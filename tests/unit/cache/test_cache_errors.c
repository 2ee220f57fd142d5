// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cache where something is wrong: arguments, a device that refuses, a
 * forked child, threads that come and go, caches that close before them.
 */
#include "cache_pages.h"

static const struct kedge_mr *held; /* over a case that may be skipped */

static int end(void **state)
{
	put(held);
	held = NULL;
	return teardown(state);
}

static int try_get(const void *p, size_t len, const struct kedge_mr **mr)
{
	return kedge_cache_get(cache, p, len, WRITE, mr);
}

static void refuse_open(struct kedge_notifier *with,
			const struct kedge_cache_opts *o, int want)
{
	struct kedge_cache *const before = (struct kedge_cache *)0x1;
	struct kedge_cache *out = before;

	assert_int_equal(kedge_cache_open(dev->dev, with, o, &out), want);
	assert_ptr_equal(out, before);
}

static void bad_options_are_refused(void **state)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };
	struct {
		struct kedge_cache_opts o;
		uint64_t more;
	} newer = { { .size = sizeof(newer) }, 1 };
	struct kedge_cache *out;

	assert_int_equal(kedge_cache_open(NULL, NULL, &o, &out), -EINVAL);
	assert_int_equal(kedge_cache_open(dev->dev, NULL, &o, NULL), -EINVAL);
	o.size = 47; /* one less than 0.1 had */
	refuse_open(NULL, &o, -EINVAL);
	o.size = sizeof(o);
	o.flags = 1u << 31;
	refuse_open(NULL, &o, -EINVAL);
	o.flags = 0;
	o.max_regions = (1u << 24) + 1;
	refuse_open(NULL, &o, -E2BIG);
	refuse_open(NULL, &newer.o, -E2BIG);
	newer.more = 0;
	close_cache();
	assert_int_equal(kedge_cache_open(dev->dev, NULL, &newer.o, &cache), 0);
}

static uint64_t handle_in(struct kedge_cache *c)
{
	const struct kedge_mr *mr = NULL;
	uint64_t handle;

	assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
	handle = mr->device_handle;
	kedge_cache_put(c, mr);
	return handle;
}

/* Each is told of its own, in any order of looking; so is the adder of watches. */
static void a_notifier_serves_many(void **state)
{
	struct kedge_cache *other;
	struct kedge_event ev[4];
	uint64_t a, b;
	int round;

	assert_int_equal(kedge_notifier_open(NULL, &nf), 0);
	open_cache(NULL);
	assert_int_equal(kedge_cache_open(dev->dev, nf, NULL, &other), 0);
	assert_int_equal(kedge_watch_add(nf, mem, 1, 7), 0);
	for (round = 0; round < 6; round++) {
		a = handle_in(cache);
		b = handle_in(other);
		assert_int_equal(handle_in(cache), a);
		assert_int_equal(handle_in(other), b);
		pages_at(mem, 1);
		if (round % 3 == 0)
			assert_int_not_equal(handle_in(other), b);
		assert_int_not_equal(handle_in(cache), a);
		if (round % 3 == 1)
			assert_int_not_equal(handle_in(other), b);
		assert_int_equal(kedge_notifier_read(nf, ev, 4), 2);
		assert_int_equal(ev[0].cookie, 7);
		assert_int_equal(ev[0].start, addr_of(mem));
		assert_int_equal(ev[1].kind, KEDGE_EVENT_LAST);
		if (round % 3 == 2)
			assert_int_not_equal(handle_in(other), b);
		/* The mapping is another: so must the watch be. */
		assert_int_equal(kedge_watch_remove(nf, 7), 0);
		assert_int_equal(kedge_watch_add(nf, mem, 1, 7), 0);
	}
	kedge_cache_close(other);
	a = handle_in(cache);
	assert_int_equal(handle_in(cache), a);
}

/* The struct of a program that knows the first version alone. */
static void older_stats_are_filled(void **state)
{
	struct kedge_cache_stats st = { .lent = 7 };

	st.size = offsetof(struct kedge_cache_stats, lent);
	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	assert_int_equal(st.lent, 7);
	st.size--;
	assert_int_equal(kedge_cache_stats(cache, &st), -EINVAL);
}

static void bad_arguments_are_refused(void **state)
{
	const struct kedge_mr *const before = (const struct kedge_mr *)0x1;
	const struct kedge_mr *mr = before;
	struct kedge_cache_stats st = { .size = 8 };

	dev->attr.access = WRITE;
	dev->attr.max_len = 4 * page;
	open_cache(NULL);
	assert_int_equal(kedge_cache_get(NULL, mem, 1, 0, &mr), -EINVAL);
	assert_int_equal(kedge_cache_get(cache, mem, 1, 0, NULL), -EINVAL);
	assert_int_equal(try_get(mem, 0, &mr), -EINVAL);
	assert_int_equal(try_get(mem, SIZE_MAX, &mr), -EINVAL);
	assert_int_equal(try_get((void *)UINTPTR_MAX, 1, &mr), -EINVAL);
	assert_int_equal(try_get((void *)(UINTPTR_MAX - 7), 3, &mr), -EINVAL);
	assert_int_equal(kedge_cache_get(cache, mem, 1, 1u << 30, &mr),
			 -EINVAL);
	assert_int_equal(kedge_cache_get(cache, mem, 1,
					 KEDGE_ACCESS_REMOTE_READ, &mr),
			 -EOPNOTSUPP);
	assert_int_equal(try_get(mem, 5 * page, &mr), -E2BIG);
	assert_int_equal(try_get(mem + 1, 4 * page, &mr), -E2BIG);
	assert_int_equal(kedge_cache_hint(NULL, mem, 1, 0), -EINVAL);
	assert_int_equal(kedge_cache_hint(cache, mem, 0, 0), -EINVAL);
	assert_int_equal(kedge_cache_hint(cache, mem, SIZE_MAX, 0), -EINVAL);
	assert_int_equal(kedge_cache_hint(cache, mem, 1, 1u << 30), -EINVAL);
	assert_int_equal(kedge_cache_flush(NULL), -EINVAL);
	assert_int_equal(kedge_cache_stats(NULL, &st), -EINVAL);
	assert_int_equal(kedge_cache_stats(cache, NULL), -EINVAL);
	assert_int_equal(kedge_cache_stats(cache, &st), -EINVAL);
	assert_ptr_equal(mr, before);
	assert_int_equal(dev->regs, 0);
	kedge_cache_put(cache, NULL);
	kedge_cache_put(NULL, before);
	kedge_cache_close(NULL);
	/* A range longer than the device takes is hinted in pieces. */
	assert_int_equal(kedge_cache_hint(cache, mem, PAGES * page, 0),
			 PAGES * page);
	assert_true(dev->last_len <= 4 * page);
}

static void a_full_device_makes_room(void **state)
{
	size_t i;

	dev->max_live = 4;
	for (i = 0; i < 8; i++)
		put(get_at(at(2 * i), 1, WRITE));
	/* One goes for one, however long the new one is. */
	assert_int_equal(stats().evictions, 4);
	put(get_at(at(24), 16 * page, WRITE));
	assert_int_equal(stats().evictions, 5);
	assert_int_equal(dev->live, 4);
	assert_int_equal(stats().failures, 0);
}

static void refused_for(int rc)
{
	const struct kedge_mr *mr = NULL;
	size_t i;

	for (i = 0; i < 4; i++)
		put(get_at(at(2 * i), 1, WRITE));
	dev->fail_rc = rc;
	dev->fail_cnt = 1;
	put(get_at(at(16), 1, WRITE));
	assert_int_equal(stats().evictions, 1);
	assert_int_equal(stats().failures, 0);
	/* For ever: a clean failure, when all that can go has gone. */
	dev->fail_cnt = -1;
	assert_int_equal(try_get(at(32), 1, &mr), rc);
	assert_null(mr);
	assert_int_equal(dev->live, 0);
	assert_int_equal(stats().failures, 1);
	assert_int_equal(stats().bytes, 0);
	assert_non_null(strstr(kedge_strerror(rc), "told to fail"));
	dev->fail_cnt = 0;
	put(get_at(at(32), 1, WRITE));
}

static int is_full(void *ctx, void *addr, size_t len, uint32_t access,
		   struct kedge_device_mr *mr)
{
	return -ENOSPC;
}

static void ends_nothing(void *ctx, const struct kedge_device_mr *mr)
{
}

/* It is no notifier's, nor an earlier failure's. */
static void a_device_without_a_reason_has_the_general_one(void **state)
{
	const struct kedge_device_ops ops = {
		.size = sizeof(ops),
		.name = "full",
		.reg = is_full,
		.dereg = ends_nothing,
	};
	const struct kedge_mr *mr;
	struct kedge_device *full;
	struct kedge_cache *c;

	assert_int_equal(kedge_device_open(&ops, NULL, &full), 0);
	assert_int_equal(kedge_cache_open(full, NULL, NULL, &c), 0);
	kedge_reason(-ENOSPC, "of before");
	assert_int_equal(kedge_cache_get(c, at(0), page, WRITE, &mr), -ENOSPC);
	assert_non_null(strstr(kedge_strerror(-ENOSPC), "the device's table"));
	kedge_cache_close(c);
	kedge_device_close(full);
}

static void enospc_of_the_device_evicts_one_and_tries_again(void **state)
{
	refused_for(-ENOSPC);
}

static void enomem_of_the_device_evicts_one_and_tries_again(void **state)
{
	refused_for(-ENOMEM);
}

static void eagain_of_the_device_evicts_one_and_tries_again(void **state)
{
	refused_for(-EAGAIN);
}

static void what_is_held_survives_a_full_device(void **state)
{
	const struct kedge_mr *all[4], *mr = NULL;
	size_t i;

	dev->max_live = 4;
	for (i = 0; i < 4; i++)
		all[i] = get_at(at(2 * i), 1, WRITE);
	assert_int_equal(try_get(at(16), 1, &mr), -ENOSPC);
	assert_null(mr);
	assert_int_equal(stats().evictions, 0);
	for (i = 0; i < 4; i++) {
		assert_true(dev->alive[all[i]->device_handle]);
		kedge_cache_put(cache, all[i]);
	}
	put(get_at(at(16), 1, WRITE));
}

static void other_errors_evict_nothing(void **state)
{
	static const int errors[] = { -EBADF, -EFAULT, -EPERM, -EIO };
	const struct kedge_mr *mr = NULL;
	size_t i;

	put(get_at(at(0), 1, WRITE));
	for (i = 0; i < 4; i++) {
		dev->fail_rc = errors[i];
		dev->fail_cnt = -1;
		assert_int_equal(try_get(at(16), 1, &mr), errors[i]);
		assert_int_equal(kedge_cache_hint(cache, at(16), 1, 0),
				 errors[i]);
	}
	assert_null(mr);
	assert_int_equal(dev->live, 1);
	assert_int_equal(stats().failures, 4);
}

/* The pages change under the device's hands. */
static void change_it(struct nodev *d, void *addr, size_t len)
{
	d->on_reg = NULL;
	pages_at(addr, 1);
}

static void what_changes_while_registered_is_made_again(void **state)
{
	const struct kedge_mr *mr;

	dev->on_reg = change_it;
	mr = get_at(mem, 2 * page, WRITE);
	assert_int_equal(dev->regs, 2);
	assert_int_equal(dev->deregs, 1);
	assert_int_equal(mr->device_handle, 2);
	kedge_cache_put(cache, mr);
	put(get_at(mem, 1, WRITE));
	assert_int_equal(dev->regs, 2);
}

static int use_in_child(void *arg)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };
	const struct kedge_mr *mr = NULL;

	CHILD_CHECK(try_get(mem, 1, &mr) == -ECHILD && !mr);
	CHILD_CHECK(kedge_cache_hint(cache, mem, 1, 0) == -ECHILD);
	CHILD_CHECK(kedge_cache_flush(cache) == -ECHILD);
	CHILD_CHECK(kedge_cache_stats(cache, &st) == -ECHILD);
	kedge_cache_put(cache, held);
	kedge_cache_close(cache);
	/* The parent's registrations are not the child's to end. */
	CHILD_CHECK(dev->deregs == 0);
	/* It opens its own. */
	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &cache));
	CHILD_CHECK(!try_get(mem, 1, &mr));
	kedge_cache_put(cache, mr);
	kedge_cache_close(cache);
	CHILD_CHECK(dev->deregs == 1);
	return 0;
}

static void a_child_is_told_not_yours(void **state)
{
	held = get_at(mem, 1, WRITE);
	assert_int_equal(in_child(use_in_child, NULL), 0);
	assert_int_equal(in_raw_child(use_in_child, NULL), 0);
	kedge_cache_put(cache, held);
	held = NULL;
	put(get_at(mem, 1, WRITE));
	assert_int_equal(dev->regs, 1);
}

static void *put_it(void *mr)
{
	kedge_cache_put(cache, mr);
	return NULL;
}

static void *get_it(void *p)
{
	const struct kedge_mr *mr = NULL;

	return try_get(p, 1, &mr) ? NULL : (void *)mr;
}

static void a_put_may_be_another_threads(void **state)
{
	const struct kedge_mr *mr;

	mr = get_at(mem, 1, WRITE);
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	in_thread(put_it, (void *)mr);
	assert_int_equal(dev->live, 0);
}

static void a_reference_outlives_its_thread(void **state)
{
	const struct kedge_mr *a, *b;

	a = in_thread(get_it, mem);
	b = in_thread(get_it, mem); /* takes the first one's record over */
	assert_non_null(a);
	assert_ptr_equal(a, b);
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	kedge_cache_put(cache, a);
	assert_int_equal(dev->live, 1);
	in_thread(put_it, (void *)b);
	assert_int_equal(dev->live, 0);
}

static pthread_key_t late_key;
static pthread_barrier_t adopted;

/*
 * Runs when the library's own destructor has run: the thread's record may be
 * another's by now, and is not to be written to by two.
 */
static void late(void *arg)
{
	const struct kedge_mr *mr;
	int i;

	pthread_barrier_wait(&adopted); /* the other is let in, */
	pthread_barrier_wait(&adopted); /* and has a record */
	for (i = 0; i < 200000; i++)
		if (!try_get(mem, 1, &mr))
			kedge_cache_put(cache, mr);
}

static void *get_late(void *arg)
{
	const struct kedge_mr *mr;

	if (!try_get(mem, 1, &mr))
		kedge_cache_put(cache, mr);
	pthread_setspecific(late_key, arg);
	return NULL;
}

static void *get_meanwhile(void *arg)
{
	const struct kedge_mr *mr;
	int i;

	pthread_barrier_wait(&adopted);
	if (!try_get(mem, 1, &mr))
		kedge_cache_put(cache, mr);
	pthread_barrier_wait(&adopted);
	for (i = 0; i < 200000; i++)
		if (!try_get(mem, 1, &mr))
			kedge_cache_put(cache, mr);
	return NULL;
}

static void a_late_destructor_may_use_the_cache(void **state)
{
	pthread_t b;

	put(get_at(mem, 1, WRITE));
	assert_int_equal(pthread_key_create(&late_key, late), 0);
	assert_int_equal(pthread_barrier_init(&adopted, NULL, 2), 0);
	assert_int_equal(pthread_create(&b, NULL, get_meanwhile, NULL), 0);
	in_thread(get_late, &late_key);
	pthread_join(b, NULL);
	pthread_barrier_destroy(&adopted);
	pthread_key_delete(late_key);
	/* The count is right: nobody holds it, so a flush ends it. */
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_int_equal(dev->live, 0);
}

static void two_caches_in_one_thread(void **state)
{
	struct nodev *other = nodev_new();
	char *theirs = new_pages(1); /* no two notifiers watch one page */
	struct kedge_cache *two;
	const struct kedge_mr *a, *b;
	int i;

	assert_int_equal(kedge_cache_open(other->dev, NULL, NULL, &two), 0);
	for (i = 0; i < 1000; i++) {
		a = get_at(mem, 1, WRITE);
		assert_int_equal(kedge_cache_get(two, theirs, 1, 0, &b), 0);
		assert_ptr_not_equal(a, b);
		kedge_cache_put(cache, a);
		kedge_cache_put(two, b);
	}
	assert_int_equal(dev->regs, 1);
	assert_int_equal(other->regs, 1);
	kedge_cache_close(two);
	assert_int_equal(other->live, 0);
	nodev_free(other);
	put(get_at(mem, 1, WRITE));
}

static pthread_barrier_t step;

static void *use_and_wait(void *arg)
{
	const struct kedge_mr *mr;

	if (!try_get(mem, 1, &mr))
		kedge_cache_put(cache, mr);
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step); /* the cache is closed now */
	return NULL;
}

static void a_thread_may_end_after_its_cache(void **state)
{
	pthread_t t;

	assert_int_equal(pthread_barrier_init(&step, NULL, 2), 0);
	assert_int_equal(pthread_create(&t, NULL, use_and_wait, NULL), 0);
	pthread_barrier_wait(&step);
	close_cache();
	pthread_barrier_wait(&step);
	pthread_join(t, NULL);
	pthread_barrier_destroy(&step);
	open_cache(NULL);
	put(get_at(mem, 1, WRITE));
}

static void nothing_is_kept_without_a_notifier(void **state)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "none" };
	int i;

	assert_int_equal(kedge_notifier_open(&o, &nf), 0);
	open_cache(NULL);
	for (i = 1; i <= 3; i++) {
		put(get_at(mem, 1, WRITE));
		assert_int_equal(dev->regs, i);
		assert_int_equal(dev->live, 0);
	}
	assert_int_equal(stats().uncached, 3);
	assert_int_equal(kedge_cache_hint(cache, mem, 1, 0), -EOPNOTSUPP);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, setup_plain, end)
#define NEEDED need_uffd
#include "test_cache_errors.cases.h"
