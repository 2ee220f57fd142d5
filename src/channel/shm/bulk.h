/* SPDX-License-Identifier: BSD-2-Clause */
/* A message under way, as bulk.c and chunk.c see it, and what the two ends tell of it. */
#ifndef CHANNEL_SHM_BULK_H
#define CHANNEL_SHM_BULK_H

#include "channel/shm/internal.h"

enum mode {
	MODE_SHARED = 1,
	MODE_MEMORY,
	MODE_STREAM,
};

/* Of one message. */
#define PIECES_MAX 14u

#define CHUNK_SHARED (128u << 10)
#define CHUNK_MEMORY (128u << 10)
#define CHUNK_PULL   (1u << 20) /* where the receiver alone moves it */
#define STORE_MIN    (512u << 10) /* of converted memory */
#define CHUNK_SPLIT  (32u << 10) /* at least, where both copy without the kernel */
#define LOOK_EVERY   (2u << 20) /* bytes pushed between looks at the peer */
#define AGAIN_NS     2000000000ull /* a fork takes less */
#define SLOT_LEN     (16u << 10)
#define SLOT_CNT     16u

/* ---- what describes a message: in the RTS, and in the CTS ---- */

struct rts_desc {
	uint64_t addr;
	uint64_t heap_off; /* in the sender's heap, or NO_PAGES, or NO_PUSH */
	/* Only if the sender has segments; of the id 0 if it is in none now. */
	struct segment_place place;
};

#define RTS_PLAIN offsetof(struct rts_desc, place)

/* As NO_PAGES, and the sender's operation has a deadline, so it does not write to
 * the receiver's memory by the kernel. */
#define NO_PUSH (NO_PAGES - 1)

struct cts_desc {
	uint32_t record;
	uint8_t mode;
	uint8_t push;
	uint16_t piece_cnt;
	uint32_t chunk;
	uint32_t slot_cnt;
	uint64_t off; /* SHARED: in the receiver's heap; STREAM: in its slots */
	union {
		struct bulk_piece piece[PIECES_MAX];
		struct {
			struct bulk_piece whole;
			struct segment_place place;
		} in_segment; /* with PUSH_SEGMENT */
	};
};

/* The ways in which the sender may write. */
enum { PUSH_NOT, PUSH_MEMORY, PUSH_SEGMENT };

_Static_assert(sizeof(struct cts_desc) <= DESC_MAX, "fits");

/* One side's view of a message under way. */
struct xfer {
	uint8_t mode;
	bool push;  /* the sender may write */
	bool stores; /* into what it has attached of the receiver's segment */
	bool no_push; /* it does not */
	bool pull;  /* the receiver does */
	bool may_be_away; /* the source may be made private, or shared, right now */
	uint32_t index;
	struct record *rec;
	uint64_t chunk;
	uint64_t cnt;	  /* chunks in all */
	uint64_t done;	  /* by this side */
	uint64_t pushed;  /* bytes since the last look at the process they reach */
	uint64_t src;	  /* the sender's address */
	const char *from; /* the source, where it is of this process */
	char *to;	  /* the target, likewise */
	uint64_t src_off; /* the source in the sender's heap, or NO_PAGES */
	uint64_t off;	  /* the target in the receiver's heap; the slots */
	uint32_t slot_cnt;
	uint32_t piece_cnt;
	int failed;	  /* (receiver) -errno of a chunk */
	struct segment_place place; /* of the source */
	struct segment_place target; /* where the sender stores */
	struct theirs *far; /* what this side has attached: source or target, or NULL */
	char *far_at;	  /* where it is; NULL: it is valid no more */
	uint64_t again;	  /* (receiver) 1 and the chunk that is to be tried again, or 0 */
	bool took_back;	  /* (receiver) a chunk of the sender's */
	uint64_t until;	  /* when that ends */
	struct bulk_piece piece[PIECES_MAX]; /* the target, in its process */
};

static inline struct xfer *xfer_of(const struct bulk *b)
{
	return (struct xfer *)(uintptr_t)b->priv[0];
}

/* ---- chunk.c ---- */

uint64_t chunk_len(const struct bulk *b, const struct xfer *x, uint64_t i);
/* The sender's copy of a chunk; the receiver's. 0, or a negative errno: the sender's -ESTALE
 * means that it stores no more, and the receiver is to have this one. */
int chunk_put(struct shm *s, struct bulk *b, struct xfer *x, uint64_t i);
int chunk_get(struct shm *s, struct bulk *b, struct xfer *x, uint64_t i);
/* All chunks are done: 1 if those that this side pushed have reached the peer. */
int chunks_done(struct shm *s, struct xfer *x);

#endif /* CHANNEL_SHM_BULK_H */
