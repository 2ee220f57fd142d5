// SPDX-License-Identifier: BSD-2-Clause
/*
 * Listeners, whatever they listen on.
 */
#include <stdlib.h>
#include <unistd.h>

#include "channel/internal.h"

struct kedge_listener {
	const struct listener_ops *ops;
	void *ctx;
	pid_t pid;
};

int kedge__listener_open(const struct listener_ops *ops, void *ctx,
			 struct kedge_listener **out)
{
	struct kedge_listener *l = malloc(sizeof(*l));

	if (!l)
		return -ENOMEM;
	*l = (struct kedge_listener){ ops, ctx, getpid() };
	*out = l;
	return 0;
}

KEDGE_API int kedge_listener_accept(struct kedge_listener *l, int timeout_ms,
				    struct kedge_channel **channel)
{
	if (!l || !channel)
		return -EINVAL;
	if (l->pid != getpid())
		return kedge_reason(-ECHILD, "the listener belongs to the parent "
				    "process");
	return l->ops->accept(l->ctx, timeout_ms, channel);
}

KEDGE_API int kedge_listener_fd(struct kedge_listener *l)
{
	return l ? l->ops->fd(l->ctx) : -EINVAL;
}

KEDGE_API void kedge_listener_close(struct kedge_listener *l)
{
	if (!l)
		return;
	l->ops->close(l->ctx);
	free(l);
}
