// SPDX-License-Identifier: BSD-2-Clause
/*
 * Accesses of a peer: through the gate (gate.h), a copy, and out again. In the gate nothing is
 * waited for and no system call is made, but where the region has grown since the last look
 * at its file: the owner waits for all that is inside.
 *
 * The connection says whether the owner lives. To ask it each time would cost more than a
 * small access does, so it is asked once a tick of the coarse clock, some milliseconds. An
 * access in that time after the owner's end goes to memory that has no owner, and is lost
 * as one right before would be.
 *
 * A region that migrates ends the gate, and says so to what asks for an access. The access
 * was not done then, and is begun anew by another link (follow.c).
 */
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "base/process/page.h"
#include "region/peer/access.h"
#include "region/peer/lease.h"
#include "region/peer/turn.h"
#include "region/stream.h"

/* As long as it waits without a look whether the owner lives. */
#define SLICE_NS 20000000u
/* As long as the owner has to say which bytes are missing, whatever an access's time is. */
#define LIST_NS 1000000000u
#define AGAIN	1

/* For a wait of a thread that is to end soon once it is told to. */
#define STEP_NS UINT64_C(1000000000)

static int look_at_owner(struct link *l)
{
	ssize_t n = -1;
	char c;

	/* A thread that ends in recv() would use the link for ever. */
	NO_CANCEL();
	if (!link_use(l))
		return REGION_MOVED;
	/* The program may have closed it. */
	if (l->sock.fd >= 0 && fd_same(l->sock.fd, &l->sock.id))
		n = recv(l->sock.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
	else
		errno = EBADF;
	/* An answer about where it was moved may be there. */
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		atomic_store(&l->ended, ECONNRESET);
	link_leave(l);
	return remote_ended(l);
}

/* Once a tick. */
static int check_owner(struct link *l)
{
	const uint64_t now = clock_coarse_ns(), expires = atomic_load(&l->gate->expires);

	if (now == atomic_load_explicit(&l->looked, memory_order_relaxed))
		return remote_ended(l);
	atomic_store_explicit(&l->looked, now, memory_order_relaxed);
	if (!expires || now + l->ahead < expires)
		return look_at_owner(l);
	/* For all accesses to come, as those of this tick do not look again. */
	atomic_store(&l->ended, EKEYEXPIRED);
	return remote_ended(l);
}

static uint64_t limit_of(struct access *a, uint64_t now)
{
	if (!a->begun)
		a->begun = now;
	return a->timeout_ms < 0 ? CLOCK_NEVER : a->begun + (uint64_t)a->timeout_ms * 1000000u;
}

/* 0, or -ECANCELED. */
static int check_stop(const struct access *a)
{
	if (!a->stop || !atomic_load(a->stop))
		return 0;
	return kedge_reason(-ECANCELED, "the remote region was closed meanwhile");
}

/* @limit, or a step, at the end of which it is looked whether to go on. */
static uint64_t step_of(const struct access *a, uint64_t limit)
{
	return a->stop ? clock_sooner(limit, STEP_NS) : limit;
}

static int wait_at(struct access *a, uint32_t state)
{
	const uint64_t now = clock_ns();
	uint64_t limit = limit_of(a, now);
	struct timespec left;
	int rc;

	/* A moment, in which the owner's thread changes a list. */
	if (!(state & GATE_CLOSED) && limit < a->begun + LIST_NS)
		limit = a->begun + LIST_NS;
	if (now >= limit)
		return kedge_reason(-ETIMEDOUT, "the owner, process %d, has suspended the region "
				    "for %d ms", (int)a->l->owner, a->timeout_ms);
	if (a->tries)
		return ACCESS_WAITS;
	left = clock_wait_ts(clock_sooner(limit, SLICE_NS));
	syscall(SYS_futex, &a->l->gate->state, FUTEX_WAIT, state, &left, NULL, 0);
	rc = look_at_owner(a->l);
	if (!rc)
		rc = check_owner(a->l);
	return rc ? rc : check_stop(a);
}

/* Inside. What the owner says is true for as much as the file has. */
static bool is_there(struct access *a, uint64_t *has)
{
	struct link *l = a->l;
	const uint64_t len = atomic_load(&l->gate->len);

	*has = len;
	if (len > l->max_len || a->offset > len || a->len > len - a->offset)
		return false;
	if (a->offset + a->len > atomic_load_explicit(&l->sure, memory_order_relaxed))
		atomic_store_explicit(&l->sure, remote_size(l), memory_order_relaxed);
	*has = atomic_load_explicit(&l->sure, memory_order_relaxed);
	return a->offset + a->len <= *has;
}

/* Inside. acquire: the mapping that goes with the number is there. */
static bool has_its_pages(struct link *l)
{
	return atomic_load_explicit(&l->gate->epoch, memory_order_relaxed) ==
	       atomic_load_explicit(&l->epoch, memory_order_acquire);
}

/* Inside. A gap that [@from, @from + @len) touches: *@gap. */
static bool find_gap(struct gate *g, uint64_t from, uint64_t len, struct gap *gap)
{
	const uint32_t cnt = atomic_load(&g->gap_cnt);
	uint32_t i;

	for (i = 0; i < cnt && i < GAPS_MAX; i++) {
		gap->from = atomic_load(&g->gap[i].from);
		gap->to = atomic_load(&g->gap[i].to);
		if (len && gap->from < from + len && gap->to > from)
			return true;
	}
	return false;
}

static bool touches_gap(const struct access *a, struct gap *gap)
{
	struct gate *g = a->l->gate;
	size_t i;

	if (!a->part)
		return find_gap(g, a->offset, a->len, gap);
	for (i = 0; i < a->cnt; i++)
		if (find_gap(g, a->part[i].offset, a->part[i].len, gap))
			return true;
	return false;
}

/* Inside, and then it may go on: 0; or it goes out, with AGAIN if the list changes. */
static int check_gaps(struct access *a)
{
	struct gate *g = a->l->gate;
	const uint32_t seq = atomic_load(&g->gap_seq);
	struct gap gap = { 0, 0 };
	bool touches;

	touches = touches_gap(a, &gap);
	if (!(seq & 1) && atomic_load(&g->gap_seq) == seq && !touches)
		return 0;
	gate_leave(g);
	if (seq & 1 || atomic_load(&g->gap_seq) != seq)
		return AGAIN;
	return remote_missing(gap.from, gap.to);
}

/* Inside, where the owner waits for it: so it goes out. */
static int find_it_again(struct access *a)
{
	const uint64_t limit = limit_of(a, clock_ns());
	int rc = REGION_MOVED;

	gate_leave(a->l->gate);
	if (a->tries)
		return ACCESS_WAITS;
	if (link_use(a->l)) {
		rc = remote_renew(a->l, step_of(a, limit));
		link_leave(a->l);
	}
	return rc == -ETIMEDOUT && a->stop && clock_ns() < limit ? check_stop(a) : rc;
}

static int go_in(struct access *a, uint32_t *state)
{
	struct gate *g = a->l->gate;
	int rc = 0;

	while (!rc) {
		*state = gate_enter(g);
		if (*state & GATE_ENDED)
			rc = remote_over(a->l, (int)atomic_load(&g->why));
		else if (*state & GATE_SHUT)
			rc = wait_at(a, *state);
		else if (has_its_pages(a->l))
			return 0;
		else
			rc = find_it_again(a);
	}
	return rc;
}

/* 0: the access is inside, and may go on to its bytes. */
static int begin_inside(struct access *a)
{
	uint32_t state;
	uint64_t has;
	int rc = check_owner(a->l);

	while (!rc) {
		rc = go_in(a, &state);
		if (rc)
			return rc;
		if (!is_there(a, &has)) {
			gate_leave(a->l->gate);
			return remote_beyond(a->offset, a->len, has);
		}
		if (likely(!(state & GATE_GAPS)))
			return 0;
		rc = check_gaps(a);
		if (rc != AGAIN)
			return rc;
		rc = wait_at(a, GATE_CHANGING);
	}
	return rc;
}

int access_check(const struct kedge_remote *r, uint32_t access)
{
	if (!r)
		return kedge_reason(-EINVAL, "the remote region is NULL");
	if (r->pid != process_pid())
		return kedge_reason(-ECHILD, "it was opened by the process that this one was "
				    "forked from: open the handle here");
	/* A handle gives the same wherever the region is. */
	if (!(atomic_load(&r->link)->access & access))
		return kedge_reason(-EACCES, "the handle does not give that access");
	return 0;
}

int access_left_ms(struct access *a)
{
	return clock_left_ms(limit_of(a, clock_ns()));
}

/* True: there is another link, or it is looked for again. */
static bool again(struct access *a, int *rc)
{
	const uint64_t limit = limit_of(a, clock_ns());

	if (a->tries) {
		*rc = ACCESS_WAITS;
		return false;
	}
	if (remote_again(a->r, a->l, step_of(a, limit), rc))
		return true;
	if (*rc != -ETIMEDOUT || !a->stop || clock_ns() >= limit)
		return false;
	*rc = check_stop(a);
	return !*rc;
}

int access_begin(struct access *a, by_owner *fn, void *arg, bool *go)
{
	int rc;

	*go = false;
	do {
		a->l = atomic_load(&a->r->link);
		rc = a->l->stream ? fn(a, arg) : begin_inside(a);
	} while (rc == REGION_MOVED && again(a, &rc));
	*go = !rc && !a->l->stream;
	return rc;
}

/* ---- one range ---- */

int access_served(struct access *a, const struct stream_req *q,
		  const struct kedge_remote_part *part, size_t cnt)
{
	struct link *l = a->l;
	int done = 0;

	NO_CANCEL();
	if (l->lease && link_use(l)) {
		done = remote_ended(l) ? 0 : lease_access(l->lease, q, part, cnt, stream_had(l));
		if (done < 0)
			atomic_store(&l->ended, ECONNRESET);
		link_leave(l);
	}
	if (done < 0)
		return kedge_reason(done, "the adapter has failed, and the owner does not answer: "
				    "a put may be done still");
	return done ? 0 : stream_copy(l, q, part, cnt);
}

struct copy {
	uint32_t op;
	void *data;
};

static int copy_by_owner(struct access *a, void *arg)
{
	const struct copy *c = arg;
	const struct stream_req q = { .op = c->op, .offset = a->offset, .len = a->len,
				      .timeout_ms = access_left_ms(a) };
	const struct kedge_remote_part all = { a->offset, c->data, (size_t)a->len };

	return access_served(a, &q, &all, 1);
}

/* 0: the copy is done by the owner, or there is none, or it is inside: then *@go is true. */
static int begin_copy(struct access *a, uint32_t op, uint32_t access, const void *data, bool *go)
{
	struct copy c = { op, (void *)(uintptr_t)data };
	int rc = access_check(a->r, access);

	*go = false;
	if (!rc && a->len && !data)
		rc = kedge_reason(-EINVAL, "the data is NULL");
	if (rc || !a->len)
		return rc;
	return access_begin(a, copy_by_owner, &c, go);
}

KEDGE_API int kedge_remote_put(struct kedge_remote *r, uint64_t offset, const void *data,
			       size_t len, int timeout_ms)
{
	struct access a = { .r = r, .offset = offset, .len = len,
			    .timeout_ms = timeout_ms };
	bool go;
	int rc = begin_copy(&a, STREAM_PUT, KEDGE_HANDLE_WRITE, data, &go);

	if (!go)
		return rc;
	memcpy(a.l->at + offset, data, len);
	gate_leave(a.l->gate);
	return 0;
}

KEDGE_API int kedge_remote_get(struct kedge_remote *r, uint64_t offset, void *data, size_t len,
			       int timeout_ms)
{
	struct access a = { .r = r, .offset = offset, .len = len,
			    .timeout_ms = timeout_ms };
	bool go;
	int rc = begin_copy(&a, STREAM_GET, KEDGE_HANDLE_READ, data, &go);

	if (!go)
		return rc;
	memcpy(data, a.l->at + offset, len);
	gate_leave(a.l->gate);
	return 0;
}

/* ---- numbers ---- */

struct number {
	uint32_t op;
	uint64_t value;
	uint64_t other;
	uint64_t was;
};

static int number_by_owner(struct access *a, void *arg)
{
	struct number *n = arg;
	const struct stream_req q = { .op = n->op, .offset = a->offset, .len = a->len,
				      .value = n->value, .other = n->other,
				      .timeout_ms = access_left_ms(a) };

	return stream_access(a->l, &q, &n->was);
}

/* The handle begins at a multiple of 8 of the region. */
static int begin_atomic(struct access *a, struct number *n, bool *go)
{
	int rc = access_check(a->r, KEDGE_HANDLE_ATOMIC);

	*go = false;
	if (!rc && a->offset % sizeof(uint64_t))
		rc = kedge_reason(-EINVAL, "the offset is no multiple of 8");
	return rc ? rc : access_begin(a, number_by_owner, n, go);
}

/* Inside it is. */
static uint64_t *number_at(const struct access *a)
{
	return (uint64_t *)(void *)(a->l->at + a->offset);
}

KEDGE_API int kedge_remote_fetch_add(struct kedge_remote *r, uint64_t offset, uint64_t add,
				     uint64_t *old, int timeout_ms)
{
	struct access a = { .r = r, .offset = offset, .len = sizeof(uint64_t),
			    .timeout_ms = timeout_ms };
	struct number n = { .op = STREAM_ADD, .value = add };
	bool go;
	int rc = begin_atomic(&a, &n, &go);

	if (go) {
		n.was = __atomic_fetch_add(number_at(&a), add, __ATOMIC_SEQ_CST);
		gate_leave(a.l->gate);
	}
	if (!rc && old)
		*old = n.was;
	return rc;
}

KEDGE_API int kedge_remote_compare_swap(struct kedge_remote *r, uint64_t offset,
					uint64_t expected, uint64_t desired, uint64_t *old,
					int timeout_ms)
{
	struct access a = { .r = r, .offset = offset, .len = sizeof(uint64_t),
			    .timeout_ms = timeout_ms };
	struct number n = { .op = STREAM_SWAP, .value = expected, .other = desired,
			    .was = expected };
	bool go;
	int rc = begin_atomic(&a, &n, &go);

	if (go) {
		__atomic_compare_exchange_n(number_at(&a), &n.was, desired, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		gate_leave(a.l->gate);
	}
	if (!rc && old)
		*old = n.was;
	return rc;
}
