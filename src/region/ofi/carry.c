// SPDX-License-Identifier: BSD-2-Clause
/* The driver's side of a line: pieces are posted, and their completions read. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/ofi/internal.h"

#define BATCH 16
#define RETRY_NS 1000000

static void notify(struct fabric_line *l)
{
	atomic_fetch_add(&l->event, 1);
	if (atomic_load(&l->waits))
		syscall(SYS_futex, &l->event, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void line_fails(struct fabric_line *l)
{
	atomic_store(&l->dead, true);
	notify(l);
}

static struct piece *piece(struct fabric_line *l, uint32_t n)
{
	return &l->ring[n % RING];
}

/* They may complete in another order than they were posted in. */
static void complete(struct fabric_line *l, const struct fi_cq_entry *e, ssize_t cnt)
{
	const uint32_t was = atomic_load(&l->done);
	uint32_t done = was;
	ssize_t i;

	for (i = 0; i < cnt; i++)
		if (e[i].op_context)
			((struct piece *)e[i].op_context)->finished = true;
	while (l->ring && done != l->sent && piece(l, done)->finished)
		done++;
	if (done == was)
		return;
	l->retry = 0;
	/* Behind the bytes of a get, and behind all that the caller may write anew. */
	atomic_store(&l->done, done);
	notify(l);
}

/* Of an owner's end errors are its peers': they fail there. */
static bool has_failed(struct fabric_line *l)
{
	struct fi_cq_err_entry e = { .err = 0 };

	if (fi_cq_readerr(l->end.cq, &e, 0) < 0)
		return false;
	if (l->ring)
		line_fails(l);
	return true;
}

static bool read_completions(struct fabric_line *l)
{
	struct fi_cq_entry e[BATCH];
	ssize_t n = fi_cq_read(l->end.cq, e, BATCH);

	if (n > 0)
		complete(l, e, n);
	else if (n == -FI_EAVAIL)
		return has_failed(l);
	else if (n < 0 && n != -FI_EAGAIN && l->ring && !atomic_load(&l->dead))
		line_fails(l);
	return n > 0;
}

static ssize_t post(struct fabric_line *l, struct piece *p)
{
	const struct iovec mine = { l->staging + p->from, p->len };
	const struct fi_rma_iov other = { l->end.at + p->offset, p->len, l->end.key };
	const struct fi_msg_rma msg = {
		.msg_iov = &mine, .desc = &l->end.desc, .iov_count = 1,
		.addr = l->end.peer,
		.rma_iov = &other, .rma_iov_count = 1,
		.context = &p->room,
	};

	p->finished = false;
	return p->reads ? fi_readmsg(l->end.ep, &msg, FI_COMPLETION)
			: fi_writemsg(l->end.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

/* A provider that takes no more says so again at once; one that has no connection asks for another
 * each time. */
static bool send_pieces(struct fabric_line *l)
{
	const uint32_t to = atomic_load(&l->posted), was = l->sent;
	ssize_t rc = 0;

	if (l->retry && clock_ns() < l->retry)
		return false;
	while (l->sent != to && !atomic_load(&l->dead)) {
		rc = post(l, piece(l, l->sent));
		if (rc)
			break;
		l->sent++;
	}
	if (rc && rc != -FI_EAGAIN)
		line_fails(l);
	l->retry = rc == -FI_EAGAIN ? clock_ns() + RETRY_NS : 0;
	return l->sent != was;
}

/* An owner's end may have something to do at any time. */
bool line_turn(struct polled *p)
{
	struct fabric_line *l = container_of(p, struct fabric_line, polled);
	bool any = read_completions(l);

	if (!l->ring) {
		p->tick = p->fd < 0;
		return any;
	}
	any |= send_pieces(l);
	p->tick = !atomic_load(&l->dead) && atomic_load(&l->posted) != atomic_load(&l->done);
	return any;
}
