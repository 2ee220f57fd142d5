/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The border between the channel's protocol and what carries it: packets in
 * order, and bulk data that lands where the receiver said.
 *
 * Every op runs on the channel's one thread. A transport never calls back.
 * Packets that a transport hands up came from outside: the channel checks packets, the
 * transport checks descriptors.
 */
#ifndef CHANNEL_TRANSPORT_H
#define CHANNEL_TRANSPORT_H

#include "base/base.h"
#include <kedge/channel.h>

/* The longest eager message that any transport takes. */
#define EAGER_LIMIT (512u * 1024)
/* Longest packet, head and all: an eager message of up to @eager_max bytes, or a
 * control message with descriptors of DESC_MAX bytes each. */
#define PACKET_OF(eager_max) ((eager_max) + 1024)
#define PACKET_MAX PACKET_OF(EAGER_LIMIT)
#define DESC_MAX   256u
/* Bytes of the secret that both ends prove to have. */
#define SECRET_MIN 16u
#define SECRET_MAX 4096u

/* A range of this process, or of the peer. */
struct bulk_piece {
	uint64_t addr;
	uint64_t len;
};

enum bulk_flags {
	BULK_RECV = 1 << 0,    /* this side receives */
	BULK_HEAP = 1 << 1,    /* the pieces are of heap_alloc() */
	BULK_PUSH = 1 << 2,    /* the peer may write the pieces itself: they are
				* no application's, or it can be stopped */
	BULK_STREAM = 1 << 3,  /* through the transport's own pages, copied out
				* by step() */
	BULK_KNOWN = 1 << 4,   /* registered before, says ready() */
	BULK_FIN = 1 << 5,     /* the sender says that all of it has landed and
				* has forgotten it: step() ends its part */
	BULK_CHECKED = 1 << 7, /* the pieces can be accessed, as was found of
				* late, or are not the application's */
	BULK_TIMED = 1 << 8,   /* its operation has a deadline: no step may wait
				* for the peer's page faults */
	BULK_SAID = 1 << 9, /* (sender) the receiver says that all has landed */
	BULK_ACKED = 1 << 6, /* the sender's transport: all of it has landed,
			      * and the peer's has seen that and set BULK_FIN */
};

/*
 * One large message under way. The channel owns it and fills all but @priv,
 * which accept() or start() may set and end() frees.
 */
struct bulk {
	uint32_t flags;
	uint32_t piece_cnt;
	const struct bulk_piece *piece; /* where it lies or lands, here */
	uint64_t len;
	uint64_t priv[4];
};

/* The pieces hold the message. */
static inline bool bulk_fits(const struct bulk *bulk)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < bulk->piece_cnt; i++)
		if (__builtin_add_overflow(sum, bulk->piece[i].len, &sum))
			return false;
	return bulk->len && sum >= bulk->len;
}

/*
 * Before a transport copies a message out of its pieces, or into them with
 * BULK_RECV, by itself and not by the kernel: 0, or -EFAULT if that memory cannot
 * be accessed. Again before each part of it: that costs one test of a flag. The
 * channel has done so where the transport is @blind.
 */
KEDGE_PRIVATE int kedge__bulk_check_slow(struct bulk *b);
static inline int kedge__bulk_check(struct bulk *bulk)
{
	return likely(bulk->flags & BULK_CHECKED)
		       ? 0 : kedge__bulk_check_slow(bulk);
}

/* The answers of ready() about a buffer. */
enum bulk_ready {
	READY_DIRECT = 1 << 0, /* the peer's data can go there now */
	READY_HEAP = 1 << 1,   /* it is of heap_alloc() */
	READY_REGISTER = 1 << 2, /* it can be registered */
	READY_ANYWHERE = 1 << 3, /* data that lands elsewhere lands no cheaper */
	READY_SEGMENT = 1 << 4,	 /* it is in a segment that the peer may have attached */
};

/* From here on a message in a segment is offered to a peer that may have it. */
#define OFFER_SEGMENT 131072u

struct ring;
struct cost_case;

