// SPDX-License-Identifier: BSD-2-Clause
/*
 * The page swap and everybody else: other threads that read and write the
 * ranges and their neighbours, notifiers, caches, a stranger's userfaultfd, and
 * other threads that swap.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <kedge/hooks.h>

#include "base/base.h"
#include "channel/pageswap.h"
#include "core.h"

static int can_move(void)
{
	char *p = new_pages(2);
	int rc = kedge_page_swap(p, p + page_len(), page_len());

	free_pages(p, 2);
	return rc;
}

static void need_move(void)
{
	if (can_move()) {
		print_message("skipped: %s\n", kedge_strerror(can_move()));
		skip();
	}
}

static void fill(char *p, size_t cnt, char with)
{
	memset(p, with, cnt * page_len());
}

/* ---- threads that touch what is swapped ---- */

#define PAGES  64
#define EDGE   8 /* pages of neighbours on either side */
#define ROUNDS 3000

/*
 * Each page's first word is its owner's counter: 1 << 32 or 2 << 32 and up. Who
 * writes adds one, atomically; so all that was added is found at the end.
 */
struct arena {
	char *area;
	char *a;
	char *b;
	_Atomic bool stop;
	_Atomic uint64_t wrong;
	uint64_t added;
	uint64_t looks;
};

static _Atomic uint64_t *word(char *p, size_t i)
{
	return (_Atomic uint64_t *)(void *)(p + i * page_len());
}

static void *reader(void *arg)
{
	struct arena *r = arg;
	uint64_t looks = 0;
	size_t i;

	while (!r->stop)
		for (i = 0; i < PAGES; i++, looks++) {
			uint64_t va = *word(r->a, i) >> 32;
			uint64_t vb = *word(r->b, i) >> 32;

			if ((va != 1 && va != 2) || (vb != 1 && vb != 2))
				r->wrong++;
		}
	r->looks = looks;
	return NULL;
}

static void *writer(void *arg)
{
	struct arena *r = arg;
	uint64_t added = 0;
	size_t i;

	while (!r->stop)
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
	uint64_t n = 0;
	size_t i, k;

	while (!r->stop)
		for (n++, k = 0; k < 4; k++)
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

	need_move();
	arena_init(&r);
	for (i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, fn[i], &r), 0);
	for (i = 0; i < ROUNDS; i++)
		assert_int_equal(kedge_page_swap(r.a, r.b,
						 PAGES * page_len()), 0);
	r.stop = true;
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(r.wrong, 0);
	assert_true(r.looks > 0);
	for (i = 0; i < PAGES; i++)
		sum += *word(r.a, i) + *word(r.b, i) - mid;
	assert_int_equal(sum, r.added); /* no write was lost */
	free_pages(r.area, 2 * (PAGES + 2 * EDGE));
}

/* mremap() promises less of the ranges, and no less of the neighbours. */
static void neighbours_of_a_remap_see_nothing(void **state)
{
	struct arena r;
	pthread_t t;
	int i;

	arena_init(&r);
	assert_int_equal(pthread_create(&t, NULL, neighbour, &r), 0);
	for (i = 0; i < 300; i++)
		assert_int_equal(kedge_page_swap_with(r.a, r.b,
						      PAGES * page_len(),
						      KEDGE_SWAP_REMAP), 0);
	r.stop = true;
	pthread_join(t, NULL);
	assert_int_equal(r.wrong, 0);
	free_pages(r.area, 2 * (PAGES + 2 * EDGE));
}

/* No hole: what others map never comes to lie in a range. */
static void *mapper(void *arg)
{
	struct arena *r = arg;
	size_t len = 4 * page_len();

	while (!r->stop) {
		char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED ||
		    (p < r->a + PAGES * page_len() && p + len > r->a) ||
		    (p < r->b + PAGES * page_len() && p + len > r->b))
			r->wrong++;
		munmap(p, len);
	}
	return NULL;
}

