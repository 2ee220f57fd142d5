// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions that a directory knows: the one here is a page that the test's processes share. A peer
 * that comes late finds the region though all its former owners have ended.
 */
#include <kedge/directory.h>

#include "target.h"

struct entries {
	pthread_mutex_t lock;
	uint64_t region;
	bool there;
	struct kedge_place place;
	int fail; /* the next call has that, once */
	int stale; /* so many replacements find another there */
};

static struct entries *entries;
static struct kedge_directory *dir;
static struct target *target;

static int take_failure(void)
{
	const int rc = entries->fail;

	entries->fail = 0;
	return rc ? kedge_reason(rc, "the test's directory fails") : 0;
}

static int find(void *ctx, uint64_t id, struct kedge_place *place, int timeout_ms)
{
	int rc;

	pthread_mutex_lock(&entries->lock);
	rc = take_failure();
	if (!rc && (!entries->there || entries->region != id))
		rc = -ENOENT;
	if (!rc)
		*place = entries->place;
	pthread_mutex_unlock(&entries->lock);
	return rc;
}

static bool is_from(const struct kedge_place *from)
{
	if (!from || !entries->there)
		return !from == !entries->there;
	return !memcmp(from, &entries->place, sizeof(*from));
}

static int replace(void *ctx, uint64_t id, const struct kedge_place *from,
		   const struct kedge_place *to, int timeout_ms)
{
	int rc;

	pthread_mutex_lock(&entries->lock);
	rc = take_failure();
	if (!rc && (entries->stale-- > 0 || !is_from(from)))
		rc = kedge_reason(-ESTALE, "another place is there");
	if (!rc) {
		entries->region = id;
		entries->there = to;
		if (to)
			entries->place = *to;
	}
	pthread_mutex_unlock(&entries->lock);
	return rc;
}

static int begin_directory(void **state)
{
	const struct kedge_directory_ops ops = { .size = sizeof(ops), .find = find,
						 .replace = replace };
	pthread_mutexattr_t a;

	entries = shared_memory(sizeof(*entries));
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&entries->lock, &a);
	assert_int_equal(kedge_directory_open(&ops, NULL, &dir), 0);
	return 0;
}

static int end_directory(void **state)
{
	kedge_directory_close(dir);
	munmap(entries, sizeof(*entries));
	return 0;
}

static int enter_it(struct kedge_region *r, struct kedge_handle *own)
{
	int rc = kedge_region_advertise(r, NULL, own);

	return rc ? rc : kedge_region_enter(r, own, dir, SOON_MS);
}

/* The process that has the region enters it, and the one before it ends. */
static void owner_run(void *arg)
{
	struct target *t = arg;
	const struct kedge_directory_ops ops = { .size = sizeof(ops), .find = find,
						 .replace = replace };
	struct kedge_invitation *i;
	struct kedge_handle own;
	struct kedge_region *r;

	CHILD_CHECK(!kedge_directory_open(&ops, NULL, &dir));
	CHILD_CHECK(!kedge_invitation_open(&t->opts, &i, &t->invitation));
	atomic_store(&t->state, TARGET_WAITS);
	CHILD_CHECK(!kedge_invitation_accept(i, SOON_MS, &r));
	CHILD_CHECK(!enter_it(r, &own));
	atomic_store(&t->state, TARGET_OWNS);
	while (atomic_load(&t->say) != TARGET_MIGRATE)
		usleep(1000);
	CHILD_CHECK(!migrate_patiently(r, &t->next, NULL, NULL));
	CHILD_CHECK(kedge_region_enter(r, &own, dir, 0) == -EREMCHG);
}

static struct target *start_owner(void)
{
	struct target *t = target_new();

	need_threads_after_fork();
	t->pid = start_child(owner_run, t);
	while (atomic_load(&t->state) != TARGET_WAITS)
		usleep(1000);
	return t;
}

