/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer in a process of its own, for tests that are one file each.
 */
#ifndef TESTS_CHANNEL_CHILD_H
#define TESTS_CHANNEL_CHILD_H

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "core.h"

#define LIMIT 100 /* seconds, after which a case that hangs has failed */

static char path[64]; /* of this case */
static int sv[2];     /* between the test and the peer */

static pid_t start(void (*fn)(void))
{
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(LIMIT);
		close(sv[0]);
		fn();
		_exit(0);
	}
	close(sv[1]);
	return pid;
}

static void ends_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static ssize_t wait_and_poll(struct kedge_channel *ch,
			     struct kedge_completion *c)
{
	int rc = kedge_channel_wait(ch, LIMIT * 1000);

	return rc < 0 && rc != -EINTR ? rc : kedge_channel_poll(ch, c, 1);
}

static int limit(void **state)
{
	static int n;

	alarm(LIMIT);
	snprintf(path, sizeof(path), "@kedge-test-%d-%d", getpid(),
		 n++);
	return 0;
}

#define CASE(fn) cmocka_unit_test_setup(fn, limit)

#endif /* TESTS_CHANNEL_CHILD_H */
