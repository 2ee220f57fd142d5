// SPDX-License-Identifier: BSD-2-Clause
/*
 * Opening, waiting on and closing a channel, whatever carries it.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/process/page.h"
#include "channel/internal.h"
#include "pages/landing.h"

#define CLOSE_NS	  1000000000ull /* what a transport gets to let go */
#define ENVELOPE_V1 STRUCT_END(struct kedge_envelope, len)

static const uint32_t *ours_page(void)
{
	uint32_t *p = page_of_process();

	if (p)
		*p = 1;
	return p;
}

static void close_fds(struct kedge_channel *ch)
{
	clofork_close(&ch->timer);
	clofork_close(&ch->epoll);
}

/* The transport's descriptor, and a timer where operations can time out. */
static int open_fds(struct kedge_channel *ch)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int rc;

	clofork_init(&ch->timer);
	clofork_init(&ch->epoll);
	ch->fd = ch->t->fd(ch->ctx);
	if (ch->fd < 0 || !ch->opts.timeout_ms)
		return ch->fd < 0 ? ch->fd : 0;
	rc = clofork_keep(&ch->timer, timerfd_create(CLOCK_MONOTONIC,
						     TFD_CLOEXEC |
						     TFD_NONBLOCK));
	if (!rc)
		rc = clofork_keep(&ch->epoll, epoll_create1(EPOLL_CLOEXEC));
	if (!rc && (epoll_ctl(ch->epoll.fd, EPOLL_CTL_ADD, ch->timer.fd, &ev) ||
		    epoll_ctl(ch->epoll.fd, EPOLL_CTL_ADD, ch->fd, &ev)))
		rc = -errno;
	if (rc)
		close_fds(ch);
	else
		ch->fd = ch->epoll.fd;
	return rc;
}

int kedge__channel_open(const struct transport_ops *ops, void *ctx,
			const struct kedge_channel_opts *opts,
			const struct transport_peer *peer,
			struct kedge_channel **out)
{
	struct kedge_channel *ch = calloc(1, sizeof(*ch));
	int rc;

	if (!ch)
		return -ENOMEM;
	ch->t = ops;
	ch->ctx = ctx;
	ch->busy = true;
	ch->ring = ops->ring ? ops->ring(ctx) : NULL;
	ch->opts = *opts;
	ch->peer = *peer;
	match_init(ch);
	rc = ops_init(ch);
	if (rc)
		goto fini_ops;
	rc = -ENOMEM;
	ch->ours = ours_page();
	if (!ch->ours)
		goto fini_ops;
	rc = open_fds(ch);
	if (rc)
		goto unmap_page;
	stats_add(&ch->published, &channel_counters, ch);
	*out = ch;
	return 0;

unmap_page:
	munmap((void *)(uintptr_t)ch->ours, kedge__page_size());
fini_ops:
	ops_fini(ch);
	free(ch);
	return rc;
}

/* True if every bulk is at rest. */
static bool all_stopped(struct kedge_channel *ch)
{
	struct list *heads[] = { &ch->queued, &ch->active, &ch->idle };
	struct list *l, *tmp;
	bool all = true;
	struct op *op;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(heads); i++)
		list_for_each_safe(l, tmp, heads[i]) {
			op = list_entry(l, struct op, node);
			/* One that lingers has been stopped. */
			if (op->bulk_open && op->state != OP_LINGER &&
			    ch->t->stop(ch->ctx, &op->bulk))
				all = false;
		}
	return all;
}

/* True if the peer is not left in doubt: it was told of all that was received here,
 * for which there may have been no room. */
static bool all_said(struct kedge_channel *ch)
{
	struct list *l, *tmp;
	bool all = true;

	list_for_each_safe(l, tmp, &ch->active)
		if (list_entry(l, struct op, node)->state == OP_REFUSE)
			all &= rndv_step(ch, list_entry(l, struct op, node));
	return all;
}

static void stop_all(struct kedge_channel *ch)
{
	uint64_t end = clock_after_ns(CLOSE_NS);
	bool done;

	for (;;) {
		done = all_said(ch);
		done &= all_stopped(ch);
		if (done || clock_ns() >= end || ch->t->check(ch->ctx))
			return;
		usleep(100);
	}
}

KEDGE_API void kedge_channel_close(struct kedge_channel *ch)
{
	bool ours;

	NO_CANCEL();
	if (!ch)
		return;
	ours = is_ours(ch);
	if (ours && !ch->dead) {
		stop_all(ch);
		send_control(ch, PACKET_BYE, NULL, 0);
		channel_ends(ch, -ECONNRESET);
	}
	stats_remove(&ch->published);
	close_fds(ch);
	landing_close(ch->pool, ours);
	if (ours)
		ch->t->close(ch->ctx);
	else if (ch->t->leave)
		ch->t->leave(ch->ctx);
	match_fini(ch);
	ops_fini(ch);
	munmap((void *)(uintptr_t)ch->ours, kedge__page_size());
	free(ch);
}

