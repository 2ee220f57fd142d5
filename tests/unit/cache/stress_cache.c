// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads that get, put, hint, resync and flush while they exchange the memory
 * under it: each its own range, and all of them one that they share. Then the
 * same with a thread of the cache's own that resyncs what it likes.
 *
 * The device notes, page by page, the number that stands in the page when it is
 * registered, as real pages would be pinned. In its own range a thread writes a
 * new number whenever a page was exchanged: so a get that returns a registration
 * with another number is stale. And no registration may end while it is held,
 * or twice.
 */
#include "cases.h"

#define THREADS	  4
#define OWN	  64 /* pages */
#define SHARED	  16
#define HELD	  6
#define HANDLES	  (1u << 22)
#define ROUND_SEC 0.5

struct made {
	uint64_t addr;
	size_t len;
	uint64_t *stamps; /* NULL in the shared range */
};

#define PIECES 16

static _Atomic uint32_t next_handle;
static _Atomic int32_t held[HANDLES];
static _Atomic uint8_t alive[HANDLES];
static struct made *_Atomic made[HANDLES];
static _Atomic uint64_t live, stale, wrong, gets, failures;
static _Atomic bool stop;
static bool stamping; /* only owners register their ranges */
static _Atomic uint64_t replaces, pieces;

static struct kedge_cache *cache;
static char *shared;
static size_t page;

struct worker {
	pthread_t thread;
	uint64_t seed;
	uint64_t stamp;
	char *own;
	const struct kedge_mr *held[HELD];
};

static bool is_shared(uint64_t addr)
{
	return addr >= addr_of(shared) && addr < addr_of(shared) + SHARED * page;
}

static int reg(void *ctx, void *addr, size_t len, uint32_t access,
	       struct kedge_device_mr *mr)
{
	uint32_t h = atomic_fetch_add(&next_handle, 1) + 1;
	struct made *m = calloc(1, sizeof(*m));
	size_t i;

	if (!m || h >= HANDLES) {
		free(m);
		return kedge_reason(-EIO, "the test has run out of handles");
	}
	m->addr = addr_of(addr);
	m->len = len;
	if (stamping && !is_shared(m->addr)) {
		m->stamps = malloc(len / page * sizeof(*m->stamps));
		for (i = 0; m->stamps && i < len / page; i++)
			m->stamps[i] = *(uint64_t *)((char *)addr + i * page);
	}
	atomic_store(&made[h], m);
	atomic_store(&alive[h], 1);
	atomic_fetch_add(&live, 1);
	mr->handle = h;
	return 0;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct made *m = atomic_exchange(&made[mr->handle], NULL);

	if (!atomic_exchange(&alive[mr->handle], 0) || !m) {
		fprintf(stderr, "handle %u is ended twice\n",
			(unsigned int)mr->handle);
		atomic_fetch_add(&wrong, 1);
		return;
	}
	if (atomic_load(&held[mr->handle])) {
		fprintf(stderr, "handle %u is ended while it is held\n",
			(unsigned int)mr->handle);
		atomic_fetch_add(&wrong, 1);
	}
	atomic_fetch_sub(&live, 1);
	free(m->stamps);
	free(m);
}

/* The old pages go: that must be nobody's who holds the handle. */
static int replace(void *ctx, struct kedge_device_mr *mr, void *addr,
		   size_t len, void *changed, size_t changed_len)
{
	struct made *m = atomic_load(&made[mr->handle]);
	size_t i, first = (addr_of(changed) - addr_of(addr)) / page;

	if (!m || atomic_load(&held[mr->handle])) {
		fprintf(stderr, "handle %u is exchanged while it is held\n",
			(unsigned int)mr->handle);
		atomic_fetch_add(&wrong, 1);
		return -EIO;
	}
	for (i = first; m->stamps && i < first + changed_len / page; i++)
		m->stamps[i] = *(uint64_t *)((char *)addr + i * page);
	atomic_fetch_add(&replaces, 1);
	return 0;
}

static const struct kedge_device_ops ops = {
	.size = sizeof(ops),
	.name = "stress",
	.reg = reg,
	.dereg = dereg,
	.replace = replace,
};

static uint32_t roll(struct worker *w, uint32_t below)
{
	w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(w->seed >> 33) % below;
}

