// SPDX-License-Identifier: BSD-2-Clause
/*
 * UMMUNOT_SWAP_PAGES under race, in a guest whose kernel has it, as root.
 *
 *	ummunot_swap_race SECONDS [SEED]
 *
 * First half of the time: one thread exchanges two ranges over and over, and says
 * by a number, odd meanwhile, when it does. Others read pages of a range one after
 * the other. Where at most one exchange can have happened meanwhile, what they
 * found is old pages, then new ones, and never an old one again; it is never a
 * hole. Others add to words in the ranges, atomically: no addition is lost. Others
 * reach for pages by the kernel (process_vm_readv, vmsplice).
 *
 * Second half: several threads exchange any ranges of one arena, which overlap from
 * call to call, of huge pages and others, while pages are swapped out, split,
 * compacted, and shared with forked children. Each page has a name, and in
 * the end each is there once.
 */
#include "ummunot_lib.h"

#define HUGE	(2ul << 20)
#define WORD_AT 64	/* of a page: what is added to */
#define READERS 2
#define ADDERS	2

static int node;
static atomic_bool stop;
static atomic_ulong wrong, looked, added, swaps, busy;
static unsigned int seed = 4711;

static char *area(size_t len, int advice)
{
	char *room = mmap(NULL, len + 2 * HUGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at = (char *)(((uintptr_t)room + HUGE - 1) & ~(HUGE - 1));

	if (room == MAP_FAILED)
		err(1, "mmap");
	/* So that what is left and right of it is no part of its mapping. */
	mprotect(at - (at == room ? 0 : PAGE), at == room ? 0 : PAGE, PROT_NONE);
	mprotect(at + len, PAGE, PROT_NONE);
	madvise(at, len, advice);
	return at;
}

/* ---- the first half: two ranges ---- */

static struct pair {
	char *side[2];
	size_t len;
	_Atomic uint64_t seq;	/* odd while they are exchanged */
} pair;

static uint64_t name_at(const char *page)
{
	return *(volatile const uint64_t *)page;
}

/* Of which side the page was at first; 2: of none. */
static unsigned int side_of(uint64_t name, size_t i)
{
	return name == i * 2 + 1 ? 0 : name == i * 2 + 2 ? 1 : 2;
}

static void complain(const char *what, size_t i, uint64_t name)
{
	atomic_fetch_add(&wrong, 1);
	fprintf(stderr, "%s: page %zu has the name %llu\n", what, i,
		(unsigned long long)name);
}

static void look(unsigned int *state)
{
	size_t pages = pair.len / PAGE, i, n;
	uint64_t before, after, name;
	unsigned int side = vm_random(state) % 2, found, expected;
	bool changed = false;

	before = atomic_load(&pair.seq);
	expected = (side + before / 2) % 2;
	for (n = 0; n < 64; n++) {
		i = vm_random(state) % pages;
		name = name_at(pair.side[side] + i * PAGE);
		found = side_of(name, i);
		if (found == 2) {
			complain("a hole, or another's page", i, name);
			return;
		}
		atomic_thread_fence(memory_order_seq_cst);
		after = atomic_load(&pair.seq);
		/* The one that ran, or the next one that began. */
		if (after / 2 + after % 2 > before / 2 + 1)
			return;
		if (after == before && !(before % 2) && found != expected)
			complain("no exchange, but exchanged", i, name);
		else if (changed && found == expected)
			complain("old behind new", i, name);
		changed |= found != expected;
	}
	atomic_fetch_add(&looked, 1);
}

static void *reader(void *arg)
{
	unsigned int state = seed + 17 * (unsigned int)(uintptr_t)arg;

	while (!atomic_load(&stop))
		look(&state);
	return NULL;
}

static void *adder(void *arg)
{
	unsigned int state = seed + 99 + (unsigned int)(uintptr_t)arg;
	size_t pages = pair.len / PAGE;
	unsigned long n = 0;

	while (!atomic_load(&stop)) {
		char *page = pair.side[vm_random(&state) % 2] +
			     vm_random(&state) % pages * PAGE;

		atomic_fetch_add((_Atomic uint64_t *)(page + WORD_AT), 1);
		n++;
	}
	atomic_fetch_add(&added, n);
	return NULL;
}

/* The kernel finds at an address the page of one side or the other. */
static void *prober(void *arg)
{
	unsigned int state = seed + 5;
	size_t pages = pair.len / PAGE, i;
	uint64_t got[2];
	struct iovec from = { NULL, 8 }, to = { got, 8 };
	int pipes[2];

	if (pipe(pipes))
		err(1, "pipe");
	while (!atomic_load(&stop)) {
		i = vm_random(&state) % pages;
		from.iov_base = pair.side[vm_random(&state) % 2] + i * PAGE;
		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 8 ||
		    vmsplice(pipes[1], &from, 1, 0) != 8 ||
		    read(pipes[0], &got[1], 8) != 8)
			complain("the kernel fails", i, (uint64_t)errno);
		else if (side_of(got[0], i) == 2 || side_of(got[1], i) == 2)
			complain("the kernel finds another", i, got[0]);
	}
	close(pipes[0]);
	close(pipes[1]);
	return NULL;
}

