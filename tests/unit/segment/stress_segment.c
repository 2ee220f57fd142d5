// SPDX-License-Identifier: BSD-2-Clause
/*
 * Owners that change their memory all the time, writers that store to it through it all,
 * and readers that have it attached. An owner writes a number to its memory, then the same
 * where everybody sees it at once; so a reader that finds an older one in what it has
 * attached, and is told that it is valid, was lied to. A writer's words count up, in memory
 * that is converted and made private again: none goes back.
 *
 *	stress_segment [rounds]
 */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "peer.h"

#define OWNERS	4
#define READERS 3
#define WRITERS 2
#define PAGES	16u
#define RW	(KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE)

struct owned {
	_Atomic uint64_t said; /* the latest number in its memory */
	_Atomic uint64_t changes; /* odd while there may be zeros, which are its own as well */
	pthread_mutex_t lock;  /* guards id */
	struct kedge_segment_id id;
	bool there;
	uint64_t *mem;
	uint64_t number;
	bool cut; /* it is several mappings */
};

static struct owned owned[OWNERS];
static _Atomic bool over;
static _Atomic uint64_t lies, lost, looks, attached;
static unsigned long rounds = 150;
static bool by_address;

static size_t len_of(void)
{
	return PAGES * page_len();
}

static uint32_t next_random(uint32_t *s)
{
	*s = *s * 1664525u + 1013904223u;
	return *s >> 16;
}

/* ---- owners ---- */

static void say(struct owned *o)
{
	size_t i;

	o->number++;
	for (i = 0; i < PAGES; i++)
		__atomic_store_n(&o->mem[i * page_len() / 8], o->number, __ATOMIC_RELEASE);
	atomic_store(&o->said, o->number);
}

static void show(struct owned *o, const struct kedge_segment *s)
{
	pthread_mutex_lock(&o->lock);
	o->there = s != NULL;
	if (s)
		kedge_segment_id(s, &o->id);
	pthread_mutex_unlock(&o->lock);
}

