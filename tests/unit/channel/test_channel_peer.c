// SPDX-License-Identifier: BSD-2-Clause
/*
 * The identity of a peer: of another user, of a set-user-ID program, with other rights,
 * another program by now, or another process of the same number. Each is a
 * process of its own, which knows the protocol and breaks the trust.
 */
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "channel/internal.h"
#include "channel_other.h"
#include "core.h"
#include "evil_peer.h"

#define NOBODY 65534
#define LONG   ((size_t)1 << 20)
#define LIMIT  60 /* seconds, after which a case that hangs has failed */
#define TURNS  2000

static char path[64];
static char other[PATH_MAX]; /* the other program, as it was built */
static char dir[] = "/tmp/kedge-test-XXXXXX";
static char set_user_id[64]; /* a copy with that bit */

/* ---- the hostile side ---- */

static int to_test[2], from_test[2];

static void become_nobody(void)
{
	CHILD_CHECK(!setgroups(0, NULL));
	CHILD_CHECK(!setresgid(NOBODY, NOBODY, NOBODY));
	CHILD_CHECK(!setresuid(NOBODY, NOBODY, NOBODY));
	/* Changed ids make a process nobody else's to look at. */
	CHILD_CHECK(!prctl(PR_SET_DUMPABLE, 1));
}

static int connect_to(const char *where)
{
	struct sockaddr_un a;
	uint32_t len = 0;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	CHILD_CHECK(!shm_address(where, &a, &len));
	CHILD_CHECK(!connect(fd, (struct sockaddr *)&a, len));
	return fd;
}

static void shake_hands(void)
{
	evil_shakes_hands(connect_to(path), KEDGE_CHANNEL_ANY_USER);
}

/* The same process, another program; the socket stays open. */
static void execute(const char *program, const char *what, const char *arg)
{
	fcntl(evil.ring.sock, F_SETFD, 0);
	dup2(from_test[0], 0);
	dup2(to_test[1], 1);
	close(from_test[1]);
	execl(program, program, what, arg, NULL);
	CHILD_CHECK(!"executed");
}

/* ---- the honest side ---- */

static pid_t start(void (*fn)(void))
{
	pid_t pid;

	assert_int_equal(pipe2(to_test, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from_test, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(LIMIT);
		fn();
		_exit(0);
	}
	close(to_test[1]);
	close(from_test[0]);
	return pid;
}

static void until_ready(void)
{
	char c;

	assert_int_equal(read(to_test[0], &c, 1), 1);
}

/* The other process ends, and says 0. */
static void ends_well(pid_t pid)
{
	int status;

	close(from_test[1]);
	close(to_test[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static struct kedge_listener *listen_with(uint32_t flags)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .flags = flags,
					.way = KEDGE_WAY_DIRECT };
	struct kedge_listener *l;

	assert_int_equal(kedge_listener_open_shm(path, &o, &l), 0);
	return l;
}

static struct kedge_channel *accept_one(struct kedge_listener *l)
{
	struct kedge_channel *ch;

	assert_int_equal(kedge_listener_accept(l, LIMIT * 1000, &ch), 0);
	kedge_listener_close(l);
	return ch;
}

static int status_of(struct kedge_channel *ch)
{
	struct kedge_completion c;
	ssize_t n;

	while (!(n = kedge_channel_poll(ch, &c, 1)))
		;
	assert_int_equal(n, 1);
	return c.status;
}

/* It is sent, and nothing of it is where the peer wanted it. */
static void send_is_cut_off(struct kedge_channel *ch, char *buf, bool ended)
{
	int i;

	until_ready();
	for (i = 0; i < TURNS; i++) {
		struct kedge_completion c;
		ssize_t n = kedge_channel_poll(ch, &c, 1);

		assert_true(n == 0 || ended);
		if (n) {
			assert_int_equal(n, 1);
			assert_int_equal(c.status, -ECONNRESET);
			break;
		}
	}
	assert_true(i < TURNS || !ended);
	free(buf);
}

static char *send_long(struct kedge_channel *ch)
{
	char *buf = malloc(LONG);

	memset(buf, 'w', LONG);
	assert_int_equal(kedge_channel_send(ch, buf, LONG, 1, 0, NULL), 0);
	return buf;
}

/* A peer that is killed as soon as this process writes to it; 0 for none. */
static pid_t dies_at_write;

extern __typeof__(process_vm_writev) __real_process_vm_writev, __wrap_process_vm_writev;

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *here, unsigned long here_cnt,
				 const struct iovec *there,
				 unsigned long there_cnt, unsigned long flags)
{
	if (dies_at_write && pid == dies_at_write) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		dies_at_write = 0;
	}
	return __real_process_vm_writev(pid, here, here_cnt, there, there_cnt, flags);
}

/* ---- cases ---- */

/* It would let anybody in itself. */
static void is_refused(void)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.flags = KEDGE_CHANNEL_ANY_USER };
	struct kedge_channel *ch;

	become_nobody();
	CHILD_CHECK(kedge_channel_open_shm(path, &o, 10000, &ch) == -EACCES);
}

