// SPDX-License-Identifier: BSD-2-Clause
/*
 * Descriptors of a peer on this host. The areas are as long as they are said to
 * be, with nothing behind them, and the message is as long as it is; the calls
 * that reach another process are looked at and made nowhere. Then both sides of
 * the work are done, while the peer writes what it likes into its record.
 */
#include "calls.h"
#include "channel/shm/bulk.h"
#include "feed.h"

#define HEAP_LEN (256u << 10)
#define LEN_MAX	 (192u << 10)
#define STEPS	 64

static struct shm shm;
static char *heap_block;
static struct bytes in;
static uint8_t *buffer;
static size_t buffer_len;

static bool is_ours(const struct iovec *v)
{
	return (uint8_t *)v->iov_base >= buffer &&
	       (uint8_t *)v->iov_base + v->iov_len <= buffer + buffer_len;
}

static size_t sum(const struct iovec *v, unsigned long cnt)
{
	size_t len = 0;

	CHECK(cnt && cnt <= PIECES_MAX);
	while (cnt--)
		len += v++->iov_len;
	return len;
}

/* All, a part, or a failure. */
static ssize_t outcome(size_t len)
{
	uint8_t how = take(&in);

	if (how < 128)
		return (ssize_t)len;
	if (how < 192 && len > 1)
		return (ssize_t)(1 + how % (len - 1));
	errno = how & 1 ? EFAULT : ESRCH;
	return how & 2 ? 0 : -1;
}

/* The nonce comes first, and is right mostly. */
ssize_t fuzz_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_cnt,
		      const struct iovec *far, unsigned long far_cnt, unsigned long flags)
{
	unsigned long i;

	CHECK((far_cnt == 1 || far_cnt == 2) && !flags);
	CHECK(local->iov_len == sizeof(shm.nonce));
	CHECK(far->iov_len == sizeof(shm.nonce));
	memcpy(local->iov_base, shm.nonce, sizeof(shm.nonce));
	if (take(&in) > 250)
		*(char *)local->iov_base ^= 1;
	if (far_cnt == 1)
		return sizeof(shm.nonce);
	CHECK(sum(local + 1, local_cnt - 1) == far[1].iov_len);
	for (i = 1; i < local_cnt; i++)
		CHECK(is_ours(&local[i]));
	return outcome(sizeof(shm.nonce) + far[1].iov_len);
}

ssize_t fuzz_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_cnt,
		       const struct iovec *far, unsigned long far_cnt, unsigned long flags)
{
	CHECK(local_cnt == 1 && !flags && is_ours(local));
	CHECK(sum(far, far_cnt) == local->iov_len);
	return outcome(local->iov_len);
}

static int own_fd;

/* Nobody can use what lies behind: a page of no memory. */
static void area_open(struct area *a)
{
	CHECK(!area_make(a, HEAP_LEN, &own_fd));
	close(own_fd);
}

bool peer_lives(const struct peer *p)
{
	return take(&in) < 250;
}

int ring_break(struct ring *r, int rc, const char *why)
{
	r->broken = rc;
	return rc;
}

void ring_wake_peer(struct ring *r)
{
}

static void set_up(void)
{
	struct shm *s = &shm;

	if (s->mine.base)
		return;
	area_open(&s->mine);
	area_open(&s->peers);
	s->ring.peer_head = (struct ring_head *)(void *)s->peers.base;
	s->ring.in_at = (struct cell *)(void *)(s->mine.base + RING_AT);
	s->my_records = (struct record *)(void *)(s->mine.base + RECORDS_AT);
	s->peers_records = (struct record *)(void *)(s->peers.base +
						     RECORDS_AT);
	s->ring.peer_head = (struct ring_head *)(void *)s->peers.base;
	s->peers_heap_len = HEAP_LEN;
	s->heap.max = HEAP_LEN;
	heap_block = heap_alloc(&s->heap, &s->mine, HEAP_LEN);
	CHECK(heap_block);
	memset(s->free_records, 0xff, sizeof(s->free_records));
}

/* The peer writes all that it may write. */
static void meddle(struct bulk *b)
{
	struct xfer *x = xfer_of(b);
	_Atomic uint64_t *at[] = { &x->rec->claim, &x->rec->sender_done,
				   &x->rec->receiver_done };
	uint8_t what = take(&in);
	uint64_t v = take(&in);

	if (what & 4)
		v = take_number(&in, 8);
	if ((what & 3) < 3 && what < 128)
		*at[what & 3] = v;
	if (what == 255)
		b->flags |= BULK_FIN;
	/* A packet, in which there may be why it does not go on, or none. */
	if (what == 254)
		((struct cell *)(void *)(shm.mine.base + RING_AT))->seq = v & 1;
}

static void work(struct bulk *b)
{
	int i, rc;

	for (i = 0; i < STEPS && in.left; i++) {
		meddle(b);
		rc = bulk_step(&shm, b);
		CHECK(rc == 1 || rc == 0 || rc < 0);
		if (rc == 1 || (rc < 0 && rc != -EAGAIN))
			break;
	}
	rc = bulk_stop(&shm, b);
	CHECK(!rc || rc == -EBUSY);
	bulk_end(&shm, b);
}

/* The bytes of a descriptor: the first ones are fields that may be right. */
static size_t take_desc(uint8_t *desc, size_t max)
{
	size_t len = take(&in), i;

	len = len < max ? len : max;
	for (i = 0; i < len; i++)
		desc[i] = take(&in);
	return len;
}

static void receive(struct bulk *b, uint8_t how)
{
	uint8_t rts[DESC_MAX], cts[DESC_MAX];
	size_t len = take_desc(rts, sizeof(rts)), cts_len = 0;
	int rc;

	b->flags = BULK_RECV | (how & 2 ? BULK_STREAM : 0) |
		   (how & 4 ? BULK_PUSH : 0);
	if (how & 8) {
		b->flags |= BULK_HEAP;
		((struct bulk_piece *)(uintptr_t)b->piece)->addr =
			(uintptr_t)heap_block;
	}
	rc = bulk_accept(&shm, b, rts, len, cts, &cts_len);
	CHECK(rc <= 0);
	if (rc)
		return;
	CHECK((len == RTS_PLAIN || len == sizeof(struct rts_desc)) && cts_len <= DESC_MAX);
	work(b);
}

static void send_it(struct bulk *b)
{
	uint8_t rts[DESC_MAX], cts[DESC_MAX + 1];
	size_t len = 0;

	CHECK(!bulk_offer(&shm, b, rts, &len) && len <= DESC_MAX);
	len = take_desc(cts, sizeof(cts));
	if (!bulk_start(&shm, b, cts, len))
		work(b);
}

static bool all_is_free(const struct shm *s)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(s->free_records); i++)
		if (~s->free_records[i])
			return false;
	for (i = 0; s->slots.used && i < s->slots.page_cnt / 64; i++)
		if (s->slots.used[i])
			return false;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bulk_piece piece;
	struct bulk b;
	uint8_t how;

	set_up();
	in = (struct bytes){ data, len };
	how = take(&in);
	buffer_len = 1 + take_number(&in, 3) % LEN_MAX;
	buffer = malloc(buffer_len);
	if (!buffer)
		return 0;
	piece = (struct bulk_piece){ (uintptr_t)buffer, buffer_len };
	b = (struct bulk){ .piece = &piece, .piece_cnt = 1,
			   .len = buffer_len };
	shm.can_cross = how & 16;
	shm.peer_can_cross = how & 32;
	if (how & 1)
		receive(&b, how);
	else
		send_it(&b);
	CHECK(all_is_free(&shm));
	free(buffer);
	return 0;
}
