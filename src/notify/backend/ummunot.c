// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ummunot backend: the kernel module keeps the watches, their queue and the
 * counter. A watch here is one there, by its address as the cookie, so there is
 * no thread and no arming, and every kind of memory is seen.
 *
 * Why the level is exact. The counter moves when an invalidation begins, before
 * the first page goes, and again when the last is gone. A thread that has a new
 * page has therefore a new counter, and takes the event of the beginning.
 * Between the two the old pages can still be pinned; what is registered then is
 * not kept: a watch that is added meanwhile gets an event at once, one that was
 * there before has one, and the cache reads events after the device has pinned.
 * The end's event then takes what else may have slipped in. While an
 * invalidation of a watched range is under way, the queue's end carries another
 * number than the counter (UMMUNOT_FEATURE_SETTLED), so no lookup goes without
 * asking.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "notify/backend/ummunot_device.h"
#include "notify/internal.h"
#include "stats/trace.h"

#define OWN_PART (1ull << 62)

struct ummunot {
	int fd;
	struct fd_id id;
	const uint64_t *counter;
	bool lost; /* the descriptor, which the application closed */
};

static int greet(int fd)
{
	uint32_t features = UMMUNOT_FEATURE_SETTLED | UMMUNOT_FEATURE_QUIET;

	if (ummunot_device_ioctl(fd, UMMUNOT_EXCHANGE_FEATURES, &features))
		return ummunot_device_missing(-errno);
	if (!(features & UMMUNOT_FEATURE_SETTLED))
		return kedge_reason(-EOPNOTSUPP,
				    UMMUNOT_NODE " is that of a module which does not "
					 "tell when a change has ended: load "
					 "kedge's");
	return 0;
}

static int open_node(struct ummunot *u)
{
	void *page;
	int rc;

	u->fd = ummunot_device_open(O_NONBLOCK);
	if (u->fd < 0)
		return u->fd;
	fd_note(u->fd, &u->id);
	rc = greet(u->fd);
	if (rc)
		goto close;
	page = mmap(NULL, kedge__page_size(), PROT_READ, MAP_SHARED, u->fd, 0);
	rc = ummunot_device_missing(-errno);
	if (page == MAP_FAILED)
		goto close;
	u->counter = page;
	return 0;

close:
	close(u->fd);
	return rc;
}

static int ummunot_open(struct kedge_notifier *nf,
			const struct kedge_notifier_opts *opts)
{
	struct ummunot *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return -ENOMEM;
	rc = open_node(u);
	if (rc) {
		free(u);
		return rc;
	}
	/*
	 * A forked child goes on seeing the counter, but not this page: what
	 * adds up there is no number of the parent's.
	 */
	atomic_store_explicit(&nf->page->generation, OWN_PART,
			      memory_order_relaxed);
	nf->head.trips = u->counter;
	nf->backend = u;
	return 0;
}

static void ummunot_close(struct kedge_notifier *nf)
{
	struct ummunot *u = nf->backend;

	if (fd_same(u->fd, &u->id))
		close(u->fd);
	munmap((void *)(uintptr_t)u->counter, kedge__page_size());
	free(u);
}

static int add(struct kedge_notifier *nf, struct watch *w, uint32_t flags)
{
	struct ummunot_register_ioctl reg = {
		.start = w->node.start,
		.end = w->node.end,
		.user_cookie = (uintptr_t)w,
		.flags = flags,
	};
	struct ummunot *u = nf->backend;

	if (!fd_same(u->fd, &u->id))
		return kedge_reason(-EBADF, "the notifier's descriptor was "
					    "closed by the application");
	if (ummunot_device_ioctl(u->fd, UMMUNOT_REGISTER_REGION, &reg))
		return kedge_reason(-errno, "the kernel does not watch %#llx-"
				    "%#llx (%s)",
				    (unsigned long long)reg.start,
				    (unsigned long long)reg.end,
				    strerrordesc_np(errno));
	return 0;
}

static int ummunot_add(struct kedge_notifier *nf, struct watch *w)
{
	return add(nf, w, 0);
}

/* A module of before that refuses the flag. */
static int ummunot_add_quiet(struct kedge_notifier *nf, struct watch *w)
{
	return add(nf, w, UMMUNOT_REGISTER_QUIET);
}

static int ummunot_end_quiet(struct kedge_notifier *nf, struct watch *w)
{
	uint64_t cookie = (uintptr_t)w;
	struct ummunot *u = nf->backend;

	if (!fd_same(u->fd, &u->id))
		return -EBADF;
	return ummunot_device_ioctl(u->fd, UMMUNOT_END_QUIET, &cookie) ? -errno
									: 0;
}

static void ummunot_remove(struct kedge_notifier *nf, struct watch *w)
{
	uint64_t cookie = (uintptr_t)w;
	struct ummunot *u = nf->backend;

	if (fd_same(u->fd, &u->id))
		ummunot_device_ioctl(u->fd, UMMUNOT_UNREGISTER_REGION, &cookie);
}

