// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region that was moved: its pages are in another file now, and the owner is asked for that.
 * The mapping is replaced in its place by one call, while no access of this process is in it:
 * each looks at the gate's number once it is inside, and comes here if it is another one than
 * the mapping's.
 *
 * One thread asks; the others wait for it, each no longer than it may. There is one question at
 * a time: if its answer does not come in time the next access waits for that.
 */
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "region/peer/state.h"

#define NAP_NS	50000
/* The program may close the connection, which ends no poll. */
#define LOOK_NS 1000000000

static int no_answer(const struct link *l)
{
	return kedge_reason(-ETIMEDOUT, "the region was moved, and its owner, process %d, does not "
			    "say where: is it stopped?", (int)l->owner);
}

/* An owner says at the gate that it has revoked the handle, or that the region has left, before it
 * refuses, or ends the connection. */
static int refused(const struct link *l, int rc)
{
	if (atomic_load(&l->gate->state) & GATE_ENDED)
		return remote_over(l, (int)atomic_load(&l->gate->why));
	return remote_refused(rc);
}

/* The answer to the last question. */
static int hear(struct link *l, uint64_t until, struct reply *reply)
{
	struct pollfd p = { l->sock.fd, POLLIN, 0 };
	int rc;

	for (;;) {
		if (clock_poll_ms(&p, 1, clock_wait_ms(clock_sooner(until, LOOK_NS))) <= 0 &&
		    clock_ns() >= until)
			return no_answer(l);
		if (!fd_same(l->sock.fd, &l->sock.id))
			return remote_closed_here();
		if (!p.revents)
			continue;
		*reply = (struct reply){ .fd = { -1, -1 } };
		rc = remote_receive(l->sock.fd, until, reply);
		if (!rc && reply->a.seq == l->seq)
			return 0;
		remote_close_fds(reply);
		if (rc == -ECONNREFUSED) {
			atomic_store(&l->ended, ECONNRESET);
			return remote_ended(l);
		}
		if (rc)
			return rc;
	}
}

static int replace(struct link *l, struct reply *reply)
{
	int rc;

	clofork_close(&l->file);
	rc = clofork_begin();
	if (rc)
		return kedge_reason(-ENOMEM, "no memory for a descriptor's entry");
	rc = clofork_end(&l->file, fd_move_up(reply->fd[1]));
	reply->fd[1] = -1;
	if (!rc)
		rc = remote_map(l, &reply->a);
	if (rc)
		return rc;
	atomic_store(&l->sure, remote_size(l));
	/* release: an access that finds it finds the mapping. */
	atomic_store_explicit(&l->epoch, reply->a.epoch, memory_order_release);
	return 0;
}

static int renew(struct link *l, uint64_t until)
{
	struct reply reply = { .fd = { -1, -1 } };
	int rc = 0;

	if (atomic_load(&l->gate->epoch) == atomic_load(&l->epoch))
		return 0;
	if (!fd_same(l->sock.fd, &l->sock.id))
		return remote_closed_here();
	/* An access that does not wait finds the answer to the question of one before it. */
	if (!l->asked) {
		l->seq++;
		rc = remote_ask(l, until);
		l->asked = !rc;
	}
	if (!rc)
		rc = hear(l, until, &reply);
	l->asked &= rc == -ETIMEDOUT;
	if (!rc)
		rc = reply.a.rc ? refused(l, reply.a.rc) : replace(l, &reply);
	remote_close_fds(&reply);
	return rc;
}

int remote_renew(struct link *l, uint64_t until)
{
	const struct timespec nap = { 0, NAP_NS };
	int rc;

	NO_CANCEL();
	while (atomic_exchange(&l->renewing, true)) {
		if (clock_ns() >= until)
			return no_answer(l);
		nanosleep(&nap, NULL);
	}
	rc = renew(l, until);
	atomic_store(&l->renewing, false);
	return rc;
}
