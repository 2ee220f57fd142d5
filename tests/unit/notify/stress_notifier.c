// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads that watch, exchange and unwatch their own pages on one notifier, and
 * read each other's events: none is missed, and each is visible to its thread
 * as soon as the call that made it has returned.
 */
#include "cases.h"

#define THREADS 4
#define COOKIES 8

static struct kedge_notifier *nf;
static _Atomic bool stop;
static _Atomic uint64_t told[THREADS][COOKIES]; /* generation of the latest */
static _Atomic uint64_t rounds, late, lost, refused;

struct worker {
	pthread_t thread;
	unsigned int index;
	char *pages;
};

static void note(uint64_t cookie, uint64_t generation)
{
	_Atomic uint64_t *t = &told[cookie / COOKIES][cookie % COOKIES];
	uint64_t old = atomic_load(t);

	while (old < generation &&
	       !atomic_compare_exchange_weak(t, &old, generation))
		;
}

static void read_some(void)
{
	struct kedge_event ev[3];
	ssize_t n = kedge_notifier_read(nf, ev, 3), i;

	for (i = 0; i < n; i++)
		if (ev[i].kind != KEDGE_EVENT_LAST)
			note(ev[i].cookie, ev[i].generation);
}

/* Another may have taken the event, and be about to note it. */
static bool told_after(struct worker *w, unsigned int i, uint64_t g)
{
	int tries;

	for (tries = 0; tries < 5000; tries++) {
		read_some();
		if (atomic_load(&told[w->index][i]) > g)
			return true;
		if (tries > 100)
			usleep(1000);
	}
	return false;
}

static void one(struct worker *w, unsigned int i)
{
	uint64_t cookie = w->index * COOKIES + i, g;
	char *p = w->pages + i * page_len();

	if (kedge_watch_add(nf, p, 1, cookie) < 0) {
		atomic_fetch_add(&refused, 1);
		return;
	}
	g = kedge_notifier_generation(nf) | 1;
	pages_at(p, 1);
	if (kedge_notifier_generation(nf) == (g & ~1ull))
		atomic_fetch_add(&late, 1);
	if (!told_after(w, i, g & ~1ull))
		atomic_fetch_add(&lost, 1);
	kedge_watch_remove(nf, cookie);
	atomic_fetch_add(&rounds, 1);
}

static void *work(void *arg)
{
	unsigned int i;

	for (i = 0; !atomic_load(&stop); i = (i + 1) % COOKIES)
		one(arg, i);
	return NULL;
}

static int seconds = 3;

static void every_change_is_told(void **state)
{
	struct timespec t = { .tv_sec = seconds };
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct worker w[THREADS];
	unsigned int i;

	nf = open_uffd();
	for (i = 0; i < THREADS; i++) {
		w[i].index = i;
		w[i].pages = new_pages(COOKIES);
		w[i].thread = run_thread(work, &w[i]);
	}
	nanosleep(&t, NULL);
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	assert_int_equal(info.watches, 0);
	print_message("%llu rounds\n", (unsigned long long)rounds);
	assert_true(rounds > 0);
	assert_int_equal(refused, 0);
	assert_int_equal(late, 0);
	assert_int_equal(lost, 0);
	kedge_notifier_close(nf);
	for (i = 0; i < THREADS; i++)
		free_pages(w[i].pages, COOKIES);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_change_is_told),
	};

	if (argc > 1)
		seconds = atoi(argv[1]);
	return RUN_WITH_UFFD(tests);
}
