/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A channel over queue pairs of our own: the port (channel/rdma/port.h), and finding
 * peers by librdmacm.
 *
 * A connection is a reliable one, with a protection domain, a completion queue and a
 * channel of events of its own. Its completions come in the order of the posts, so a
 * write asks for one only where it is the last of a poll. The last write of a flow
 * carries the flow's id as immediate data, and takes one of the buffers that the peer
 * has posted: it needs a credit like a packet.
 */
#ifndef CHANNEL_RC_INTERNAL_H
#define CHANNEL_RC_INTERNAL_H

#include "base/fd.h"
#include "base/base.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <kedge/rdma.h>

#include "channel/rdma/internal.h"

/* Reads under way: one for each flow that has many targets. */
#define READ_CNT 16u
/* Windows bound at a time; each is a work request to bind, and one to end. */
#define WINDOW_CNT 32u
/* Work requests under way. */
#define SEND_WR (TX_CNT + WRITE_CNT + READ_CNT + 2 * WINDOW_CNT)
#define RECV_WR (RX_CNT + RX_SPARE)

/*
 * @r:         first
 * @ids:       what the descriptors of events, completions, the device and @r's were,
 *             once @noted; a program may close what is not its own
 * @events:    of the connection
 * @inline_max: bytes that a send may carry in its work request
 * @armed:     the completion queue will tell of what comes next
 * @reads:     under way
 * @boundless: the device looks at a window's key and rights, but lets a peer reach all of the
 *             registration
 * @bound:     windows that let a peer in, and those that have not ended yet
 * @idle:      windows that are not bound, the one that waited longest first
 * @dropped:   deallocated, and the completion of their end is still to come
 */
struct rc {
	struct rdma r;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id; /* its qp is the queue pair */
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	uint32_t inline_max;
	uint32_t reads;
	bool noted;
	struct fd_id ids[4];
	uint64_t looked; /* at the end of the connection, by the coarse clock */
	bool armed;
	bool boundless;
	uint32_t window_cnt; /* bound */
	struct list bound, idle, dropped;
};

static inline struct rc *rc_of(struct rdma *r)
{
	return container_of(r, struct rc, r);
}

extern const struct rdma_port kedge__rc_port;

/* ---- open.c: endpoints ---- */

/* A connection's end, not connected: with an id of its own, or with that of a peer's
 * request. */
int kedge__rc_open(struct rdma_cm_id *id, struct rc **rc);
/* With the id's device known: queues, buffers, all posted. */
int kedge__rc_ready(struct rc *rc);

/* ---- window.c ---- */

void kedge__rc_windows_init(struct rc *rc);
/* End all that are bound, ahead of the queue pair. */
void kedge__rc_windows_halt(struct rc *rc);
void kedge__rc_windows_fini(struct rc *rc);
int kedge__rc_grant(struct rdma *r, void *reg, uint64_t at, uint64_t len,
		    uint64_t *key, void **window);
int kedge__rc_revoke(struct rdma *r, void *window, bool now);
/* A work request of a window's that asked for a completion has one. */
void kedge__rc_window_done(struct rdma_op *op);

/* ---- post.c ---- */

/* 0, or -EAGAIN: the queue is full; else the connection is at an end. */
int kedge__rc_post(struct rc *rc, struct ibv_send_wr *wr);
/* The same of what a call that posts returned. */
int kedge__rc_posted(int err, const char *call);

/* ---- cm.c: events ---- */

/* 0; -ECHILD where this process's parent has used librdmacm. */
int kedge__rc_first_use(void);
/* Of librdmacm's: the error as a negative errno, with a reason. */
int kedge__rc_failed(const char *call);
/* An event channel that does not block. */
int kedge__rc_events_open(struct rdma_event_channel **events);
/*
 * Wait until @deadline for the next event: 0 and *@got, its type and what came
 * with it; or a negative errno, also for an event that says that there is no
 * connection. The event is @id's; a peer's request comes with an id of its own.
 */
struct rc_event {
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	struct rdma_hello hello;
	int status; /* librdmacm's: a negative errno, or a reason of a refusal */
};
int kedge__rc_event(struct rdma_event_channel *events, uint64_t deadline,
		    struct rc_event *got);
/* The parameters of a connection, the same at both ends. */
void kedge__rc_param(struct rdma_conn_param *p, const struct rdma_hello *hello);

/* Note what the descriptors are. True if they are still: librdmacm and libibverbs write
 * to whatever has their numbers. */
void kedge__rc_note(struct rc *rc);
bool kedge__rc_mine(const struct rc *rc);

/* ---- connect.c, listen.c ---- */

int kedge__rc_connect(const char *node, const char *service,
		      const struct kedge_channel_opts *opts, int timeout_ms,
		      struct rc **rc, struct transport_peer *peer);

struct rc_listener;
int kedge__rc_listen(const char *node, const char *service,
		     const struct kedge_channel_opts *opts,
		     struct rc_listener **l);
int kedge__rc_accept(struct rc_listener *l, int timeout_ms, struct rc **rc,
		     struct transport_peer *peer);
const struct kedge_channel_opts *
kedge__rc_listener_opts(const struct rc_listener *l);
int kedge__rc_listener_fd(const struct rc_listener *l);
int kedge__rc_listener_address(const struct rc_listener *l, char *text);
void kedge__rc_listener_close(struct rc_listener *l);
/* The addresses of @node and @service, to be freed by rdma_freeaddrinfo(). */
int kedge__rc_find(const char *node, const char *service, bool to_listen,
		   struct rdma_addrinfo **list);

#endif /* CHANNEL_RC_INTERNAL_H */
