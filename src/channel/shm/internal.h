/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport between processes of one host.
 *
 * Each side has an area, a memfd that both map: the ring of packets to that
 * side, a record for each bulk message that it receives, slots, and its heap,
 * where the peer's data can land. The peer writes to all of it whenever it
 * likes, so what is read there is read once and checked.
 *
 *   page 0         struct ring_head
 *   RECORDS_AT     RECORDS records
 *   RING_AT        cells of 64 bytes: RING_CELLS, or RING_SHORT and one
 *   SLOTS_AT       slots, through which messages stream that are copied
 *   HEAP_AT        the heap, for kedge_channel_alloc()
 *
 * The file has its whole length from the beginning, sealed; its descriptor is
 * closed after the handshake. What lies before the end of the ring is mapped then,
 * the rest as far as it is used (struct window, struct heap).
 */
#ifndef CHANNEL_SHM_INTERNAL_H
#define CHANNEL_SHM_INTERNAL_H

#include <sys/types.h>

#include "base/base.h"
#include "base/list.h"
#include "base/process/clofork.h"
#include "channel/ring.h"
#include "channel/transport.h"
#include "segment/place.h"

#define RECORDS	   256u

/*
 * Eager messages up to here, unless the options say otherwise: two copies at the
 * same time are as fast as one by the kernel, or as its halves by both sides, of
 * which the announcement has to come first (128 KiB: 2.4 us instead of 3.5 where the
 * processors have a cache in common). In a short ring four of them have room.
 */
#define SHM_EAGER	EAGER_LIMIT
#define SHM_EAGER_SHORT (64u << 10)

static inline uint32_t eager_of_ring(uint32_t cells)
{
	return cells == RING_CELLS ? SHM_EAGER : SHM_EAGER_SHORT;
}

/*
 * A bulk message to the owner of the area. Chunks are claimed by whoever has
 * time: @claim counts those given away, CLOSED stops that.
 */
struct record {
	_Atomic uint64_t claim;
	uint8_t pad0[RING_CACHE_LINE - 8];
	_Atomic uint64_t sender_done; /* chunks; of a stream: slots filled */
	_Atomic uint64_t returned; /* 1 and a chunk that the sender could not store, or 0 */
	uint8_t pad1[RING_CACHE_LINE - 16];
	_Atomic uint64_t receiver_done; /* chunks; of a stream: slots drained */
	uint8_t pad2[RING_CACHE_LINE - 8];
};

#define RECORD_CLOSED ((uint64_t)1 << 63)

/* Pages of up to 64 KiB: what is mapped by itself begins at such a border. */
#define RECORDS_AT 4096u
#define SLOTS_AT   (RING_AT + RING_CELLS * CELL)
#define SLOTS_LEN  (4u << 20)
#define HEAP_AT	   (SLOTS_AT + SLOTS_LEN)
/* Wherever the next packet begins: it has room in an empty ring. */
_Static_assert(2 * (PACKET_OF(SHM_EAGER) / CELL + 2) < RING_CELLS &&
	       2 * (PACKET_OF(SHM_EAGER_SHORT) / CELL + 2) < RING_SHORT,
	       "packets fit");
_Static_assert(RECORDS_AT + RECORDS * sizeof(struct record) <= RING_AT,
	       "records fit");

/* Neighbouring pages, and those of them in use; see heap.c. */
struct pages {
	uint64_t *used; /* a bit a page */
	uint32_t *cnt;	/* of what begins at a page */
	uint64_t page_cnt;
};

#define NO_PAGES UINT64_MAX

/* A part of an area from its first byte on, as much as was used so far. It
 * moves when it grows: its users keep offsets. */
struct window {
	char *at;
	uint64_t len;
};

struct area {
	char *base; /* up to the end of the ring, or NULL */
	uint64_t base_len;
	uint64_t len;
	uint32_t cells; /* of the ring; 0: no ring is taken */
	struct window slots;
	struct window heap; /* the peer's */
};

#define HEAP_SEGMENTS 32u