/**
 * struct transport_ops - what carries a channel
 * @name:    "shm", "ofi"
 * @posts:   step() hands the data to something else that moves it: all messages
 *           take a step in one poll
 * @blind:   what moves the data faults, or writes wherever it is told, where a
 *           buffer is not to be accessed: the channel asks before it goes there
 * @ring:    the ring that its packets go through; the channel then reads and writes
 *           short ones there itself. NULL, or returns NULL: there is none
 * @reserve: room for a packet of @len bytes, up to PACKET_MAX, contiguous and
 *           aligned to 8; NULL if there is none now. One that is not committed
 *           is forgotten with the next
 * @commit:  send what reserve() gave, @len bytes of it
 * @begin:   show what reserve() gave to the peer, though only its first @have
 *           bytes are there; commit() says that all of it is. No other packet is
 *           reserved meanwhile. NULL: only whole packets are shown
 * @more:    as many bytes of it are there now
 * @next:    the next packet that came, or NULL: sets @len. It stays, and is what
 *           every further call returns, until release(). Makes the transport's
 *           own progress, too. What it points to may be written by the peer
 *           meanwhile
 * @arrived: bytes of that packet that are there, the head at least; never less
 *           than before, unless the peer is broken. NULL: all of it
 * @release: done with that packet
 * @flush:   the end of a poll: what was committed since its first next() goes
 *           out now, if it has not yet. NULL: it always has
 * @check:   0, or why no packet will come any more (-ECONNRESET, -EPROTO);
 *           may take a system call
 * @fd:      readable when next() or a bulk may have something to do after
 *           arm(), or check() has
 * @arm:     0: the fd will tell; 1: there is something to do already
 * @ready:   READY_* of a buffer for the message that @rts describes, or for any if that
 *           is NULL; without a system call where that is possible
 * @can_push: the peer can write what BULK_PUSH lets it; may be NULL
 * @areas:   it has pages of its own for messages to land on, and those below; else, or
 *           where this is NULL, the channel's own pool and model serve
 * @cost:    what a message is expected to cost by a way, in nanoseconds; UINT64_MAX:
 *           not to be had
 * @area_take: (receiver) pages that the peer may write when they are accepted, and
 *           that can be put under [@buf, @buf + @len): *@addr is where the byte
 *           lands that is for @buf. NULL: there are none now
 * @area_meanwhile: while they are written: do a bounded part of what they will
 *           need, or the next ones. True if anything was to do
 * @area_move: put whole pages of what has landed under @to, [@from, @from + @len) of
 *           the area; or a negative errno, and all is as it was
 * @area_give: they are the transport's again. @quiet: the peer writes there no more
 * @offer:   (sender, with the RTS) describe the source in @desc of DESC_MAX
 *           bytes, set @len
 * @accept:  (receiver) prepare the pieces of @b for the message that @rts
 *           describes; describe them in @cts of DESC_MAX bytes, set @cts_len.
 *           -EOPNOTSUPP: not this way
 * @start:   (sender, on the CTS) begin
 * @step:    (both) do a bounded part of the work. 1: this side has done its
 *           part (the sender's: all of it has landed), 0: something moved and
 *           more is to do, -EAGAIN: no work until the peer or the device has
 *           done something, which the fd shows; or a negative errno
 * @stop:    0: the peer does not touch @b's memory any more; -EBUSY: ask again.
 *           From the first call on step() is not called
 * @end:     forget @b, after stop() or when all of it has landed, or because
 *           close() comes next
 * @heap_alloc, @heap_free: memory that the peer reaches; NULL if there is none
 * @attached: bytes that this side has copied by segments of the peer's. NULL: 0
 * @explain: what is missing here for some of the ways, in words, or ""
 * @close:   end it; every bulk has ended. Whatever was committed reaches the
 *           peer if it lives, and the peer sees the end
 * @leave:   in a forked child, instead of close: free memory and descriptors,
 *           which are the child's own; what is shared goes on, and what was
 *           not to be inherited is not mapped here. NULL: not called
 */
