// SPDX-License-Identifier: BSD-2-Clause
/*
 * An owner whose threads store to, unmap, remap, discard, page out and fork their
 * memory, while processes that have it attached load from and store to it.
 *
 *	kseg_race SECONDS
 *
 * The owner counts its turns. In each it makes a page new, in one of several
 * ways, and stores the turn's number there; then it publishes the number for that
 * page. An attacher that loads the published number first and the page's after
 * that must not see an older one: such a page is stale. Unless it is refused, for
 * the moment that the page is not mapped, or finds 0, before the number is stored.
 *
 * Attachers store as well, to words of their own of each page: what one has stored
 * it must load again, where the generation says that no change came between.
 */
#include "kseg_lib.h"

#define PAGES 64
#define OWNERS 3	/* threads of the owner, each with every third page */
#define ATTACHERS 3

struct shared {
	struct ks_id id;
	atomic_int stop;
	_Atomic uint64_t published[PAGES];
	atomic_ulong loads, refused, turns, stores, disturbed, stale, lost;
	atomic_ulong changes[8];
};

static struct shared *s;
static char *area;
static const uint64_t *generation;

/* ---- the owner ---- */

static void must(bool ok, const char *what)
{
	if (!ok)
		err(1, "%s", what);
}

static void fork_and_copy(char *p)
{
	pid_t pid = fork();

	if (!pid) {
		*(volatile uint64_t *)p = 1;	/* the child's copy */
		_exit(0);
	}
	/* The parent copies, or has it back when the child has gone. */
	*(volatile char *)(p + 100) = 1;
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static void change(char *p, unsigned int how)
{
	const int prot = PROT_READ | PROT_WRITE;
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *q;

	atomic_fetch_add(&s->changes[how], 1);
	switch (how) {
	case 0:
		must(!munmap(p, PAGE), "munmap");
		q = mmap(p, PAGE, prot, flags | MAP_FIXED_NOREPLACE, -1, 0);
		/* Another thread may have got the place for a moment. */
		if (q != p)
			must(mmap(p, PAGE, prot, flags | MAP_FIXED, -1, 0) == p,
			     "mmap again");
		break;
	case 1:
		must(mmap(p, PAGE, prot, flags | MAP_FIXED, -1, 0) == p, "mmap");
		break;
	case 2:
		must(!madvise(p, PAGE, MADV_DONTNEED), "DONTNEED");
		break;
	case 3:
		q = mmap(NULL, PAGE, prot, flags, -1, 0);
		must(q != MAP_FAILED, "mmap");
		*(volatile char *)q = 0;
		must(mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p,
		     "mremap");
		break;
	case 4:
		must(!mprotect(p, PAGE, PROT_READ), "mprotect");
		must(!mprotect(p, PAGE, prot), "mprotect");
		break;
	case 5:
		madvise(p, PAGE, MADV_PAGEOUT);
		break;
	default:
		fork_and_copy(p);
	}
}

static void *own(void *arg)
{
	unsigned int which = (unsigned int)(uintptr_t)arg, r = which + 1, how, i;
	uint64_t turn = 0;

	while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
		i = vm_random(&r) % (PAGES / OWNERS) * OWNERS + which;
		how = vm_random(&r) % 200;
		change(area + i * PAGE, how < 2 ? 6 : how % 6);
		turn++;
		*(_Atomic uint64_t *)(area + i * PAGE) = turn;
		atomic_store(&s->published[i], turn);
		atomic_fetch_add(&s->turns, 1);
		if (vm_random(&r) % 4 == 0)
			usleep(vm_random(&r) % 2000);
	}
	return NULL;
}

/* ---- attachers ---- */