/* Our heap: its parts don't move, because the application has them. */
struct heap {
	uint64_t max;
	uint64_t len; /* of the segments */
	uint32_t cnt;
	struct heap_segment {
		char *at;
		uint64_t off;
		uint64_t len;
		struct pages pages;
	} segment[HEAP_SEGMENTS];
};

#define THEIRS 64u

struct peer;
struct greeting;
struct theirs;

struct shm {
	struct ring ring; /* the first: it is what the channel takes for all */
	struct area mine;
	struct area peers;
	struct record *my_records;
	struct record *peers_records;
	uint64_t free_records[RECORDS / 64];
	struct pages slots;
	uint32_t slots_out;   /* allocations */
	uint64_t slots_dirty; /* bytes from the first on that were used */
	struct heap heap;
	uint64_t peers_heap_len;
	bool can_cross;	     /* we reach the peer's memory, and may */
	bool peer_can_cross; /* it reaches ours */
	bool apart;	     /* both, and it is another process */
	struct segment_memos memos;
	struct theirs *theirs[THEIRS]; /* parts of its segments */
	uint64_t theirs_clock;
	uint64_t attached; /* bytes that were copied by those */
	struct peer *peer;
	struct clofork sock; /* ring.sock, as soon as it is the channel's own */
	struct list watch; /* of the peer's channels */
	pid_t pid; /* the peer's */
	uint64_t nonce[2]; /* that is at @nonce_at of the peer's memory */
	uint64_t nonce_at;
	struct greeting *greeting;
	char why[160];
};

extern const struct transport_ops shm_ops;

/* ---- bulk.c ---- */

int bulk_offer(void *ctx, struct bulk *b, void *desc, size_t *len);
int bulk_accept(void *ctx, struct bulk *b, const void *rts, size_t rts_len,
		void *cts, size_t *cts_len);
int bulk_start(void *ctx, struct bulk *b, const void *cts, size_t cts_len);
int bulk_step(void *ctx, struct bulk *b);
int bulk_stop(void *ctx, struct bulk *b);
void bulk_end(void *ctx, struct bulk *b);

/* READY_SEGMENT if @buf is in one; READY_ANYWHERE then, as no page is swapped in there, or if
 * the source of the message that @rts describes is attached here. @rts may be NULL. */
uint32_t bulk_attached(struct shm *s, const void *buf, size_t len, const void *rts,
		       size_t rts_len);

/* ---- theirs.c: the peer's segments ---- */

/* Find @len bytes of the peer's here, until theirs_unuse(), to be stored to if @writes; or
 * NULL, and they may be here soon. Both ask for what is not. */
struct theirs *theirs_use(struct shm *s, const struct segment_place *p, uint64_t len,
			  bool writes, char **at);
void theirs_unuse(struct theirs *t);
/* A thread is about one. */
bool theirs_asks(const struct shm *s);
bool theirs_has(struct shm *s, const struct segment_place *p, uint64_t len);
/* After a copy, and a full fence if that stored there: it was the peer's memory. Does not
 * wait. */
bool theirs_valid(struct theirs *t);
void theirs_close(struct shm *s);
/* In a forked child. */
void theirs_leave(struct shm *s);

/* ---- slots.c ---- */

/* @off: where @len bytes of slots are in this side's area. -EAGAIN: all are in
 * use; -ENOMEM. */
int slots_get(struct shm *s, uint64_t len, uint64_t *off);
void slots_put(struct shm *s, uint64_t off);
void slots_fini(struct shm *s);

/* ---- cross.c: the peer's memory, by the kernel ---- */

struct iovec;

/* From the peer's memory at @there on into the @n elements behind the first of
 * @v, which is for the proof; and from @here into those of @v. Both are used up.
 * 0, -EFAULT, or -ECONNRESET: it is not the process that shook hands. */
int cross_read(struct shm *s, struct iovec *v, size_t n, uint64_t there,
	       uint64_t len);
int cross_write(struct shm *s, const char *here, struct iovec *v, size_t n,
		uint64_t len);
/* Find out if the process that shook hands is still there, with its memory: before
 * what is written and after it. 0 or -ECONNRESET. */
int cross_look(struct shm *s);
bool cross_same(struct shm *s);

