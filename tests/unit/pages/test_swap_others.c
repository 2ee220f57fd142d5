// SPDX-License-Identifier: BSD-2-Clause
/*
 * The page swap and other threads: those that read and write the ranges and
 * their neighbours, that map, that fork, that swap; and signals.
 */
#include <sys/time.h>

#include "swap_mem.h"

static void fill(char *p, size_t cnt, char with)
{
	memset(p, with, cnt * page_len());
}

/* ---- threads that touch what is swapped ---- */

#define PAGES  64
#define EDGE   8 /* pages of neighbours on either side */
#define ROUNDS 3000

/*
 * Each page's first word is its owner's counter: 1 << 32 or 2 << 32 and up. A
 * writer adds one, atomically; so all that was added is found at the end.
 */
struct arena {
	char *area;
	char *a;
	char *b;
	_Atomic bool stop;
	_Atomic uint64_t wrong;
	uint64_t added;
	_Atomic uint64_t looks;	 /* rounds of the reader, the forker */
	_Atomic uint64_t writes; /* of the writer */
	_Atomic uint64_t beside; /* of who works beside the ranges */
};

/* Swaps go on until each of the others had a part in them. */
#define PARTS 10

static _Atomic uint64_t *word(char *p, size_t i)
{
	return (_Atomic uint64_t *)(void *)(p + i * page_len());
}

static void *reader(void *arg)
{
	struct arena *r = arg;
	size_t i;

	for (; !r->stop; r->looks++)
		for (i = 0; i < PAGES; i++) {
			uint64_t va = *word(r->a, i) >> 32;
			uint64_t vb = *word(r->b, i) >> 32;

			if ((va != 1 && va != 2) || (vb != 1 && vb != 2))
				r->wrong++;
		}
	return NULL;
}

static void *writer(void *arg)
{
	struct arena *r = arg;
	uint64_t added = 0;
	size_t i;

	for (; !r->stop; r->writes++)
		for (i = 0; i < PAGES; i++, added += 2) {
			atomic_fetch_add(word(r->a, i), 1);
			atomic_fetch_add(word(r->b, i), 1);
		}
	r->added = added;
	return NULL;
}

/* In user mode and by system calls, which must not fail there. */
static void *neighbour(void *arg)
{
	struct arena *r = arg;
	char *edge[4] = { r->a - EDGE * page_len(), r->a + PAGES * page_len(),
			  r->b - EDGE * page_len(), r->b + PAGES * page_len() };
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	size_t i, k;

	for (; !r->stop; r->beside++)
		for (k = 0; k < 4; k++)
			for (i = 0; i < EDGE; i++) {
				if (*word(edge[k], i) != 7)
					r->wrong++;
				atomic_store(word(edge[k], i), 7);
				if (read(fd, edge[k] + i * page_len() + 8, 8) !=
				    8)
					r->wrong++;
			}
	close(fd);
	return NULL;
}

static void arena_init(struct arena *r)
{
	size_t page = page_len(), all = 2 * (PAGES + 2 * EDGE), i;

	memset(r, 0, sizeof(*r));
	r->area = new_pages(all);
	r->a = r->area + EDGE * page;
	r->b = r->a + (PAGES + 2 * EDGE) * page;
	for (i = 0; i < all; i++)
		*word(r->area, i) = 7;
	for (i = 0; i < PAGES; i++) {
		*word(r->a, i) = 1ull << 32;
		*word(r->b, i) = 2ull << 32;
	}
}

static void other_threads_see_old_or_new(void **state)
{
	void *(*const fn[])(void *) = { reader, writer, neighbour };
	uint64_t sum = 0, mid = 3ull << 32;
	struct arena r;
	pthread_t t[3];
	int i;

	need_way();
	arena_init(&r);
	for (i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, fn[i], &r), 0);
	for (i = 0; i < ROUNDS || r.looks < PARTS || r.writes < PARTS ||
		    r.beside < PARTS; i++)
		assert_int_equal(kedge_page_swap(r.a, r.b,
						 PAGES * page_len()), 0);
	r.stop = true;
	join_threads(t, 3);
	assert_int_equal(r.wrong, 0);
	for (i = 0; i < PAGES; i++)
		sum += *word(r.a, i) + *word(r.b, i) - mid;
	assert_int_equal(sum, r.added); /* no write was lost */
	free_pages(r.area, 2 * (PAGES + 2 * EDGE));
}

/* By mremap(), while another thread looks for what is wrong. */
static void remap_beside(void *(*other)(void *arg), int rounds, struct arena *r)
{
	pthread_t t;
	int i;

	arena_init(r);
	assert_int_equal(pthread_create(&t, NULL, other, r), 0);
	for (i = 0; i < rounds || i % 2 || r->beside < PARTS; i++)
		assert_int_equal(kedge_page_swap_with(r->a, r->b,
						      PAGES * page_len(),
						      KEDGE_SWAP_REMAP), 0);
	r->stop = true;
	pthread_join(t, NULL);
	assert_int_equal(r->wrong, 0);
}

