// SPDX-License-Identifier: BSD-2-Clause
/*
 * The process whose memory it is. A thread for each range stores a number to all
 * of its pages, makes it a segment, changes it and makes it private again, and
 * finds its numbers there. Others count in memory that is converted and forked
 * meanwhile, and find the number that they left.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/torture/segment/storm.h"

struct own {
	struct storm *s;
	struct storm_range *r;
	unsigned int index;
	pthread_t thread;
	uint64_t rng, number;
	void *mem;
	bool cut; /* it is several mappings */
	bool later; /* this round's segment is converted when it is attached */
};

struct counter {
	struct storm *s;
	unsigned int index;
	pthread_t thread;
	uint64_t *word;
};

static size_t len_of(const struct storm *s)
{
	return STORM_PAGES * s->page;
}

static void *new_memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	if (p == MAP_FAILED)
		abort();
	memset(p, 0, len);
	return p;
}

static void say(struct own *o)
{
	size_t i;

	o->number++;
	for (i = 0; i < STORM_PAGES; i++) {
		__atomic_store_n(storm_first(o->s, o->mem, i), o->number,
				 __ATOMIC_RELEASE);
		/* With the acquire of a look, which loads it before the first. */
		__atomic_store_n(storm_last(o->s, o->mem, i), o->number,
				 __ATOMIC_RELEASE);
	}
	atomic_store(&o->r->said, o->number);
}

static void show(struct own *o, const struct kedge_segment *segment)
{
	struct storm_range *r = o->r;
	struct kedge_segment_id id = { { 0 } };
	uint64_t seq = atomic_load(&r->seq) | 1;

	if (segment)
		kedge_segment_id(segment, &id);
	/* Odd even where the owner before was killed while it wrote. */
	atomic_store(&r->seq, seq);
	atomic_store(&r->there, segment != NULL);
	atomic_store(&r->later, o->later);
	atomic_store(&r->id[0], id.word[0]);
	atomic_store(&r->id[1], id.word[1]);
	atomic_store(&r->seq, seq + 1);
}

/* ---- changes ---- */

/* A segment of the module's is what is at its addresses, and one that is converted later what
 * will be, so all stays there. */
