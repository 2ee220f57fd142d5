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
	return err == ENOMEM ? -EAGAIN
			     : kedge_reason(-ECONNRESET, "%s: error %d", call,
					    err);
}

int kedge__rc_post(struct rc *c, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return kedge__rc_posted(ibv_post_send(c->id->qp, wr, &bad), "ibv_post_send");
}