static void nobody_gets_the_range(void **state)
{
	struct arena r;
	pthread_t t;
	int i;

	arena_init(&r);
	assert_int_equal(pthread_create(&t, NULL, mapper, &r), 0);
	for (i = 0; i < 500; i++)
		assert_int_equal(kedge_page_swap_with(r.a, r.b,
						      PAGES * page_len(),
						      KEDGE_SWAP_REMAP), 0);
	r.stop = true;
	pthread_join(t, NULL);
	assert_int_equal(r.wrong, 0);
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
	void *bad;
	int i;

	need_move();
	for (i = 0; i < SWAPPERS; i++) {
		fill(p + i * 8 * page_len(), 4, 1);
		fill(p + (i * 8 + 4) * page_len(), 4, 2);
	}
	for (i = 0; i < SWAPPERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, swapper,
						p + i * 8 * page_len()), 0);
	for (i = 0; i < SWAPPERS; i++) {
		pthread_join(t[i], &bad);
		assert_null(bad);
	}
	free_pages(p, 8 * SWAPPERS);
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

	need_move();
	need_threads_after_fork();
	arena_init(&r);
	assert_int_equal(pthread_create(&t, NULL, forker, &r), 0);
	for (n = 0; n < 4000; n++) {
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
	assert_true(r.looks > 0);
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
	need_move();
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
	uint64_t until;

	need_move();
	touched = new_pages(16);
	assert_int_equal(sigaction(SIGALRM, &sa, &old), 0);
	setitimer(ITIMER_REAL, &often, NULL);
	for (until = clock_ns() + 300000000; clock_ns() < until;)
		assert_int_equal(kedge_page_swap(touched, touched + len, len),
				 0);
	setitimer(ITIMER_REAL, &off, NULL);
	sigaction(SIGALRM, &old, NULL);
	assert_true(handled > 0);
	free_pages(touched, 16);
}

/* ---- notifiers and caches ---- */

static void need_notifier(void)
{
	if (need_uffd())
		skip();
}

static unsigned int events_of(struct kedge_notifier *nf, uint64_t cookie)
{
	struct kedge_event ev[16];
	ssize_t n = kedge_notifier_read(nf, ev, 16), i;
	unsigned int cnt = 0;

	for (i = 0; i < n; i++)
		cnt += ev[i].kind != KEDGE_EVENT_LAST && ev[i].cookie == cookie;
	return cnt;
}

static void watchers_are_told_and_go_on(uint32_t way)
{
	struct kedge_notifier *nf = open_uffd();
	size_t len = 8 * page_len();
	char *a = new_pages(8), *b = new_pages(8), *c = new_pages(8);
	uint64_t before;

	assert_true(kedge_watch_add(nf, a, len, 1) >= 0);
	assert_true(kedge_watch_add(nf, b, len, 2) >= 0);
	assert_true(kedge_watch_add(nf, c, len, 3) >= 0);
	before = kedge_notifier_generation(nf);
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_true(kedge_notifier_generation(nf) != before);
	assert_int_equal(events_of(nf, 1), 1);
	assert_int_equal(events_of(nf, 2), 0); /* read with the first */
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_int_equal(events_of(nf, 2), 1);
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_int_equal(events_of(nf, 3), 0);
	/* Still watched by the kernel: no library sees this call. */
	assert_int_equal(munmap(b, len), 0);
	assert_int_equal(events_of(nf, 2), 1);
	pages_at(b, 8);
	kedge_notifier_close(nf);
	free_pages(a, 8);
	free_pages(b, 8);
	free_pages(c, 8);
}

static void watchers_are_told_of_a_move(void **state)
{
	need_move();
	need_notifier();
	watchers_are_told_and_go_on(KEDGE_SWAP_MOVE);
}

static void watchers_are_told_of_a_remap(void **state)
{
	need_notifier();
	watchers_are_told_and_go_on(KEDGE_SWAP_REMAP);
}

