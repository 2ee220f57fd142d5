// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peer that lies. It shakes hands as it should, and from then on sends what
 * is right, what is nearly right, what was right before, and what is not: so it
 * gets into every state of the protocol, and lies there. It writes where a peer
 * can write: its packets, the records of the messages, the other's heap, and
 * what both read of the rings.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/internal.h"
#include "channel/shm/bulk.h"
#include "hostile.h"

#define KNOWN	 16u
#define HISTORY	 32u
#define MEMORY	 (1u << 20)
#define LIES	 20000u
#define PACKET_N 600u

struct hostile_peer {
	struct shm s;
	struct rng rng;
	char *memory; /* what it has messages in, and wants them */
	uint32_t mode; /* how much it lies */
	/* Messages of the other side that wait for a CTS. */
	struct packet_rts rts[KNOWN];
	uint32_t rts_cnt;
	/* Receives of the other side that data is to land in. */
	struct packet_cts cts[KNOWN];
	uint32_t cts_cnt;
	uint32_t next_name;
	uint32_t received, received_bytes; /* of the other side's messages */
	uint32_t messages, matched; /* of its own */
	uint32_t allowed;
	struct {
		size_t len;
		uint8_t raw[PACKET_N];
	} history[HISTORY];
	uint32_t sent;
};

static bool once_in(struct hostile_peer *l, uint64_t n)
{
	return !below(&l->rng, n);
}

/* ---- packets ---- */

static void keep(struct hostile_peer *l, const void *raw, size_t len)
{
	if (len > PACKET_N)
		return;
	l->history[l->sent % HISTORY].len = len;
	memcpy(l->history[l->sent++ % HISTORY].raw, raw, len);
}

static void push(struct hostile_peer *l, const void *raw, size_t len)
{
	void *p = ring_reserve(&l->s, len);

	if (!p)
		return;
	memcpy(p, raw, len);
	ring_commit(&l->s, p, len);
	/* It changes while it is read. */
	if (l->mode > 1 && once_in(l, 4))
		((volatile uint8_t *)p)[below(&l->rng, len)] =
			(uint8_t)rng_next(&l->rng);
}

static uint32_t lie32(struct hostile_peer *l, uint32_t truth)
{
	static const uint32_t often[] = { 0, 1, 63, 64, 1023, 1024, 4096,
					  INT32_MAX, UINT32_MAX };

	if (!l->mode || !once_in(l, 40))
		return truth;
	switch (below(&l->rng, 3)) {
	case 0:
		return often[below(&l->rng, ARRAY_SIZE(often))];
	case 1:
		return truth + (uint32_t)below(&l->rng, 5) - 2;
	}
	return (uint32_t)rng_next(&l->rng);
}

static uint64_t lie64(struct hostile_peer *l, uint64_t truth)
{
	uint64_t high = lie32(l, (uint32_t)(truth >> 32));

	return high << 32 | lie32(l, (uint32_t)truth);
}

static void send_packet(struct hostile_peer *l, uint8_t type, uint64_t tag,
			const void *body, size_t len)
{
	uint8_t raw[sizeof(struct packet_head) + 4096];
	struct packet_head h = {
		.type = (uint8_t)lie32(l, type),
		.len = lie32(l, (uint32_t)len),
		.tag = tag,
		.credit_cnt = lie32(l, l->received),
		.credit_bytes = lie32(l, l->received_bytes),
	};
	size_t all = sizeof(h) + len;

	memcpy(raw, &h, sizeof(h));
	if (len)
		memcpy(raw + sizeof(h), body, len);
	if (l->mode > 1 && once_in(l, 16))
		raw[below(&l->rng, all)] ^= (uint8_t)(1 + below(&l->rng, 255));
	if (l->mode > 1 && once_in(l, 32))
		all = 1 + below(&l->rng, all);
	keep(l, raw, all);
	push(l, raw, all);
}

/* More than that ends the channel at once, so it is not what is done often. */
static bool may_send(struct hostile_peer *l)
{
	if (l->messages - l->matched >= l->allowed &&
	    (!l->mode || !once_in(l, 500)))
		return false;
	l->messages++;
	return true;
}

