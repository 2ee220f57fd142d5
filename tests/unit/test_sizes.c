// SPDX-License-Identifier: BSD-2-Clause
/*
 * Programs that were compiled with the headers of 0.1: the sizes that its
 * structs had, as numbers, so that a field that is added changes none of them.
 * They are those of every LP64 machine.
 */
#include "channel/transport.h"
#include "cases.h"
#include "channel_pair.h"
#include <kedge/channel_info.h>

#define ROOM 4096u

/* A caller's struct, and what stands behind it. */
static union {
	uint32_t size;
	uint64_t align;
	char bytes[ROOM];
} user;

static struct kedge_notifier *nf;
static struct kedge_cache *cache;

static int no_reg(void *ctx, void *addr, size_t len, uint32_t access,
		  struct kedge_device_mr *mr)
{
	return -EOPNOTSUPP;
}

static void no_dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static int try_channel_opts(void)
{
	struct kedge_channel_opts o;

	return kedge__channel_opts(&o, (const void *)&user);
}

static int try_envelope(void)
{
	return kedge_channel_probe(a.ch, 0, 0, (void *)&user);
}

static int try_message(void)
{
	return kedge_channel_recvmsg(a.ch, (const void *)&user, NULL);
}

static int try_channel_info(void)
{
	return kedge_channel_info(a.ch, (void *)&user);
}

static int try_channel_stats(void)
{
	return kedge_channel_stats(a.ch, (void *)&user);
}

static int try_cache_opts(void)
{
	struct nodev *d = nodev_new();
	struct kedge_cache *c;
	int rc = kedge_cache_open(d->dev, nf, (const void *)&user, &c);

	if (!rc)
		kedge_cache_close(c);
	nodev_free(d);
	return rc;
}

static int try_cache_stats(void)
{
	return kedge_cache_stats(cache, (void *)&user);
}

static int try_notifier_opts(void)
{
	struct kedge_notifier *n;
	int rc;

	((struct kedge_notifier_opts *)&user)->backend = "none";
	rc = kedge_notifier_open((const void *)&user, &n);
	if (!rc)
		kedge_notifier_close(n);
	return rc;
}

static int try_notifier_info(void)
{
	return kedge_notifier_info(nf, (void *)&user);
}

static int try_backend_info(void)
{
	return kedge_backend_probe(0, (void *)&user);
}

static int try_device_ops(void)
{
	struct kedge_device_ops *ops = (void *)&user;
	struct kedge_device *dev;
	int rc;

	ops->name = "sizes";
	ops->reg = no_reg;
	ops->dereg = no_dereg;
	rc = kedge_device_open(ops, NULL, &dev);
	if (!rc)
		kedge_device_close(dev);
	return rc;
}

static int try_device_attr(void)
{
	struct nodev *d = nodev_new();
	int rc = kedge_device_query(d->dev, (void *)&user);

	nodev_free(d);
	return rc;
}

static int no_find(void *ctx, uint64_t region, struct kedge_place *place, int timeout_ms)
{
	return -ENOENT;
}

static int no_replace(void *ctx, uint64_t region, const struct kedge_place *from,
		      const struct kedge_place *to, int timeout_ms)
{
	return -ESTALE;
}

static int try_directory_ops(void)
{
	struct kedge_directory_ops *ops = (void *)&user;
	struct kedge_directory *d;
	int rc;

	ops->find = no_find;
	ops->replace = no_replace;
	rc = kedge_directory_open(ops, NULL, &d);
	if (!rc)
		kedge_directory_close(d);
	return rc;
}

static int try_region_opts(void)
{
	struct kedge_region *r;
	int rc = kedge_region_create(1, (const void *)&user, &r);

	if (!rc)
		kedge_region_close(r);
	return rc;
}

static int of_region(int (*ask)(struct kedge_region *r))
{
	struct kedge_region *r;
	int rc;

	assert_int_equal(kedge_region_create(1, NULL, &r), 0);
	rc = ask(r);
	kedge_region_close(r);
	return rc;
}

static int ask_region_info(struct kedge_region *r)
{
	return kedge_region_query(r, (void *)&user);
}

static int ask_recommit_info(struct kedge_region *r)
{
	return kedge_region_recommit(r, 0, 0, (void *)&user);
}