static uint64_t get(struct kedge_cache *c, char *p, size_t len)
{
	const struct kedge_mr *mr;
	uint64_t h;

	assert_int_equal(kedge_cache_get(c, p, len, KEDGE_ACCESS_LOCAL_WRITE,
					 &mr), 0);
	h = mr->device_handle;
	kedge_cache_put(c, mr);
	return h;
}

static void no_registration_outlives_a_swap(void **state)
{
	struct kedge_notifier *nf;
	struct kedge_cache *c;
	struct nodev *d;
	size_t len = 8 * page_len();
	char *a, *b, *n;
	uint64_t ha, hb, hn;

	need_move();
	need_notifier();
	nf = open_uffd();
	d = nodev_new();
	assert_int_equal(kedge_cache_open(d->dev, nf, NULL, &c), 0);
	a = new_pages(8);
	b = new_pages(8);
	n = new_pages(8);
	ha = get(c, a, len);
	hb = get(c, b, len);
	hn = get(c, n, len);
	assert_int_equal(get(c, a, len), ha);
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	assert_true(get(c, a, len) != ha);
	assert_true(get(c, b, len) != hb);
	assert_int_equal(get(c, n, len), hn);
	/* And what was registered since is kept. */
	ha = get(c, a, len);
	assert_int_equal(get(c, a, len), ha);
	assert_int_equal(d->wrong, 0);
	kedge_cache_close(c);
	kedge_notifier_close(nf);
	nodev_free(d);
	free_pages(a, 8);
	free_pages(b, 8);
	free_pages(n, 8);
}

/*
 * The device notes which page it was shown, as a real one pins it: by the word
 * that stands in it. A hit must name the page that is there.
 */
struct racing {
	struct kedge_cache *cache;
	char *a;
	char *b;
	uint64_t shown[NODEV_HANDLES];
	_Atomic bool stop;
	_Atomic bool swapping;
	pthread_mutex_t turn;
	_Atomic uint64_t stale;
	_Atomic uint64_t hits;
};

static struct racing race;

static void show(struct nodev *d, void *addr, size_t len)
{
	race.shown[(d->next + 1) % NODEV_HANDLES] = *(uint64_t *)addr;
}

/* Lookups begin and end between swaps, as the owner of a buffer does it. */
static void *looker(void *arg)
{
	const struct kedge_mr *mr;
	int i = 0;

	while (!race.stop) {
		char *p = i++ % 2 ? race.a : race.b;

		pthread_mutex_lock(&race.turn);
		if (!kedge_cache_get(race.cache, p, page_len(),
				     KEDGE_ACCESS_LOCAL_WRITE, &mr)) {
			if (race.shown[mr->device_handle % NODEV_HANDLES] !=
			    *(uint64_t *)p)
				race.stale++;
			race.hits++;
			kedge_cache_put(race.cache, mr);
		}
		pthread_mutex_unlock(&race.turn);
	}
	return NULL;
}

static void nothing_stale_is_served(void **state)
{
	size_t len = 4 * page_len();
	struct kedge_notifier *nf;
	struct nodev *d;
	pthread_t t;
	int i;

	need_move();
	need_notifier();
	nf = open_uffd();
	d = nodev_new();
	d->on_reg = show;
	assert_int_equal(kedge_cache_open(d->dev, nf, NULL, &race.cache), 0);
	race.a = new_pages(4);
	race.b = new_pages(4);
	*(uint64_t *)race.a = 1;
	*(uint64_t *)race.b = 2;
	pthread_mutex_init(&race.turn, NULL);
	assert_int_equal(pthread_create(&t, NULL, looker, NULL), 0);
	for (i = 0; i < 2000; i++) {
		pthread_mutex_lock(&race.turn);
		assert_int_equal(kedge_page_swap(race.a, race.b, len), 0);
		pthread_mutex_unlock(&race.turn);
		if (i % 16 == 0)
			sched_yield();
	}
	race.stop = true;
	pthread_join(t, NULL);
	assert_int_equal(race.stale, 0);
	assert_true(race.hits > 0);
	assert_int_equal(d->wrong, 0);
	kedge_cache_close(race.cache);
	kedge_notifier_close(nf);
	nodev_free(d);
	free_pages(race.a, 4);
	free_pages(race.b, 4);
}