/*
 * One event of the kernel's. Its cookie is a watch of ours that is still there:
 * unregistering takes its event away, and both are done with the lock held.
 */
static struct taken translate(const struct ummunot_event *e, uint64_t counter)
{
	struct watch *w = (struct watch *)(uintptr_t)e->user_cookie_counter;
	uint64_t page = kedge__page_size();
	struct taken t = { .watch = w,
			   .cookie = w->cookie,
			   .kind = KEDGE_EVENT_OTHER,
			   .kinds = 1u << KEDGE_EVENT_OTHER,
			   .start = w->node.start,
			   .end = w->node.end,
			   .generation = counter };

	if (e->flags & UMMUNOT_EVENT_FLAG_HINT) {
		uint64_t start = round_down(e->hint_start, page);
		uint64_t end = round_up(e->hint_end, page);

		t.start = start > t.start ? start : t.start;
		t.end = end < t.end ? end : t.end;
	}
	return t;
}

/*
 * The application has the descriptor too, and asking for SIGIO sets all flags at
 * once: without O_NONBLOCK a read of an idle queue would wait, with the lock.
 */
static void keep_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags >= 0 && !(flags & O_NONBLOCK))
		fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static ssize_t read_events(const struct ummunot *u, struct ummunot_event *ev,
			   size_t max)
{
	ssize_t len;

	if (!fd_same(u->fd, &u->id))
		return -EBADF;
	keep_nonblock(u->fd);
	do {
		len = read(u->fd, ev, max * sizeof(*ev));
	} while (len < 0 && errno == EINTR);
	return len < 0 ? -errno : len / (ssize_t)sizeof(*ev);
}

#define BATCH 16

/*
 * The application closed the descriptor. Every watch is told once, and the
 * number is one that the counter will never have: no lookup hits again, and no
 * registration is kept, for no watch can be added.
 */
static size_t take_lost(struct kedge_notifier *nf, struct queue *q,
			struct taken *out, size_t max, uint64_t *drained,
			uint64_t now)
{
	struct ummunot *u = nf->backend;
	size_t n;

	if (!u->lost)
		queue_publish(nf, KEDGE_EVENT_OTHER, 0, UINT64_MAX);
	u->lost = true;
	n = queue_pop(q, out, max);
	*drained = q->first ? 0 : now ^ (1ull << 63);
	return n;
}

/*
 * The kernel has one queue for all users of the descriptor: events for others
 * go on to theirs. Those that others found for this one come first: they were
 * queued before what the kernel has now. The number at which this queue is empty
 * is known only once the kernel's is, too.
 * -EAGAIN: all was told before, at the number that the counter still has.
 */
static size_t ummunot_take(struct kedge_notifier *nf, struct queue *q,
			   struct taken *out, size_t max, uint64_t *drained)
{
	struct ummunot *u = nf->backend;
	uint64_t now = OWN_PART + __atomic_load_n(u->counter, __ATOMIC_ACQUIRE);
	struct ummunot_event ev[BATCH];
	size_t n = queue_pop(q, out, max);
	ssize_t cnt, i;

	*drained = 0;
	if (n == max)
		return n;
	cnt = read_events(u, ev, max - n < BATCH ? max - n : BATCH);
	if (cnt < 0 && cnt != -EAGAIN)
		return n + take_lost(nf, q, out + n, max - n, drained, now);
	if (cnt < 0)
		*drained = now;
	for (i = 0; i < cnt; i++) {
		struct taken t;

		if (ev[i].type == UMMUNOT_EVENT_TYPE_LAST) {
			*drained = OWN_PART + ev[i].user_cookie_counter;
			continue;
		}
		t = translate(&ev[i], now);
		nf->events++;
		if (trace_on())
			trace_add(&(struct trace_change){ .by = TRACE_MODULE, .kind = t.kind,
							  .unsure = t.unsure, .watches = 1,
							  .start = t.start, .end = t.end });
		if (t.watch->queue == q)
			out[n++] = t;
		else
			queue_tell(t.watch, t.kind, t.start, t.end,
				   t.generation);
	}
	return n;
}

static int ummunot_fd(struct kedge_notifier *nf)
{
	const struct ummunot *u = nf->backend;

	return u->fd;
}

static int ummunot_arm(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	return 0;
}

static void ummunot_disarm(struct kedge_notifier *nf, uint64_t start,
			   uint64_t end)
{
}

const struct notify_ops notify_ummunot = {
	.name = "ummunot",
	.level = KEDGE_LEVEL_EXACT,
	.open = ummunot_open,
	.close = ummunot_close,
	.abandon = ummunot_close,
	.arm = ummunot_arm,
	.disarm = ummunot_disarm,
	.add = ummunot_add,
	.add_quiet = ummunot_add_quiet,
	.end_quiet = ummunot_end_quiet,
	.remove = ummunot_remove,
	.take = ummunot_take,
	.fd = ummunot_fd,
};
