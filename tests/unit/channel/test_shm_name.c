// SPDX-License-Identifier: BSD-2-Clause
/*
 * The paths of listeners: of several that want one, one has it, and what is
 * removed at the end is that listener's own.
 */
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/un.h>

#include "base/base.h"
#include "clock.h"
#include "core.h"

#define RIVALS 6
#define ROUNDS 100

static char dir[64], path[96];

static struct kedge_listener *listen_at(const char *where)
{
	struct kedge_listener *l;
	int rc = kedge_listener_open_shm(where, NULL, &l);

	if (rc)
		fail_msg("%s: %s", where, kedge_strerror(rc));
	return l;
}

static void is_refused(int want, const char *why)
{
	struct kedge_listener *l = NULL;
	int rc = kedge_listener_open_shm(path, NULL, &l);

	assert_int_equal(rc, want);
	assert_null(l);
	if (!strstr(kedge_strerror(rc), why))
		fail_msg("\"%s\" says not \"%s\"", kedge_strerror(rc), why);
}

static void can_connect(struct kedge_listener *l)
{
	struct kedge_channel *ch;
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(kedge_channel_open_shm(path, NULL, 10000, &ch) ? 1 : 0);
	assert_int_equal(kedge_listener_accept(l, 10000, &ch), 0);
	kedge_channel_close(ch);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool is_there(void)
{
	return !access(path, F_OK);
}

/* As a process that was killed leaves it. */
static int leave_a_socket(void *arg)
{
	struct kedge_listener *l;

	(void)arg;
	CHILD_CHECK(!kedge_listener_open_shm(path, NULL, &l));
	return 0;
}

/* Bound by a program that is not kedge. */
static int foreign(int type)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	strcpy(a.sun_path, path);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* ---- who gets it ---- */

struct race {
	_Atomic int ready, go, done, won, other, leave;
};

static void compete(struct race *r)
{
	struct kedge_listener *l;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	atomic_fetch_add(&r->ready, 1);
	while (!atomic_load(&r->go))
		sched_yield();
	rc = kedge_listener_open_shm(path, NULL, &l);
	if (!rc)
		atomic_fetch_add(&r->won, 1);
	else if (rc != -EADDRINUSE)
		atomic_store(&r->other, rc);
	atomic_fetch_add(&r->done, 1);
	while (!atomic_load(&r->leave))
		usleep(500);
	if (!rc)
		kedge_listener_close(l);
	_exit(0);
}

static void one_round(struct race *r, bool stale)
{
	struct kedge_channel *ch;
	pid_t pid[RIVALS];
	int i, rc;

	memset(r, 0, sizeof(*r));
	if (stale)
		assert_int_equal(in_child(leave_a_socket, NULL), 0);
	for (i = 0; i < RIVALS; i++) {
		pid[i] = fork();
		if (!pid[i])
			compete(r);
	}
	WAIT_FOR(atomic_load(&r->ready) == RIVALS);
	atomic_store(&r->go, 1);
	WAIT_FOR(atomic_load(&r->done) == RIVALS);
	assert_int_equal(r->other, 0);
	assert_int_equal(r->won, 1);
	/* The winner listens, and does not accept. */
	rc = kedge_channel_open_shm(path, NULL, 0, &ch);
	assert_int_equal(rc, -ETIMEDOUT);
	atomic_store(&r->leave, 1);
	for (i = 0; i < RIVALS; i++)
		waitpid(pid[i], NULL, 0);
	assert_false(is_there());
}

static void one_of_several_has_the_path(void **state)
{
	struct race *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int i;

	assert_true(r != MAP_FAILED);
	for (i = 0; i < ROUNDS; i++)
		one_round(r, i & 1);
	munmap(r, sizeof(*r));
}

static void a_bound_socket_is_not_stolen(void **state)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
	struct kedge_listener *l;
	struct stat was, is;
	size_t i;
	int fd;

	for (i = 0; i < 3; i++) {
		fd = foreign(types[i]);
		assert_int_equal(lstat(path, &was), 0);
		is_refused(-EADDRINUSE, "another process");
		assert_int_equal(lstat(path, &is), 0);
		assert_int_equal(is.st_ino, was.st_ino);
		close(fd);
		/* Now it is nobody's. */
		l = listen_at(path);
		can_connect(l);
		kedge_listener_close(l);
		assert_false(is_there());
	}
}

static void a_file_is_refused_by_its_name(void **state)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
	is_refused(-EADDRINUSE, "no socket");
	assert_true(is_there());
	unlink(path);
	assert_int_equal(symlink("/nowhere", path), 0);
	is_refused(-EADDRINUSE, "no socket");
	unlink(path);
}

#define PATIENCE_MS 2000

static void a_directory_that_is_locked_is_waited_for(void **state)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct kedge_listener *l;
	uint64_t until;

	assert_int_equal(in_child(leave_a_socket, NULL), 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	test_clock_begin();
	until = clock_after_ms(PATIENCE_MS);
	test_clock_hurry(PATIENCE_MS / 10);
	is_refused(-EADDRINUSE, "cannot be locked");
	test_clock_rest();
	assert_true(clock_ns() >= until);
	test_clock_end();
	close(fd);
	l = listen_at(path);
	can_connect(l);
	kedge_listener_close(l);
}

/* ---- what is removed ---- */

static void another_listeners_socket_stays(void **state)
{
	struct kedge_listener *a = listen_at(path), *b;

	unlink(path);
	b = listen_at(path);
	kedge_listener_close(a);
	assert_true(is_there());
	can_connect(b);
	kedge_listener_close(b);
	assert_false(is_there());
}

static void a_file_that_took_its_place_stays(void **state)
{
	struct kedge_listener *l = listen_at(path);
	int fd;

	unlink(path);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	kedge_listener_close(l);
	assert_true(is_there());
	unlink(path);
}

static int close_it(void *l)
{
	kedge_listener_close(l);
	return 0;
}

static void a_child_removes_nothing(void **state)
{
	struct kedge_listener *l;

	need_threads_after_fork();
	l = listen_at(path);
	assert_int_equal(in_child(close_it, l), 0);
	can_connect(l);
	kedge_listener_close(l);
	assert_false(is_there());
}

static void a_relative_path_is_removed_from_elsewhere(void **state)
{
	struct kedge_listener *l;
	char *was = getcwd(NULL, 0);

	assert_int_equal(chdir(dir), 0);
	l = listen_at("it");
	assert_true(is_there());
	assert_int_equal(chdir("/"), 0);
	kedge_listener_close(l);
	assert_false(is_there());
	/* One that was left is replaced, too. */
	assert_int_equal(in_child(leave_a_socket, NULL), 0);
	assert_int_equal(chdir(dir), 0);
	kedge_listener_close(listen_at("it"));
	assert_false(is_there());
	assert_int_equal(chdir(was), 0);
	free(was);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_of_several_has_the_path),
		cmocka_unit_test(a_bound_socket_is_not_stolen),
		cmocka_unit_test(a_file_is_refused_by_its_name),
		cmocka_unit_test(a_directory_that_is_locked_is_waited_for),
		cmocka_unit_test(another_listeners_socket_stays),
		cmocka_unit_test(a_file_that_took_its_place_stays),
		cmocka_unit_test(a_child_removes_nothing),
		cmocka_unit_test(a_relative_path_is_removed_from_elsewhere),
	};
	int rc;

	strcpy(dir, "/tmp/kedge-name-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof(path), "%s/it", dir);
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	rmdir(dir);
	return rc;
}
