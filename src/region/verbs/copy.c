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
#define YIELDS	200
#define NAP_NS	50000

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

static int give_up(struct fabric_line *l, int rc)
{
	l->dead = true;
	return rc;
}

static int post_one(struct copy *c, enum ibv_wr_opcode op, uint64_t at, char *from, uint64_t len,
		    bool signals)
{
	struct ibv_sge s = { (uintptr_t)from, (uint32_t)len, c->l->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &s, .num_sge = 1, .opcode = op,
		.send_flags = signals ? IBV_SEND_SIGNALED : 0,
		.wr.rdma = { .remote_addr = c->other->at + at, .rkey = c->other->key },
	};

	return ibv_post_send(c->l->qp, &wr, &bad) ? give_up(c->l, -EIO) : 0;
}

static int post(struct copy *c, enum ibv_wr_opcode op, uint64_t at, char *from, uint64_t len)
{
	return post_one(c, op, at, from, len, true);
}

/* An adapter answers in microseconds; one that is software may need this processor. */
static void pause_for(unsigned int turns)
{
	const struct timespec nap = { 0, NAP_NS };

	if (turns < SPINS)
		cpu_relax();
	else if (turns < SPINS + YIELDS)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* Completions come in the order of the posts. */
static int wait_one(struct copy *c)
{
	struct ibv_wc wc;
	unsigned int turns;
	int n;

	for (turns = 0; !(n = ibv_poll_cq(c->l->cq, 1, &wc)); turns++) {
		if (turns >= SPINS && (atomic_load(c->over) || clock_ns() >= c->until))
			return give_up(c->l, -ECANCELED);
		pause_for(turns);
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
	return line_is_ours(c->l) ? 0 : give_up(c->l, -EIO);
}

int line_put(struct fabric_line *l, const struct fabric_range *to, uint64_t offset,
	     const void *data, uint64_t len, const _Atomic bool *over, uint64_t until)
{
	struct copy c = { l, to, offset, len, 0, 0, over, until };
	uint64_t n;
	int rc = begin(&c);

	while (!rc && c.posted < pieces(&c)) {
		if (c.posted - c.done == ROOMS) {
			rc = wait_one(&c);
			c.done += !rc;
			continue;
		}
		n = piece_len(&c, c.posted);
		memcpy(room(&c, c.posted), (const char *)data + c.posted * ROOM_LEN, n);
		rc = post(&c, IBV_WR_RDMA_WRITE, offset + c.posted * ROOM_LEN,
			  room(&c, c.posted), n);
		c.posted += !rc;
	}
	if (!rc)
		rc = post(&c, IBV_WR_RDMA_READ, offset + len - 1, l->staging + ROOMS * ROOM_LEN, 1);
	for (; !rc && c.done < c.posted + 1; c.done++)
		rc = wait_one(&c);
	return rc;
}

/* One that fails has a completion, whether it signals or not. */
int line_put_runs(struct fabric_line *l, const struct fabric_range *to, const char *base,
		  const struct fabric_run *run, uint32_t cnt, const _Atomic bool *over,
		  uint64_t until)
{
	struct copy c = { l, to, 0, 0, 0, 0, over, until };
	char *from = l->staging;
	uint32_t i;
	int rc = begin(&c);

	for (i = 0; !rc && i < cnt; i++) {
		memcpy(from, base + run[i].offset, run[i].len);
		rc = post_one(&c, IBV_WR_RDMA_WRITE, run[i].offset, from, run[i].len, false);
		from += run[i].len;
	}
	if (!rc)
		rc = post(&c, IBV_WR_RDMA_READ, run[cnt - 1].offset, l->staging + ROOMS * ROOM_LEN,
			  1);
	return rc ? rc : wait_one(&c);
}

int line_get(struct fabric_line *l, const struct fabric_range *from, uint64_t offset, void *data,
	     uint64_t len, const _Atomic bool *over, uint64_t until)
{
	struct copy c = { l, from, offset, len, 0, 0, over, until };
	int rc = begin(&c);

	while (!rc && c.done < pieces(&c)) {
		if (c.posted < pieces(&c) && c.posted - c.done < ROOMS) {
			rc = post(&c, IBV_WR_RDMA_READ, offset + c.posted * ROOM_LEN,
				  room(&c, c.posted), piece_len(&c, c.posted));
			c.posted += !rc;
			continue;
		}
		rc = wait_one(&c);
		if (!rc)
			memcpy((char *)data + c.done * ROOM_LEN, room(&c, c.done),
			       piece_len(&c, c.done));
		c.done += !rc;
	}
	return rc;
}
