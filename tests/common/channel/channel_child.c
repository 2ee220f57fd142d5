// SPDX-License-Identifier: BSD-2-Clause
/* See channel_child.h. */
#include "channel_child.h"

char child_path[64];
int child_sock[2];

pid_t child_begin(void (*fn)(void))
{
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, child_sock), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(LIMIT);
		close(child_sock[0]);
		fn();
		_exit(0);
	}
	close(child_sock[1]);
	return pid;
}

void child_ends_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

void child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

ssize_t wait_and_poll(struct kedge_channel *ch, struct kedge_completion *c)
{
	int rc = kedge_channel_wait(ch, LIMIT * 1000);

	return rc < 0 && rc != -EINTR ? rc : kedge_channel_poll(ch, c, 1);
}

int child_limit(void **state)
{
	static int n;

	alarm(LIMIT);
	snprintf(child_path, sizeof(child_path), "@kedge-test-%d-%d", getpid(),
		 n++);
	return 0;
}