static void check_load(const char *p, unsigned int i)
{
	const uint64_t least = atomic_load(&s->published[i]);
	uint64_t word;

	if (ks_load_word((const volatile uint64_t *)p, &word) != KS_OK) {
		atomic_fetch_add(&s->refused, 1);
		return;
	}
	atomic_fetch_add(&s->loads, 1);
	if (word && word < least) {
		if (atomic_fetch_add(&s->stale, 1) < 10)
			warnx("page %u: %llu after %llu was published", i,
			      (unsigned long long)word,
			      (unsigned long long)least);
	}
}

/* A store that nothing disturbed is there to be loaded again. */
static void check_store(char *p, unsigned int which, uint64_t value)
{
	uint64_t *word = (uint64_t *)(p + 1024) + which, now;
	uint64_t g = __atomic_load_n(generation, __ATOMIC_ACQUIRE);

	if (ks_store_word(word, value) != KS_OK)
		return;
	if (ks_load_word(word, &now) != KS_OK)
		now = ~0ull;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	atomic_fetch_add(&s->stores, 1);
	if (g % 2 || g != __atomic_load_n(generation, __ATOMIC_ACQUIRE))
		atomic_fetch_add(&s->disturbed, 1);
	else if (now != value && atomic_fetch_add(&s->lost, 1) < 10)
		warnx("a store of %llu: %llu", (unsigned long long)value,
		      (unsigned long long)now);
}

static char *attach(void)
{
	int fd = ks_open(O_RDWR);
	char *a;

	if (fd < 0 || ks_get(fd, s->id, KS_RW))
		errx(1, "get");
	a = ks_map(fd, PAGES * PAGE, PROT_READ | PROT_WRITE, 0);
	generation = ks_generation(fd);
	if (ks_errno(a) || ks_errno(generation))
		errx(1, "map: %d %d", ks_errno(a), ks_errno(generation));
	close(fd);
	return a;
}

static void work(unsigned int which)
{
	unsigned int r = 77 + which, i;
	uint64_t value = 1;
	char *a = attach();

	while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
		i = vm_random(&r) % (PAGES / OWNERS * OWNERS);
		if (vm_random(&r) % 4)
			check_load(a + i * PAGE, i);
		else
			check_store(a + i * PAGE, which, value++);
		if (vm_random(&r) % 1000)
			continue;
		/* Attached anew, from time to time in pieces. */
		if (vm_random(&r) % 2)
			munmap(a + i * PAGE, PAGE);
		munmap(a, PAGES * PAGE);
		munmap((void *)generation, PAGE);
		a = attach();
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	const unsigned int seconds = argc > 1 ? (unsigned int)atoi(argv[1]) : 10;
	pthread_t owners[OWNERS];
	pid_t pid[ATTACHERS];
	bool bad = false;
	int fd = ks_open(O_RDWR), status, i;

	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	area = vm_memory(PAGES);
	memset(area, 0, PAGES * PAGE);
	if (ks_make(fd, area, PAGES * PAGE, 0600, &s->id))
		errx(1, "make");
	for (i = 0; i < ATTACHERS; i++) {
		pid[i] = fork();
		if (!pid[i])
			work((unsigned int)i);
	}
	for (i = 0; i < OWNERS; i++)
		if (pthread_create(&owners[i], NULL, own, (void *)(uintptr_t)i))
			errx(1, "no thread");
	sleep(seconds);
	atomic_store(&s->stop, 1);
	for (i = 0; i < OWNERS; i++)
		pthread_join(owners[i], NULL);
	for (i = 0; i < ATTACHERS; i++) {
		waitpid(pid[i], &status, 0);
		bad = bad || status;
	}
	printf("%lu turns, %lu loads, %lu refused, %lu stores of which %lu "
	       "disturbed; %lu stale, %lu lost\n", s->turns, s->loads, s->refused,
	       s->stores, s->disturbed, s->stale, s->lost);
	for (i = 0; i < 7; i++)
		if (!s->changes[i])
			warnx("change %d was not made", i);
	return bad || s->stale || s->lost || !s->loads || !s->stores;
}