static void put(const struct kedge_mr *mr)
{
	static __thread unsigned int turn;

	atomic_fetch_sub(&held[mr->device_handle], 1);
	/* By both ways in turns. */
	if (turn++ % 2 || kedge_cache_tryput(cache, mr))
		kedge_cache_put(cache, mr);
}

static void check_stamps(const struct kedge_mr *mr, const char *p, size_t pages)
{
	struct made *m = atomic_load(&made[mr->device_handle]);
	size_t i, first;

	if (!m || !m->stamps)
		return;
	first = (addr_of(p) - m->addr) / page;
	for (i = 0; i < pages; i++)
		if (m->stamps[first + i] != *(const uint64_t *)(p + i * page)) {
			fprintf(stderr, "stale: page %zu of %p\n", i,
				(const void *)p);
			atomic_fetch_add(&stale, 1);
		}
}

static void get(struct worker *w, const char *p, size_t pages)
{
	uint32_t access = roll(w, 8) ? KEDGE_ACCESS_LOCAL_WRITE
				     : KEDGE_ACCESS_REMOTE_READ;
	unsigned int slot = roll(w, HELD);
	const struct kedge_mr *mr;

	if (kedge_cache_get(cache, p, pages * page, access, &mr)) {
		atomic_fetch_add(&failures, 1);
		return;
	}
	atomic_fetch_add(&gets, 1);
	atomic_fetch_add(&held[mr->device_handle], 1);
	if (!atomic_load(&alive[mr->device_handle])) {
		fprintf(stderr, "handle %u was ended before its get returned\n",
			(unsigned int)mr->device_handle);
		atomic_fetch_add(&wrong, 1);
	}
	check_stamps(mr, p, pages);
	if (roll(w, 4)) {
		put(mr);
		return;
	}
	if (w->held[slot])
		put(w->held[slot]);
	w->held[slot] = mr;
}

static void getv(struct worker *w, const char *p, size_t pages)
{
	struct kedge_piece v[PIECES];
	ssize_t n = kedge_cache_getv(cache, p, pages * page,
				     KEDGE_ACCESS_LOCAL_WRITE, v, PIECES), i;

	if (n < 0) {
		atomic_fetch_add(&failures, n != -ENOBUFS);
		return;
	}
	atomic_fetch_add(&pieces, (uint64_t)n);
	for (i = 0; i < n; i++)
		atomic_fetch_add(&held[v[i].mr->device_handle], 1);
	for (i = 0; i < n; i++)
		check_stamps(v[i].mr, (char *)(uintptr_t)v[i].addr,
			     v[i].len / page);
	for (i = 0; i < n; i++)
		put(v[i].mr);
}

static void write_stamps(struct worker *w, char *p, size_t pages)
{
	size_t i;

	for (i = 0; i < pages; i++)
		*(uint64_t *)(p + i * page) = ++w->stamp;
}

static void exchange_own(struct worker *w, char *p, size_t pages)
{
	if (roll(w, 10))
		mmap(p, pages * page, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	else
		madvise(p, pages * page, MADV_DONTNEED);
	write_stamps(w, p, pages);
}

static void exchange_shared(struct worker *w, char *p, size_t pages)
{
	if (roll(w, 10))
		mmap(p, pages * page, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	else
		madvise(p, pages * page, MADV_DONTNEED);
}

static void one(struct worker *w)
{
	uint32_t what = roll(w, 100);
	size_t first = roll(w, OWN), pages = 1 + roll(w, 6);
	size_t sfirst = roll(w, SHARED - 6);
	struct kedge_cache_stats st = { .size = sizeof(st) };

	if (first + pages > OWN)
		pages = OWN - first;
	if (what < 8)
		getv(w, w->own + first * page, OWN - first);
	else if (what < 55)
		get(w, w->own + first * page, pages);
	else if (what < 75)
		get(w, shared + sfirst * page, pages);
	else if (what < 85)
		exchange_own(w, w->own + first * page, pages);
	else if (what < 92)
		exchange_shared(w, shared + sfirst * page, pages);
	else if (what < 94)
		kedge_cache_resync(cache, w->own, OWN * page);
	else if (what < 95)
		kedge_cache_resync(cache, shared, SHARED * page);
	else if (what < 96)
		kedge_cache_hint(cache, w->own + first * page, pages * page,
				 KEDGE_ACCESS_LOCAL_WRITE);
	else if (what < 98)
		kedge_cache_hint(cache, w->own, OWN * page,
				 KEDGE_ACCESS_LOCAL_WRITE);
	else if (what < 99)
		kedge_cache_flush(cache);
	else
		kedge_cache_stats(cache, &st);
}

static void *work(void *arg)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		one(arg);
	return NULL;
}

static void run_round(struct worker *w)
{
	struct timespec t = { 0, (long)(ROUND_SEC * 1e9) };
	int i, j;

	atomic_store(&stop, false);
	for (i = 0; i < THREADS; i++)
		w[i].thread = run_thread(work, &w[i]);
	nanosleep(&t, NULL);
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	/* Registrations that ended threads still hold are put by another. */
	for (i = 0; i < THREADS; i++)
		for (j = 0; j < HELD; j++) {
			if (w[i].held[j])
				put(w[i].held[j]);
			w[i].held[j] = NULL;
		}
}

static int seconds = 3;

/* What the threads are there for; on a slow machine not in so many seconds. */
static bool all_happened(void)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	return st.hits && st.invalidations && st.evictions && st.resynced && st.replaced;
}