/* 0, or the error of a call for a channel that is NULL or the parent process's. */
static int refused(const struct kedge_channel *ch)
{
	if (!ch)
		return channel_invalid(NO_CHANNEL);
	return is_ours(ch) ? 0 : channel_gone(ch);
}

KEDGE_API int kedge_channel_cancel(struct kedge_channel *ch, uint64_t name)
{
	struct op_name n = { (uint32_t)name, (uint32_t)(name >> 32) };
	struct op *op;
	int rc;

	NO_CANCEL();
	rc = refused(ch);
	if (rc)
		return rc;
	op = op_find(ch, n);
	if (!op || op->reported)
		return -ENOENT;
	ch->busy = true;
	give_up(ch, op, -ECANCELED);
	rc = check_lingering(ch, 0);
	if (rc)
		channel_dies(ch, rc);
	return 0;
}

KEDGE_API int kedge_channel_probe(struct kedge_channel *ch, uint64_t tag,
				  uint64_t mask, struct kedge_envelope *env)
{
	struct unexpected *e;

	NO_CANCEL();
	if (!ch || !env || env->size < ENVELOPE_V1)
		return channel_invalid("the channel or the envelope is NULL, or "
				       "its .size is not sizeof");
	if (!is_ours(ch))
		return channel_gone(ch);
	if (!ch->dead)
		channel_progress(ch, UINT32_MAX, false);
	e = match_unexpected(ch, tag, mask);
	if (!e)
		return channel_gone(ch);
	env->tag = e->tag;
	env->len = e->len;
	return 1;
}

KEDGE_API int kedge_channel_fd(struct kedge_channel *ch)
{
	if (!ch)
		return channel_invalid(NO_CHANNEL);
	return is_ours(ch) ? ch->fd : channel_gone(ch);
}

/* The first of those of operations and of the peer's answers, or CLOCK_NEVER. */
static uint64_t next_deadline(const struct kedge_channel *ch)
{
	const struct list *heads[] = { &ch->timed, &ch->lingering };
	uint64_t first = CLOCK_NEVER, ns;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		if (list_empty(heads[i]))
			continue;
		ns = list_entry(heads[i]->next, struct op, timed)->deadline;
		if (ns < first)
			first = ns;
	}
	return first;
}

static void arm_timer(struct kedge_channel *ch, uint64_t deadline)
{
	struct itimerspec when = { 0 };

	/* A program that has waited looks at the clock. */
	ch->timer_polls = TIMER_POLLS;
	if (ch->timer.fd < 0)
		return;
	if (deadline != CLOCK_NEVER)
		when.it_value = clock_until_ts(deadline);
	timerfd_settime(ch->timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/*
 * First the peer is asked to tell, then everything is looked at once more: what
 * it did before it was asked is seen now, what it does later it tells of.
 */
static int arm(struct kedge_channel *ch)
{
	int rc = refused(ch);

	if (rc)
		return rc;
	if (ch->done.head != ch->done.tail)
		return 1;
	if (ch->dead)
		return channel_gone(ch);
	rc = ch->t->arm(ch->ctx);
	if (rc)
		return rc;
	if (channel_progress(ch, UINT32_MAX, true) || ch->done.head != ch->done.tail)
		return 1;
	return ch->dead ? channel_gone(ch) : 0;
}

KEDGE_API int kedge_channel_arm(struct kedge_channel *ch)
{
	int rc;

	NO_CANCEL();
	rc = arm(ch);
	if (!rc)
		arm_timer(ch, next_deadline(ch));
	return rc;
}

KEDGE_API int kedge_channel_wait(struct kedge_channel *ch, int timeout_ms)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t deadline, first;
	int rc;

	NO_CANCEL();
	rc = arm(ch);
	if (rc)
		return rc;
	/* The timer serves polls of the descriptor; this one has a limit of its own. */
	arm_timer(ch, CLOCK_NEVER);
	deadline = clock_deadline(timeout_ms);
	first = next_deadline(ch);
	p.fd = ch->fd;
	rc = clock_poll(&p, 1, first < deadline ? first : deadline);
	return rc < 0 ? -errno : rc || first < deadline;
}

KEDGE_API void *kedge_channel_alloc(struct kedge_channel *ch, size_t len)
{
	NO_CANCEL();
	if (!ch || !len || !is_ours(ch) || !ch->t->heap_alloc)
		return NULL;
	return ch->t->heap_alloc(ch->ctx, len);
}

KEDGE_API void kedge_channel_free(struct kedge_channel *ch, void *p)
{
	NO_CANCEL();
	if (ch && p && is_ours(ch))
		ch->t->heap_free(ch->ctx, p);
}
