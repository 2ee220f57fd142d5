// SPDX-License-Identifier: BSD-2-Clause
/*
 * The growth of register, unregister and an event with the number of watches.
 *
 *	ummunot_scale [LARGEST]
 *
 * Prints for 1,000, 10,000... up to LARGEST (1,000,000) watches what one call
 * takes, in nanoseconds, on the average of a thousand at random places, and
 * what a drain takes per event where all of them are told at once. Fails where
 * one of them takes more than 8 times what it takes for 1,000: a tree of a
 * million is twice as high, and out of the CPU's caches.
 */
#include "ummunot_lib.h"

#define SAMPLES 1000ul

struct times {
	double add, remove, event, drain;
};

/* Not an order that a tree would like or dislike. */
static size_t place(size_t i, size_t cnt)
{
	return (i * 2654435761ul) % cnt;
}

static void add(struct um *u, char *base, size_t i)
{
	if (um_watch(u, base + i * PAGE, PAGE, i, 0))
		err(1, "register");
}

/* One page comes and goes, at a watch that is told each time. */
static double one_event(struct um *u, char *base, size_t cnt)
{
	double start, took = 0;
	size_t i;

	for (i = 0; i < SAMPLES; i++) {
		char *p = base + place(i, cnt) * PAGE;

		start = vm_now();
		madvise(p, PAGE, MADV_DONTNEED);
		took += vm_now() - start;
	}
	return took / SAMPLES;
}

static unsigned long drain(struct um *u)
{
	static struct ummunot_event ev[512];
	unsigned long cnt = 0;
	ssize_t n;

	while ((n = um_read(u, ev, 512)) > 0)
		cnt += (unsigned long)n;
	return cnt;
}

static void measure(size_t cnt, struct times *t)
{
	char *base = mmap(NULL, cnt * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	double start;
	struct um u;
	size_t i;

	if (base == MAP_FAILED)
		err(1, "mmap");
	um_open(&u, O_NONBLOCK);
	for (i = 0; i < cnt; i++)
		add(&u, base, i);

	start = vm_now();
	for (i = 0; i < SAMPLES; i++)
		if (um_unwatch(&u, place(i, cnt)))
			err(1, "unregister");
	t->remove = (vm_now() - start) / SAMPLES;
	start = vm_now();
	for (i = 0; i < SAMPLES; i++)
		add(&u, base, place(i, cnt));
	t->add = (vm_now() - start) / SAMPLES;

	t->event = one_event(&u, base, cnt);
	drain(&u);
	madvise(base, cnt * PAGE, MADV_DONTNEED);
	start = vm_now();
	i = drain(&u);
	t->drain = (vm_now() - start) / (double)i;
	if (i != cnt + 1)
		errx(1, "%zu events of %zu watches", i, cnt);
	um_close(&u);
	munmap(base, cnt * PAGE);
}

int main(int argc, char **argv)
{
	const size_t largest = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000;
	struct times t, first = { 0 };
	int failed = 0;
	size_t cnt;

	printf("%10s %10s %10s %10s %10s\n", "watches", "register",
	       "unregister", "event", "read");
	for (cnt = 1000; cnt <= largest; cnt *= 10) {
		measure(cnt, &t);
		printf("%10zu %10.0f %10.0f %10.0f %10.0f\n", cnt, t.add,
		       t.remove, t.event, t.drain);
		if (cnt == 1000)
			first = t;
		failed |= t.add > 8 * first.add ||
			  t.remove > 8 * first.remove ||
			  t.event > 8 * first.event ||
			  t.drain > 8 * first.drain;
	}
	return failed;
}
