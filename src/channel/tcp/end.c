// SPDX-License-Identifier: BSD-2-Clause
/* A connection that is no more. */
#include <stdio.h>
#include <sys/socket.h>

#include "channel/tcp/internal.h"

void tcp_die(struct tcp *t, int why, const char *text)
{
	if (t->err)
		return;
	t->err = why;
	snprintf(t->why, sizeof(t->why), "%s", text);
	/* A peer that broke the protocol is not listened to any more. */
	if (why == -EPROTO && clofork_ours(&t->sock))
		shutdown(t->fd, SHUT_RDWR);
}
