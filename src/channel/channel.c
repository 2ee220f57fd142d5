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

#include "channel/internal.h"
#include "channel/pool.h"

#define EAGER_DEFAULT	  (8u << 10)
#define EAGER_MAX	  (32u << 10)
#define UNEXPECTED_CNT	  4096u
#define UNEXPECTED_CNT_MAX 65536u
#define UNEXPECTED_BYTES  ((uint64_t)4 << 20)
#define BYTES_MAX	  ((uint64_t)1 << 30)
#define HEAP_DEFAULT	  ((uint64_t)128 << 20)
#define HEAP_MAX	  ((uint64_t)1 << 36)
#define POOL_DEFAULT	  ((uint64_t)160 << 20)
#define FLAGS_ALL	  (KEDGE_CHANNEL_ANY_USER | KEDGE_CHANNEL_NO_CMA)
#define CLOSE_NS	  1000000000ull /* what a transport gets to let go */

/* The end of the first version; a later one moves the end, never this. */
#define OPTS_V1 sizeof(struct kedge_channel_opts)

static uint64_t or_default(uint64_t v, uint64_t def)
{
	return v ? v : def;
}

int kedge__channel_opts(struct kedge_channel_opts *o,
			const struct kedge_channel_opts *user)
{
	int rc = kedge__opts_copy(o, sizeof(*o), OPTS_V1, user);

	if (rc)
		return rc;
	o->eager_max = (uint32_t)or_default(o->eager_max, EAGER_DEFAULT);
	o->unexpected_cnt =
		(uint32_t)or_default(o->unexpected_cnt, UNEXPECTED_CNT);
	o->unexpected_bytes = or_default(o->unexpected_bytes,
					 UNEXPECTED_BYTES);
	o->heap_bytes = or_default(o->heap_bytes, HEAP_DEFAULT);
	o->pool_bytes = or_default(o->pool_bytes, POOL_DEFAULT);
	if (o->flags & ~FLAGS_ALL)
		return kedge_reason(-EINVAL, "a flag of the channel is unknown");
	if (o->way >= KEDGE_WAY_COUNT || o->way == KEDGE_WAY_EAGER)
		return kedge_reason(-EINVAL, "no way to receive by rendezvous "
				    "has the number %u", o->way);
	if (o->eager_max > EAGER_MAX)
		return kedge_reason(-EINVAL, "eager_max is at most 32 KiB");
	if (o->unexpected_cnt > UNEXPECTED_CNT_MAX)
		return kedge_reason(-EINVAL, "unexpected_cnt is at most 65536");
	if (o->unexpected_bytes > BYTES_MAX ||
	    o->unexpected_bytes < 2 * (uint64_t)o->eager_max)
		return kedge_reason(-EINVAL, "unexpected_bytes is at least "
				    "twice eager_max, at most 1 GiB");
	if (o->heap_bytes > HEAP_MAX || o->pool_bytes > HEAP_MAX)
		return kedge_reason(-EINVAL, "heap_bytes and pool_bytes are at "
				    "most 64 GiB");
	return 0;
}

int channel_gone(const struct kedge_channel *ch)
{
	if (unlikely(!is_ours(ch)))
		return kedge_reason(-ECHILD, "the channel belongs to the parent "
				    "process: after fork the child opens its "
				    "own");
	return ch->dead;
}

static const uint32_t *ours_page(void)
{
	size_t len = kedge__page_size();
	uint32_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, len, MADV_WIPEONFORK)) {
		munmap(p, len);
		return NULL;
	}
	*p = 1;
	return p;
}

/* The transport's descriptor, and a timer where operations can time out. */
static int open_fds(struct kedge_channel *ch)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int rc;

	ch->fd = ch->t->fd(ch->ctx);
	ch->timer_fd = -1;
	if (ch->fd < 0 || !ch->opts.timeout_ms)
		return ch->fd < 0 ? ch->fd : 0;
	ch->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	ch->fd = epoll_create1(EPOLL_CLOEXEC);
	if (ch->timer_fd < 0 || ch->fd < 0 ||
	    epoll_ctl(ch->fd, EPOLL_CTL_ADD, ch->timer_fd, &ev) ||
	    epoll_ctl(ch->fd, EPOLL_CTL_ADD, ch->t->fd(ch->ctx), &ev)) {
		rc = -errno;
		if (ch->fd >= 0)
			close(ch->fd);
		if (ch->timer_fd >= 0)
			close(ch->timer_fd);
		return rc;
	}
	return 0;
}

