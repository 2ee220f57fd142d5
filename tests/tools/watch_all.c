// SPDX-License-Identifier: BSD-2-Clause
/*
 * Preloaded: the program's large allocations are kept registered with a device
 * that does nothing, as a library for transfers would that the program knows of.
 * A thread sees to that some times a second; its own time is in what is measured.
 *
 * Freed memory is only not asked for any more: that its pages go is told by the
 * notifier, and this is measured. At the end the statistics are printed on
 * standard error where WATCH_ALL_SAY is set.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kedge/kedge.h>

#define LARGE	 (64u << 10)
#define SLOTS	 4096u
#define PAUSE_NS 50000000

struct slot {
	_Atomic(void *) addr;
	_Atomic(size_t) len;
};

static struct slot slots[SLOTS];
static struct kedge_device *dev;
static struct kedge_cache *cache;

static int reg(void *ctx, void *addr, size_t len, uint32_t access,
	       struct kedge_device_mr *mr)
{
	*mr = (struct kedge_device_mr){ .offset = (uintptr_t)addr };
	return 0;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static const struct kedge_device_ops ops = {
	.size = sizeof(ops),
	.name = "nothing",
	.reg = reg,
	.dereg = dereg,
};

/* One allocation a slot: the later takes the place of the earlier. */
static struct slot *slot_of(const void *addr)
{
	return &slots[((uintptr_t)addr >> 12) * 0x9e3779b97f4a7c15ull >> 52];
}

/* In malloc(): no more than a note. */
static void *noted(void *addr, size_t len)
{
	struct slot *s = slot_of(addr);

	if (!addr || len < LARGE)
		return addr;
	/* Relaxed: a pair that does not belong together is refused, or is
	 * memory of the program's all the same. */
	atomic_store_explicit(&s->len, len, memory_order_relaxed);
	atomic_store_explicit(&s->addr, addr, memory_order_relaxed);
	return addr;
}

static void forget(void *addr)
{
	struct slot *s = slot_of(addr);

	if (addr && atomic_load_explicit(&s->addr, memory_order_relaxed) == addr)
		atomic_store_explicit(&s->addr, NULL, memory_order_relaxed);
}

static void *next_of(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

__attribute__((visibility("default"))) void *malloc(size_t len)
{
	static void *(*real)(size_t);

	if (!real)
		*(void **)&real = next_of("malloc");
	return noted(real(len), len);
}

__attribute__((visibility("default"))) void *realloc(void *ptr, size_t len)
{
	static void *(*real)(void *, size_t);

	if (!real)
		*(void **)&real = next_of("realloc");
	forget(ptr);
	return noted(real(ptr, len), len);
}

__attribute__((visibility("default"))) void free(void *ptr)
{
	static void (*real)(void *);

	if (!real)
		*(void **)&real = next_of("free");
	forget(ptr);
	real(ptr);
}

static void look_once(void)
{
	const struct kedge_mr *mr;
	unsigned int i;
	size_t len;
	void *addr;

	for (i = 0; i < SLOTS; i++) {
		addr = atomic_load_explicit(&slots[i].addr,
					    memory_order_relaxed);
		len = atomic_load_explicit(&slots[i].len,
					   memory_order_relaxed);
		if (!addr)
			continue;
		if (kedge_cache_get(cache, addr, len, KEDGE_ACCESS_LOCAL_READ,
				    &mr))
			/* Freed, as a rule. */
			atomic_compare_exchange_strong(&slots[i].addr, &addr,
						       NULL);
		else
			kedge_cache_put(cache, mr);
	}
}

static void *look(void *unused)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };

	for (;;) {
		look_once();
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void say(void)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	if (!kedge_cache_stats(cache, &st))
		fprintf(stderr, "watch_all: %lu gets, %lu hits, %lu "
			"invalidations, %lu bytes at most\n",
			(unsigned long)st.gets, (unsigned long)st.hits,
			(unsigned long)st.invalidations,
			(unsigned long)st.bytes_peak);
}

__attribute__((constructor)) static void begin(void)
{
	pthread_t thread;
	int rc;

	rc = kedge_device_open(&ops, NULL, &dev);
	rc = rc ? rc : kedge_cache_open(dev, NULL, NULL, &cache);
	if (rc) {
		fprintf(stderr, "watch_all: %s\n", kedge_strerror(rc));
		exit(3);
	}
	if (getenv("WATCH_ALL_SAY"))
		atexit(say);
	if (pthread_create(&thread, NULL, look, NULL))
		exit(3);
}
