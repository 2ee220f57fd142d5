// SPDX-License-Identifier: BSD-2-Clause
/*
 * Puts and gets in pieces, through memory of the line's, as the driver has the pieces while the
 * caller may be gone: a line that is given up may still read or write what it was told to.
 *
 * The caller writes pieces into the ring and stores @posted behind that; the driver posts them, and
 * stores @done behind the bytes of a get. A put is done when the provider says that it has landed.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/ofi/internal.h"

#define SPINS	 1000
#define NAP_NS	 1000000 /* after which @over is looked at */
/* So long no piece completes: the other end is taken for gone, or stopped. */
#define STALL_NS UINT64_C(2000000000)

/*
 * @cnt, @posted: pieces
 * @first: what of them the line had done before
 */
struct copy {
	struct fabric_line *l;
	bool reads;
	uint64_t offset;
	uint64_t len;
	uint64_t cnt;
	uint64_t posted;
	uint32_t first;
	const _Atomic bool *over;
	uint64_t until;
};

static int give_up(struct fabric_line *l, int rc)
{
	atomic_store(&l->dead, true);
	return rc;
}

static void nap(struct fabric_line *l, uint32_t event)
{
	const struct timespec most = { 0, NAP_NS };

	atomic_store(&l->waits, true);
	syscall(SYS_futex, &l->event, FUTEX_WAIT_PRIVATE, event, &most, NULL, 0);
	atomic_store(&l->waits, false);
}

/* Until @cnt pieces of the copy are done. */
static int wait_for(const struct copy *c, uint64_t cnt)
{
	const uint32_t to = c->first + (uint32_t)cnt;
	struct fabric_line *l = c->l;
	uint64_t now, moved = 0;
	uint32_t event, done, was = 0;
	unsigned int turns;

	for (turns = 0;; turns++) {
		event = atomic_load(&l->event);
		done = atomic_load(&l->done);
		if ((int32_t)(done - to) >= 0)
			return 0;
		if (atomic_load(&l->dead))
			return -EIO;
		if (turns < SPINS) {
			cpu_relax();
			continue;
		}
		now = clock_ns();
		if (!moved || done != was)
			moved = now;
		was = done;
		if (atomic_load(c->over) || now >= c->until)
			return give_up(l, -ECANCELED);
		if (now - moved >= STALL_NS)
			return give_up(l, -EIO);
		nap(l, event);
	}
}

static int post(struct copy *c, uint64_t from, uint64_t offset, uint64_t len)
{
	struct fabric_line *l = c->l;
	struct piece *p = &l->ring[(c->first + (uint32_t)c->posted) % RING];

	p->from = from;
	p->offset = offset;
	p->len = len;
	p->reads = c->reads;
	c->posted++;
	atomic_store(&l->posted, c->first + (uint32_t)c->posted);
	if (!atomic_exchange(&l->queued, true) && !driver_push(&l->work))
		return give_up(l, -EIO);
	return 0;
}

static int begin(struct copy *c)
{
	c->cnt = (c->len + ROOM_LEN - 1) / ROOM_LEN;
	c->first = atomic_load(&c->l->done);
	return atomic_load(&c->l->dead) || c->l->pid != getpid() ? -EIO : 0;
}

static uint64_t room(uint64_t piece)
{
	return piece % ROOMS * ROOM_LEN;
}

static uint64_t piece_len(const struct copy *c, uint64_t piece)
{
	const uint64_t left = c->len - piece * ROOM_LEN;

	return left < ROOM_LEN ? left : ROOM_LEN;
}

static int post_piece(struct copy *c)
{
	const uint64_t n = c->posted;

	return post(c, room(n), c->offset + n * ROOM_LEN, piece_len(c, n));
}

int line_put(struct fabric_line *l, const struct fabric_range *to, uint64_t offset,
	     const void *data, uint64_t len, const _Atomic bool *over, uint64_t until)
{
	struct copy c = { .l = l, .offset = offset, .len = len, .over = over, .until = until };
	int rc = begin(&c);

	(void)to;
	while (!rc && c.posted < c.cnt) {
		if (c.posted >= ROOMS)
			rc = wait_for(&c, c.posted - ROOMS + 1);
		if (rc)
			break;
		memcpy(l->staging + room(c.posted), (const char *)data + c.posted * ROOM_LEN,
		       piece_len(&c, c.posted));
		rc = post_piece(&c);
	}
	return rc ? rc : wait_for(&c, c.cnt);
}

int line_put_runs(struct fabric_line *l, const struct fabric_range *to, const char *base,
		  const struct fabric_run *run, uint32_t cnt, const _Atomic bool *over,
		  uint64_t until)
{
	struct copy c = { .l = l, .over = over, .until = until };
	uint64_t from = 0;
	uint32_t i;
	int rc = begin(&c);

	(void)to;
	for (i = 0; !rc && i < cnt; i++) {
		memcpy(l->staging + from, base + run[i].offset, run[i].len);
		rc = post(&c, from, run[i].offset, run[i].len);
		from += run[i].len;
	}
	return rc ? rc : wait_for(&c, cnt);
}

int line_get(struct fabric_line *l, const struct fabric_range *from, uint64_t offset, void *data,
	     uint64_t len, const _Atomic bool *over, uint64_t until)
{
	struct copy c = { .l = l, .reads = true, .offset = offset, .len = len, .over = over,
			  .until = until };
	uint64_t got = 0;
	int rc = begin(&c);

	(void)from;
	while (!rc && got < c.cnt) {
		while (!rc && c.posted < c.cnt && c.posted < got + ROOMS)
			rc = post_piece(&c);
		if (!rc)
			rc = wait_for(&c, got + 1);
		if (rc)
			break;
		memcpy((char *)data + got * ROOM_LEN, l->staging + room(got), piece_len(&c, got));
		got++;
	}
	return rc;
}
