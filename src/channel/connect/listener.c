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
	NO_CANCEL();
	if (!l || !channel)
		return channel_invalid("the listener or the result is NULL");
	if (l->pid != getpid())
		return kedge_reason(-ECHILD, "the listener belongs to the parent "
				    "process");
	return l->ops->accept(l->ctx, timeout_ms, channel);
}

KEDGE_API int kedge_listener_fd(struct kedge_listener *l)
{
	return l ? l->ops->fd(l->ctx)
		 : channel_invalid("the listener is NULL");
}

KEDGE_API int kedge_listener_address(struct kedge_listener *l, char *buf,
				     size_t len)
{
	char text[KEDGE_ADDRESS_MAX];
	int rc;

	NO_CANCEL();
	if (!l || !buf)
		return channel_invalid("the listener or the buffer is NULL");
	rc = l->ops->address(l->ctx, text);
	if (rc)
		return rc;
	if (strlen(text) >= len)
		return kedge_reason(-ENOBUFS, "the address takes %zu bytes: "
				    "KEDGE_ADDRESS_MAX are always enough",
				    strlen(text) + 1);
	memcpy(buf, text, strlen(text) + 1);
	return 0;
}

KEDGE_API void kedge_listener_close(struct kedge_listener *l)
{
	NO_CANCEL();
	if (!l)
		return;
	l->ops->close(l->ctx);
	free(l);
}