static void send_eager(struct hostile_peer *l)
{
	size_t len = below(&l->rng, once_in(l, 4) ? 4096 : 64);

	if (may_send(l))
		send_packet(l, PACKET_EAGER, below(&l->rng, 8), l->memory, len);
}

static void send_rts(struct hostile_peer *l)
{
	struct rts_desc d = { .addr = (uintptr_t)l->memory, .heap_off = NO_PAGES };
	struct packet_rts p = {
		.len = lie64(l, 1 + below(&l->rng, MEMORY)),
		.sender = { l->next_name % 64, 1 + l->next_name / 64 },
	};
	uint32_t len = lie32(l, RTS_PLAIN);

	if (!may_send(l))
		return;
	l->next_name++;
	if (once_in(l, 3))
		d.heap_off = 0;
	d.addr = lie64(l, d.addr);
	d.heap_off = lie64(l, d.heap_off);
	p.desc_len = lie32(l, len <= DESC_MAX ? len : DESC_MAX);
	memcpy(p.desc, &d, sizeof(d));
	if (len > DESC_MAX)
		len = DESC_MAX;
	send_packet(l, PACKET_RTS, below(&l->rng, 8), &p,
		    offsetof(struct packet_rts, desc) + len);
}

static void cts_fill(struct hostile_peer *l, struct cts_desc *d, uint64_t len)
{
	*d = (struct cts_desc){
		.record = (uint32_t)below(&l->rng, RECORDS),
		.mode = (uint8_t)lie32(l, 1 + (uint32_t)below(&l->rng, 3)),
		.push = 1,
		.chunk = 128u << 10,
	};
	if (d->mode == 2) {
		d->piece_cnt = 1 + (uint16_t)below(&l->rng, 2);
		d->piece[0] = (struct bulk_piece){ (uintptr_t)l->memory, len };
		if (d->piece_cnt == 2) {
			d->piece[0].len = len / 2;
			d->piece[1] = (struct bulk_piece){
				lie64(l, (uintptr_t)l->memory),
				lie64(l, len - len / 2) };
		}
	} else if (d->mode == 3) {
		d->chunk = 32u << 10;
		d->slot_cnt = 8;
	}
	d->record = lie32(l, d->record);
	d->chunk = lie32(l, d->chunk);
	d->slot_cnt = lie32(l, d->slot_cnt);
	d->off = lie64(l, d->off);
	d->piece_cnt = (uint16_t)lie32(l, d->piece_cnt);
}

/* The answer to one of its messages, which may be answered again. */
static void send_cts(struct hostile_peer *l)
{
	struct packet_rts *r;
	struct packet_cts p = { 0 };
	struct cts_desc d;

	if (!l->rts_cnt)
		return;
	r = &l->rts[below(&l->rng, l->rts_cnt < KNOWN ? l->rts_cnt : KNOWN)];
	cts_fill(l, &d, r->len);
	memset(&l->s.my_records[d.record % RECORDS], 0, sizeof(struct record));
	p.sender = r->sender;
	if (l->mode && once_in(l, 30))
		p.sender = l->cts[below(&l->rng, KNOWN)].receiver;
	p.sender.index = lie32(l, p.sender.index);
	p.sender.gen = lie32(l, p.sender.gen);
	p.receiver.index = (uint32_t)below(&l->rng, 64);
	p.receiver.gen = 1;
	p.way = lie32(l, KEDGE_WAY_DIRECT + (uint32_t)below(&l->rng, 4));
	p.desc_len = (uint32_t)offsetof(struct cts_desc, piece) +
		     (d.piece_cnt <= PIECES_MAX ? d.piece_cnt : PIECES_MAX) *
			     (uint32_t)sizeof(d.piece[0]);
	memcpy(p.desc, &d, p.desc_len);
	send_packet(l, PACKET_CTS, 0, &p,
		    offsetof(struct packet_cts, desc) + p.desc_len);
}

