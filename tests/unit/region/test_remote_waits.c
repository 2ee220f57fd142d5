// SPDX-License-Identifier: BSD-2-Clause
/*
 * Waits of regions go by the clock. Each is for an hour: what its thread sleeps at a time does not
 * end it, and it is over once the clock has moved that far.
 */
#include <dirent.h>

#include <kedge/directory.h>
#include <kedge/migrate.h>
#include <kedge/region_list.h>

#include "base/base.h"
#include "clock.h"
#include "look.h"
#include "region/peer/state.h"
#include "region/peer/turn.h"
#include "region/share/share.h"
#include "submit.h"

#define HOUR_MS 3600000

/* A call that waits, in a thread of its own. */
static struct {
	int (*call)(void);
	int rc;
	uint64_t at; /* when it was over */
	_Atomic pid_t tid;
	_Atomic bool over;
} waiter;

static void *wait_for_it(void *unused)
{
	atomic_store(&waiter.tid, gettid());
	waiter.rc = waiter.call();
	waiter.at = clock_ns();
	atomic_store(&waiter.over, true);
	return unused;
}

/* The thread that serves peers looks each millisecond for those that wait: its call says so. */
static bool a_peer_waits(void)
{
	long call = -1, args[4] = { 0 };
	char path[300], name[32];
	bool waits = false;
	struct dirent *e;
	DIR *d = opendir("/proc/self/task");
	FILE *f;

	assert_non_null(d);
	while ((e = readdir(d)) && !waits) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "re");
		*name = '\0';
		if (f && (!fgets(name, sizeof(name), f) || strcmp(name, "kedge-handles\n")))
			*name = '\0';
		if (f)
			fclose(f);
		if (!*name)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/syscall", e->d_name);
		f = fopen(path, "re");
		waits = f && fscanf(f, "%ld %lx %lx %lx %lx", &call, &args[0], &args[1], &args[2],
				    &args[3]) == 5 && call == SYS_epoll_pwait && args[3] == 1;
		if (f)
			fclose(f);
	}
	closedir(d);
	return waits;
}

/* Returns what @call does, which is to wait for an hour. A second before that it waits still: its
 * thread has slept some times by then. An owner that does the access counts the hour as well, from
 * when it has read the request. */
static int in_an_hour(int (*call)(void), bool by_owner)
{
	uint64_t until;
	pthread_t t;
	int n;

	waiter.call = call;
	atomic_store(&waiter.over, false);
	atomic_store(&waiter.tid, 0);
	until = clock_after_ms(HOUR_MS);
	assert_int_equal(pthread_create(&t, NULL, wait_for_it, NULL), 0);
	look_asleep(&waiter.tid);
	if (by_owner)
		WAIT_FOR(a_peer_waits());
	test_clock_move_ms(HOUR_MS - 1000);
	usleep(20000);
	assert_true(!atomic_load(&waiter.over) || waiter.at >= until);
	test_clock_move_ms(1000);
	/* It may have slept for something else before its hour began. */
	for (n = 1; pthread_tryjoin_np(t, NULL); n++) {
		usleep(1000);
		if (n % 1000 == 0 && !by_owner)
			test_clock_move_ms(HOUR_MS);
	}
	assert_true(waiter.at >= until);
	return waiter.rc;
}

static int put_one(void)
{
	return kedge_remote_put(remote, 0, "y", 1, HOUR_MS);
}

static void a_suspension_is_waited_for(void **state)
{
	begin_remote(NULL);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(in_an_hour(put_one, way->served), -ETIMEDOUT);
	assert_int_equal(kedge_region_resume(region), 0);
	assert_int_equal(put_one(), 0);
	end_remote();
}

/* ---- an owner that is stopped ---- */

static void own(void *fd)
{
	make_region(LEN, NULL);
	CHILD_CHECK(write(((int *)fd)[1], &handle, sizeof(handle)) == sizeof(handle));
	for (;;)
		pause();
}

static pid_t stopped_owner(void)
{
	int fd[2];
	pid_t pid;

	need_threads_after_fork();
	assert_int_equal(pipe(fd), 0);
	pid = start_child(own, fd);
	assert_int_equal(read(fd[0], &handle, sizeof(handle)), sizeof(handle));
	close(fd[0]);
	close(fd[1]);
	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	return pid;
}

static int open_one(void)
{
	return kedge_remote_open(&handle, HOUR_MS, &remote);
}

static void an_answer_to_the_handle_is_waited_for(void **state)
{
	pid_t pid = stopped_owner();

	assert_int_equal(in_an_hour(open_one, false), -ETIMEDOUT);
	kill_child(pid);
}

static struct kedge_regions_opts whose = { .size = sizeof(whose), .timeout_ms = HOUR_MS };
static struct kedge_regions *list;

static int list_its(void)
{
	return kedge_regions_open(&whose, &list);
}