static int child_is_refused(void *arg)
{
	is_refused();
	return 0;
}

static void another_user_is_turned_away(void **state)
{
	struct kedge_listener *l = listen_with(0);
	struct kedge_channel *ch;
	pid_t pid = start(is_refused);
	int status = 0;

	while (!waitpid(pid, &status, WNOHANG))
		assert_int_equal(kedge_listener_accept(l, 10, &ch),
				 -ETIMEDOUT);
	assert_int_equal(status, 0);
	kedge_listener_close(l);
	close(from_test[1]);
	close(to_test[0]);
}

static void run_set_user_id_listener(void)
{
	become_nobody();
	execute(set_user_id, "listen", path);
}

/* Its effective user is not that of its caller, and the other way round. */
static void a_set_user_id_program_is_another_user(void **state)
{
	pid_t pid = start(run_set_user_id_listener);

	until_ready();
	assert_int_equal(in_child(child_is_refused, NULL), 0);
	ends_well(pid);
}

static void run_set_user_id_caller(void)
{
	struct kedge_listener *l;
	struct kedge_channel *ch;
	int status = 0;
	pid_t pid;

	become_nobody();
	CHILD_CHECK(!kedge_listener_open_shm(path, NULL, &l));
	pid = fork();
	if (!pid)
		execute(set_user_id, "connect", path);
	while (!waitpid(pid, &status, WNOHANG))
		CHILD_CHECK(kedge_listener_accept(l, 10, &ch) == -ETIMEDOUT);
	CHILD_CHECK(!status);
}

static void a_set_user_id_program_is_not_let_in_by_its_caller(void **state)
{
	ends_well(start(run_set_user_id_caller));
}

static void equal_but_for_real_id(void)
{
	CHILD_CHECK(!setresuid(NOBODY, 0, 0));
	CHILD_CHECK(!prctl(PR_SET_DUMPABLE, 1));
	shake_hands();
	CHILD_CHECK(!evil.can_cross && !evil.peer_can_cross);
	usleep(1000);
}