/* ---- a userfaultfd of somebody else's ---- */

static void a_strangers_userfaultfd_is_left_alone(void **state)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	size_t len = 4 * page_len();
	char *a = new_pages(4), *b = new_pages(4);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);

	need_move();
	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	r.range.start = addr_of(b) + page_len();
	r.range.len = page_len();
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &r), 0);
	fill(a, 4, 3);
	assert_int_equal(kedge_page_swap(a, b, len), -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "userfaultfd"));
	assert_int_equal(kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP),
			 -EOPNOTSUPP);
	assert_int_equal(a[len - 1], 3);
	/* It still has it. */
	assert_int_equal(ioctl(fd, UFFDIO_UNREGISTER, &r.range), 0);
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	assert_int_equal(b[len - 1], 3);
	close(fd);
	free_pages(a, 4);
	free_pages(b, 4);
}

/* ---- as many mappings as there can be ---- */

#define MAPS_MAX 70000

static int at_the_limit(void *arg)
{
	size_t page = page_len(), len = 4 * page, i;
	char *p = new_pages(16), *a = p + page, *b = p + 8 * page, *wall;
	int rc;

	fill(p, 16, 5);
	fill(a, 4, 1);
	fill(b, 4, 2);
	CHILD_CHECK(!can_move() || true);
	wall = mmap(NULL, 2 * MAPS_MAX * page, PROT_READ,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHILD_CHECK(wall != MAP_FAILED);
	for (i = 0; i < MAPS_MAX; i++)
		if (mprotect(wall + 2 * i * page, page, PROT_NONE))
			break;
	if (i == MAPS_MAX)
		return 0; /* no limit here that could be reached */
	rc = kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP);
	CHILD_CHECK(rc == -ENOMEM);
	CHILD_CHECK(strstr(kedge_strerror(rc), "max_map_count"));
	rc = kedge_page_swap(a, b, len);
	CHILD_CHECK(rc == -ENOMEM || rc == -EOPNOTSUPP);
	CHILD_CHECK(a[0] == 1 && a[len - 1] == 1 && b[0] == 2);
	CHILD_CHECK(p[0] == 5 && p[5 * page] == 5);
	/* A fifth are free again: only an eighth is left alone. */
	munmap(wall, 2 * (i / 5) * page);
	CHILD_CHECK(!kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP));
	CHILD_CHECK(a[0] == 2 && b[len - 1] == 1 && p[5 * page] == 5);
	return 0;
}

static void near_the_limit_of_mappings_nothing_is_harmed(void **state)
{
	assert_int_equal(in_child(at_the_limit, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_threads_see_old_or_new),
		cmocka_unit_test(neighbours_of_a_remap_see_nothing),
		cmocka_unit_test(nobody_gets_the_range),
		cmocka_unit_test(threads_swap_side_by_side),
		cmocka_unit_test(a_child_has_all_pages),
		cmocka_unit_test(it_takes_no_privilege),
		cmocka_unit_test(a_handler_may_touch_the_range),
		cmocka_unit_test(watchers_are_told_of_a_move),
		cmocka_unit_test(watchers_are_told_of_a_remap),
		cmocka_unit_test(no_registration_outlives_a_swap),
		cmocka_unit_test(nothing_stale_is_served),
		cmocka_unit_test(a_strangers_userfaultfd_is_left_alone),
		cmocka_unit_test(near_the_limit_of_mappings_nothing_is_harmed),
	};

	return cmocka_run_group_tests_name("pageswap_others", tests, NULL,
					   NULL);
}