static void close_fds(struct kedge_channel *ch)
{
	if (ch->timer_fd < 0)
		return;
	close(ch->timer_fd);
	close(ch->fd);
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

static void stop_all(struct kedge_channel *ch)
{
	uint64_t end = clock_ns() + CLOSE_NS;

	while (!all_stopped(ch) && clock_ns() < end && !ch->t->check(ch->ctx))
		usleep(100);
}

KEDGE_API void kedge_channel_close(struct kedge_channel *ch)
{
	bool ours;

	if (!ch)
		return;
	ours = is_ours(ch);
	if (ours && !ch->dead) {
		stop_all(ch);
		send_control(ch, PACKET_BYE, NULL, 0);
		channel_dies(ch, -ECONNRESET);
	}
	close_fds(ch);
	pool_close(ch->pool, ours);
	if (ours)
		ch->t->close(ch->ctx);
	else if (ch->t->leave)
		ch->t->leave(ch->ctx);
	match_fini(ch);
	ops_fini(ch);
	munmap((void *)(uintptr_t)ch->ours, kedge__page_size());
	free(ch);
}

KEDGE_API int kedge_channel_cancel(struct kedge_channel *ch, uint64_t name)
{
	struct op_name n = { (uint32_t)name, (uint32_t)(name >> 32) };
	struct op *op;

	if (!ch)
		return -EINVAL;
	if (!is_ours(ch))
		return channel_gone(ch);
	op = op_find(ch, n);
	if (!op || op->reported)
		return -ENOENT;
	give_up(ch, op, -ECANCELED);
	return 0;
}

KEDGE_API int kedge_channel_fd(struct kedge_channel *ch)
{
	if (!ch)
		return -EINVAL;
	return is_ours(ch) ? ch->fd : channel_gone(ch);
}

static void arm_timer(struct kedge_channel *ch)
{
	struct itimerspec when = { 0 };
	uint64_t ns;

	if (ch->timer_fd < 0)
		return;
	if (!list_empty(&ch->timed)) {
		ns = list_entry(ch->timed.next, struct op, timed)->deadline;
		when.it_value.tv_sec = (time_t)(ns / 1000000000u);
		when.it_value.tv_nsec = (long)(ns % 1000000000u);
	}
	timerfd_settime(ch->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
	/* Who has waited looks at the clock. */
	ch->timer_polls = TIMER_POLLS;
}

/*
 * First the peer is asked to tell, then everything is looked at once more: what
 * it did before it was asked is seen now, what it does later it tells of.
 */
KEDGE_API int kedge_channel_arm(struct kedge_channel *ch)
{
	int rc;

	if (!ch)
		return -EINVAL;
	if (!is_ours(ch))
		return channel_gone(ch);
	if (ch->done.head != ch->done.tail)
		return 1;
	if (ch->dead)
		return ch->dead;
	rc = ch->t->arm(ch->ctx);
	if (rc)
		return rc;
	if (channel_progress(ch, UINT32_MAX, 1) || ch->done.head != ch->done.tail)
		return 1;
	if (ch->dead)
		return ch->dead;
	arm_timer(ch);
	return 0;
}

KEDGE_API int kedge_channel_wait(struct kedge_channel *ch, int timeout_ms)
{
	struct pollfd p = { .events = POLLIN };
	int rc = kedge_channel_arm(ch);

	if (rc)
		return rc;
	p.fd = ch->fd;
	rc = poll(&p, 1, timeout_ms);
	return rc < 0 ? -errno : rc;
}

KEDGE_API void *kedge_channel_alloc(struct kedge_channel *ch, size_t len)
{
	if (!ch || !len || !is_ours(ch) || !ch->t->heap_alloc)
		return NULL;
	return ch->t->heap_alloc(ch->ctx, len);
}

KEDGE_API void kedge_channel_free(struct kedge_channel *ch, void *p)
{
	if (ch && p && is_ours(ch))
		ch->t->heap_free(ch->ctx, p);
}