static int try_region_budget(void)
{
	return kedge_region_budget((void *)&user);
}

static int ask_handle_opts(struct kedge_region *r)
{
	struct kedge_handle h;

	return kedge_region_advertise(r, (const void *)&user, &h);
}

static int ask_move_opts(struct kedge_region *r)
{
	return kedge_region_move(r, (const void *)&user, 0, NULL);
}

static int try_invitation_opts(void)
{
	struct kedge_invitation *i;
	struct kedge_handle h;
	int rc = kedge_invitation_open((const void *)&user, &i, &h);

	if (!rc)
		kedge_invitation_close(i);
	return rc;
}

static void *accept_it(void *arg)
{
	struct kedge_region *r;

	if (!kedge_invitation_accept(arg, 60000, &r))
		kedge_region_close(r);
	return NULL;
}

/* To this process itself. */
static int migrate(const struct kedge_migrate_opts *o, struct kedge_migrate_info *info)
{
	struct kedge_invitation *i;
	struct kedge_region *r;
	struct kedge_handle h;
	pthread_t thread;
	int rc;

	assert_int_equal(kedge_region_create(1, NULL, &r), 0);
	assert_int_equal(kedge_invitation_open(NULL, &i, &h), 0);
	thread = run_thread(accept_it, i);
	rc = kedge_region_migrate(r, &h, o, info);
	if (rc)
		assert_int_equal(kedge_region_migrate(r, &h, NULL, NULL), 0);
	pthread_join(thread, NULL);
	kedge_region_close(r);
	kedge_invitation_close(i);
	return rc;
}

static int try_migrate_opts(void)
{
	return migrate((const void *)&user, NULL);
}

static int try_migrate_info(void)
{
	return migrate(NULL, (void *)&user);
}

static struct kedge_remote *remote_of(struct kedge_region *r)
{
	struct kedge_remote *remote;
	struct kedge_handle h;

	assert_int_equal(kedge_region_advertise(r, NULL, &h), 0);
	assert_int_equal(kedge_remote_open(&h, 10000, &remote), 0);
	return remote;
}

static int ask_remote_info(struct kedge_region *r)
{
	struct kedge_remote *remote = remote_of(r);
	int rc = kedge_remote_query(remote, (void *)&user);

	kedge_remote_close(remote);
	return rc;
}

static int try_regions_opts(void)
{
	struct kedge_regions *l;
	int rc;

	((struct kedge_regions_opts *)&user)->pid = getpid();
	rc = kedge_regions_open((const void *)&user, &l);
	if (!rc)
		kedge_regions_close(l);
	return rc;
}

static int ask_region_entry(struct kedge_region *r)
{
	const struct kedge_regions_opts o = { .size = sizeof(o), .pid = getpid() };
	struct kedge_regions *l;
	struct kedge_handle h;
	int rc;

	assert_int_equal(kedge_region_advertise(r, NULL, &h), 0);
	assert_int_equal(kedge_regions_open(&o, &l), 0);
	rc = kedge_regions_next(l, (void *)&user);
	kedge_regions_close(l);
	return rc < 0 ? rc : 0;
}

static int try_queue_opts(void)
{
	struct kedge_queue *q;
	int rc = kedge_queue_open((const void *)&user, &q);

	if (!rc)
		kedge_queue_close(q);
	return rc;
}

static int submit(const struct kedge_remote_op *op, struct kedge_remote_completion *c)
{
	struct kedge_remote_op add = { .size = sizeof(add), .op = KEDGE_REMOTE_FETCH_ADD };
	struct kedge_remote *remote;
	struct kedge_region *r;
	struct kedge_queue *q;
	int rc;

	assert_int_equal(kedge_region_create(1, NULL, &r), 0);
	remote = remote_of(r);
	assert_int_equal(kedge_queue_open(NULL, &q), 0);
	rc = kedge_remote_submit(remote, q, op ? op : &add, 1);
	if (rc == 1)
		rc = 0;
	if (c)
		rc = kedge_queue_read(q, c, 1, 10000) == 1 ? 0 : -EINVAL;
	kedge_remote_close(remote);
	kedge_queue_close(q);
	kedge_region_close(r);
	return rc;
}

