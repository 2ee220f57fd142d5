// SPDX-License-Identifier: BSD-2-Clause
/* Network namespaces, and the command "ip", which furnishes them. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/migrate/space.h"

#define HERE	 "/proc/self/ns/net"
#define CABLE	 "kedge0"
#define NOT_FOUND 127

/* Addresses that are for examples: the namespaces have no way to others. */
static const char *const nodes[SPACES] = { "192.0.2.1", "192.0.2.2" };
static const char *const masks[SPACES] = { "192.0.2.1/24", "192.0.2.2/24" };

int space_enter(int fd)
{
	return fd >= 0 && setns(fd, CLONE_NEWNET) ? -errno : 0;
}

static int refuse(int err)
{
	if (err == EPERM || err == EACCES)
		util_error("--namespaces: to make network namespaces takes CAP_SYS_ADMIN and "
			   "CAP_NET_ADMIN: run it as root, or by 'unshare -Ur'");
	else if (err == ENOSPC || err == EUSERS)
		util_error("--namespaces: there are as many network namespaces as there may be: "
			   "raise user.max_net_namespaces");
	else
		util_error("--namespaces: no network namespace: %s", strerror(err));
	return CMD_CANNOT;
}

static int make_one(int *fd)
{
	if (unshare(CLONE_NEWNET))
		return -errno;
	*fd = open(HERE, O_RDONLY | O_CLOEXEC);
	return *fd < 0 ? -errno : 0;
}

/* This process stays in the last one: it needs no network, and may have no right to go back. */
static int make_all(struct spaces *s)
{
	int i, rc = 0;

	for (i = 0; i < SPACES && !rc; i++)
		rc = make_one(&s->fd[i]);
	return rc;
}

static void __attribute__((noreturn)) exec_ip(int fd, char *const *args)
{
	if (space_enter(fd))
		_exit(1);
	execvp("ip", args);
	_exit(errno == ENOENT ? NOT_FOUND : 1);
}

/* "ip" runs in the namespace of @fd, and prints its errors itself. */
static int ip(int fd, char *const *args)
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		exec_ip(fd, args);
	if (pid < 0)
		return util_fail(-errno, "--namespaces: no process can be made");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!status)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND)
		util_error("--namespaces: there is no command 'ip': install iproute2");
	else
		util_error("--namespaces: 'ip %s %s' failed: the kernel needs veth", args[1],
			   args[2]);
	return CMD_CANNOT;
}

static int lay_cable(const struct spaces *s)
{
	char other[64];
	char *args[] = { "ip", "link", "add", CABLE, "type", "veth", "peer", "name", CABLE,
			 "netns", other, NULL };

	snprintf(other, sizeof(other), "/proc/%d/fd/%d", (int)getpid(), s->fd[1]);
	return ip(s->fd[0], args);
}

static int furnish(const struct spaces *s, int i)
{
	char mask[32];
	char *address[] = { "ip", "addr", "add", mask, "dev", CABLE, NULL };
	char *loop[] = { "ip", "link", "set", "lo", "up", NULL };
	char *up[] = { "ip", "link", "set", CABLE, "up", NULL };
	int rc;

	snprintf(mask, sizeof(mask), "%s", masks[i]);
	rc = ip(s->fd[i], address);
	if (!rc)
		rc = ip(s->fd[i], loop);
	return rc ? rc : ip(s->fd[i], up);
}

int spaces_make(struct spaces *s)
{
	int i, rc = make_all(s);

	if (rc)
		return refuse(-rc);
	rc = lay_cable(s);
	for (i = 0; i < SPACES && !rc; i++) {
		rc = furnish(s, i);
		s->node[i] = nodes[i];
	}
	return rc;
}

void spaces_end(struct spaces *s)
{
	int i;

	for (i = 0; i < SPACES; i++) {
		if (s->fd[i] >= 0)
			close(s->fd[i]);
		s->fd[i] = -1;
	}
}
