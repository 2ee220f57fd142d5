// SPDX-License-Identifier: BSD-2-Clause
/* librdmacm: addresses, events, errors. */
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/meet/meet.h"
#include "channel/rc/internal.h"

int kedge__rc_failed(const char *call)
{
	int rc = errno ? -errno : -EIO;

	if (rc == -ENODEV || rc == -ENOENT)
		return kedge_reason(-ENODEV, "%s: no RDMA device here, or its "
				    "kernel modules are not loaded: \"rdma "
				    "link\" lists devices, \"modprobe rdma_ucm\" "
				    "lets programs connect", call);
	if (rc == -EADDRNOTAVAIL || rc == -ENETUNREACH || rc == -EHOSTUNREACH)
		return kedge_reason(-EADDRNOTAVAIL, "%s: no RDMA device here has that "
				    "address: \"rdma link\" lists them, and "
				    "their interfaces", call);
	/* EPERM is the kernel's word for a limit of 0. */
	if (rc == -ENOMEM || rc == -EPERM)
		return kedge_reason(-ENOMEM, "%s: no memory, or RLIMIT_MEMLOCK "
				    "is used up: raise it with ulimit -l or "
				    "LimitMEMLOCK=", call);
	if (rc == -EMFILE || rc == -ENFILE)
		return kedge_reason(rc, "%s: no descriptor is left: raise "
				    "ulimit -n", call);
	if (rc == -EACCES)
		return kedge_reason(rc, "%s: not for this user, or the process "
				    "has changed its user since it opened the "
				    "device: open channels and listeners after "
				    "that", call);
	return kedge_reason(rc, "%s: %s", call, strerrordesc_np(-rc));
}

/*
 * librdmacm keeps an open device for the life of the process, and a forked child's copy
 * of it is the parent's: the kernel refuses what the child posts.
 */
int kedge__rc_first_use(void)
{
	static _Atomic int user;
	int me = getpid(), was = 0;

	if (atomic_compare_exchange_strong(&user, &was, me) || was == me)
		return 0;
	return kedge_reason(-ECHILD, "RDMA was used in this process's parent, "
			    "and an adapter that was opened there is not the "
			    "child's: fork first, or execute a program");
}

int kedge__rc_find(const char *node, const char *service, bool to_listen,
		   struct rdma_addrinfo **list)
{
	struct rdma_addrinfo hints = {
		.ai_flags = to_listen ? RAI_PASSIVE : 0,
		.ai_port_space = RDMA_PS_TCP,
	};
	int rc = kedge__port_check(service, to_listen);

	if (rc)
		return rc;
	errno = 0;
	rc = rdma_getaddrinfo(node, service, &hints, list);
	if (!rc)
		return 0;
	if (errno == ENODEV || errno == ENOENT)
		return kedge__rc_failed("rdma_getaddrinfo");
	return kedge_reason(-EADDRNOTAVAIL, "no such address, name or service: "
			    "%s:%s", node ? node : "", service);
}

int kedge__rc_events_open(struct rdma_event_channel **out)
{
	struct rdma_event_channel *events;
	int rc;

	errno = 0;
	events = rdma_create_event_channel();
	if (!events)
		return kedge__rc_failed("rdma_create_event_channel");
	if (fcntl(events->fd, F_SETFL,
		  fcntl(events->fd, F_GETFL) | O_NONBLOCK)) {
		rc = -errno;
		rdma_destroy_event_channel(events);
		return kedge_reason(rc, "the descriptor of events: error %d",
				    -rc);
	}
	*out = events;
	return 0;
}

static void take(struct rdma_cm_event *e, struct rc_event *got)
{
	got->type = e->event;
	got->status = e->status;
	got->id = e->id;
	kedge__rdma_hello_take(&got->hello, e->param.conn.private_data,
			       e->param.conn.private_data
				       ? e->param.conn.private_data_len : 0);
	/* From here on what came with it is the library's again. */
	rdma_ack_cm_event(e);
}

int kedge__rc_event(struct rdma_event_channel *events, uint64_t deadline,
		    struct rc_event *got)
{
	struct rdma_cm_event *e;
	int rc;

	for (;;) {
		if (!rdma_get_cm_event(events, &e)) {
			take(e, got);
			return 0;
		}
		if (errno != EAGAIN && errno != EINTR)
			return kedge__rc_failed("rdma_get_cm_event");
		rc = kedge__wait_for(events->fd, POLLIN, deadline, -1);
		if (rc)
			return rc;
	}
}

/* Retries: as many as can be named, as a peer that is alive may be slow. The
 * receiver's buffers are counted, so it has one for whatever is sent. */
void kedge__rc_param(struct rdma_conn_param *p, const struct rdma_hello *hello)
{
	*p = (struct rdma_conn_param){
		.private_data = hello,
		.private_data_len = sizeof(*hello),
		/* As many reads as the devices take. */
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

/* ---- descriptors ---- */

void kedge__rc_note(struct rc *c)
{
	kedge__fd_note(c->events->fd, &c->ids[0]);
	kedge__fd_note(c->comp->fd, &c->ids[1]);
	kedge__fd_note(c->id->verbs->cmd_fd, &c->ids[2]);
	kedge__fd_note(c->r.fd, &c->ids[3]);
	c->noted = true;
}

bool kedge__rc_mine(const struct rc *c)
{
	return !c->noted || (kedge__fd_same(c->events->fd, &c->ids[0]) &&
			     kedge__fd_same(c->comp->fd, &c->ids[1]) &&
			     kedge__fd_same(c->id->verbs->cmd_fd, &c->ids[2]));
}
