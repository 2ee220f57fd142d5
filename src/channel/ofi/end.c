// SPDX-License-Identifier: BSD-2-Clause
/* A channel's connection that has ended, and how that is found. */
#include <sys/socket.h>

#include "channel/ofi/internal.h"

void kedge__ofi_write_idle(struct ofi *o, struct ofi_write *w)
{
	struct flow *f = w->flow;

	if (w->cached)
		kedge_cache_put(o->cache, w->cached);
	w->cached = NULL;
	w->flow = NULL;
	f->in_flight--;
	o->flight_len -= w->len;
	list_remove(&w->node);
	list_add_tail(&o->idle_writes, &w->node);
}

int kedge__ofi_ctl_check(struct ofi *o)
{
	char byte;
	ssize_t n;

	if (o->ctl_fd < 0)
		return 0;
	n = recv(o->ctl_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	/* No byte is due there: it is the end, or the peer is no kedge. */
	return -ECONNRESET;
}

void kedge__ofi_die(struct ofi *o, int why)
{
	uint32_t i;

	if (o->err)
		return;
	/* A provider may take the torn end of a dead peer's bytes for a broken
	 * protocol: the control connection tells that it has died. */
	if (why == -EPROTO && o->rdm && kedge__ofi_ctl_check(o))
		why = -ECONNRESET;
	o->err = why;
	if (o->ctl_fd >= 0)
		shutdown(o->ctl_fd, SHUT_RDWR);
	fi_close(&o->ep->fid);
	o->ep = NULL;
	/* From here on the provider touches no memory of ours and completes no
	 * write. */
	for (i = 0; i < WRITE_CNT; i++)
		if (o->writes[i].flow)
			kedge__ofi_write_idle(o, &o->writes[i]);
}