/* FIN, REFUSE, ABORT or ABORTED to something it knows. */
static void send_op_packet(struct hostile_peer *l)
{
	static const int errs[] = { 0, EMSGSIZE, ECANCELED, ETIMEDOUT, EFAULT };
	struct packet_op p = { { 0 }, { 0 }, 0, 0 };
	uint8_t type = (uint8_t)(PACKET_FIN + below(&l->rng, 4));
	const struct packet_rts *r = &l->rts[below(&l->rng, KNOWN)];
	const struct packet_cts *c = &l->cts[below(&l->rng, KNOWN)];

	if (once_in(l, 2)) {
		p.op = r->sender;
		p.from.index = (uint32_t)below(&l->rng, 64);
		p.from.gen = 1;
		p.flags = PACKET_OP_TO_SENDER;
	} else {
		p.op = c->receiver;
		p.from = c->sender;
	}
	if (once_in(l, 4))
		p.op.gen = 0;
	p.op.index = lie32(l, p.op.index);
	p.op.gen = lie32(l, p.op.gen);
	p.from.gen = lie32(l, p.from.gen);
	p.status = -errs[below(&l->rng, ARRAY_SIZE(errs))];
	if (l->mode && once_in(l, 30))
		p.status = (int32_t)lie32(l, EAGAIN);
	/* The right name, of an operation of the other kind. */
	if (l->mode && once_in(l, 30))
		p.op = once_in(l, 2) ? r->sender : c->receiver;
	p.flags = lie32(l, p.flags);
	send_packet(l, type, 0, &p, sizeof(p));
}

static void send_random(struct hostile_peer *l)
{
	uint8_t raw[200];
	size_t len = 1 + below(&l->rng, sizeof(raw)), i;

	for (i = 0; i < len; i++)
		raw[i] = (uint8_t)rng_next(&l->rng);
	push(l, raw, len);
}

/* Of a type that there is, and any length. */
static void send_long(struct hostile_peer *l)
{
	uint8_t type = (uint8_t)(1 + below(&l->rng, PACKET_TYPES - 1));
	uint8_t body[4096];
	size_t len = below(&l->rng, sizeof(body)), i;

	for (i = 0; i < len; i++)
		body[i] = (uint8_t)below(&l->rng, 3);
	send_packet(l, type, below(&l->rng, 8), body, len);
}

static void send_again(struct hostile_peer *l)
{
	uint32_t i = (uint32_t)below(&l->rng, HISTORY);

	if (l->history[i].len)
		push(l, l->history[i].raw, l->history[i].len);
}

/* ---- what it hears ---- */

static void hear_rts(struct hostile_peer *l, const struct packet *p)
{
	l->rts[l->rts_cnt++ % KNOWN] = p->rts;
	l->received++;
}

static void listen_to(struct hostile_peer *l)
{
	const void *raw;
	struct packet p;
	size_t len;

	while ((raw = ring_next(&l->s, &len))) {
		if (!packet_parse_head(raw, len, &p.head)) {
			l->matched = p.head.credit_cnt;
			if (p.head.type == PACKET_EAGER) {
				l->received++;
				l->received_bytes += p.head.len;
			} else if (!packet_parse_body(raw, &p)) {
				if (p.head.type == PACKET_RTS)
					hear_rts(l, &p);
				if (p.head.type == PACKET_CTS)
					l->cts[l->cts_cnt++ % KNOWN] = p.cts;
			}
		}
		ring_release(&l->s, raw);
	}
}

/* ---- what it writes ---- */