static void what_it_says_of_its_regions_is_waited_for(void **state)
{
	struct kedge_region_entry e = { .size = sizeof(e) };

	whose.pid = stopped_owner();
	assert_int_equal(in_an_hour(list_its, false), 0);
	assert_int_equal(kedge_regions_next(list, &e), 1);
	assert_int_equal(e.status, -ETIMEDOUT);
	kedge_regions_close(list);
	kill_child(whose.pid);
}

/* Its thread waits for the lock. */
static void the_place_of_a_region_that_was_moved_is_waited_for(void **state)
{
	int rc;

	begin_remote(NULL);
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	sig_lock(&shares_lock);
	rc = in_an_hour(put_one, false);
	sig_unlock(&shares_lock);
	assert_int_equal(rc, -ETIMEDOUT);
	assert_int_equal(put_one(), 0);
	end_remote();
}

/* ---- within this process ---- */

static void *put_for_ever(void *rc)
{
	*(int *)rc = kedge_remote_put(remote, 0, "x", 1, -1);
	return NULL;
}

static bool is_taken(void)
{
	struct remote_stream *s = atomic_load(&remote->link)->stream;
	bool is;

	pthread_mutex_lock(&s->lock);
	is = s->busy;
	pthread_mutex_unlock(&s->lock);
	return is;
}

static int submit_one(void)
{
	struct kedge_remote_completion done = { .size = sizeof(done) };
	struct kedge_remote_op o = add_of(8, 1, 7);

	o.timeout_ms = HOUR_MS;
	if (kedge_remote_submit(remote, queue, &o, 1) != 1 ||
	    kedge_queue_read(queue, &done, 1, -1) != 1)
		return 1;
	return done.status;
}

static void a_turn_at_the_connection_is_waited_for(void **state)
{
	pthread_t t;
	int other = 1;

	begin_remote(NULL);
	queue = make_queue(0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(pthread_create(&t, NULL, put_for_ever, &other), 0);
	WAIT_FOR(is_taken());
	assert_int_equal(in_an_hour(put_one, false), -ETIMEDOUT);
	assert_int_equal(in_an_hour(submit_one, false), -ETIMEDOUT);
	assert_int_equal(kedge_region_resume(region), 0);
	pthread_join(t, NULL);
	assert_int_equal(other, 0);
	kedge_queue_close(queue);
	end_remote();
}

static int read_one(void)
{
	struct kedge_remote_completion done = { .size = sizeof(done) };

	return kedge_queue_read(queue, &done, 1, HOUR_MS);
}

static void a_completion_is_waited_for(void **state)
{
	queue = make_queue(0);
	assert_int_equal(in_an_hour(read_one, false), 0);
	kedge_queue_close(queue);
}

static struct kedge_invitation *invitation;

static int accept_one(void)
{
	return kedge_invitation_accept(invitation, HOUR_MS, &region);
}

static void an_owner_that_was_invited_is_waited_for(void **state)
{
	assert_int_equal(kedge_invitation_open(NULL, &invitation, &handle), 0);
	assert_int_equal(in_an_hour(accept_one, false), -ETIMEDOUT);
	kedge_invitation_close(invitation);
}

/* ---- what others are told of the time ---- */

static int told_ms[2];

static int find(void *ctx, uint64_t id, struct kedge_place *place, int timeout_ms)
{
	told_ms[0] = timeout_ms;
	return -ENOENT;
}

static int replace(void *ctx, uint64_t id, const struct kedge_place *from,
		   const struct kedge_place *to, int timeout_ms)
{
	told_ms[1] = timeout_ms;
	return 0;
}

static void a_directory_is_told_all_that_is_left(void **state)
{
	static const struct kedge_directory_ops ops = { .size = sizeof(ops), .find = find,
							.replace = replace };
	struct kedge_directory *d;

	make_region(LEN, NULL);
	advertise(&(struct kedge_handle_opts){ .size = sizeof(struct kedge_handle_opts) });
	assert_int_equal(kedge_directory_open(&ops, NULL, &d), 0);
	assert_int_equal(kedge_region_enter(region, &handle, d, HOUR_MS), 0);
	assert_in_range(told_ms[0], HOUR_MS / 2, HOUR_MS);
	assert_in_range(told_ms[1], HOUR_MS / 2, told_ms[0]);
	assert_int_equal(kedge_region_enter(region, &handle, d, -1), 0);
	assert_int_equal(told_ms[0], -1);
	assert_int_equal(told_ms[1], -1);
	kedge_directory_close(d);
	kedge_region_close(region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_suspension_is_waited_for),
	cmocka_unit_test(an_answer_to_the_handle_is_waited_for),
	cmocka_unit_test(what_it_says_of_its_regions_is_waited_for),
	case_for(FOR_MAPPED, the_place_of_a_region_that_was_moved_is_waited_for),
	case_for(FOR_SERVED, a_turn_at_the_connection_is_waited_for),
	cmocka_unit_test(a_completion_is_waited_for),
	cmocka_unit_test(an_owner_that_was_invited_is_waited_for),
	cmocka_unit_test(a_directory_is_told_all_that_is_left),
};

const struct suite suite = { "remote_waits", SUITE_OF(tests), .by = "mapped",
			     .first = test_clock_begin };