struct transport_ops {
	const char *name;
	uint32_t ways; /* 1 << KEDGE_WAY_x that may work */
	bool posts;
	bool blind;
	struct ring *(*ring)(void *ctx);
	void *(*reserve)(void *ctx, size_t len);
	void (*commit)(void *ctx, void *packet, size_t len);
	void (*begin)(void *ctx, void *packet, size_t len, size_t have);
	void (*more)(void *ctx, size_t have);
	const void *(*next)(void *ctx, size_t *len);
	size_t (*arrived)(void *ctx, const void *packet);
	void (*release)(void *ctx, const void *packet);
	void (*flush)(void *ctx);
	int (*check)(void *ctx);
	int (*fd)(void *ctx);
	int (*arm)(void *ctx);
	uint32_t (*ready)(void *ctx, const void *buf, size_t len, const void *rts,
			  size_t rts_len);
	bool (*can_push)(void *ctx);
	bool (*areas)(void *ctx);
	uint64_t (*cost)(void *ctx, uint32_t way, const struct cost_case *q);
	void *(*area_take)(void *ctx, const char *buf, size_t len, char **addr);
	bool (*area_meanwhile)(void *ctx, void *area, char *to, size_t len);
	int (*area_move)(void *ctx, void *area, char *to, char *from,
			 size_t len);
	void (*area_give)(void *ctx, void *area, bool quiet);
	int (*offer)(void *ctx, struct bulk *b, void *desc, size_t *len);
	int (*accept)(void *ctx, struct bulk *b, const void *rts,
		      size_t rts_len, void *cts, size_t *cts_len);
	int (*start)(void *ctx, struct bulk *b, const void *cts,
		     size_t cts_len);
	int (*step)(void *ctx, struct bulk *b);
	int (*stop)(void *ctx, struct bulk *b);
	void (*end)(void *ctx, struct bulk *b);
	void *(*heap_alloc)(void *ctx, size_t len);
	void (*heap_free)(void *ctx, void *p);
	uint64_t (*attached)(void *ctx);
	const char *(*explain)(void *ctx);
	void (*close)(void *ctx);
	void (*leave)(void *ctx);
};

/* Memory that a message takes which waits for its receive, without its data. */
#define ENVELOPE_LEN 128u
/* Most messages that may wait at one side: what a handshake may name. */
#define UNEXPECTED_CNT_MAX (1u << 24)

/* Both sides of a connection agree on this before it carries packets. */
struct transport_peer {
	uint32_t pid;
	uint32_t eager_max;	   /* the smaller of both */
	uint32_t unexpected_cnt;   /* what the peer allows */
	uint64_t unexpected_bytes; /* the same */
};

static inline uint32_t least(uint64_t n, uint32_t m)
{
	return n < m ? (uint32_t)n : m;
}

/* A caller's eager_max, or the default for 0; this transport takes @most. */
static inline uint32_t eager_or(const struct kedge_channel_opts *opts,
				uint32_t by_default, uint32_t most)
{
	return least(opts->eager_max ? opts->eager_max
				     : least(opts->unexpected_bytes / 2,
					     by_default), most);
}

/* Read and check a caller's options, defaults filled in but @eager_max. */
KEDGE_PRIVATE int kedge__channel_opts(struct kedge_channel_opts *dst,
				      const struct kedge_channel_opts *user);
/* @rc, with the remedy where it is that no descriptor is left. */
int channel_no_fd(int rc) __attribute__((cold));
/* A channel over a transport that is connected. On failure @ctx stays the
 * caller's. */
KEDGE_PRIVATE int kedge__channel_open(const struct transport_ops *ops,
				      void *ctx,
				      const struct kedge_channel_opts *opts,
				      const struct transport_peer *peer,
				      struct kedge_channel **channel);

/* The operations of a listener, which makes channels. @address: where it listens,
 * in KEDGE_ADDRESS_MAX bytes. */
struct listener_ops {
	int (*accept)(void *ctx, int timeout_ms, struct kedge_channel **ch);
	int (*fd)(void *ctx);
	int (*address)(void *ctx, char *text);
	void (*close)(void *ctx);
};

KEDGE_PRIVATE int kedge__listener_open(const struct listener_ops *ops,
				       void *ctx,
				       struct kedge_listener **listener);

#endif /* CHANNEL_TRANSPORT_H */
