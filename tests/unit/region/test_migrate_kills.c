// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region migrates while peers write, and one of those that take part is killed, at whatever
 * moment. There is one whole owner then, with all that was acknowledged; or none, if that was
 * killed which had the region alone.
 */
#include "peers.h"
#include "locked.h"
#include "target.h"
#include "suites.h"

#define FIRST_NS  UINT64_C(20000000)
/* One that is killed before it comes is waited for. */
#define ACCEPT_MS 4000
#define IDLE	  100

/* The process that has the region at first; the rest is as in struct target. */
struct source {
	struct kedge_handle handle;
	struct kedge_handle to;
	_Atomic int ready;
	_Atomic int go;
	_Atomic int over;
	_Atomic int ends; /* as soon as it is over */
	_Atomic int rc;
	_Atomic uint64_t ns;
	pid_t pid;
};

static struct source *source;
static struct target *target;
static struct peers *peers;
static uint64_t longest = FIRST_NS;
static unsigned int seed;

static void source_run(void *unused)
{
	const struct kedge_migrate_opts o = { .size = sizeof(o), .timeout_ms = SOON_MS };
	/* Peers keep as many addresses; under TSan there are fewer than IDLE times the usual. */
	const struct kedge_region_opts few = { .size = sizeof(few), .max_len = PEER_LEN };
	struct kedge_migrate_info info = { .size = sizeof(info) };
	int rc;

	if (kedge_region_create(PEER_LEN, &few, &region))
		_exit(EXIT_FAILURE);
	advertise(NULL);
	source->handle = handle;
	/* Not zeros, which are not sent. */
	memset(region_at() + PEER_LEN / 4, 'x', PEER_LEN / 2);
	atomic_store(&source->ready, 1);
	while (!atomic_load(&source->go))
		usleep(100);
	rc = kedge_region_migrate(region, &source->to, &o, &info);
	if (rc)
		fprintf(stderr, "# migrate: %s\n", kedge_strerror(rc));
	atomic_store(&source->ns, info.total_ns);
	if (!rc && atomic_load(&source->ends))
		kill(getpid(), SIGKILL);
	atomic_store(&source->rc, rc);
	atomic_store(&source->over, 1);
	for (;;)
		pause();
}

static void begin_all(int accept_ms)
{
	need_locked(PEER_LEN);
	source = shared_memory(sizeof(*source));
	source->pid = start_child(source_run, NULL);
	while (!atomic_load(&source->ready))
		usleep(1000);
	handle = source->handle;
	target = target_new();
	target->accept_ms = accept_ms;
	target_start(target);
	source->to = target->invitation;
	peers = peers_new();
	peers_start(peers);
	peers_work(peers, 20);
}

static void end_all(void)
{
	munmap(source, sizeof(*source));
	munmap(target, sizeof(*target));
}

static void wait_for_source(void)
{
	while (!atomic_load(&source->over))
		usleep(1000);
}

static void nap(uint64_t ns)
{
	const struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	nanosleep(&ts, NULL);
}

/* At any time of a migration, or shortly after it. */
static void go_and_wait(void)
{
	atomic_store(&source->go, 1);
	nap((uint64_t)rand_r(&seed) % (longest + longest / 4));
}

/* By the handle that is in @handle. */
static void check(void)
{
	remote = open_it();
	peers_check(peers, remote);
	kedge_remote_close(remote);
}

/* By a handle of its own, as its former owner cannot tell where it is. */
static void check_target(void)
{
	assert_int_equal(target_say(target, TARGET_ADVERTISE), 0);
	handle = target->next;
	check();
}

static void kill_the_source(void **state)
{
	int n, whole = 0;

	for (n = 0; n < test_rounds(3, 12); n++) {
		begin_all(ACCEPT_MS);
		go_and_wait();
		kill_child(source->pid);
		while (atomic_load(&target->state) < TARGET_OWNS)
			usleep(1000);
		peers_end(peers);
		/* It says so only when the other one is. */
		if (atomic_load(&source->over) && !atomic_load(&source->rc))
			assert_int_equal(atomic_load(&target->state), TARGET_OWNS);
		if (atomic_load(&target->state) == TARGET_OWNS) {
			check_target();
			whole++;
		} else {
			assert_true(atomic_load(&target->rc) == -ECONNRESET ||
				    atomic_load(&target->rc) == -ETIMEDOUT);
			munmap(peers, sizeof(*peers));
		}
		kill_child(target->pid);
		end_all();
	}
	print_message("# %d of %d had an owner\n", whole, n);
}

static void kill_the_target(void **state)
{
	int n, stayed = 0, rc;

	for (n = 0; n < test_rounds(3, 12); n++) {
		begin_all(SOON_MS);
		go_and_wait();
		kill_child(target->pid);
		wait_for_source();
		rc = atomic_load(&source->rc);
		/* The region had another owner, and ended with it. */
		if (!rc) {
			peers_end(peers);
			munmap(peers, sizeof(*peers));
		} else {
			assert_true(rc == -ECONNRESET || rc == -ECONNREFUSED);
			peers_work(peers, 20);
			peers_end(peers);
			peers_had_no_error(peers);
			handle = source->handle;
			check();
			stayed++;
		}
		kill_child(source->pid);
		end_all();
	}
	print_message("# %d of %d stayed\n", stayed, n);
}

static void kill_a_peer(void **state)
{
	int n, i;

	for (n = 0; n < test_rounds(3, 12); n++) {
		begin_all(SOON_MS);
		go_and_wait();
		kill(peers->of[0].pid, SIGKILL);
		wait_for_source();
		assert_int_equal(atomic_load(&source->rc), 0);
		target_wait(target, TARGET_OWNS);
		atomic_store(&peers->of[0].error, -EINTR);
		peers_work(peers, 20);
		peers_end(peers);
		for (i = 1; i < PEERS; i++)
			assert_int_equal(atomic_load(&peers->of[i].error), 0);
		check_target();
		kill_child(source->pid);
		kill_child(target->pid);
		end_all();
	}
}

/* Those that are connected know it when the call returns, also if they were idle. It measures the
 * time of a migration, too. */
static void the_former_owner_ends_at_once(void **state)
{
	struct kedge_remote *idle[IDLE];
	int i, status;

	begin_all(SOON_MS);
	for (i = 0; i < IDLE; i++)
		idle[i] = open_it();
	atomic_store(&source->ends, 1);
	atomic_store(&source->go, 1);
	assert_int_equal(waitpid(source->pid, &status, 0), source->pid);
	longest = atomic_load(&source->ns);
	target_wait(target, TARGET_OWNS);
	for (i = 0; i < IDLE; i++) {
		gets_byte(idle[i], PEER_LEN / 2, 'x');
		kedge_remote_close(idle[i]);
	}
	peers_work(peers, 20);
	peers_end(peers);
	peers_had_no_error(peers);
	check_target();
	kill_child(target->pid);
	end_all();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_former_owner_ends_at_once),
	cmocka_unit_test(kill_the_source),
	cmocka_unit_test(kill_the_target),
	cmocka_unit_test(kill_a_peer),
};

const struct suite suite_migrate_kills = {
	.name = "migrate_kills", SUITE_OF(tests), .by = "tcp",
};
