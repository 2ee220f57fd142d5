// SPDX-License-Identifier: BSD-2-Clause
/*
 * Whether a lookup learns of a change that is under way. The change is stopped
 * in the middle by holding the lock that the monitor needs to read its event.
 */
#include <pthread.h>
#include <sys/mman.h>

#include <kedge/hooks.h>

#include "core.h"
#include "notify/announce.h"
#include "notify/internal.h"

static struct kedge_notifier *nf;

/* Here the test announces, not libkedge-hooks. */
bool announce_try_calls(void)
{
	return true;
}

static int setup(void **state)
{
	nf = open_uffd();
	return 0;
}

static int teardown(void **state)
{
	kedge_notifier_close(nf);
	return 0;
}

static uint32_t check_of(struct kedge_notifier *n)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_notifier_info(n, &info), 0);
	return info.check;
}

/* Take all events; the generation at which there were none. */
static uint64_t drain(void)
{
	struct kedge_event ev[4];
	ssize_t n;

	do {
		n = kedge_notifier_read(nf, ev, 4);
		assert_true(n >= 0);
	} while (!n || ev[n - 1].kind != KEDGE_EVENT_LAST);
	return ev[n - 1].generation;
}

static void *unmap(void *p)
{
	munmap(p, page_len());
	return NULL;
}

/* Take the page's address as soon as the kernel gives it away again. */
static void *take_address(char *p)
{
	void *got;

	do {
		got = mmap(p, page_len(), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			   -1, 0);
	} while (got == MAP_FAILED);
	assert_ptr_equal(got, p);
	return got;
}

static void a_change_under_way_is_no_rest(void **state)
{
	uint64_t generation;
	pthread_t t;
	int i;

	assert_int_equal(check_of(nf), KEDGE_CHECK_CALL);
	for (i = 0; i < 50; i++) {
		char *p = new_pages(1);

		assert_true(kedge_watch_add(nf, p, 1, 1) >= 0);
		generation = drain();
		assert_int_equal(kedge_notifier_unchanged(nf, generation), 1);
		sig_lock(&nf->lock);
		assert_int_equal(pthread_create(&t, NULL, unmap, p), 0);
		take_address(p);
		/* The range is ours now, the other's munmap() under way. */
		assert_int_equal(kedge_notifier_generation(nf), generation);
		assert_false(notify_settled(nf));
		sig_unlock(&nf->lock);
		pthread_join(t, NULL);
		assert_int_equal(kedge_notifier_unchanged(nf, generation), 0);
		assert_int_equal(kedge_notifier_unchanged(nf, drain()), 1);
		assert_int_equal(kedge_watch_remove(nf, 1), 0);
		free_pages(p, 1);
	}
}

static void an_answer_keeps_errno(void **state)
{
	errno = ERANGE;
	assert_true(notify_settled(nf));
	assert_int_equal(errno, ERANGE);
}

static void bad_arguments_are_refused(void **state)
{
	assert_int_equal(kedge_notifier_unchanged(NULL, 2), -EINVAL);
}

static int ask_in_child(void *arg)
{
	return kedge_notifier_unchanged(nf, 2) == -ECHILD ? 0 : 1;
}

static void a_child_is_refused(void **state)
{
	assert_int_equal(in_child(ask_in_child, NULL), 0);
}

/* Where libkedge-hooks announces, nothing is asked, until it is passed by. */
static void an_unannounced_change_makes_lookups_ask(void **state)
{
	char *p = new_pages(1);
	struct kedge_hook hook;

	kedge_hook_attach(KEDGE_BLIND_RAW);
	kedge_notifier_close(nf);
	nf = open_uffd();
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);

	assert_true(kedge_watch_add(nf, p, 1, 1) >= 0);
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, p, page_len());
	assert_int_equal(munmap(p, page_len()), 0);
	kedge_hook_end(&hook);
	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
	assert_int_equal(kedge_watch_remove(nf, 1), 0);

	pages_at(p, 1);
	assert_true(kedge_watch_add(nf, p, 1, 1) >= 0);
	assert_int_equal(munmap(p, page_len()), 0);
	assert_int_equal(check_of(nf), KEDGE_CHECK_CALL);
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
}

static void hooks_are_not_relied_on_where_asking_is_asked_for(void **state)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd",
					 .flags = KEDGE_NOTIFIER_ASK };
	struct kedge_notifier *own;

	assert_int_equal(kedge_notifier_open(&o, &own), 0);
	assert_int_equal(check_of(own), KEDGE_CHECK_CALL);
	kedge_notifier_close(own);
}

/* A cache that handled its events under the old rule does not go on by it. */
static void a_cache_follows_when_lookups_must_ask(void **state)
{
	struct kedge_cache *cache;
	struct nodev *d = nodev_new();
	const struct kedge_mr *mr;
	char *p = new_pages(1);

	assert_int_equal(check_of(nf), KEDGE_CHECK_LOAD);
	assert_int_equal(kedge_cache_open(d->dev, nf, NULL, &cache), 0);
	assert_int_equal(kedge_cache_get(cache, p, 1, 1, &mr), 0);
	kedge_cache_put(cache, mr);
	sig_lock(&nf->lock);
	notify_must_ask(nf, ASKS_LOST);
	sig_unlock(&nf->lock);
	/* Nothing is served any more, and nothing stays. */
	assert_int_equal(kedge_cache_get(cache, p, 1, 1, &mr), 0);
	kedge_cache_put(cache, mr);
	assert_int_equal(kedge_cache_get(cache, p, 1, 1, &mr), 0);
	kedge_cache_put(cache, mr);
	assert_int_equal(atomic_load(&d->regs), 3);
	assert_int_equal(check_of(nf), KEDGE_CHECK_NONE);
	kedge_cache_close(cache);
	assert_int_equal(atomic_load(&d->live), 0);
	nodev_free(d);
	free_pages(p, 1);
}

/* With hooks in force from the notifier's opening. */
static int load_setup(void **state)
{
	kedge_hook_attach(KEDGE_BLIND_RAW);
	return setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_change_under_way_is_no_rest,
						setup, teardown),
		cmocka_unit_test_setup_teardown(an_answer_keeps_errno, setup,
						teardown),
		cmocka_unit_test_setup_teardown(bad_arguments_are_refused,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_child_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			an_unannounced_change_makes_lookups_ask, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			hooks_are_not_relied_on_where_asking_is_asked_for,
			load_setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_cache_follows_when_lookups_must_ask, load_setup,
			teardown),
	};
	int rc = need_uffd();

	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
