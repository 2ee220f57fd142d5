// SPDX-License-Identifier: BSD-2-Clause
/* Work requests into a queue. */
#include <stdlib.h>

#include "channel/rc/internal.h"

/* A full queue has room when something has completed. */
int kedge__rc_posted(int err, const char *call)
{
	err = abs(err);
	if (!err)
		return 0;
	if (err == ENOMEM)
		return -EAGAIN;
	/* The program is told later, and only that the connection has ended. */
	kedge__log(KEDGE_LOG_WARN, "%s: %s%s", call, strerrordesc_np(err),
		   err == EACCES ? ": the process has changed its user since "
				   "it opened the device" : "");
	return kedge_reason(-ECONNRESET, "%s: %s", call, strerrordesc_np(err));
}

int kedge__rc_post(struct rc *c, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return kedge__rc_posted(ibv_post_send(c->id->qp, wr, &bad), "ibv_post_send");
}