static void equal_but_for_a_capability(void)
{
	struct __user_cap_header_struct h = {
		.version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	CHILD_CHECK(!syscall(SYS_capget, &h, d));
	d[0].permitted &= ~(1u << CAP_CHOWN);
	d[0].effective &= ~(1u << CAP_CHOWN);
	CHILD_CHECK(!syscall(SYS_capset, &h, d));
	CHILD_CHECK(!prctl(PR_SET_DUMPABLE, 1));
	shake_hands();
	CHILD_CHECK(!evil.can_cross && !evil.peer_can_cross);
}

static void write_to(const char *file, const char *what)
{
	int fd = open(file, O_WRONLY);

	CHILD_CHECK(write(fd, what, strlen(what)) == (ssize_t)strlen(what));
	close(fd);
}

/* Its ids are the same numbers. ThreadSanitizer's thread would be in unshare()'s way. */
static void in_a_user_namespace(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
	int status;

	CHILD_CHECK(pid >= 0);
	if (pid) {
		CHILD_CHECK(waitpid(pid, &status, 0) == pid);
		_exit(status != 0);
	}
	write_to("/proc/self/uid_map", "0 0 1");
	write_to("/proc/self/setgroups", "deny");
	write_to("/proc/self/gid_map", "0 0 1");
	shake_hands();
	CHILD_CHECK(!evil.can_cross);
}

static void equal(void)
{
	shake_hands();
	CHILD_CHECK(evil.can_cross && evil.peer_can_cross);
}

static bool crosses_with(void (*fn)(void))
{
	struct kedge_listener *l = listen_with(KEDGE_CHANNEL_ANY_USER);
	pid_t pid = start(fn);
	struct kedge_channel *ch = accept_one(l);
	bool can = ((struct shm *)ch->ctx)->can_cross;

	kedge_channel_close(ch);
	ends_well(pid);
	return can;
}

static void only_equals_reach_into_each_other(void **state)
{
	assert_true(crosses_with(equal));
	assert_false(crosses_with(equal_but_for_real_id));
	assert_false(crosses_with(equal_but_for_a_capability));
	assert_false(crosses_with(in_a_user_namespace));
}

static void ask_and_execute_set_user_id(void)
{
	become_nobody();
	shake_hands();
	evil_asks_for_it(HOLD_AT, LONG);
	execute(set_user_id, "hold", NULL);
}

static void nobody_makes_root_write_to_a_set_user_id_program(void **state)
{
	struct kedge_listener *l = listen_with(KEDGE_CHANNEL_ANY_USER);
	pid_t pid = start(ask_and_execute_set_user_id);
	struct kedge_channel *ch = accept_one(l);

	send_is_cut_off(ch, send_long(ch), false);
	ends_well(pid);
	kedge_channel_close(ch);
}

static void ask_and_execute(void)
{
	shake_hands();
	evil_asks_for_it(HOLD_AT, LONG);
	execute(other, "hold", NULL);
}

static void a_program_executed_by_an_equal_is_not_written_to(void **state)
{
	struct kedge_listener *l = listen_with(0);
	pid_t pid = start(ask_and_execute);
	struct kedge_channel *ch = accept_one(l);

	send_is_cut_off(ch, send_long(ch), true);
	ends_well(pid);
	kedge_channel_close(ch);
}

static void announce_and_execute(void)
{
	shake_hands();
	evil_announces(HOLD_AT, LONG);
	execute(other, "hold", NULL);
}

static void a_program_executed_by_an_equal_is_not_read(void **state)
{
	struct kedge_listener *l = listen_with(0);
	pid_t pid = start(announce_and_execute);
	struct kedge_channel *ch = accept_one(l);
	char *buf = calloc(1, LONG);

	until_ready();
	assert_int_equal(kedge_channel_recv(ch, buf, LONG, 0, 0, 0, NULL), 0);
	assert_int_equal(status_of(ch), -ECONNRESET);
	ends_well(pid);
	kedge_channel_close(ch);
	free(buf);
}

/* A child has the socket and lives until the test ends. */
static void ask_and_end(void)
{
	shake_hands();
	evil_asks_for_it(HOLD_AT, LONG);
	if (!fork()) {
		close(to_test[1]);
		close(from_test[1]);
		while (read(from_test[0], other, 1) > 0)
			;
		_exit(0);
	}
}

static void ask_and_stay(void)
{
	shake_hands();
	evil_asks_for_it(HOLD_AT, LONG);
	CHILD_CHECK(write(to_test[1], "", 1) == 1);
	for (;;)
		pause();
}

/* Between the look at the peer and the write. */
static void a_peer_that_dies_before_the_write_is_gone(void **state)
{
	struct kedge_listener *l = listen_with(0);
	pid_t pid = start(ask_and_stay);
	struct kedge_channel *ch = accept_one(l);
	char *buf = send_long(ch);

	until_ready();
	dies_at_write = pid;
	assert_int_equal(status_of(ch), -ECONNRESET);
	assert_int_equal(dies_at_write, 0);
	close(from_test[1]);
	close(to_test[0]);
	kedge_channel_close(ch);
	free(buf);
}

static pid_t fork_as(pid_t pid)
{
	struct clone_args args = { .exit_signal = SIGCHLD,
				   .set_tid = (uintptr_t)&pid,
				   .set_tid_size = 1 };

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static void another_process_of_the_number_is_not_written_to(void **state)
{
	struct kedge_listener *l = listen_with(0);
	pid_t pid = start(ask_and_end), same;
	struct kedge_channel *ch = accept_one(l);
	int status, old[2] = { to_test[0], from_test[1] };
	char *buf = send_long(ch);

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(pipe2(to_test, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from_test, O_CLOEXEC), 0);
	same = fork_as(pid);
	if (!same)
		execute(other, "hold", NULL);
	assert_int_equal(same, pid);
	close(to_test[1]);
	close(from_test[0]);
	send_is_cut_off(ch, buf, true);
	ends_well(pid);
	kedge_channel_close(ch);
	close(old[0]);
	close(old[1]);
}

/* ---- set-up ---- */

static int begin(void **state)
{
	static int n;

	alarm(LIMIT);
	snprintf(path, sizeof(path), "@kedge-test-peer-%d-%d", getpid(), n++);
	return 0;
}

static int copy_program(void)
{
	char cmd[PATH_MAX + 256];

	if (!mkdtemp(dir) || chmod(dir, 0755))
		return -1;
	snprintf(set_user_id, sizeof(set_user_id), "%s/other", dir);
	snprintf(cmd, sizeof(cmd), "cp '%s' %s && chmod 4755 %s", other,
		 set_user_id, set_user_id);
	return system(cmd);
}

#define CASE(fn) cmocka_unit_test_setup(fn, begin)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(another_user_is_turned_away),
		CASE(a_set_user_id_program_is_another_user),
		CASE(a_set_user_id_program_is_not_let_in_by_its_caller),
		CASE(only_equals_reach_into_each_other),
		CASE(nobody_makes_root_write_to_a_set_user_id_program),
		CASE(a_program_executed_by_an_equal_is_not_written_to),
		CASE(a_program_executed_by_an_equal_is_not_read),
		CASE(another_process_of_the_number_is_not_written_to),
		CASE(a_peer_that_dies_before_the_write_is_gone),
	};
	int rc;

	if (argc < 2)
		return 1;
	if (geteuid()) {
		printf("skipped: other users and set-user-ID programs need "
		       "root\n");
		return 77;
	}
	if (!realpath(argv[1], other) || copy_program())
		return 1;
	cmocka_set_test_filter(argc > 2 ? argv[2] : NULL);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(set_user_id);
	rmdir(dir);
	return rc;
}
