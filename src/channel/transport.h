/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The border between the channel's protocol and what carries it: packets in
 * order, and bulk data that lands where the receiver said.
 *
 * Every op runs on the channel's one thread. A transport never calls back.
 * What a transport hands up came from outside: the channel checks packets, the
 * transport checks descriptors.
 */
#ifndef CHANNEL_TRANSPORT_H
#define CHANNEL_TRANSPORT_H

#include "base/base.h"
#include <kedge/channel.h>

/* Longest packet, head and all: an eager message of 32 KiB, or a control
 * message with descriptors of DESC_MAX bytes each. */
#define PACKET_MAX (33u * 1024)
#define DESC_MAX   256u

/* A range of this process, or of the peer. */
struct bulk_piece {
	uint64_t addr;
	uint64_t len;
};

enum bulk_flags {
	BULK_RECV = 1 << 0,   /* this side receives */
	BULK_HEAP = 1 << 1,   /* the pieces are of heap_alloc() */
	BULK_PUSH = 1 << 2,   /* the peer may write the pieces itself: they are
			       * no application's, or it can be stopped */
	BULK_STREAM = 1 << 3, /* through the transport's own pages, copied out
			       * by step() */
	BULK_KNOWN = 1 << 4,  /* registered before, says ready() */
	BULK_FIN = 1 << 5,    /* the sender says that all of it has landed and
			       * has forgotten it: step() ends its part */
	BULK_TOLD = 1 << 6,   /* the sender's transport: all of it has landed, and
			       * the peer's has seen that and set BULK_FIN */
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

/* What ready() says of a buffer. */
enum bulk_ready {
	READY_DIRECT = 1 << 0, /* the peer's data can go there now */
	READY_HEAP = 1 << 1,   /* it is of heap_alloc() */
	READY_REGISTER = 1 << 2, /* it can be registered */
	READY_ANYWHERE = 1 << 3, /* data that lands elsewhere lands no cheaper */
};

/**
 * struct transport_ops - what carries a channel
 * @name:    "shm", "ofi"
 * @posts:   step() hands the data to something else that moves it: all messages
 *           take a step in one poll
 * @reserve: room for a packet of @len bytes, up to PACKET_MAX, contiguous and
 *           aligned to 8; NULL if there is none now. One that is not committed
 *           is forgotten with the next
 * @commit:  send what reserve() gave, @len bytes of it
 * @next:    the next packet that came, or NULL: sets @len. It stays, and is what
 *           every further call returns, until release(). Makes the transport's
 *           own progress, too. What it points to may be written by the peer
 *           meanwhile
 * @release: done with that packet
 * @flush:   the end of a poll: what was committed since its first next() goes
 *           out now, if it has not yet. NULL: it always has
 * @check:   0, or why no packet will come any more (-ECONNRESET, -EPROTO);
 *           may take a system call
 * @fd:      readable when next() or a bulk may have something to do after
 *           arm(), or check() has
 * @arm:     0: the fd will tell; 1: there is something to do already
 * @ready:   BULK_READY_* of a buffer, without a system call where that is
 *           possible
 * @can_push: the peer can write what BULK_PUSH lets it; may be NULL
 * @offer:   (sender, with the RTS) describe the source in @desc of DESC_MAX
 *           bytes, set @len
 * @accept:  (receiver) prepare the pieces of @b for the message that @rts
 *           describes; describe them in @cts of DESC_MAX bytes, set @cts_len.
 *           -EOPNOTSUPP: not this way
 * @start:   (sender, on the CTS) begin
 * @step:    (both) do a bounded part of the work. 1: this side has done its
 *           part (the sender's: all of it has landed), 0: something moved and
 *           more is to do, -EAGAIN: nothing to do until the peer or the device
 *           has done something, which the fd shows; or a negative errno
 * @stop:    0: the peer touches nothing of @b any more; -EBUSY: ask again. From
 *           the first call on step() is not called
 * @end:     forget @b, after stop() or when all of it has landed, or because
 *           close() comes next
 * @heap_alloc, @heap_free: memory that the peer reaches; NULL if there is none
 * @explain: what is missing here for some of the ways, in words, or ""
 * @close:   end it; every bulk has ended. Whatever was committed reaches the
 *           peer if it lives, and the peer sees the end
 * @leave:   in a forked child, instead of close: free memory and descriptors,
 *           which are the child's own; what is shared goes on, and what was
 *           not to be inherited is not mapped here. NULL: nothing is done
 */
struct transport_ops {
	const char *name;
	uint32_t ways; /* 1 << KEDGE_WAY_x that may work */
	bool posts;
	void *(*reserve)(void *ctx, size_t len);
	void (*commit)(void *ctx, void *packet, size_t len);
	const void *(*next)(void *ctx, size_t *len);
	void (*release)(void *ctx, const void *packet);
	void (*flush)(void *ctx);
	int (*check)(void *ctx);
	int (*fd)(void *ctx);
	int (*arm)(void *ctx);
	uint32_t (*ready)(void *ctx, const void *buf, size_t len);
	bool (*can_push)(void *ctx);
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
	const char *(*explain)(void *ctx);
	void (*close)(void *ctx);
	void (*leave)(void *ctx);
};

/* What both sides of a connection agree on before it carries packets. */
struct transport_peer {
	uint32_t pid;
	uint32_t eager_max;	   /* the smaller of both */
	uint32_t unexpected_cnt;   /* what the peer allows */
	uint64_t unexpected_bytes; /* the same */
};

/* Read and check a caller's options, defaults filled in. */
KEDGE_PRIVATE int kedge__channel_opts(struct kedge_channel_opts *dst,
				      const struct kedge_channel_opts *user);
/* A channel over a transport that is connected. On failure @ctx stays the
 * caller's. */
KEDGE_PRIVATE int kedge__channel_open(const struct transport_ops *ops,
				      void *ctx,
				      const struct kedge_channel_opts *opts,
				      const struct transport_peer *peer,
				      struct kedge_channel **channel);

/* What makes channels: the table of a listener. */
struct listener_ops {
	int (*accept)(void *ctx, int timeout_ms, struct kedge_channel **ch);
	int (*fd)(void *ctx);
	void (*close)(void *ctx);
};

KEDGE_PRIVATE int kedge__listener_open(const struct listener_ops *ops,
				       void *ctx,
				       struct kedge_listener **listener);

#endif /* CHANNEL_TRANSPORT_H */
