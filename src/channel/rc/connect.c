// SPDX-License-Identifier: BSD-2-Clause
/* Connecting to a listener. */
#include <netdb.h>
#include <stdlib.h>

#include "channel/connect/wait.h"
#include "channel/rc/internal.h"

/* The longest that one step of librdmacm's may take, also where the caller waits for
 * ever. */
#define STEP_NS 10000000000ull

struct target {
	const char *node, *service;
	uint64_t deadline;
};

static int step_ms(const struct target *t)
{
	const int ms = clock_left_ms(clock_sooner(t->deadline, STEP_NS));

	return ms ? ms : 1;
}

/* An event other than the one that was waited for. */
static int not_there(const struct target *t, const struct rc_event *got)
{
	int said;

	/* A refusal in words of ours. */
	if (got->hello.magic) {
		said = kedge__rdma_hello_check(&got->hello, sizeof(got->hello));
		if (said)
			return said;
	}
	switch (got->type) {
	case RDMA_CM_EVENT_REJECTED:
		return kedge_reason(-ECONNREFUSED, "nobody listens at %s, "
				    "service %s", t->node, t->service);
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return kedge_reason(got->status == -ETIMEDOUT ? -ETIMEDOUT
							      : -EADDRNOTAVAIL,
				    "%s is not reached by any RDMA device here "
				    "(%s): \"rdma link\" lists them",
				    t->node, rdma_event_str(got->type));
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return kedge_reason(-ENODEV, "the RDMA device is gone");
	default:
		return kedge_reason(-ECONNRESET, "connecting to %s, service "
				    "%s: %s", t->node, t->service,
				    rdma_event_str(got->type));
	}
}

static int wait_until(struct rc *c, const struct target *t,
		      enum rdma_cm_event_type want, struct rdma_hello *hello)
{
	struct rc_event got;
	int rc = kedge__rc_event(c->events, t->deadline, &got);

	if (rc == -ETIMEDOUT)
		return kedge_reason(rc, "%s, service %s, did not answer in "
				    "time", t->node, t->service);
	if (rc)
		return rc;
	*hello = got.hello;
	return got.type == want ? 0 : not_there(t, &got);
}

static int resolve(struct rc *c, const struct target *t,
		   const struct rdma_addrinfo *to)
{
	struct rdma_hello ignored;
	int rc;

	if (rdma_resolve_addr(c->id, to->ai_src_addr, to->ai_dst_addr,
			      step_ms(t)))
		return kedge__rc_failed("rdma_resolve_addr");
	rc = wait_until(c, t, RDMA_CM_EVENT_ADDR_RESOLVED, &ignored);
	if (rc)
		return rc;
	if (rdma_resolve_route(c->id, step_ms(t)))
		return kedge__rc_failed("rdma_resolve_route");
	return wait_until(c, t, RDMA_CM_EVENT_ROUTE_RESOLVED, &ignored);
}

static int connect_to(struct rc *c, const struct target *t,
		      const struct rdma_addrinfo *to,
		      const struct kedge_channel_opts *opts,
		      struct transport_peer *peer)
{
	struct rdma_conn_param param;
	struct rdma_hello hello;
	int rc;

	errno = 0;
	rc = resolve(c, t, to);
	if (!rc)
		rc = kedge__rc_ready(c);
	if (rc)
		return rc;
	kedge__rdma_hello(&hello, opts);
	kedge__rc_param(&param, &hello);
	if (rdma_connect(c->id, &param))
		return kedge__rc_failed("rdma_connect");
	rc = wait_until(c, t, RDMA_CM_EVENT_ESTABLISHED, &hello);
	return rc ? rc : kedge__rdma_agree(&c->r, opts, &hello, peer);
}

int kedge__rc_connect(const char *node, const char *service,
		      const struct kedge_channel_opts *opts, int timeout_ms,
		      struct rc **out, struct transport_peer *peer)
{
	const struct target t = { node, service,
				  clock_deadline(timeout_ms) };
	struct rdma_addrinfo *list;
	struct rc *c;
	int rc;

	rc = kedge__rc_first_use();
	if (!rc)
		rc = kedge__rc_find(node, service, false, &list);
	if (rc)
		return rc;
	rc = kedge__rc_open(NULL, &c);
	if (rc)
		goto free_list;
	rc = connect_to(c, &t, list, opts, peer);
	if (rc)
		kedge__rdma_free(&c->r);
	else
		*out = c;

free_list:
	rdma_freeaddrinfo(list);
	return rc;
}