/* A segment of the module's is what is at its addresses: so nothing else comes there. */
static void change_in_place(struct owned *o, uint32_t what)
{
	size_t len = len_of();
	void *to;

	switch (what % 3) {
	case 0:
		mmap(o->mem, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 1:
		madvise((char *)o->mem + page_len(), len / 2, MADV_DONTNEED);
		break;
	default:
		to = mremap(o->mem, len, len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
		if (to != MAP_FAILED)
			munmap(to, len);
		break;
	}
}

/* One of what an owner may do to its memory. */
static void change(struct owned *o, uint32_t what)
{
	size_t len = len_of();
	char *to;

	if (by_address) {
		change_in_place(o, what);
		return;
	}
	switch (what % 4) {
	case 0:
		/* Any thread may get it next. */
		munmap(o->mem, len);
		o->mem = (void *)new_pages(PAGES);
		o->cut = false;
		break;
	case 1:
		o->cut = true;
		madvise((char *)o->mem + page_len(), len / 2, MADV_DONTNEED);
		break;
	case 2:
		/* The kernel moves one mapping, and says so too late. */
		if (o->cut)
			break;
		to = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (mremap(o->mem, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
			abort();
		o->mem = (void *)to;
		break;
	default:
		o->cut = true;
		mmap(o->mem, len / 4, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	}
}

static void *own(void *arg)
{
	struct owned *o = arg;
	uint32_t seed = (uint32_t)(o - owned) + 1;
	struct kedge_segment *s;
	unsigned long i;
	int k;

	o->mem = (void *)new_pages(PAGES);
	for (i = 0; i < rounds; i++) {
		say(o);
		if (kedge_segment_make(o->mem, len_of(), NULL, &s))
			abort();
		show(o, s);
		for (k = next_random(&seed) % 8; k; k--) {
			say(o);
			usleep(50);
		}
		if (next_random(&seed) % 4) {
			atomic_fetch_add(&o->changes, 1);
			change(o, next_random(&seed));
			say(o);
			atomic_fetch_add(&o->changes, 1);
		}
		for (k = 0; k < 3; k++)
			say(o);
		show(o, NULL);
		kedge_segment_remove(s);
		for (k = 0; k < (int)PAGES; k++)
			if (o->mem[(size_t)k * page_len() / 8] != o->number)
				atomic_fetch_add(&lost, 1);
	}
	/* Without what surrounds new_pages(): moved memory has other neighbours. */
	munmap(o->mem, len_of());
	return NULL;
}

/* ---- readers ---- */

static void look(struct owned *o, struct kedge_attachment *a)
{
	const uint64_t *mem = kedge_segment_addr(a);
	uint64_t said, found, changes;
	size_t i;
	int n;

	for (n = 0; n < 2000; n++) {
		i = (size_t)n % PAGES;
		changes = atomic_load(&o->changes);
		said = atomic_load(&o->said);
		found = __atomic_load_n(&mem[i * page_len() / 8], __ATOMIC_ACQUIRE);
		if (!kedge_segment_valid(a))
			return;
		atomic_fetch_add_explicit(&looks, 1, memory_order_relaxed);
		if (found < said && (!by_address || (changes % 2 == 0 &&
						     changes == atomic_load(&o->changes))))
			atomic_fetch_add(&lies, 1);
	}
}

static void visit(struct owned *o)
{
	struct kedge_attachment *a;
	struct kedge_segment_id id;
	struct kedge_grant *g;
	bool there;

	pthread_mutex_lock(&o->lock);
	there = o->there;
	id = o->id;
	pthread_mutex_unlock(&o->lock);
	if (!there || kedge_segment_get(&id, KEDGE_SEGMENT_READ, &g))
		return;
	if (!kedge_segment_attach(g, 0, len_of(), KEDGE_ATTACH_KEEP, &a)) {
		atomic_fetch_add(&attached, 1);
		look(o, a);
		kedge_segment_detach(a);
	}
	kedge_segment_release(g);
}

static void *read_all(void *arg)
{
	unsigned int i = 0;

	while (!atomic_load(&over)) {
		visit(&owned[i++ % OWNERS]);
		usleep(50);
	}
	return arg;
}

/* ---- writers ---- */

static uint64_t *counted; /* a page for each writer */

static void *count_up(void *arg)
{
	uint64_t *w = arg, n = __atomic_load_n(w, __ATOMIC_RELAXED);

	while (!atomic_load(&over)) {
		if (__atomic_load_n(w, __ATOMIC_RELAXED) != n)
			atomic_fetch_add(&lost, 1);
		__atomic_store_n(w, ++n, __ATOMIC_RELAXED);
		if (n % 4096 == 0)
			usleep(100);
	}
	return NULL;
}

/* Their memory becomes a segment and private again, and is forked now and then. */
static void convert_writers(unsigned long i)
{
	struct kedge_segment *s;
	pid_t pid;

	if (kedge_segment_make(counted, WRITERS * page_len(), NULL, &s))
		abort();
	if (i % 20 == 19) {
		pid = fork();
		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
	usleep(500);
	kedge_segment_remove(s);
}

static void no_store_is_lost_and_no_look_is_stale(void **state)
{
	pthread_t o[OWNERS], r[READERS], w[WRITERS];
	unsigned long i;

	by_address = !access("/dev/kedge-segment", R_OK);
	if (!by_address)
		need_convert();
	counted = (void *)new_pages(WRITERS);
	memset(counted, 0, WRITERS * page_len());
	for (i = 0; i < OWNERS; i++) {
		pthread_mutex_init(&owned[i].lock, NULL);
		pthread_create(&o[i], NULL, own, &owned[i]);
	}
	for (i = 0; i < READERS; i++)
		pthread_create(&r[i], NULL, read_all, NULL);
	for (i = 0; i < WRITERS; i++)
		pthread_create(&w[i], NULL, count_up, counted + i * page_len() / 8);
	for (i = 0; i < rounds; i++)
		convert_writers(i);
	for (i = 0; i < OWNERS; i++)
		pthread_join(o[i], NULL);
	atomic_store(&over, true);
	for (i = 0; i < READERS; i++)
		pthread_join(r[i], NULL);
	for (i = 0; i < WRITERS; i++)
		pthread_join(w[i], NULL);
	print_message("%lu attachments, %lu looks: %lu stale; %lu stores lost\n",
		      (unsigned long)attached, (unsigned long)looks, (unsigned long)lies,
		      (unsigned long)lost);
	assert_int_equal(lies, 0);
	assert_int_equal(lost, 0);
	free_pages(counted, WRITERS);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_store_is_lost_and_no_look_is_stale),
	};

	if (argc > 1)
		rounds = strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
