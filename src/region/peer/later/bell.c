// SPDX-License-Identifier: BSD-2-Clause
/* A bell wakes a thread that waits for a descriptor. */
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "region/peer/later/bell.h"

void bell_init(struct bell *b)
{
	clofork_init(&b->in);
	clofork_init(&b->out);
	b->rung = false;
}

static int no_bell(int rc)
{
	return error_no_fd(-rc) ? rc : kedge_reason(rc, "no pair of sockets to wake a thread by: "
						    "error %d", -rc);
}

int bell_open(struct bell *b)
{
	int fd[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd))
		return no_bell(-errno);
	rc = clofork_keep(&b->in, fd_move_up(fd[0]));
	if (rc) {
		close(fd[1]);
		return no_bell(rc);
	}
	rc = clofork_keep(&b->out, fd_move_up(fd[1]));
	if (!rc)
		return 0;
	clofork_close(&b->in);
	return no_bell(rc);
}

void bell_close(struct bell *b)
{
	clofork_close(&b->in);
	clofork_close(&b->out);
}

bool bell_works(const struct bell *b)
{
	return clofork_ours(&b->in) && clofork_ours(&b->out);
}

void bell_ring(struct bell *b)
{
	if (b->rung || !bell_works(b))
		return;
	b->rung = send(b->out.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

void bell_quiet(struct bell *b)
{
	char c[8];

	if (!b->rung)
		return;
	b->rung = false;
	if (bell_works(b))
		recv(b->in.fd, c, sizeof(c), MSG_DONTWAIT);
}
