// SPDX-License-Identifier: BSD-2-Clause
/* Regions that migrate to another process, with their handles, while peers go on. */
#include "peers.h"
#include "locked.h"
#include "target.h"
#include "suites.h"

static struct target *target;

static void begin_target(void)
{
	start_processes();
	target = target_new();
	target_start(target);
}

static void begin_both(void)
{
	begin_target();
	begin_remote(NULL);
}

static void end_all(void)
{
	end_remote();
	target_end(target);
}

static void print_how(const struct kedge_migrate_info *how)
{
	print_message("# %u rounds, %llu sent, %llu last, pause %llu us, track %u\n", how->rounds,
		      (unsigned long long)how->sent, (unsigned long long)how->last,
		      (unsigned long long)how->pause_ns / 1000, how->track);
}

/* As a program does it that gives no options: whose limit a late machine passes. */
static void migrate_by_default(struct kedge_migrate_info *info)
{
	int rc;

	while ((rc = kedge_region_migrate(region, &target->invitation, NULL, info)) == -ETIMEDOUT)
		target_accept_again(target);
	assert_int_equal(rc, 0);
}

static void a_region_goes_with_its_handles(void **state)
{
	struct kedge_region_info info = { .size = sizeof(info) };
	struct kedge_migrate_info how = { .size = sizeof(how) };
	struct kedge_remote *late;

	begin_both();
	memset(region_at(), 'a', LEN);
	assert_int_equal(kedge_remote_put(remote, 5, "b", 1, 0), 0);
	migrate_by_default(&how);
	target_wait(target, TARGET_OWNS);
	print_how(&how);
	assert_int_equal(how.len, LEN);
	assert_int_equal(kedge_region_query(region, &info), -EREMCHG);
	assert_int_equal(kedge_region_grow(region, LEN * 2), -EREMCHG);
	assert_int_equal(kedge_region_suspend(region, 0), -EREMCHG);
	assert_int_equal(kedge_region_resume(region), -EREMCHG);
	assert_int_equal(kedge_region_advertise(region, NULL, &handle), -EREMCHG);
	assert_int_equal(kedge_region_migrate(region, &target->invitation, NULL, NULL), -EREMCHG);
	/* One that was there, and one that comes with the handle. */
	gets_byte(remote, 5, 'b');
	late = open_it();
	gets_byte(late, LEN - 1, 'a');
	assert_int_equal(kedge_remote_put(remote, LEN - 1, "z", 1, SOON_MS), 0);
	gets_byte(late, LEN - 1, 'z');
	target->off = LEN - 1;
	assert_int_equal(target_say(target, TARGET_READ), 0);
	assert_int_equal(target->byte, 'z');
	kedge_remote_close(late);
	end_all();
}

static void peers_go_on(void **state)
{
	struct kedge_migrate_info how = { .size = sizeof(how) };
	struct peers *p = peers_new();

	need_locked(PEER_LEN);
	begin_target();
	make_region(PEER_LEN, NULL);
	peers_start(p); /* these start no threads */
	peers_work(p, 100);
	migrate_to(target, NULL, &how);
	print_how(&how);
	assert_int_equal(how.rdma, way->leased);
	peers_work(p, 100);
	peers_end(p);
	remote = open_it();
	peers_had_no_error(p);
	peers_check(p, remote);
	end_all();
}

/* ---- the owner's own stores ---- */

static struct {
	_Atomic int stop;
	_Atomic int stopped;
	uint64_t cnt;
} own;

static void *stores(void *unused)
{
	uint64_t *at = (uint64_t *)(void *)region_at();

	while (!atomic_load(&own.stop)) {
		own.cnt++;
		at[own.cnt % (PEER_LEN / 8)] = own.cnt;
		at[own.cnt * 4099 % (PEER_LEN / 8)] = own.cnt;
	}
	atomic_store(&own.stopped, 1);
	return NULL;
}

static int freeze(void *arg)
{
	atomic_store(&own.stop, 1);
	while (!atomic_load(&own.stopped))
		usleep(100);
	return 0;
}

