/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages over a channel: sending, receiving, and waiting for either.
 * <kedge/channel.h> includes it.
 */
#ifndef KEDGE_MESSAGE_H
#define KEDGE_MESSAGE_H

#include <sys/uio.h>

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_channel;

/** KEDGE_COMPLETION_RECV - a receive is complete; else it is a send */
#define KEDGE_COMPLETION_RECV (1u << 0)

/**
 * struct kedge_completion - an operation that is over
 * @user:   as the caller gave it
 * @tag:    the message's
 * @len:    the message's length in bytes, for -EMSGSIZE too
 * @status: 0, or a negative errno:
 *            -EMSGSIZE   the message is longer than the receive's buffer,
 *                        whose content is undefined (a receive; the send is
 *                        complete with 0)
 *            -ECANCELED  kedge_channel_cancel(), by this side or the peer
 *            -ETIMEDOUT  @timeout_ms of the channel went by, here or at the peer,
 *                        or the peer was given up (@peer_timeout_ms)
 *            -ECONNRESET the peer is gone. One that has closed the channel did not
 *                        receive the message; whether one that died did is not
 *                        known
 *            -EPROTO     the peer broke the protocol; the channel is at an end
 *            -EFAULT     the buffer, or the sender's, may not be accessed (one
 *                        that was good for a message of late may fault instead)
 *            -ENOMEM     no memory
 * @flags:  KEDGE_COMPLETION_*
 * @way:    the enum kedge_way that the message took
 */
struct kedge_completion {
	uint64_t user;
	uint64_t tag;
	uint64_t len;
	int32_t status;
	uint32_t flags;
	uint32_t way;
	uint32_t reserved;
};

/**
 * kedge_channel_send() - send a message
 * @channel: borrowed
 * @buf:     borrowed until it is complete; may be NULL if @len is 0
 * @len:     bytes
 * @tag:     what the receiver matches it by
 * @user:    comes back in the completion
 * @op:      set if the return is 0, for kedge_channel_cancel(); may be NULL
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 1: it is complete, @buf is free and no completion follows; 0: it is
 * under way, a completion follows; or a negative errno, and nothing was sent:
 *   -EINVAL     an argument is NULL
 *   -EFAULT     @buf may not be read
 *   -ENOBUFS    the peer has as many messages waiting as its limits allow, or has
 *               not said yet that it received them (it does for half of the limit
 *               at a time, or when it has nothing else to do), and the channel has
 *               KEDGE_CHANNEL_NO_WAIT: poll, and send again
 *   -ECONNRESET the peer is gone
 *   -EPROTO     the peer broke the protocol
 *   -ETIMEDOUT  the peer was given up (peer_timeout_ms)
 *   -ENOMEM     no memory
 *   -ECHILD     the channel is of the parent process
 */
KEDGE_API int kedge_channel_send(struct kedge_channel *channel,
				 const void *buf, size_t len, uint64_t tag,
				 uint64_t user, uint64_t *op);

/**
 * kedge_channel_recv() - receive a message
 * @channel: borrowed
 * @buf:     the library's until it is complete: nobody reads, writes or remaps
 *           it meanwhile; may be NULL if @len is 0
 * @len:     bytes that fit
 * @tag:     what it is to be matched by
 * @mask:    bits of the tag that count: all set is this tag, 0 is any
 * @user:    comes back in the completion
 * @op:      set on success, for kedge_channel_cancel(); may be NULL
 *
 * Receives are matched in the order in which they were posted, with messages in
 * the order in which they were sent, as MPI has it: a message that no receive
 * matches holds up none behind it, as long as the limits of struct
 * kedge_channel_opts allow. A completion follows always; those of several may come in
 * another order.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 0, or a negative errno as kedge_channel_send(). Where the peer is
 * gone, messages that had arrived whole are still received.
 */
KEDGE_API int kedge_channel_recv(struct kedge_channel *channel, void *buf,
				 size_t len, uint64_t tag, uint64_t mask,
				 uint64_t user, uint64_t *op);

/** KEDGE_PIECES_MAX - pieces of a message, at most */
#define KEDGE_PIECES_MAX 1024u

/**
 * struct kedge_message - an operation with all that can be said of one
 * @size:       sizeof(struct kedge_message)
 * @flags:      0
 * @pieces:     of the buffer, in order; the array is borrowed for the call, the
 *              memory that it names until the operation is complete. May be NULL
 *              if @cnt is 0
 * @cnt:        pieces, at most KEDGE_PIECES_MAX
 * @tag:        as in kedge_channel_send() and kedge_channel_recv()
 * @mask:       of a receive, as in kedge_channel_recv()
 * @user:       comes back in the completion
 * @timeout_ms: the operation is cancelled after so long, and completes with
 *              -ETIMEDOUT; 0 is the channel's timeout_ms, UINT32_MAX is never.
 *              kedge_channel_poll() and kedge_channel_wait() see to that;
 *              kedge_channel_fd() tells of it where the channel has a timeout_ms
 * @reserved:   0
 */
struct kedge_message {
	uint32_t size;
	uint32_t flags;
	const struct iovec *pieces;
	size_t cnt;
	uint64_t tag;
	uint64_t mask;
	uint64_t user;
	uint32_t timeout_ms;
	uint32_t reserved;
};

