// SPDX-License-Identifier: BSD-2-Clause
/*
 * The page swap and those who watch: notifiers, caches, a stranger's userfaultfd;
 * and the limit of mappings.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "swap_mem.h"

static void fill(char *p, size_t cnt, char with)
{
	memset(p, with, cnt * page_len());
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

static void watchers_are_told_and_go_on(uint32_t by)
{
	struct kedge_notifier *nf = open_uffd();
	size_t len = 8 * page_len();
	char *a = new_pages(8), *b = new_pages(8), *c = new_pages(8);
	uint64_t before;

	assert_true(kedge_watch_add(nf, a, len, 1) >= 0);
	assert_true(kedge_watch_add(nf, b, len, 2) >= 0);
	assert_true(kedge_watch_add(nf, c, len, 3) >= 0);
	before = kedge_notifier_generation(nf);
	assert_int_equal(kedge_page_swap_with(a, b, len, by), 0);
	assert_true(kedge_notifier_generation(nf) != before);
	assert_int_equal(events_of(nf, 1), 1);
	assert_int_equal(events_of(nf, 2), 0); /* read with the first */
	assert_int_equal(kedge_page_swap_with(a, b, len, by), 0);
	assert_int_equal(events_of(nf, 2), 1);
	assert_int_equal(kedge_page_swap_with(a, b, len, by), 0);
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
	need_way();
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

	need_way();
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

	need_way();
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
	/* Where the mutex is never the other's, it is waited for. */
	for (i = 0; i < 2000 || !race.hits; i++) {
		pthread_mutex_lock(&race.turn);
		assert_int_equal(kedge_page_swap(race.a, race.b, len), 0);
		pthread_mutex_unlock(&race.turn);
		if (i >= 2000)
			usleep(1000);
		else if (i % 16 == 0)
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
}

/* Whole mappings are watched: the neighbour's watch is in the swap's way. */
struct next_door {
	struct kedge_notifier *nf;
	char *p;
	_Atomic bool stop;
	_Atomic uint64_t wrong;
};

static void *watch_and_leave(void *arg)
{
	struct next_door *n = arg;

	while (!n->stop) {
		if (kedge_watch_add(n->nf, n->p, page_len(), 9) < 0)
			n->wrong++;
		else
			kedge_watch_remove(n->nf, 9);
	}
	return NULL;
}

static void neighbours_may_be_watched_meanwhile(void **state)
{
	size_t len = 4 * page_len();
	struct next_door n = { NULL };
	char *p = new_pages(24);
	pthread_t t;
	int i, rc = 0;

	need_way();
	need_notifier();
	n.nf = open_uffd();
	n.p = p + 20 * page_len();
	assert_int_equal(pthread_create(&t, NULL, watch_and_leave, &n), 0);
	for (i = 0; i < 3000 && !rc; i++)
		rc = kedge_page_swap(p, p + 8 * page_len(), len);
	n.stop = true;
	pthread_join(t, NULL);
	if (rc)
		fail_msg("after %d: %s", i, kedge_strerror(rc));
	assert_int_equal(n.wrong, 0);
	kedge_notifier_close(n.nf);
}

/* Far enough for nobody to be told of a change here; one mapping all the same. */
static void a_neighbour_that_stays_watched_is_no_hindrance(void **state)
{
	size_t len = 4 * page_len();
	char *p = new_pages(1000);
	struct kedge_notifier *nf;
	struct kedge_event ev;

	need_way();
	need_notifier();
	nf = open_uffd();
	fill(p, 4, 1);
	fill(p + 2 * len, 4, 2);
	assert_true(kedge_watch_add(nf, p + 990 * page_len(), page_len(), 9) >=
		    0);
	assert_int_equal(kedge_page_swap(p, p + 2 * len, len), 0);
	assert_int_equal(p[0], 2);
	assert_int_equal(kedge_page_swap_with(p, p + 2 * len, len,
					      KEDGE_SWAP_REMAP), 0);
	assert_int_equal(p[0], 1);
	/* Nothing was said of it, and it still is watched. */
	assert_int_equal(kedge_notifier_read(nf, &ev, 1), 1);
	assert_int_equal(ev.kind, KEDGE_EVENT_LAST);
	assert_int_equal(munmap(p + 990 * page_len(), page_len()), 0);
	assert_int_equal(kedge_notifier_read(nf, &ev, 1), 1);
	assert_int_equal(ev.cookie, 9);
	kedge_notifier_close(nf);
	munmap(p + 991 * page_len(), 9 * page_len());
}

/* ---- a userfaultfd of somebody else's ---- */

static void a_strangers_userfaultfd_is_left_alone(void **state)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	size_t len = 4 * page_len();
	char *a = new_pages(4), *b = new_pages(4);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);

	need_way();
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
}

/* ---- as many mappings as there can be ---- */

#define MAPS_MAX 70000

static int at_the_limit(void *arg)
{
	size_t page = page_len(), len = 4 * page, i;
	char *p = new_pages(16), *a = p + page, *b = p + 8 * page, *wall;
	int rc;

	alarm(6 * CHILD_TIMEOUT); /* so many mappings, in an emulated machine */
	fill(p, 16, 5);
	fill(a, 4, 1);
	fill(b, 4, 2);
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
	rc = kedge_page_swap_with(a, b, len, KEDGE_SWAP_MOVE);
	CHILD_CHECK(rc == -ENOMEM || rc == -EOPNOTSUPP);
	CHILD_CHECK(a[0] == 1 && a[len - 1] == 1 && b[0] == 2);
	CHILD_CHECK(p[0] == 5 && p[5 * page] == 5);
	/* The kernel would do it now; it is too near the limit all the same. */
	munmap(wall + 2 * (i / 5) * page, 2 * (i / 20) * page);
	CHILD_CHECK(kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP) ==
		    -ENOMEM);
	CHILD_CHECK(a[0] == 1 && b[0] == 2);
	/* A fourth is free again: only an eighth is left alone. */
	munmap(wall, 2 * (i / 5) * page);
	CHILD_CHECK(!kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP));
	CHILD_CHECK(a[0] == 2 && b[len - 1] == 1 && p[5 * page] == 5);
	return 0;
}

static void near_the_limit_of_mappings_nothing_is_harmed(void **state)
{
	assert_int_equal(in_child(at_the_limit, NULL), 0);
}

#define LISTED MOVE
#include "test_swap_watch.cases.h"
