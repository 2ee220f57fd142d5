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
 */
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "region/peer/state.h"
#include "region/stream.h"

/* As long as it waits without a look whether the owner lives. */
#define SLICE_NS 20000000u

struct access {
	struct kedge_remote *r;
	uint64_t offset;
	uint64_t len;
	uint64_t begun;
	int timeout_ms;
};

static int look_at_owner(struct kedge_remote *r)
{
	ssize_t n = -1;
	char c;

	/* The program may have closed it. */
	if (r->sock.fd >= 0 && fd_same(r->sock.fd, &r->sock.id))
		n = recv(r->sock.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
	else
		errno = EBADF;
	/* An answer about where it was moved may be there. */
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		atomic_store(&r->ended, ECONNRESET);
	return remote_ended(r);
}

/* Once a tick. */
static int check_owner(struct kedge_remote *r)
{
	const uint64_t now = clock_coarse_ns(), expires = atomic_load(&r->gate->expires);

	if (now == atomic_load_explicit(&r->looked, memory_order_relaxed))
		return remote_ended(r);
	atomic_store_explicit(&r->looked, now, memory_order_relaxed);
	if (expires && now >= expires)
		return remote_over(r, EKEYEXPIRED);
	return look_at_owner(r);
}

/* UINT64_MAX: no limit. */
static uint64_t limit_of(struct access *a, uint64_t now)
{
	if (!a->begun)
		a->begun = now;
	return a->timeout_ms < 0 ? UINT64_MAX : a->begun + (uint64_t)a->timeout_ms * 1000000u;
}

static int wait_at(struct access *a, uint32_t state)
{
	const struct timespec slice = { 0, SLICE_NS };
	const uint64_t now = clock_ns(), limit = limit_of(a, now);
	struct timespec left = slice;
	int rc;

	if (now >= limit)
		return kedge_reason(-ETIMEDOUT, "the owner, process %d, has suspended the region "
				    "for %d ms", (int)a->r->owner, a->timeout_ms);
	if (limit - now < SLICE_NS)
		left.tv_nsec = (long)(limit - now);
	syscall(SYS_futex, &a->r->gate->state, FUTEX_WAIT, state, &left, NULL, 0);
	rc = look_at_owner(a->r);
	return rc ? rc : check_owner(a->r);
}

/* Inside. What the owner says is true for as much as the file has. */
static bool is_there(struct access *a, uint64_t *has)
{
	struct kedge_remote *r = a->r;
	const uint64_t len = atomic_load(&r->gate->len);

	*has = len;
	if (len > r->max_len || a->offset > len || a->len > len - a->offset)
		return false;
	if (a->offset + a->len > atomic_load_explicit(&r->sure, memory_order_relaxed))
		atomic_store_explicit(&r->sure, remote_size(r), memory_order_relaxed);
	*has = atomic_load_explicit(&r->sure, memory_order_relaxed);
	return a->offset + a->len <= *has;
}

/* Inside. acquire: the mapping that goes with the number is there. */
static bool has_its_pages(struct kedge_remote *r)
{
	return atomic_load_explicit(&r->gate->epoch, memory_order_relaxed) ==
	       atomic_load_explicit(&r->epoch, memory_order_acquire);
}

/* Inside, where the owner waits for it: so it goes out. */
static int find_it_again(struct access *a)
{
	gate_leave(a->r->gate);
	return remote_renew(a->r, limit_of(a, clock_ns()));
}

/* 0: the access is inside, and may go on to its bytes. */
static int begin(struct access *a)
{
	struct gate *g = a->r->gate;
	uint32_t state;
	uint64_t has;
	int rc = check_owner(a->r);

	while (!rc) {
		state = gate_enter(g);
		if (state)
			rc = state & GATE_ENDED ? remote_over(a->r, (int)atomic_load(&g->why))
						: wait_at(a, state);
		else if (has_its_pages(a->r))
			break;
		else
			rc = find_it_again(a);
	}
	if (rc || is_there(a, &has))
		return rc;
	gate_leave(g);
	return remote_beyond(a->offset, a->len, has);
}

static int check(const struct kedge_remote *r, uint32_t access)
{
	if (!r)
		return kedge_reason(-EINVAL, "the remote region is NULL");
	/* In a child it has been closed. getpid() is a system call. */
	if (r->sock.fd < 0)
		return kedge_reason(-ECHILD, "it was opened by the process that this one was "
				    "forked from: open the handle here");
	if (!(r->access & access))
		return kedge_reason(-EACCES, "the handle does not give that access");
	return 0;
}

/* 0: the copy is done by the owner, or there is none, or it is inside: then *@go is true. */
static int begin_copy(struct access *a, uint32_t op, uint32_t access, const void *data, bool *go)
{
	struct stream_req q = { .op = op, .offset = a->offset, .len = a->len,
				.timeout_ms = a->timeout_ms };
	int rc = check(a->r, access);

	*go = false;
	if (!rc && a->len && !data)
		rc = kedge_reason(-EINVAL, "the data is NULL");
	if (rc || !a->len)
		return rc;
	if (a->r->stream)
		return stream_access(a->r, &q, (void *)(uintptr_t)data, NULL);
	rc = begin(a);
	*go = !rc;
	return rc;
}

KEDGE_API int kedge_remote_put(struct kedge_remote *r, uint64_t offset, const void *data,
			       size_t len, int timeout_ms)
{
	struct access a = { r, offset, len, 0, timeout_ms };
	bool go;
	int rc = begin_copy(&a, STREAM_PUT, KEDGE_HANDLE_WRITE, data, &go);

	if (!go)
		return rc;
	memcpy(r->at + offset, data, len);
	gate_leave(r->gate);
	return 0;
}

KEDGE_API int kedge_remote_get(struct kedge_remote *r, uint64_t offset, void *data, size_t len,
			       int timeout_ms)
{
	struct access a = { r, offset, len, 0, timeout_ms };
	bool go;
	int rc = begin_copy(&a, STREAM_GET, KEDGE_HANDLE_READ, data, &go);

	if (!go)
		return rc;
	memcpy(data, r->at + offset, len);
	gate_leave(r->gate);
	return 0;
}

/* The parts have memory, and *@end is the end of the last; UINT64_MAX: beyond all that is. */
static int check_parts(const struct kedge_remote_part *part, size_t cnt, uint64_t *end)
{
	size_t i;

	*end = 0;
	if (cnt && !part)
		return kedge_reason(-EINVAL, "the parts are NULL");
	for (i = 0; i < cnt; i++) {
		if (part[i].len && !part[i].data)
			return kedge_reason(-EINVAL, "the data of part %zu is NULL", i);
		if (part[i].len > UINT64_MAX - part[i].offset)
			*end = UINT64_MAX;
		else if (part[i].len && part[i].offset + part[i].len > *end)
			*end = part[i].offset + part[i].len;
	}
	return 0;
}

/* One after the other, each told where all of them end. */
static int parts_by_stream(struct access *a, uint32_t op, const struct kedge_remote_part *part,
			   size_t cnt)
{
	const uint64_t until = limit_of(a, clock_ns());
	struct stream_req q = { .op = op, .end = a->len };
	uint64_t now;
	size_t i;
	int rc = 0;

	for (i = 0; i < cnt && !rc; i++) {
		now = clock_ns();
		q.offset = part[i].offset;
		q.len = part[i].len;
		q.timeout_ms = a->timeout_ms;
		if (a->timeout_ms >= 0)
			q.timeout_ms = now < until ? (int)((until - now + 999999u) / 1000000u) : 0;
		if (q.len)
			rc = stream_access(a->r, &q, part[i].data, NULL);
	}
	return rc;
}

/* As begin_copy(). */
static int begin_parts(struct access *a, uint32_t op, uint32_t access,
		       const struct kedge_remote_part *part, size_t cnt, bool *go)
{
	int rc = check(a->r, access);

	*go = false;
	if (!rc)
		rc = check_parts(part, cnt, &a->len);
	if (rc || !a->len)
		return rc;
	if (a->r->stream)
		return parts_by_stream(a, op, part, cnt);
	rc = begin(a);
	*go = !rc;
	return rc;
}

KEDGE_API int kedge_remote_put_parts(struct kedge_remote *r, const struct kedge_remote_part *part,
				     size_t cnt, int timeout_ms)
{
	struct access a = { r, 0, 0, 0, timeout_ms };
	size_t i;
	bool go;
	int rc = begin_parts(&a, STREAM_PUT, KEDGE_HANDLE_WRITE, part, cnt, &go);

	if (!go)
		return rc;
	for (i = 0; i < cnt; i++)
		if (part[i].len)
			memcpy(r->at + part[i].offset, part[i].data, part[i].len);
	gate_leave(r->gate);
	return 0;
}

KEDGE_API int kedge_remote_get_parts(struct kedge_remote *r, const struct kedge_remote_part *part,
				     size_t cnt, int timeout_ms)
{
	struct access a = { r, 0, 0, 0, timeout_ms };
	size_t i;
	bool go;
	int rc = begin_parts(&a, STREAM_GET, KEDGE_HANDLE_READ, part, cnt, &go);

	if (!go)
		return rc;
	for (i = 0; i < cnt; i++)
		if (part[i].len)
			memcpy(part[i].data, r->at + part[i].offset, part[i].len);
	gate_leave(r->gate);
	return 0;
}

/* The handle begins at a multiple of 8 of the region. */
static int begin_atomic(struct access *a, uint32_t op, uint64_t value, uint64_t other,
			uint64_t *old, bool *go)
{
	struct stream_req q = { .op = op, .offset = a->offset, .len = a->len, .value = value,
				.other = other, .timeout_ms = a->timeout_ms };
	int rc = check(a->r, KEDGE_HANDLE_ATOMIC);
	uint64_t was;

	*go = false;
	if (!rc && a->offset % sizeof(uint64_t))
		rc = kedge_reason(-EINVAL, "the offset is no multiple of 8");
	if (!rc && a->r->stream) {
		rc = stream_access(a->r, &q, NULL, &was);
		if (!rc && old)
			*old = was;
		return rc;
	}
	if (!rc)
		rc = begin(a);
	*go = !rc;
	return rc;
}

KEDGE_API int kedge_remote_fetch_add(struct kedge_remote *r, uint64_t offset, uint64_t add,
				     uint64_t *old, int timeout_ms)
{
	struct access a = { r, offset, sizeof(uint64_t), 0, timeout_ms };
	uint64_t was;
	bool go;
	int rc = begin_atomic(&a, STREAM_ADD, add, 0, old, &go);

	if (!go)
		return rc;
	was = __atomic_fetch_add((uint64_t *)(void *)(r->at + offset), add, __ATOMIC_SEQ_CST);
	gate_leave(r->gate);
	if (old)
		*old = was;
	return 0;
}

KEDGE_API int kedge_remote_compare_swap(struct kedge_remote *r, uint64_t offset,
					uint64_t expected, uint64_t desired, uint64_t *old,
					int timeout_ms)
{
	struct access a = { r, offset, sizeof(uint64_t), 0, timeout_ms };
	bool go;
	int rc = begin_atomic(&a, STREAM_SWAP, expected, desired, old, &go);

	if (!go)
		return rc;
	__atomic_compare_exchange_n((uint64_t *)(void *)(r->at + offset), &expected, desired,
				    false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	gate_leave(r->gate);
	if (old)
		*old = expected;
	return 0;
}