/**
 * kedge_channel_sendmsg() - send a message of several pieces
 * @channel: borrowed
 * @message: borrowed
 * @op:      as in kedge_channel_send()
 *
 * One piece goes as kedge_channel_send() would send it. Several are packed into
 * memory of the channel's first, which costs a copy.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: as kedge_channel_send(), and -EINVAL if @message->size is too small,
 * there are too many pieces, @message->reserved is not 0, or a flag is unknown;
 * -E2BIG if @message is of a newer version and sets a field unknown here.
 */
KEDGE_API int kedge_channel_sendmsg(struct kedge_channel *channel,
				    const struct kedge_message *message,
				    uint64_t *op);

/**
 * kedge_channel_recvmsg() - receive a message into several pieces
 * @channel: borrowed
 * @message: borrowed
 * @op:      as in kedge_channel_recv()
 *
 * One piece is received as kedge_channel_recv() would. What goes into several
 * lands in memory of the channel's and is copied when all of it is there.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: as kedge_channel_recv(), and as kedge_channel_sendmsg() of @message.
 */
KEDGE_API int kedge_channel_recvmsg(struct kedge_channel *channel,
				    const struct kedge_message *message,
				    uint64_t *op);

/**
 * kedge_channel_cancel() - end an operation early
 * @channel: borrowed
 * @op:      as the send or receive gave it
 *
 * A completion follows in any case: with -ECANCELED, or as it was about to
 * complete anyway. A message that the peer has matched is over there, too, with
 * -ECANCELED, unless it is complete there already. A send whose data have all
 * gone cannot be called back: it completes when the peer has looked and says whether
 * it received them, at the latest after peer_timeout_ms, with which the channel ends.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 0, -ENOENT if it is complete already, -EINVAL if @channel is NULL,
 * -ECHILD if the channel is of the parent process.
 */
KEDGE_API int kedge_channel_cancel(struct kedge_channel *channel, uint64_t op);

/**
 * kedge_channel_poll() - make progress and take completions
 * @channel: borrowed
 * @out:     where they go, of @n elements; may be NULL if @n is 0
 * @n:       at most so many
 *
 * Nothing moves but in this call; who waits for the peer calls it again and
 * again, or waits on kedge_channel_fd(). That the peer is gone, or that the time of
 * an operation is up, is told by the fifth call, at the latest, once the system's
 * coarse clock has moved (1 to 10 ms).
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: completions written to @out; or a negative errno, and there are none
 * left and none will come:
 *   -EINVAL     an argument is NULL
 *   -ECONNRESET the peer is gone
 *   -EPROTO     the peer broke the protocol
 *   -ETIMEDOUT  the peer was given up (peer_timeout_ms)
 *   -ECHILD     the channel is of the parent process
 */
KEDGE_API ssize_t kedge_channel_poll(struct kedge_channel *channel,
				     struct kedge_completion *out, size_t n);

/**
 * struct kedge_envelope - a message that waits for its receive
 * @size:     sizeof(struct kedge_envelope), set by the caller
 * @reserved: 0
 * @tag:      its tag
 * @len:      its length in bytes
 */
struct kedge_envelope {
	uint32_t size;
	uint32_t reserved;
	uint64_t tag;
	uint64_t len;
};

/**
 * kedge_channel_probe() - look at the message that a receive would get
 * @channel:  borrowed
 * @tag:      as in kedge_channel_recv()
 * @mask:     as in kedge_channel_recv()
 * @envelope: filled if there is one; @envelope->size set
 *
 * Makes progress as kedge_channel_poll() does, and leaves completions for it.
 * The message stays: a receive for the tag found, posted next, gets it.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 1: @envelope is the earliest message that has come and matches; 0:
 * none has; or a negative errno:
 *   -EINVAL     an argument is NULL, or @envelope->size is too small
 *   -ECONNRESET the peer is gone, and no message that had come matches
 *   -EPROTO     the peer broke the protocol, and likewise
 *   -ETIMEDOUT  the peer was given up (peer_timeout_ms), and likewise
 *   -ECHILD     the channel is of the parent process
 */
KEDGE_API int kedge_channel_probe(struct kedge_channel *channel, uint64_t tag,
				  uint64_t mask,
				  struct kedge_envelope *envelope);

/**
 * kedge_channel_fd() - a descriptor to wait on
 * @channel: borrowed
 *
 * Readable when the peer has done something since kedge_channel_arm() returned
 * 0, when it is gone, or when an operation's time is up. For poll(), select(),
 * epoll and io_uring; never read from it. That peer_timeout_ms are over shows in
 * channels with a timeout_ms only: without one, wait by kedge_channel_wait(), or no
 * longer than that.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: the descriptor, owned by the channel; -EINVAL if @channel is NULL,
 * -ECHILD if it is of the parent process.
 */
KEDGE_API int kedge_channel_fd(struct kedge_channel *channel);

/**
 * kedge_channel_arm() - before waiting on kedge_channel_fd()
 * @channel: borrowed
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 0: nothing is left to do, wait; 1: call kedge_channel_poll() first;
 * or a negative errno as kedge_channel_poll().
 */
KEDGE_API int kedge_channel_arm(struct kedge_channel *channel);

/**
 * kedge_channel_wait() - wait for something to poll for
 * @channel:    borrowed
 * @timeout_ms: at most so long; below 0 is for ever
 *
 * kedge_channel_arm() and poll() in one.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 1: call kedge_channel_poll(); 0: the time is up; -EINTR: a signal
 * came; or as kedge_channel_arm().
 */
KEDGE_API int kedge_channel_wait(struct kedge_channel *channel,
				 int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_MESSAGE_H */