static int try_remote_op(void)
{
	((struct kedge_remote_op *)&user)->op = KEDGE_REMOTE_PUT;
	return submit((const void *)&user, NULL);
}

static int try_remote_completion(void)
{
	return submit(NULL, (void *)&user);
}

#define TAKEN(x, first)	 { "kedge_" #x, first, sizeof(struct kedge_##x), false, try_##x, NULL }
#define RESULT(x, first) { "kedge_" #x, first, sizeof(struct kedge_##x), true, try_##x, NULL }
/* The same, of a region that there is. */
#define TAKEN_OF(x, first)  { "kedge_" #x, first, sizeof(struct kedge_##x), false, NULL, ask_##x }
#define RESULT_OF(x, first) { "kedge_" #x, first, sizeof(struct kedge_##x), true, NULL, ask_##x }

static const struct {
	const char *name;
	uint32_t size; /* of the first version */
	size_t now;
	bool is_result;
	int (*try)(void);
	int (*ask)(struct kedge_region *r);
} table[] = {
	TAKEN(channel_opts, 48),
	RESULT(channel_info, 32),
	RESULT(channel_stats, 160),
	RESULT(envelope, 24),
	TAKEN(message, 56),
	TAKEN(cache_opts, 48),
	RESULT(cache_stats, 128),
	TAKEN(notifier_opts, 24),
	RESULT(notifier_info, 40),
	RESULT(backend_info, 280),
	TAKEN(device_ops, 48),
	RESULT(device_attr, 40),
	TAKEN(directory_ops, 32),
	TAKEN(region_opts, 24),
	RESULT_OF(region_info, 40),
	TAKEN_OF(handle_opts, 32),
	TAKEN_OF(move_opts, 16),
	TAKEN(invitation_opts, 32),
	TAKEN(migrate_opts, 56),
	RESULT(migrate_info, 64),
	RESULT_OF(remote_info, 32),
	TAKEN(regions_opts, 16),
	RESULT_OF(region_entry, 216),
	TAKEN(queue_opts, 8),
	TAKEN(remote_op, 80),
	RESULT(remote_completion, 256),
	RESULT_OF(recommit_info, 24),
	RESULT(region_budget, 32),
};

static int try(size_t i, uint32_t size)
{
	memset(&user, 0, sizeof(user));
	memset(user.bytes + size, 0xee, ROOM - size);
	user.size = size;
	return table[i].try ? table[i].try() : of_region(table[i].ask);
}

static bool untouched_from(uint32_t size)
{
	uint32_t i;

	for (i = size; i < ROOM; i++)
		if (user.bytes[i] != (char)0xee)
			return false;
	return true;
}

static void structs_of_the_first_version_are_taken(void **state)
{
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		print_message("%s\n", table[i].name);
		assert_true(table[i].size <= table[i].now);
		rc = try(i, table[i].size);
		assert_true(rc == 0 || rc == -ENOENT);
		if (table[i].is_result)
			assert_true(untouched_from(table[i].size));
		assert_int_equal(user.size, table[i].size);
	}
}

static void shorter_structs_are_refused(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		print_message("%s\n", table[i].name);
		assert_int_equal(try(i, table[i].size - 1), -EINVAL);
		assert_int_equal(try(i, sizeof(uint32_t)), -EINVAL);
	}
}

static void longer_structs_are_taken_if_they_ask_for_nothing(void **state)
{
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		print_message("%s\n", table[i].name);
		rc = try(i, ROOM);
		assert_true(rc == 0 || rc == -ENOENT);
	}
}

static int open_all(void **state)
{
	const struct kedge_notifier_opts o = { .size = 24, .backend = "none" };
	static struct nodev *d;

	d = nodev_new();
	open_pair(NULL, NULL);
	return kedge_notifier_open(&o, &nf) ||
	       kedge_cache_open(d->dev, nf, NULL, &cache);
}

static int close_all(void **state)
{
	kedge_cache_close(cache);
	kedge_notifier_close(nf);
	close_pair();
	return 0;
}

#define LISTED PLAIN
#include "test_sizes.cases.h"

int main(void)
{
	return cmocka_run_group_tests_name("sizes", cases, open_all, close_all);
}