static void what_the_owner_stores_itself_goes_too(void **state)
{
	struct kedge_migrate_opts o = { .size = sizeof(o), .freeze = freeze };
	struct kedge_migrate_info how = { .size = sizeof(how) };
	char *copy, *there;
	pthread_t thread;

	need_locked(PEER_LEN);
	copy = malloc(PEER_LEN);
	there = malloc(PEER_LEN);
	assert_true(copy && there);
	begin_target();
	make_region(PEER_LEN, NULL);
	memset(&own, 0, sizeof(own));
	assert_int_equal(pthread_create(&thread, NULL, stores, NULL), 0);
	/* It can be read until it is gone, and after that what it had is known. */
	o.arg = copy;
	migrate_to(target, &o, &how);
	pthread_join(thread, NULL);
	print_how(&how);
	remote = open_it();
	assert_int_equal(kedge_remote_get(remote, 0, there, PEER_LEN, SOON_MS), 0);
	/* The same stores, in the same order. */
	memset(copy, 0, PEER_LEN);
	for (uint64_t n = 1; n <= own.cnt; n++) {
		((uint64_t *)(void *)copy)[n % (PEER_LEN / 8)] = n;
		((uint64_t *)(void *)copy)[n * 4099 % (PEER_LEN / 8)] = n;
	}
	assert_memory_equal(there, copy, PEER_LEN);
	end_all();
	free(copy);
	free(there);
}

/* A page that was sent is zeros in the next round. */
static int empty_a_page(void *arg, const struct kedge_migrate_info *info)
{
	bool *done = arg;

	if (info->sent && !*done)
		memset(region_at() + 4 * (size_t)BLOCK, 0, BLOCK);
	*done |= info->sent > 0;
	return 0;
}

static void what_becomes_zero_goes_too(void **state)
{
	bool done = false;
	const struct kedge_migrate_opts o = { .size = sizeof(o), .progress = empty_a_page,
					      .arg = &done };
	char page[BLOCK], zeros[BLOCK] = { 0 };

	begin_both();
	memset(region_at(), 'a', LEN);
	migrate_to(target, &o, NULL);
	assert_true(done);
	assert_int_equal(kedge_remote_get(remote, 4 * BLOCK, page, BLOCK, SOON_MS), 0);
	assert_memory_equal(page, zeros, BLOCK);
	assert_int_equal(kedge_remote_get(remote, 5 * BLOCK, page, 1, SOON_MS), 0);
	assert_int_equal(page[0], 'a');
	end_all();
}

static int store_after_all(void *arg, const struct kedge_migrate_info *info)
{
	region_at()[0] = 'x';
	return 0;
}

