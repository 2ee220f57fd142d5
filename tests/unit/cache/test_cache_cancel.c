// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads that are cancelled while they are in the cache: each of the device's
 * functions asks for it, and then comes to a cancellation point. The call must
 * end as if nothing had happened, and leave the cache as it should be.
 */
#include "cases.h"

#define PAGES	  16
#define REPEATS	  200

static struct kedge_device *dev;
static struct kedge_cache *cache;
static char *mem;
static _Atomic uint64_t next_handle, live, windows;
static __thread bool armed; /* this thread is cancelled by the device */

static void point(void)
{
	if (armed)
		pthread_cancel(pthread_self());
	pthread_testcancel();
	usleep(0);
}

static int reg(void *ctx, void *addr, size_t len, uint32_t access,
	       struct kedge_device_mr *mr)
{
	point();
	mr->handle = ++next_handle;
	live++;
	return 0;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
	point();
	live--;
}

static int query(void *ctx, struct kedge_device_attr *attr)
{
	point();
	attr->access = KEDGE_ACCESS_ALL;
	return 0;
}

static int replace(void *ctx, struct kedge_device_mr *mr, void *addr,
		   size_t len, void *changed, size_t changed_len)
{
	point();
	return 0;
}

static int bind_window(void *ctx, const struct kedge_device_mr *mr, void *addr,
		       size_t len, uint32_t access,
		       struct kedge_device_mr *window)
{
	point();
	window->handle = ++next_handle;
	windows++;
	return 0;
}

static void unbind_window(void *ctx, const struct kedge_device_mr *window)
{
	point();
	windows--;
}

static const struct kedge_device_ops ops = {
	.size = sizeof(ops),
	.name = "cancel",
	.reg = reg,
	.dereg = dereg,
	.query = query,
	.replace = replace,
	.bind = bind_window,
	.unbind = unbind_window,
};

static struct kedge_cache *open_cache(void)
{
	struct kedge_cache_opts o = { .size = sizeof(o), .hint_threads = 2 };
	struct kedge_cache *c = NULL;

	o.chunk_bytes = 32 * page_len(); /* less never has holes */
	return kedge_cache_open(dev, NULL, &o, &c) ? NULL : c;
}

static int setup(void **state)
{
	mem = new_pages(64 * PAGES);
	assert_int_equal(kedge_device_open(&ops, NULL, &dev), 0);
	cache = open_cache();
	assert_non_null(cache);
	return 0;
}

static int teardown(void **state)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	/* A region that is MAKING for good is not dropped. */
	assert_true(kedge_cache_flush(cache) >= 0);
	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	assert_int_equal(st.regions, 0);
	assert_int_equal(st.bytes, 0);
	assert_int_equal(st.registrations, st.deregistrations);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	assert_int_equal(live, 0);
	assert_int_equal(windows, 0);
	free_pages(mem, 64 * PAGES);
	return 0;
}

static void drop(size_t pages)
{
	assert_int_equal(madvise(mem, pages * page_len(), MADV_DONTNEED), 0);
}

/* ---- each call, cancelled inside ---- */

static bool call_get(void)
{
	const struct kedge_mr *mr;
	bool ok = !kedge_cache_get(cache, mem, 1, 0, &mr);

	if (ok)
		kedge_cache_put(cache, mr);
	return ok;
}

static const struct kedge_mr *dying;

static bool call_put(void)
{
	kedge_cache_put(cache, dying);
	return true;
}

static bool call_lend(void)
{
	const struct kedge_mr *mr;
	bool ok = !kedge_cache_get(cache, mem, 1, KEDGE_ACCESS_REMOTE_WRITE,
				   &mr);

	if (ok)
		kedge_cache_put(cache, mr);
	return ok;
}

static bool getv(uint32_t access)
{
	struct kedge_piece p[PAGES];
	ssize_t n = kedge_cache_getv(cache, mem, 64 * page_len(), access, p,
				     PAGES);

	kedge_cache_putv(cache, p, n > 0 ? (size_t)n : 0);
	return n > 0;
}

static bool call_getv(void)
{
	return getv(0);
}

static bool call_lendv(void)
{
	return getv(KEDGE_ACCESS_REMOTE_READ);
}

static bool call_hint(void)
{
	return kedge_cache_hint(cache, mem, 256 * page_len(), 0) > 0;
}

static bool call_resync(void)
{
	return kedge_cache_resync(cache, NULL, 0) >= 0;
}

static bool call_flush(void)
{
	return kedge_cache_flush(cache) >= 0;
}

static bool call_stats(void)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	return !kedge_cache_stats(cache, &st);
}

static bool call_open(void)
{
	struct kedge_cache *c = open_cache();

	kedge_cache_close(c);
	return c;
}

static bool (*const calls[])(void) = {
	call_get,  call_put,	call_lend,  call_getv,	call_lendv,
	call_hint, call_resync, call_flush, call_stats, call_open,
};

static _Atomic bool returned;

static void *call_it(void *arg)
{
	bool (*const *call)(void) = arg;

	armed = true;
	pthread_cancel(pthread_self());
	returned = (*call)();
	pthread_testcancel();
	return NULL;
}

static void no_call_is_a_cancellation_point(void **state)
{
	void *out;
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		/* Something to put, to drop, to resync. */
		assert_int_equal(kedge_cache_get(cache, mem + page_len() * 600,
						 1, 0, &dying), 0);
		call_hint();
		call_flush();
		if (calls[i] != call_put)
			call_put();
		if (calls[i] == call_resync)
			call_hint();
		drop(1);
		returned = false;
		out = in_thread(call_it, (void *)&calls[i]);
		if (!returned)
			fail_msg("call %zu did not return", i);
		assert_ptr_equal(out, PTHREAD_CANCELED);
	}
}

/* ---- again and again, wherever it hits ---- */

static _Atomic uint32_t turns;

static void *use_it(void *arg)
{
	for (;;) {
		pthread_testcancel();
		call_get();
		call_lend();
		if (turns % 4 == 0)
			call_getv();
		if (turns % 8 == 0)
			call_resync();
		drop(4);
		turns++;
	}
	return NULL;
}

static void cancelled_threads_leave_nothing_behind(void **state)
{
	pthread_t t[2];
	uint32_t before;
	void *out;
	int i, j;

	for (i = 0; i < REPEATS; i++) {
		before = turns;
		run_threads(t, 2, use_it, NULL, 0);
		while (turns < before + 1 + (uint32_t)i % 3)
			assert_true(call_get());
		for (j = 0; j < 2; j++)
			assert_int_equal(pthread_cancel(t[j]), 0);
		for (j = 0; j < 2; j++) {
			assert_int_equal(pthread_join(t[j], &out), 0);
			assert_ptr_equal(out, PTHREAD_CANCELED);
		}
		assert_true(call_get());
	}
}

#define NEEDED need_uffd
#include "test_cache_cancel.cases.h"