static void run(uint32_t flags)
{
	struct kedge_cache_opts o = { .size = sizeof(o), .max_regions = 48,
				      .hint_threads = 2 };
	struct kedge_cache_stats st = { .size = sizeof(st) };
	struct worker w[THREADS] = { { 0 } };
	struct kedge_device *dev;
	int i;

	page = page_len();
	gets = 0;
	failures = 0;
	o.flags = flags | KEDGE_CACHE_TRUSTED_PEERS;
	o.max_bytes = 400 * page;
	o.chunk_bytes = 32 * page; /* less never has holes */
	shared = new_pages(SHARED);
	for (i = 0; i < THREADS; i++) {
		w[i].own = new_pages(OWN);
		w[i].seed = (uint64_t)i + 1;
		w[i].stamp = (uint64_t)(i + 1) << 48;
		write_stamps(&w[i], w[i].own, OWN);
	}
	assert_int_equal(kedge_device_open(&ops, NULL, &dev), 0);
	assert_int_equal(kedge_cache_open(dev, NULL, &o, &cache), 0);
	for (i = 0; i < seconds / ROUND_SEC || !all_happened(); i++)
		run_round(w);
	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	print_message("%llu gets, %llu hits, %llu failed, %llu registrations, "
		      "%llu invalidations, %llu merges, %llu evictions, %llu "
		      "uncached, %llu resynced, %llu replaced, %llu pieces\n",
		      (unsigned long long)gets,
		      (unsigned long long)st.hits, (unsigned long long)failures,
		      (unsigned long long)st.registrations,
		      (unsigned long long)st.invalidations,
		      (unsigned long long)st.merges,
		      (unsigned long long)st.evictions,
		      (unsigned long long)st.uncached,
		      (unsigned long long)st.resynced,
		      (unsigned long long)st.replaced,
		      (unsigned long long)pieces);
	/* Where a thread of the cache's is at work, live is never at rest. */
	if (!(flags & KEDGE_CACHE_RESYNC))
		assert_int_equal(st.registrations - st.deregistrations, live);
	assert_true(st.replaced <= replaces);
	kedge_cache_flush(cache);
	if (!(flags & KEDGE_CACHE_RESYNC))
		assert_int_equal(live, 0);
	kedge_cache_close(cache);
	assert_int_equal(live, 0);
	kedge_device_close(dev);
	assert_int_equal(stale, 0);
	assert_int_equal(wrong, 0);
	for (i = 0; i < THREADS; i++)
		free_pages(w[i].own, OWN);
	free_pages(shared, SHARED);
}

static void nothing_stale_nothing_lost(void **state)
{
	stamping = true;
	run(0);
}

static void a_thread_of_the_cache_disturbs_nobody(void **state)
{
	stamping = false;
	run(KEDGE_CACHE_RESYNC);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_stale_nothing_lost),
		cmocka_unit_test(a_thread_of_the_cache_disturbs_nobody),
	};

	if (argc > 1)
		seconds = atoi(argv[1]);
	return RUN_WITH_UFFD(tests);
}