/* A store that would be lost ends the program; it can read on. */
static void a_store_that_was_not_to_be_ends_the_program(void **state)
{
	const struct kedge_migrate_opts o = { .size = sizeof(o), .flags = KEDGE_MIGRATE_QUIET,
					      .progress = store_after_all };
	int status;
	pid_t pid;

	begin_target();
	pid = fork_child();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		make_region(LEN, NULL);
		kedge_region_migrate(region, &target->invitation, &o, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	/* Sanitizers report it, and end the process by another one. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#endif
	assert_true(!WIFEXITED(status) || WEXITSTATUS(status));
	target_wait(target, TARGET_FAILED);
	target_end(target);
}

/* ---- it stays ---- */

/* A peer has its accesses done by the owner at that time. */
static int no(void *arg)
{
	struct kedge_remote_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_remote_put(remote, PEER_LEN / 2 + 1, "n", 1, SOON_MS), 0);
	assert_int_equal(kedge_remote_query(remote, &info), 0);
	assert_int_not_equal(info.way, KEDGE_REMOTE_MAPPED);
	return 1;
}

static int no_more(void *arg, const struct kedge_migrate_info *info)
{
	return info->sent > 0;
}

static void what_the_program_ends_stays(void **state)
{
	struct kedge_migrate_opts o = { .size = sizeof(o), .freeze = no };
	struct kedge_remote_info info = { .size = sizeof(info) };
	struct peers *p = peers_new();

	need_locked(2 * PEER_LEN);
	begin_target();
	make_region(PEER_LEN, NULL);
	remote = open_it();
	peers_start(p);
	peers_work(p, 10);
	assert_int_equal(migrate_patiently(region, &target->invitation, &o, NULL), -ECANCELED);
	target_wait(target, TARGET_FAILED);
	assert_int_equal(atomic_load(&target->rc), -ECANCELED);
	peers_work(p, 10);
	atomic_store(&target->state, TARGET_WAITS);
	atomic_store(&target->say, TARGET_ACCEPT);
	o.freeze = NULL;
	o.progress = no_more;
	assert_int_equal(migrate_patiently(region, &target->invitation, &o, NULL), -ECANCELED);
	target_wait(target, TARGET_FAILED);
	peers_work(p, 10);
	assert_int_equal(region_at()[PEER_LEN / 2 + 1], 'n');
	region_at()[PEER_LEN / 2] = 'x';
	assert_int_equal(kedge_region_grow(region, PEER_LEN * 2), 0);
	/* Peers that can have the memory have it again. */
	puts_byte(remote, PEER_LEN, 'y');
	assert_int_equal(kedge_remote_query(remote, &info), 0);
	assert_int_equal(info.way == KEDGE_REMOTE_MAPPED, !way->served);
	assert_int_equal(kedge_region_trim(region, PEER_LEN), 0);
	/* And in the end it goes. */
	atomic_store(&target->state, TARGET_WAITS);
	atomic_store(&target->said, 0);
	migrate_to(target, NULL, NULL);
	target_wait(target, TARGET_OWNS);
	peers_work(p, 10);
	peers_end(p);
	peers_had_no_error(p);
	peers_check(p, remote);
	end_all();
}

static int suspend_it(void *suspended)
{
	*(bool *)suspended = true;
	return kedge_region_suspend(region, SOON_MS);
}

/* Its peers would go on at the next owner, which has not been told to resume it. */
static void what_is_suspended_stays(void **state)
{
	bool suspended;
	struct kedge_migrate_opts o = { .size = sizeof(o), .timeout_ms = 20 };
	int rc;

	begin_both();
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(kedge_region_migrate(region, &target->invitation, &o, NULL), -EBUSY);
	assert_non_null(strstr(kedge_strerror(-EBUSY), "kedge_region_resume()"));
	assert_int_equal(kedge_remote_put(remote, 0, "x", 1, 0), -ETIMEDOUT);
	assert_int_equal(kedge_region_resume(region), 0);
	o.freeze = suspend_it;
	o.arg = &suspended;
	o.timeout_ms = 25;
	/* A late machine passes the limit before the program suspends it. */
	do {
		suspended = false;
		o.timeout_ms *= 2;
		rc = kedge_region_migrate(region, &target->invitation, &o, NULL);
		target_accept_again(target);
		assert_int_equal(kedge_remote_put(remote, 0, "x", 1, suspended ? 0 : SOON_MS),
				 suspended ? -ETIMEDOUT : 0);
		assert_int_equal(kedge_region_resume(region), suspended ? 0 : -EINVAL);
	} while (rc == -ETIMEDOUT);
	assert_int_equal(rc, -EBUSY);
	assert_int_equal(kedge_region_resume(region), -EINVAL);
	assert_int_equal(kedge_remote_put(remote, 0, "x", 1, SOON_MS), 0);
	migrate_to(target, NULL, NULL);
	target_wait(target, TARGET_OWNS);
	gets_byte(remote, 0, 'x');
	end_all();
}

static struct {
	_Atomic int stop;
	_Atomic unsigned int cnt;
} pauses;

static void *suspends_and_resumes(void *unused)
{
	while (!atomic_load(&pauses.stop)) {
		/* It has migrated, or is about to. */
		if (kedge_region_suspend(region, SOON_MS))
			break;
		usleep(500);
		if (kedge_region_resume(region))
			break;
		atomic_fetch_add(&pauses.cnt, 1);
		usleep(500);
	}
	return NULL;
}

/* A program's thread changes the region's bytes while it is suspended, and does not know that
 * another one gives the region away. */
static void suspensions_of_another_thread_are_waited_for(void **state)
{
	pthread_t thread;

	begin_both();
	memset(&pauses, 0, sizeof(pauses));
	assert_int_equal(pthread_create(&thread, NULL, suspends_and_resumes, NULL), 0);
	while (atomic_load(&pauses.cnt) < 3)
		usleep(1000);
	migrate_to(target, NULL, NULL);
	atomic_store(&pauses.stop, 1);
	pthread_join(thread, NULL);
	target_wait(target, TARGET_OWNS);
	assert_int_equal(kedge_remote_put(remote, 0, "x", 1, SOON_MS), 0);
	gets_byte(remote, 0, 'x');
	end_all();
}

static void what_cannot_be_taken_stays(void **state)
{
	struct kedge_migrate_opts o = { .size = sizeof(o) };
	struct kedge_handle gone;

	start_processes();
	target = target_new();
	target->budget = LEN / 2;
	target_start(target);
	begin_remote(NULL);
	assert_int_equal(migrate_patiently(region, &target->invitation, NULL, NULL), -EREMOTEIO);
	assert_non_null(strstr(kedge_strerror(-EREMOTEIO), "budget"));
	target_wait(target, TARGET_FAILED);
	assert_int_equal(atomic_load(&target->rc), -EDQUOT);
	assert_int_equal(kedge_region_migrate(region, &handle, NULL, NULL), -EINVAL);
	assert_int_equal(kedge_region_migrate(region, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(kedge_region_migrate(NULL, &target->invitation, NULL, NULL), -EINVAL);
	o.flags = 2;
	assert_int_equal(kedge_region_migrate(region, &target->invitation, &o, NULL), -EINVAL);
	target->invitation.bytes[45] ^= 1;
	assert_int_equal(migrate_patiently(region, &target->invitation, NULL, NULL),
			 -EKEYREJECTED);
	target->invitation.bytes[45] ^= 1;
	assert_int_equal(kedge_remote_open(&target->invitation, SOON_MS, &remote), -EINVAL);
	gone = target->invitation;
	target_end(target);
	assert_int_equal(kedge_region_migrate(region, &gone, NULL, NULL), -ECONNREFUSED);
	assert_int_equal(kedge_remote_put(remote, 0, "x", 1, SOON_MS), 0);
	end_remote();
}

/* ---- on, and back ---- */

static void begin_two(struct target *t[2])
{
	int i;

	for (i = 0; i < 2; i++) {
		t[i] = target_new();
		target_start(t[i]);
	}
}

/* From here to one, from there to the other, and back; where each has ended then. */
static void go_round(struct peers *p)
{
	struct kedge_invitation_opts opts = { .size = sizeof(opts), .node = way->node };
	struct kedge_invitation *back;
	struct kedge_remote *late;
	struct target *t[2];

	begin_two(t);
	migrate_to(t[0], NULL, NULL);
	peers_work(p, 10);
	kedge_region_close(region);
	t[0]->next = t[1]->invitation;
	assert_int_equal(target_say(t[0], TARGET_MIGRATE), 0);
	peers_work(p, 10);
	/* It asks here first, where no region is any more, and then the next one. */
	late = open_it();
	assert_int_equal(kedge_remote_put(late, PEER_LEN / 2 + 1, "2", 1, SOON_MS), 0);
	kedge_remote_close(late);
	assert_int_equal(kedge_invitation_open(&opts, &back, &t[1]->next), 0);
	t[1]->next.bytes[16] ^= way->node ? 1 : 0;
	atomic_store(&t[1]->say, TARGET_MIGRATE);
	assert_int_equal(kedge_invitation_accept(back, SOON_MS, &region), 0);
	kedge_invitation_close(back);
	peers_work(p, 10);
	assert_int_equal(region_at()[PEER_LEN / 2 + 1], '2');
	region_at()[PEER_LEN / 2 + 1] = 0;
	target_end(t[0]);
	target_end(t[1]);
}

static void a_region_goes_on_and_comes_back(void **state)
{
	struct peers *p = peers_new();
	struct kedge_remote *idle;
	struct kedge_handle first;

	need_locked(PEER_LEN);
	need_threads_after_fork();
	make_region(PEER_LEN, NULL);
	remote = open_it();
	idle = open_it();
	peers_start(p);
	peers_work(p, 10);
	go_round(p);
	go_round(p);
	/* Also one that has not asked since the region was here first. */
	puts_byte(idle, PEER_LEN / 2, '3');
	peers_end(p);
	peers_had_no_error(p);
	peers_check(p, remote);
	/* Its handles are this process's again. */
	first = handle;
	advertise(NULL);
	kedge_remote_close(remote);
	remote = open_it();
	assert_int_equal(kedge_remote_put(remote, 0, "x", 1, SOON_MS), 0);
	assert_int_equal(kedge_region_revoke(region, &first), 0);
	assert_int_equal(kedge_remote_put(idle, 0, "x", 1, SOON_MS), -EKEYREVOKED);
	assert_int_equal(kedge_region_revoke(region, &first), -ENOENT);
	kedge_remote_close(idle);
	end_remote();
}

static void handles_go_as_they_are(void **state)
{
	struct kedge_handle_opts part = { .size = sizeof(part), .offset = 4096, .len = 4096,
					  .access = KEDGE_HANDLE_READ };
	struct kedge_handle all[3000], revoked, expired;
	struct kedge_remote *r;
	char c;
	size_t i;

	begin_target();
	begin_remote(&part);
	revoked = handle;
	part.expires_ms = 1;
	advertise(&part);
	expired = handle;
	part.expires_ms = 0;
	for (i = 0; i < 3000; i++) {
		advertise(&part);
		all[i] = handle;
	}
	memset(region_at() + 4096, 'p', 4096);
	assert_int_equal(kedge_region_revoke(region, &revoked), 0);
	migrate_to(target, NULL, NULL);
	for (i = 0; i < 3000; i += 299) {
		assert_int_equal(kedge_remote_open(&all[i], SOON_MS, &r), 0);
		gets_byte(r, 4095, 'p');
		assert_int_equal(kedge_remote_get(r, 4096, &c, 1, SOON_MS), -EFAULT);
		assert_int_equal(kedge_remote_put(r, 0, &c, 1, SOON_MS), -EACCES);
		kedge_remote_close(r);
	}
	assert_int_equal(kedge_remote_open(&expired, SOON_MS, &r), -EKEYEXPIRED);
	assert_int_equal(kedge_remote_open(&revoked, SOON_MS, &r), -EKEYREVOKED);
	all[1].bytes[45] ^= 1;
	assert_int_equal(kedge_remote_open(&all[1], SOON_MS, &r), -EKEYREJECTED);
	end_all();
}

/* The argument is the name of a test: ThreadSanitizer lets no child of one with threads start
 * others, so it looks at the first test alone. */
static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_region_goes_with_its_handles),
	cmocka_unit_test(peers_go_on),
	cmocka_unit_test(what_the_owner_stores_itself_goes_too),
	cmocka_unit_test(what_becomes_zero_goes_too),
	cmocka_unit_test(a_store_that_was_not_to_be_ends_the_program),
	cmocka_unit_test(what_the_program_ends_stays),
	cmocka_unit_test(what_is_suspended_stays),
	cmocka_unit_test(suspensions_of_another_thread_are_waited_for),
	cmocka_unit_test(what_cannot_be_taken_stays),
	cmocka_unit_test(a_region_goes_on_and_comes_back),
	cmocka_unit_test(handles_go_as_they_are),
};

const struct suite suite_migrate = {
	.name = "migrate", SUITE_OF(tests), .by = "tcp",
};
