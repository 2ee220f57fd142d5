// SPDX-License-Identifier: BSD-2-Clause
/*
 * Puts and gets in pieces, through memory that is registered once: the caller's may be unmapped, or
 * its pages be replaced, while an adapter has them, and a line that is given up may still read or
 * write what it was told to.
 *
 * A write that has completed is at the other adapter. A read behind it, of the same queue pair,
 * finds it in memory, so a put is done when such a read is.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "region/verbs/internal.h"

#define SPINS	2000
#define NAP_NS	50000
/* A nap's length is little beside what has been waited for then. */
#define NAPS_NS UINT64_C(2000000)

/* @posted, @done: pieces */
struct copy {
	struct fabric_line *l;
	const struct fabric_range *other;
	uint64_t offset;
	uint64_t len;
	uint64_t posted;
	uint64_t done;
	const _Atomic bool *over;
	uint64_t until;
};

/* A work request, and what it names. */
struct work {
	struct ibv_send_wr wr;
	struct ibv_sge s;
};

static int give_up(struct fabric_line *l, int rc)
{
	l->dead = true;
	return rc;
}

static void make(const struct copy *c, struct work *w, enum ibv_wr_opcode op, uint64_t at,
		 char *mine, uint64_t len, bool signals)
{
	w->s = (struct ibv_sge){ (uintptr_t)mine, (uint32_t)len, c->l->own.mr->lkey };
	w->wr = (struct ibv_send_wr){
		.sg_list = &w->s, .num_sge = 1, .opcode = op,
		.send_flags = signals ? IBV_SEND_SIGNALED : 0,
		.wr.rdma = { .remote_addr = c->other->at + at, .rkey = c->other->key },
	};
}

/* A read behind what was put. */
static void make_last(const struct copy *c, struct work *w, uint64_t at)
{
	make(c, w, IBV_WR_RDMA_READ, at, c->l->staging + ROOMS * ROOM_LEN, 1, true);
}

/* All at once: one call of an adapter that is software, one write to another's registers. */
static int post(struct copy *c, struct work *w, unsigned int cnt)
{
	struct ibv_send_wr *bad;
	unsigned int i;

	for (i = 1; i < cnt; i++)
		w[i - 1].wr.next = &w[i].wr;
	return ibv_post_send(c->l->qp, &w->wr, &bad) ? give_up(c->l, -EIO) : 0;
}

/* An adapter answers in microseconds; one that is software may need this processor. */
static void pause_for(unsigned int turns, uint64_t waited_ns)
{
	const struct timespec nap = { 0, NAP_NS };

	if (turns < SPINS)
		cpu_relax();
	else if (waited_ns < NAPS_NS)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* Completions come in the order of the posts. */
static int wait_one(struct copy *c)
{
	uint64_t since = 0, now = 0;
	struct ibv_wc wc;
	unsigned int turns;
	int n;

	for (turns = 0; !(n = ibv_poll_cq(c->l->own.cq, 1, &wc)); turns++) {
		if (turns >= SPINS) {
			now = clock_ns();
			since = since ? since : now;
			if (atomic_load(c->over) || now >= c->until)
				return give_up(c->l, -ECANCELED);
		}
		pause_for(turns, now - since);
	}
	return n < 0 || wc.status != IBV_WC_SUCCESS ? give_up(c->l, -EIO) : 0;
}

static char *room(const struct copy *c, uint64_t piece)
{
	return c->l->staging + piece % ROOMS * ROOM_LEN;
}

static uint64_t piece_len(const struct copy *c, uint64_t piece)
{
	const uint64_t left = c->len - piece * ROOM_LEN;

	return left < ROOM_LEN ? left : ROOM_LEN;
}

static uint64_t pieces(const struct copy *c)
{
	return (c->len + ROOM_LEN - 1) / ROOM_LEN;
}

static int begin(const struct copy *c)
{
	if (c->l->dead)
		return -EIO;
	return adapter_is_ours(&c->l->own) ? 0 : give_up(c->l, -EIO);
}

/* A completion is asked for where another piece takes the room, and of the read behind the last
 * piece: it comes behind all writes. One that fails has a completion, whether it signals or not. */
int line_put(struct fabric_line *l, const struct fabric_range *to, uint64_t offset,
	     const void *data, uint64_t len, const _Atomic bool *over, uint64_t until)
{
	struct copy c = { l, to, offset, len, 0, 0, over, until };
	const uint64_t cnt = pieces(&c);
	struct work w[2];
	uint64_t i, n;
	int rc = begin(&c);

	for (i = 0; !rc && i < cnt; i++) {
		if (i >= ROOMS && (rc = wait_one(&c)))
			break;
		n = piece_len(&c, i);
		memcpy(room(&c, i), (const char *)data + i * ROOM_LEN, n);
		make(&c, &w[0], IBV_WR_RDMA_WRITE, offset + i * ROOM_LEN, room(&c, i), n,
		     i + ROOMS < cnt);
		make_last(&c, &w[1], offset + len - 1);
		rc = post(&c, w, i + 1 < cnt ? 1 : 2);
	}
	return rc ? rc : wait_one(&c);
}

int line_put_runs(struct fabric_line *l, const struct fabric_range *to, const char *base,
		  const struct fabric_run *run, uint32_t cnt, const _Atomic bool *over,
		  uint64_t until)
{
	struct copy c = { l, to, 0, 0, 0, 0, over, until };
	struct work w[2];
	char *from = l->staging;
	uint32_t i;
	int rc = begin(&c);

	for (i = 0; !rc && i < cnt; i++) {
		memcpy(from, base + run[i].offset, run[i].len);
		make(&c, &w[0], IBV_WR_RDMA_WRITE, run[i].offset, from, run[i].len, false);
		make_last(&c, &w[1], run[i].offset);
		rc = post(&c, w, i + 1 < cnt ? 1 : 2);
		from += run[i].len;
	}
	return rc ? rc : wait_one(&c);
}

static int post_reads(struct copy *c, uint64_t cnt)
{
	struct work w[ROOMS];
	uint64_t i, piece;

	for (i = 0; i < cnt; i++) {
		piece = c->posted + i;
		make(c, &w[i], IBV_WR_RDMA_READ, c->offset + piece * ROOM_LEN, room(c, piece),
		     piece_len(c, piece), true);
	}
	c->posted += cnt;
	return post(c, w, (unsigned int)cnt);
}

int line_get(struct fabric_line *l, const struct fabric_range *from, uint64_t offset, void *data,
	     uint64_t len, const _Atomic bool *over, uint64_t until)
{
	struct copy c = { l, from, offset, len, 0, 0, over, until };
	const uint64_t cnt = pieces(&c);
	int rc = begin(&c);

	if (!rc)
		rc = post_reads(&c, cnt < ROOMS ? cnt : ROOMS);
	while (!rc && c.done < cnt) {
		rc = wait_one(&c);
		if (rc)
			break;
		memcpy((char *)data + c.done * ROOM_LEN, room(&c, c.done), piece_len(&c, c.done));
		c.done++;
		if (c.posted < cnt)
			rc = post_reads(&c, 1);
	}
	return rc;
}