/* mremap() promises less of the ranges, and no less of the neighbours. */
static void neighbours_of_a_remap_see_nothing(void **state)
{
	struct arena r;

	remap_beside(neighbour, 300, &r);
	free_pages(r.area, 2 * (PAGES + 2 * EDGE));
}

/* No hole: who asks for an address of a range would get it if it were free. */
static void *mapper(void *arg)
{
	struct arena *r = arg;
	size_t len = 4 * page_len();
	unsigned int n = 0;

	while (!r->stop) {
		char *p = mmap(n++ % 2 ? r->a : r->b, len, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED ||
		    (p < r->a + PAGES * page_len() && p + len > r->a) ||
		    (p < r->b + PAGES * page_len() && p + len > r->b))
			r->wrong++;
		munmap(p, len);
		r->beside++;
	}
	return NULL;
}

static void nobody_gets_the_range(void **state)
{
	struct arena r;

	remap_beside(mapper, 500, &r);
	assert_int_equal(*word(r.a, 3) >> 32, 1);
	free_pages(r.area, 2 * (PAGES + 2 * EDGE));
}

/* ---- many threads swap, each its own ranges, side by side ---- */

#define SWAPPERS 6

static void *swapper(void *arg)
{
	char *p = arg;
	size_t len = 4 * page_len();
	int i;

	for (i = 0; i < 500; i++)
		if (kedge_page_swap(p, p + len, len) ||
		    p[0] != 2 - i % 2 * 1 || p[len] != 1 + i % 2)
			return p;
	return NULL;
}

static void threads_swap_side_by_side(void **state)
{
	char *p = new_pages(8 * SWAPPERS);
	pthread_t t[SWAPPERS];
	int i;

	need_way();
	for (i = 0; i < SWAPPERS; i++) {
		fill(p + i * 8 * page_len(), 4, 1);
		fill(p + (i * 8 + 4) * page_len(), 4, 2);
	}
	run_threads(t, SWAPPERS, swapper, p, 8 * page_len());
	join_threads(t, SWAPPERS);
}

/* ---- a thread that forks ---- */

static void *forker(void *arg)
{
	struct arena *r = arg;
	size_t i;

	while (!r->stop) {
		int status = -1;
		pid_t pid = fork();

		if (!pid) {
			for (i = 0; i < PAGES; i++)
				if (*word(r->a, i) >> 32 == 0 ||
				    *word(r->b, i) >> 32 == 0)
					_exit(1);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			r->wrong++;
		r->looks++;
	}
	return NULL;
}

static void a_child_has_all_pages(void **state)
{
	struct arena r;
	pthread_t t;
	size_t i;
	int n;

	need_way();
	need_threads_after_fork();
	arena_init(&r);
	assert_int_equal(pthread_create(&t, NULL, forker, &r), 0);
	for (n = 0; n < 4000 || r.looks < PARTS; n++) {
		int rc = kedge_page_swap(r.a, r.b, PAGES * page_len());

		/* Shared with a child, till they are written again. */
		assert_true(!rc || rc == -EBUSY);
		for (i = 0; i < PAGES && rc; i++) {
			atomic_fetch_add(word(r.a, i), 1);
			atomic_fetch_add(word(r.b, i), 1);
		}
	}
	r.stop = true;
	pthread_join(t, NULL);
	assert_int_equal(r.wrong, 0);
	free_pages(r.area, 2 * (PAGES + 2 * EDGE));
}

/* ---- somebody who may not do much ---- */

static int as_nobody(void *arg)
{
	size_t len = 8 * page_len();
	char *p = new_pages(16);

	if (setresuid(65534, 65534, 65534))
		return 0;
	fill(p, 8, 1);
	fill(p + len, 8, 2);
	if (kedge_page_swap(p, p + len, len) == -EPERM)
		return 0; /* userfaultfd is root's alone here */
	CHILD_CHECK(p[0] == 2 && p[len - 1] == 2 && p[len] == 1);
	CHILD_CHECK(!kedge_page_swap(p, p + len, len));
	CHILD_CHECK(p[0] == 1 && p[len] == 2);
	return 0;
}

static void it_takes_no_privilege(void **state)
{
	need_way();
	assert_int_equal(in_child(as_nobody, NULL), 0);
}

/* ---- signals ---- */

static char *touched;
static _Atomic int handled;

static void touch_it(int sig)
{
	touched[0]++;
	touched[8 * page_len()]++;
	handled++;
}

static void a_handler_may_touch_the_range(void **state)
{
	struct sigaction sa = { .sa_handler = touch_it }, old;
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, off = { 0 };
	size_t len = 8 * page_len();

	need_way();
	touched = new_pages(16);
	assert_int_equal(sigaction(SIGALRM, &sa, &old), 0);
	setitimer(ITIMER_REAL, &often, NULL);
	while (handled < 100)
		assert_int_equal(kedge_page_swap(touched, touched + len, len),
				 0);
	setitimer(ITIMER_REAL, &off, NULL);
	sigaction(SIGALRM, &old, NULL);
}

#define LISTED MOVE
#include "test_swap_others.cases.h"