static void pair_open(size_t len, int advice, size_t off)
{
	size_t i;
	int s;

	pair.len = len;
	atomic_store(&pair.seq, 0);
	for (s = 0; s < 2; s++) {
		pair.side[s] = area(len + HUGE, advice) + s * off;
		for (i = 0; i < len / PAGE; i++)
			*(uint64_t *)(pair.side[s] + i * PAGE) = i * 2 + s + 1;
	}
}

static uint64_t pair_sum(void)
{
	uint64_t sum = 0;
	size_t i;
	int s;

	for (s = 0; s < 2; s++)
		for (i = 0; i < pair.len; i += PAGE)
			sum += *(uint64_t *)(pair.side[s] + i + WORD_AT);
	return sum;
}

static void observe(size_t len, int advice, size_t off, double seconds)
{
	pthread_t threads[READERS + ADDERS + 1];
	uint64_t end, seq = 0;
	struct timespec t;
	long i, n = 0;
	int rc;

	pair_open(len, advice, off);
	atomic_store(&stop, false);
	atomic_store(&added, 0);
	for (i = 0; i < READERS; i++)
		pthread_create(&threads[n++], NULL, reader, (void *)i);
	for (i = 0; i < ADDERS; i++)
		pthread_create(&threads[n++], NULL, adder, (void *)i);
	pthread_create(&threads[n++], NULL, prober, NULL);
	clock_gettime(CLOCK_MONOTONIC, &t);
	end = (uint64_t)t.tv_sec * 1000 + (uint64_t)(seconds * 1000);
	do {
		atomic_store(&pair.seq, ++seq);
		rc = um_swap(node, pair.side[0], pair.side[1], len);
		/* A page that is locked all the time: none was exchanged. */
		if (rc == -EBUSY) {
			atomic_store(&pair.seq, --seq);
			atomic_fetch_add(&busy, 1);
		} else if (rc) {
			errx(1, "the exchange fails: %s", strerror(-rc));
		} else {
			atomic_store(&pair.seq, ++seq);
			atomic_fetch_add(&swaps, 1);
		}
		if (seq % 64 == 0)
			usleep(1000);
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while ((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 <
			 end && !atomic_load(&wrong));
	atomic_store(&stop, true);
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	if (pair_sum() != atomic_load(&added))
		errx(1, "%lu were added, %llu are there", atomic_load(&added),
		     (unsigned long long)pair_sum());
	munmap(pair.side[0], len);
	munmap(pair.side[1], len);
}

/* ---- the second half: an arena ---- */

#define ARENA	(16 * HUGE)
#define SWAPPERS 3

static char *arena;

static void any_exchange(unsigned int *state)
{
	size_t pages = ARENA / PAGE, len, a, b;
	int rc;

	len = vm_random(state) % 4 ? 1 + vm_random(state) % 64
				     : HUGE / PAGE * (1 + vm_random(state) % 4);
	a = vm_random(state) % (pages - len);
	b = vm_random(state) % (pages - len);
	if (vm_random(state) % 2) {
		a -= a % (HUGE / PAGE);
		b -= b % (HUGE / PAGE);
	}
	rc = um_swap(node, arena + a * PAGE, arena + b * PAGE, len * PAGE);
	if (!rc)
		atomic_fetch_add(&swaps, 1);
	else if (rc == -EBUSY || rc == -EMLINK)
		atomic_fetch_add(&busy, 1);
	else if (rc != -EINVAL) /* they overlap */
		errx(1, "an exchange fails: %s", strerror(-rc));
}

static void *swapper(void *arg)
{
	unsigned int state = seed + 1000 + (unsigned int)(uintptr_t)arg;

	while (!atomic_load(&stop))
		any_exchange(&state);
	return NULL;
}

static void fork_once(unsigned int *state)
{
	pid_t pid = fork();
	size_t i;

	if (pid < 0)
		return;
	if (!pid) {
		arena[vm_random(state) % ARENA] ^= 0;
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	/* The kernel takes them for shared until they are written to. */
	for (i = 0; i < ARENA; i += PAGE)
		atomic_fetch_add((_Atomic char *)(arena + i + WORD_AT), 0);
}

/* Without a change to what the arena's pages hold. */
static void disturb(unsigned int *state)
{
	char *at = arena + vm_random(state) % (ARENA / HUGE - 1) * HUGE;
	char line[96];

	switch (vm_random(state) % 7) {
	case 0:
		madvise(at, HUGE, MADV_PAGEOUT);
		break;
	case 1:
		snprintf(line, sizeof(line), "%d,0x%lx,0x%lx", getpid(),
			 (unsigned long)at, (unsigned long)at + HUGE);
		vm_write("/sys/kernel/debug/split_huge_pages", line);
		break;
	case 2:
		vm_write("/proc/sys/vm/compact_memory", "1");
		break;
	case 3:
		madvise(at, HUGE, 25 /* MADV_COLLAPSE */);
		break;
	case 4:
		fork_once(state);
		break;
	case 5:
		vm_write("/proc/self/clear_refs", "1");
		break;
	default:
		atomic_fetch_add((_Atomic char *)(at + WORD_AT), 0);
	}
}

static void *disturber(void *arg)
{
	unsigned int state = seed + 2000;

	while (!atomic_load(&stop)) {
		disturb(&state);
		usleep(vm_random(&state) % 2000);
	}
	return NULL;
}

static void arena_check(void)
{
	size_t pages = ARENA / PAGE, i;
	char *seen = calloc(pages + 1, 1);
	uint64_t name;

	for (i = 0; i < pages; i++) {
		name = name_at(arena + i * PAGE);
		if (!name || name > pages || seen[name]++)
			complain("twice, or none of ours", i, name);
		if (name_at(arena + (i + 1) * PAGE - 8) != name)
			complain("its end is another's", i, name);
	}
	free(seen);
}

static void stir(int advice, unsigned int seconds)
{
	pthread_t threads[SWAPPERS + 1];
	size_t i;
	long n;

	arena = area(ARENA, advice);
	for (i = 0; i < ARENA / PAGE; i++) {
		*(uint64_t *)(arena + i * PAGE) = i + 1;
		*(uint64_t *)(arena + (i + 1) * PAGE - 8) = i + 1;
	}
	atomic_store(&stop, false);
	for (n = 0; n < SWAPPERS; n++)
		pthread_create(&threads[n], NULL, swapper, (void *)n);
	pthread_create(&threads[n], NULL, disturber, NULL);
	sleep(seconds);
	atomic_store(&stop, true);
	for (n = 0; n <= SWAPPERS; n++)
		pthread_join(threads[n], NULL);
	arena_check();
	munmap(arena, ARENA);
}

static void tell(const char *what)
{
	printf("%s: %lu exchanges, %lu refused for now, %lu looks, %lu wrong\n",
	       what, atomic_exchange(&swaps, 0), atomic_exchange(&busy, 0),
	       atomic_exchange(&looked, 0), atomic_load(&wrong));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 20;

	if (argc > 2)
		seed = (unsigned int)atoi(argv[2]) | 1;
	node = open("/dev/ummunot", O_RDONLY | O_CLOEXEC);
	if (node < 0 || um_swap(node, NULL, NULL, 0) != -EINVAL) {
		printf("SKIP: this kernel does not swap pages\n");
		return 77;
	}
	observe(2 * HUGE, MADV_HUGEPAGE, 0, seconds / 8);
	tell("huge pages");
	observe(2 * HUGE, MADV_NOHUGEPAGE, 0, seconds / 8);
	tell("tables");
	observe(HUGE / 4, MADV_NOHUGEPAGE, 3 * PAGE, seconds / 8);
	tell("entries");
	observe(4 * PAGE, MADV_NOHUGEPAGE, PAGE, seconds / 8);
	tell("few entries");
	stir(MADV_HUGEPAGE, (unsigned int)(seconds / 4));
	tell("an arena of huge pages");
	stir(MADV_NOHUGEPAGE, (unsigned int)(seconds / 4));
	tell("an arena of single pages");
	return atomic_load(&wrong) != 0;
}