static void a_region_is_found_when_its_owners_have_ended(void **state)
{
	struct kedge_remote *late;
	struct target *last;
	int status;

	make_region(LEN, NULL);
	assert_int_equal(kedge_region_enter(region, &handle, dir, SOON_MS), 0);
	assert_int_equal(kedge_region_enter(region, &handle, dir, SOON_MS), 0);
	assert_int_equal(kedge_remote_open_in(&handle, dir, SOON_MS, &remote), 0);
	assert_int_equal(kedge_remote_put(remote, 7, "7", 1, SOON_MS), 0);
	target = start_owner();
	migrate_to(target, NULL, NULL);
	target_wait(target, TARGET_OWNS);
	last = start_owner();
	target->next = last->invitation;
	atomic_store(&target->say, TARGET_MIGRATE);
	target_wait(last, TARGET_OWNS);
	assert_int_equal(waitpid(target->pid, &status, 0), target->pid);
	assert_int_equal(status, 0);
	/* Its first owner, which this process is, names one that has ended. */
	assert_int_equal(kedge_remote_open(&handle, 1000, &late), -ECONNREFUSED);
	assert_int_equal(kedge_remote_open_in(&handle, dir, SOON_MS, &late), 0);
	gets_byte(late, 7, '7');
	kedge_remote_close(late);
	/* One that was told of the owner in between looks it up. */
	gets_byte(remote, 7, '7');
	kedge_remote_close(remote);
	kedge_region_close(region);
	kill(last->pid, SIGKILL);
	assert_int_equal(waitpid(last->pid, &status, 0), last->pid);
	munmap(last, sizeof(*last));
	munmap(target, sizeof(*target));
}

static void what_it_says_is_told(void **state)
{
	struct kedge_handle none = { .bytes = { 0 } }, other;
	struct kedge_region *r;

	entries->there = false;
	make_region(LEN, NULL);
	assert_int_equal(kedge_remote_open_in(&handle, dir, SOON_MS, &remote), 0);
	kedge_remote_close(remote);
	assert_int_equal(kedge_region_enter(region, &none, dir, 0), -EINVAL);
	assert_int_equal(kedge_region_enter(region, &handle, NULL, 0), -EINVAL);
	assert_int_equal(kedge_region_enter(region, NULL, dir, 0), -EINVAL);
	assert_int_equal(kedge_region_enter(NULL, &handle, dir, 0), -EINVAL);
	assert_int_equal(kedge_remote_open_in(&handle, NULL, 0, &remote), -EINVAL);
	assert_int_equal(kedge_region_create(1, NULL, &r), 0);
	assert_int_equal(kedge_region_advertise(r, NULL, &other), 0);
	assert_int_equal(kedge_region_enter(region, &other, dir, 0), -ENOENT);
	kedge_region_close(r);
	entries->fail = -EHOSTUNREACH;
	assert_int_equal(kedge_region_enter(region, &handle, dir, SOON_MS), -EHOSTUNREACH);
	entries->fail = -EACCES;
	assert_int_equal(kedge_remote_open_in(&handle, dir, SOON_MS, &remote), -EACCES);
	entries->stale = 3;
	assert_int_equal(kedge_region_enter(region, &handle, dir, SOON_MS), 0);
	entries->stale = 1000;
	assert_int_equal(kedge_region_enter(region, &handle, dir, SOON_MS), -ESTALE);
	entries->stale = 0;
	entries->place.bytes[0] ^= 1;
	assert_int_equal(kedge_remote_open_in(&handle, dir, SOON_MS, &remote), -EPROTO);
	/* A place that was never true: the owner that made the handle knows better. */
	entries->place.bytes[0] ^= 1;
	entries->place.bytes[20] ^= 1;
	assert_int_equal(kedge_remote_open_in(&handle, dir, SOON_MS, &remote), 0);
	kedge_remote_close(remote);
	kedge_region_close(region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_region_is_found_when_its_owners_have_ended),
	cmocka_unit_test(what_it_says_is_told),
};

const struct suite suite = { "migrate_directory", SUITE_OF(tests), .by = "mapped",
			     .begin = begin_directory, .end = end_directory };