/* ---- peer.c: the process at the other end ---- */

/* For as long as a channel lives: what its peer finds in this process's memory. */
int peer_table_get(uint64_t nonce[2], uint64_t *at);
void peer_table_put(void);
/* @sock tells of the process that made it; one that was inherited belongs to
 * another process since. */
int peer_get(pid_t pid, int sock, bool made_it, struct peer **peer);
void peer_put(struct peer *p);
int peer_fd(const struct peer *p);
bool peer_lives(const struct peer *p);
/* From now on the socket of @s is shut down when the peer has died. -EAGAIN: there
 * is no room for a thread; or what the system lacks. */
int peer_watch(struct shm *s);
void peer_unwatch(struct shm *s);
/* The socket of a channel that is watched already: from @sock. */
void peer_socket(struct shm *s, struct clofork *sock);
/* In a forked child: the table is the parent's. */
void peer_forget_all(void);
/* NULL: ids, capabilities and user namespace are as our own; or what differs. */
const char *peer_differs(pid_t pid);
/* Close a descriptor of another's making by a thread: its close may wait. */
void close_aside(int fd);

/* ---- area.c ---- */

int area_make(struct area *a, uint64_t heap_bytes, int *fd);
/* The peer's ring has @cells; ours into it has as many, or fewer. -EPROTO: @fd is
 * not what an area is. */
int area_take(struct area *a, uint64_t heap_len, uint32_t cells, int fd);
void area_fini(struct area *a);
/* [off, off + len) of a part; NULL: no memory. The caller has checked them. */
char *area_slots(struct area *a, uint64_t off, uint64_t len);
char *area_heap(struct area *a, uint64_t off, uint64_t len);
/* A mapping of its own. */
char *area_map(const struct area *a, uint64_t at, uint64_t len);

/* ---- heap.c ---- */

int pages_init(struct pages *p, uint64_t len);
void pages_fini(struct pages *p);
/* An offset, the lowest that is free, or NO_PAGES. */
uint64_t pages_get(struct pages *p, uint64_t len);
void pages_put(struct pages *p, uint64_t off);

void *heap_alloc(struct heap *h, const struct area *a, size_t len);
void heap_free(struct heap *h, void *p);
void heap_fini(struct heap *h);
/* Its offset in the heap, or NO_PAGES. */
static inline uint64_t heap_off(const struct heap *h, const void *p, size_t len)
{
	const struct heap_segment *g;
	uint64_t off;

	for (g = h->segment; g < h->segment + h->cnt; g++) {
		off = (uint64_t)((uintptr_t)p - (uintptr_t)g->at);
		if (off < g->len && len <= g->len - off)
			return g->off + off;
	}
	return NO_PAGES;
}

/* ---- handshake.c: agreeing on areas ---- */

/* If it fails, the caller closes what is left of it. @waits: the peer speaks
 * first. */
int hello_begin(struct shm *s, int sock, const struct kedge_channel_opts *o,
		bool waits);
/* 1: done, and @peer is set; 0: when the socket is readable again; or -errno. */
int hello_step(struct shm *s, struct transport_peer *peer);
/* The peer has not said anything yet. */
bool hello_silent(const struct shm *s);
/* A connection that there are no means for, or no right. */
void hello_refuse(int sock, int why);
/* The process at the other end of a connection may come in: 0 or -EACCES. */
int hello_admits(int sock, const struct kedge_channel_opts *o);
/* All steps, over a connected socket, which is s->sock if @s is to own it. */
int shm_hello(struct shm *s, int sock, const struct kedge_channel_opts *opts,
	      uint64_t deadline, struct transport_peer *peer);
void shm_fini(struct shm *s);

/* ---- shm.c ---- */

/* A new socket for one, or for a listener; with the hint. */
int shm_socket(struct clofork *sock);
/* In a forked child: free memory; the rest is the parent's. */
void shm_leave(void *ctx);
/* A path, or @ and a name; the length that goes with it. */
struct sockaddr_un;
int shm_address(const char *path, struct sockaddr_un *a, uint32_t *len);

#endif /* CHANNEL_SHM_INTERNAL_H */
