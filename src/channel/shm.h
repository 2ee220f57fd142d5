/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport between processes of one host.
 *
 * Each side has an area, a memfd that both map: the ring of packets to that
 * side, a record for each bulk message that it receives, and its heap, where
 * the peer's data can land. The peer writes to all of it whenever it likes, so
 * what is read there is read once and checked.
 *
 *   page 0         struct area_head
 *   RING_AT        RING_CELLS cells of 64 bytes
 *   RECORDS_AT     RECORDS records
 *   SLOTS_AT       slots, through which messages stream that are copied
 *   HEAP_AT        the heap, for kedge_channel_alloc()
 */
#ifndef CHANNEL_SHM_H
#define CHANNEL_SHM_H

#include <sys/types.h>

#include "base/base.h"
#include "channel/transport.h"

#define CACHE_LINE 64u

#define RING_CELLS 4096u
#define CELL	   64u
#define RECORDS	   1024u

/* One position of the ring. A packet takes neighbouring cells; what is in
 * @seq of the first one says that it is there. */
struct cell {
	_Atomic uint32_t seq;
	uint32_t len;
	uint8_t data[CELL - 8];
};

#define CELL_PAD UINT32_MAX /* as a length: go on at the first cell */

/*
 * A bulk message to the owner of the area. Chunks are claimed by whoever has
 * time: @claim counts those given away, CLOSED stops that.
 */
struct record {
	_Atomic uint64_t claim;
	uint8_t pad0[CACHE_LINE - 8];
	_Atomic uint64_t sender_done; /* chunks; of a stream: slots filled */
	uint8_t pad1[CACHE_LINE - 8];
	_Atomic uint64_t receiver_done; /* chunks; of a stream: slots drained */
	uint8_t pad2[CACHE_LINE - 8];
};

#define RECORD_CLOSED ((uint64_t)1 << 63)

struct area_head {
	_Atomic uint32_t head;	 /* the owner has read the ring up to here */
	uint8_t pad0[CACHE_LINE - 4];
	_Atomic uint32_t asleep; /* the owner wants to be woken */
	uint8_t pad1[CACHE_LINE - 4];
};

#define RING_AT	   65536u
#define RECORDS_AT (RING_AT + RING_CELLS * CELL)
#define SLOTS_AT   (RECORDS_AT + 262144u)
#define SLOTS_LEN  (4u << 20)
#define HEAP_AT	   (SLOTS_AT + SLOTS_LEN)
_Static_assert(RECORDS * sizeof(struct record) <= 262144u, "records fit");

struct heap {
	char *base;
	uint64_t len;
	uint64_t *used;	  /* a bit a page */
	uint32_t *pages;  /* of what begins at a page */
	uint64_t page_cnt;
	uint64_t next;	  /* where the last search ended */
};

struct shm {
	/* Sending: positions count cells for ever, modulo 2^32. */
	struct cell *out;
	struct area_head *peer_head;
	uint32_t out_pos;
	uint32_t out_head; /* what the peer had read when last looked at */
	uint32_t out_pad;  /* cells skipped by the last reserve */
	bool fence;	   /* see wake() */
	/* Receiving. */
	struct cell *in;
	struct area_head *my_head;
	uint32_t in_pos;
	uint32_t in_told; /* what my_head->head says */
	uint32_t in_cells; /* of the packet that is out */

	int broken; /* what the peer did, or 0 */
	char *mine;
	char *peers;
	uint64_t my_len;
	uint64_t peers_len;
	struct record *my_records;
	struct record *peers_records;
	uint64_t free_records[RECORDS / 64];
	struct heap slots;
	struct heap heap;
	uint64_t peers_heap_len;
	bool can_cma;	   /* we reach the peer's memory */
	bool peer_can_cma; /* it reaches ours */
	pid_t pid;	   /* the peer's */
	int sock;
	int pidfd;
	int wake_fd;	  /* wakes us */
	int peer_wake_fd; /* wakes the peer */
	int epoll;
	char why[160];
};

extern const struct transport_ops shm_ops;

/* ---- shm_ring.c ---- */

void *ring_reserve(void *ctx, size_t len);
void ring_commit(void *ctx, void *packet, size_t len);
const void *ring_next(void *ctx, size_t *len);
void ring_release(void *ctx, const void *packet);
int ring_arm(void *ctx);
/* The peer may be asleep: after anything was changed that it waits for. */
void ring_wake(struct shm *s);

/* ---- shm_bulk.c ---- */

int bulk_offer(void *ctx, struct bulk *b, void *desc, size_t *len);
int bulk_accept(void *ctx, struct bulk *b, const void *rts, size_t rts_len,
		void *cts, size_t *cts_len);
int bulk_start(void *ctx, struct bulk *b, const void *cts, size_t cts_len);
int bulk_step(void *ctx, struct bulk *b);
int bulk_stop(void *ctx, struct bulk *b);
void bulk_end(void *ctx, struct bulk *b);

/* ---- heap.c: whole pages of an area ---- */

int heap_init(struct heap *h, char *base, uint64_t len);
void heap_fini(struct heap *h);
void *heap_alloc(struct heap *h, size_t len);
void heap_free(struct heap *h, void *p);
static inline bool heap_has(const struct heap *h, const void *p, size_t len)
{
	uint64_t off = (uint64_t)((const char *)p - h->base);

	return (const char *)p >= h->base && off <= h->len &&
	       len <= h->len - off;
}

/* ---- shm_hello.c: agreeing on an area ---- */

/* Over a connected socket. On success @s owns @sock. */
int shm_hello(struct shm *s, int sock, const struct kedge_channel_opts *opts,
	      uint64_t deadline, struct transport_peer *peer);
void shm_fini(struct shm *s);
/* Both at once: a channel over a connected socket, which is left alone on
 * failure. */
int shm_channel(int sock, const struct kedge_channel_opts *opts,
		uint64_t deadline, struct kedge_channel **channel);
/* The time until which to wait, and what is left of it for poll(). */
uint64_t deadline_of(int timeout_ms);
int deadline_left(uint64_t deadline);

#endif /* CHANNEL_SHM_H */