/* Progress of a message: as it should be, or anything. */
static void write_record(struct hostile_peer *l)
{
	struct record *r = once_in(l, 2) ? l->s.peers_records
					 : l->s.my_records;
	const struct packet_cts *c = &l->cts[below(&l->rng, KNOWN)];
	struct cts_desc d;
	uint32_t i = (uint32_t)below(&l->rng, RECORDS);
	uint64_t v = lie64(l, below(&l->rng, 64));

	memcpy(&d, c->desc, sizeof(d));
	/* The one that it has been told of. */
	if (r == l->s.peers_records && !once_in(l, 8))
		i = d.record % RECORDS;
	r += i;
	switch (below(&l->rng, 4)) {
	case 0:
		atomic_fetch_add(&r->claim, 1);
		atomic_fetch_add(&r->sender_done, 1);
		break;
	case 1:
		r->sender_done = v;
		break;
	case 2:
		r->receiver_done = v;
		break;
	case 3:
		if (l->mode)
			r->claim = v;
	}
}

/* Positions and lengths of the rings. */
static void write_ring(struct hostile_peer *l)
{
	struct ring *r = &l->s.ring;
	struct cell *c = &r->out[((r->out_pos + below(&l->rng, 8)) &
				  RING_MASK) % r->out_cells];

	switch (below(&l->rng, 6)) {
	case 0:
		atomic_store(&r->my_head->head,
			     lie32(l, r->in_pos + (uint32_t)below(&l->rng,
								  100)));
		break;
	case 1:
		c->len = (uint32_t)rng_next(&l->rng);
		break;
	case 2:
		c->len = CELL_PAD;
		atomic_store(&c->seq, r->out_pos + 1);
		r->out_pos += RING_CELLS - r->out_pos % RING_CELLS;
		break;
	case 3:
		c->len = (uint32_t)below(&l->rng, PACKET_MAX + 100);
		atomic_store(&c->seq, r->out_pos + 1);
		break;
	case 4:
		r->out_pos += (uint32_t)below(&l->rng, 4);
		break;
	case 5:
		atomic_store(&r->peer_head->asleep,
			     (uint32_t)rng_next(&l->rng));
	}
}

static void write_heap(struct hostile_peer *l)
{
	uint64_t off = below(&l->rng, SLOTS_LEN + l->s.peers_heap_len);
	char *p = off < SLOTS_LEN
			  ? area_slots(&l->s.peers, off, 1)
			  : area_heap(&l->s.peers, off - SLOTS_LEN, 1);

	if (p)
		*(volatile uint8_t *)p = (uint8_t)rng_next(&l->rng);
}

static void one(struct hostile_peer *l)
{
	switch (below(&l->rng, 16)) {
	case 0:
	case 1:
		send_eager(l);
		break;
	case 2:
	case 3:
	case 4:
		send_rts(l);
		break;
	case 5:
	case 6:
		send_cts(l);
		break;
	case 7:
	case 8:
		send_op_packet(l);
		break;
	case 9:
		if (l->mode)
			send_again(l);
		break;
	case 10:
		if (l->mode > 1 && once_in(l, 8))
			send_random(l);
		else if (l->mode > 1 && once_in(l, 8))
			send_long(l);
		break;
	case 11:
		if (l->mode > 1 && once_in(l, 8))
			write_ring(l);
		break;
	case 12:
		write_heap(l);
		break;
	case 13:
		send_packet(l, PACKET_CREDIT, 0, NULL, 0);
		break;
	default:
		write_record(l);
	}
}

void hostile_peer(int fd, uint64_t seed)
{
	struct hostile_peer *l = calloc(1, sizeof(*l));
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	uint32_t i;

	if (!l)
		_exit(1);
	l->rng.s = seed * 2 + 1;
	l->mode = (uint32_t)below(&l->rng, 3);
	l->memory = calloc(1, MEMORY);
	if (!l->memory || kedge__channel_opts(&opts, NULL) ||
	    shm_hello(&l->s, fd, &opts, clock_deadline(5000), &peer))
		_exit(1);
	l->allowed = peer.unexpected_cnt;
	for (i = 0; i < LIES; i++) {
		listen_to(l);
		one(l);
		/* The other side is to get on between the lies. */
		if (once_in(l, 4))
			usleep((useconds_t)below(&l->rng, 30));
		if (once_in(l, 4000))
			_exit(0);
		if (once_in(l, 1000))
			send_packet(l, PACKET_BYE, 0, NULL, 0);
	}
	_exit(0);
}