static void change_in_place(struct own *o, uint64_t what)
{
	size_t len = len_of(o->s);
	void *to;

	switch (what % 3) {
	case 0:
		mmap(o->mem, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 1:
		madvise((char *)o->mem + o->s->page, len / 2, MADV_DONTNEED);
		break;
	default:
		to = mremap(o->mem, len, len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
		if (to != MAP_FAILED)
			munmap(to, len);
		break;
	}
}

static void move(struct own *o)
{
	size_t len = len_of(o->s);
	void *to = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (to == MAP_FAILED ||
	    mremap(o->mem, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) {
		fprintf(stderr, "a range cannot be moved: %s\n", strerror(errno));
		abort();
	}
	o->mem = to;
}

static void change(struct own *o, uint64_t what)
{
	size_t len = len_of(o->s);

	switch (what % 4) {
	case 0:
		/* Any thread may get it next. */
		munmap(o->mem, len);
		o->mem = new_memory(len);
		o->cut = false;
		break;
	case 1:
		o->cut = true;
		madvise((char *)o->mem + o->s->page, len / 2, MADV_DONTNEED);
		break;
	case 2:
		/* The kernel moves one mapping, and says so too late. */
		if (!o->cut)
			move(o);
		break;
	default:
		o->cut = true;
		mmap(o->mem, len / 4, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	}
}

static void change_and_say(struct own *o)
{
	atomic_fetch_add(&o->r->changes, 1);
	if (atomic_load(&o->s->by_address) || o->later)
		change_in_place(o, storm_draw(&o->rng));
	else
		change(o, storm_draw(&o->rng));
	say(o);
	atomic_fetch_add(&o->r->changes, 1);
}

/* ---- rounds ---- */

/* A segment, which can only be copied while a child has its pages. */
static struct kedge_segment *make(struct storm *s, void *mem, size_t len, bool later)
{
	const struct kedge_segment_opts on_attach = { .size = sizeof(on_attach),
						      .flags = KEDGE_SEGMENT_ON_ATTACH };
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment *segment;
	int rc = kedge_segment_make(mem, len, later ? &on_attach : NULL, &segment);

	if (rc) {
		fprintf(stderr, "kedge_segment_make(): %s\n", kedge_strerror(rc));
		abort();
	}
	if (!kedge_segment_info(segment, &i) && i.backend == KEDGE_SEGMENT_COPY)
		atomic_fetch_add(&s->copied, 1);
	return segment;
}

static void check(struct own *o, const char *when)
{
	uint64_t a, b;
	size_t i;

	for (i = 0; i < STORM_PAGES; i++) {
		a = __atomic_load_n(storm_first(o->s, o->mem, i), __ATOMIC_RELAXED);
		b = __atomic_load_n(storm_last(o->s, o->mem, i), __ATOMIC_RELAXED);
		if (a != o->number || b != o->number)
			storm_wrong(o->s, &o->s->lost, "range %u, page %zu, %s: the owner "
				    "stored %llu and finds %llu and %llu", o->index, i, when,
				    (unsigned long long)o->number, (unsigned long long)a,
				    (unsigned long long)b);
	}
}

static void one_round(struct own *o)
{
	struct kedge_segment *segment;
	unsigned int nap;
	uint64_t k;

	say(o);
	o->later = storm_draw(&o->rng) % 2;
	segment = make(o->s, o->mem, len_of(o->s), o->later);
	check(o, "made a segment");
	show(o, segment);
	/* To attach what has to be converted takes longer. */
	nap = o->later ? 1000 : 50;
	for (k = storm_draw(&o->rng) % 8; k; k--) {
		say(o);
		usleep(nap);
	}
	for (k = storm_draw(&o->rng) % 4; k; k--) {
		change_and_say(o);
		usleep(nap);
	}
	for (k = 0; k < 3; k++)
		say(o);
	show(o, NULL);
	kedge_segment_remove(segment);
	check(o, "private again");
}

static bool more(const struct storm *s, const struct storm_range *r)
{
	return !atomic_load(&s->over) && (!s->rounds || atomic_load(&r->rounds) < s->rounds);
}

static void *own(void *arg)
{
	struct own *o = arg;

	o->mem = new_memory(len_of(o->s));
	while (more(o->s, o->r)) {
		one_round(o);
		atomic_fetch_add(&o->r->rounds, 1);
	}
	munmap(o->mem, len_of(o->s));
	return NULL;
}

/* ---- words that count ---- */

static atomic_bool counted;

static void *count_up(void *arg)
{
	struct counter *c = arg;
	uint64_t n = 0, found;

	while (!atomic_load(&counted)) {
		found = __atomic_load_n(c->word, __ATOMIC_RELAXED);
		if (found != n)
			storm_wrong(c->s, &c->s->lost, "counter %u left %llu and finds %llu",
				    c->index, (unsigned long long)n,
				    (unsigned long long)found);
		__atomic_store_n(c->word, ++n, __ATOMIC_RELAXED);
		if (n % 4096 == 0)
			usleep(100);
	}
	return NULL;
}

static void convert_counters(struct storm *s, void *mem, uint64_t i)
{
	struct kedge_segment *segment = make(s, mem, STORM_COUNTERS * s->page, false);
	pid_t pid;

	if (i % 4 == 3) {
		pid = fork();
		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
		atomic_fetch_add(&s->forks, 1);
	}
	usleep(500);
	kedge_segment_remove(segment);
	atomic_fetch_add(&s->conversions, 1);
}

/* ---- all of it ---- */

/* Tries if segments can be attached here, and says why not. */
static bool try_one(struct storm *s)
{
	void *mem = new_memory(s->page);
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment *segment;
	int rc = kedge_segment_make(mem, s->page, NULL, &segment);

	if (rc) {
		snprintf(s->found, sizeof(s->found), "%s", kedge_strerror(rc));
		return false;
	}
	kedge_segment_info(segment, &i);
	kedge_segment_remove(segment);
	munmap(mem, s->page);
	atomic_store(&s->by_address, i.backend == KEDGE_SEGMENT_MODULE);
	if (i.backend != KEDGE_SEGMENT_COPY)
		return true;
	snprintf(s->found, sizeof(s->found), "memory can only be copied here: %s", i.reason);
	return false;
}

static bool ranges_left(const struct storm *s)
{
	unsigned int i;

	for (i = 0; i < STORM_RANGES; i++)
		if (more(s, &s->range[i]))
			return true;
	return false;
}

int storm_own(struct storm *s)
{
	struct own o[STORM_RANGES];
	struct counter c[STORM_COUNTERS];
	uint64_t i;
	void *mem;

	if (!try_one(s))
		return STORM_SKIP;
	mem = new_memory(STORM_COUNTERS * s->page);
	for (i = 0; i < STORM_RANGES; i++) {
		o[i] = (struct own){ .s = s, .r = &s->range[i], .index = (unsigned int)i,
				     .rng = s->seed + i + 1000 * atomic_load(&s->epoch),
				     .number = atomic_load(&s->range[i].said) };
		/* The owner before may have been killed in a change. */
		atomic_store(&o[i].r->changes, (atomic_load(&o[i].r->changes) + 1) & ~1ull);
		if (pthread_create(&o[i].thread, NULL, own, &o[i]))
			abort();
	}
	for (i = 0; i < STORM_COUNTERS; i++) {
		c[i] = (struct counter){ .s = s, .index = (unsigned int)i,
					 .word = storm_first(s, mem, i) };
		if (pthread_create(&c[i].thread, NULL, count_up, &c[i]))
			abort();
	}
	for (i = 0; ranges_left(s); i++)
		convert_counters(s, mem, i);
	for (i = 0; i < STORM_RANGES; i++)
		pthread_join(o[i].thread, NULL);
	atomic_store(&counted, true);
	for (i = 0; i < STORM_COUNTERS; i++)
		pthread_join(c[i].thread, NULL);
	munmap(mem, STORM_COUNTERS * s->page);
	return 0;
}
