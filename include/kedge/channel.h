/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between two processes: tagged, whole, in order. Small ones are sent
 * at once (eager); for a large one the sender asks (RTS), the receiver says
 * where it may land (CTS), and the data goes there by the way that costs least.
 */
#ifndef KEDGE_CHANNEL_H
#define KEDGE_CHANNEL_H

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_channel;
struct kedge_listener;

/**
 * enum kedge_way - how a message reaches the receiver's buffer
 * @KEDGE_WAY_AUTO:     the one that is expected to cost least
 * @KEDGE_WAY_EAGER:    with its announcement; small messages only
 * @KEDGE_WAY_DIRECT:   straight into the buffer, which the peer can reach: it
 *                      is of kedge_channel_alloc(), or was registered before
 * @KEDGE_WAY_SWAP:     into pages of the landing pool, which are then swapped
 *                      under the buffer's addresses; what is not a whole page
 *                      is copied
 * @KEDGE_WAY_COPY:     into pages of the pool, and copied out
 * @KEDGE_WAY_REGISTER: the buffer is registered for it, then as
 *                      @KEDGE_WAY_DIRECT
 */
enum kedge_way {
	KEDGE_WAY_AUTO,
	KEDGE_WAY_EAGER,
	KEDGE_WAY_DIRECT,
	KEDGE_WAY_SWAP,
	KEDGE_WAY_COPY,
	KEDGE_WAY_REGISTER,
	KEDGE_WAY_COUNT
};

/** KEDGE_CHANNEL_ANY_USER - a peer of another user is let in. Without it a
 *  channel between processes of different users fails with -EACCES */
#define KEDGE_CHANNEL_ANY_USER (1u << 0)
/** KEDGE_CHANNEL_NO_CMA - data never goes by process_vm_readv() and
 *  process_vm_writev(), be they allowed or not */
#define KEDGE_CHANNEL_NO_CMA (1u << 1)

/**
 * struct kedge_channel_opts - limits of a channel; 0 is the default
 * @size:             sizeof(struct kedge_channel_opts)
 * @flags:            KEDGE_CHANNEL_*
 * @way:              an enum kedge_way for what this side receives by
 *                    rendezvous. A way that a buffer does not allow is
 *                    replaced by KEDGE_WAY_COPY; the completion names the one
 *                    taken
 * @timeout_ms:       an operation that is not complete after so long is
 *                    cancelled and completes with -ETIMEDOUT; 0 is never
 * @eager_max:        longest message sent eagerly, in bytes; 0 is 8 KiB,
 *                    at most 32 KiB. Of both sides' values the smaller holds
 * @unexpected_cnt:   messages that the peer may have under way to this side
 *                    with no receive posted for them; 0 is 4,096, at most
 *                    65,536. Further ones wait at the sender
 * @unexpected_bytes: bytes of eager messages that this side buffers so; 0 is
 *                    4 MiB
 * @heap_bytes:       memory that kedge_channel_alloc() and the copying way
 *                    have in all; 0 is 128 MiB. It is taken as it is used
 * @pool_bytes:       addresses to land at of KEDGE_WAY_SWAP; 0 is 160 MiB
 */
struct kedge_channel_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t way;
	uint32_t timeout_ms;
	uint32_t eager_max;
	uint32_t unexpected_cnt;
	uint64_t unexpected_bytes;
	uint64_t heap_bytes;
	uint64_t pool_bytes;
};

/** KEDGE_COMPLETION_RECV - a receive is complete; else it is a send */
#define KEDGE_COMPLETION_RECV (1u << 0)

/**
 * struct kedge_completion - an operation that is over
 * @user:   as the caller gave it
 * @tag:    the message's
 * @len:    the message's length in bytes, for -EMSGSIZE too
 * @status: 0, or a negative errno:
 *            -EMSGSIZE   the message is longer than the receive's buffer,
 *                        whose content is undefined (a receive)
 *            -ECANCELED  kedge_channel_cancel(), by this side or the peer
 *            -ETIMEDOUT  @timeout_ms of the channel went by
 *            -ECONNRESET the peer is gone
 *            -EPROTO     the peer broke the protocol; the channel is at an end
 *            -EFAULT     the buffer, or the sender's, is not mapped so
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
 * kedge_listener_open_shm() - wait for processes of this host
 * @path:     of a Unix socket that is made, at most 107 bytes; a leading '@'
 *            stands for the abstract namespace. Copied
 * @opts:     of each channel that is accepted; @opts->size set, or NULL for
 *            the defaults; copied
 * @listener: set on success, left untouched on failure
 *
 * Threads: a listener is one thread's at a time. Fork: it is of the process
 * that opened it.
 * Ownership: the caller ends it with kedge_listener_close(), which removes the
 * socket.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL       @path or @listener is NULL, @opts->size is too small, or an
 *                 option is out of range
 *   -E2BIG        @opts is of a newer version and sets a field unknown here
 *   -ENAMETOOLONG @path is too long
 *   -EADDRINUSE   somebody listens there
 *   -ENOMEM       no memory
 *   or what socket(), bind() or listen() say
 */
KEDGE_API int kedge_listener_open_shm(const char *path,
				      const struct kedge_channel_opts *opts,
				      struct kedge_listener **listener);

/**
 * kedge_listener_accept() - take the next peer
 * @listener:   borrowed
 * @timeout_ms: how long to wait for one; 0 does not wait, -1 is for ever
 * @channel:    set on success, left untouched on failure
 *
 * A peer that does not complete the handshake holds it up for a second at most.
 *
 * Threads: as kedge_listener_open_shm().
 * Ownership: the caller ends *@channel with kedge_channel_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL    an argument is NULL
 *   -ETIMEDOUT nobody came
 *   -ECHILD    the listener is of the parent process
 *   or what kedge_channel_open_fd() says; then that peer was turned away
 */
KEDGE_API int kedge_listener_accept(struct kedge_listener *listener,
				    int timeout_ms,
				    struct kedge_channel **channel);

/**
 * kedge_listener_fd() - a descriptor to wait on for peers
 * @listener: borrowed
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: a descriptor that is readable when kedge_listener_accept() may have
 * something to do, owned by the listener; -EINVAL if @listener is NULL.
 */
KEDGE_API int kedge_listener_fd(struct kedge_listener *listener);

/**
 * kedge_listener_close() - listen no more
 * @listener: owned, freed here; may be NULL. Its channels live on
 *
 * Threads: one, the last user.
 */
KEDGE_API void kedge_listener_close(struct kedge_listener *listener);

/**
 * kedge_channel_open_shm() - connect to a process of this host
 * @path:       where it listens, as in kedge_listener_open_shm(); borrowed
 * @opts:       @opts->size set, or NULL for the defaults; copied
 * @timeout_ms: how long to wait for the listener to accept; -1 is for ever
 * @channel:    set on success, left untouched on failure
 *
 * A channel has one peer, and messages arrive in the order in which they were
 * sent: of two that a receive matches it gets the earlier one. The two sides
 * are equal once they are connected.
 *
 * Threads: a channel is one thread's at a time; channels are independent of
 * each other.
 * Fork: a channel is of the process that opened it. In a forked child every
 * call fails with -ECHILD and kedge_channel_close() only frees memory; memory
 * of kedge_channel_alloc() is not mapped there.
 * Ownership: the caller ends *@channel with kedge_channel_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL       @path or @channel is NULL, @opts->size is too small, or an
 *                 option is out of range
 *   -E2BIG        @opts is of a newer version and sets a field unknown here
 *   -ENAMETOOLONG @path is too long
 *   -ECONNREFUSED nobody listens there
 *   -ETIMEDOUT    the listener did not accept in time
 *   -EACCES       the peer is of another user (KEDGE_CHANNEL_ANY_USER)
 *   -EPROTO       what answers is no kedge, or one of another version
 *   -ENOMEM       no memory
 *   or what memfd_create(), mmap() or the socket calls say
 */
KEDGE_API int kedge_channel_open_shm(const char *path,
				     const struct kedge_channel_opts *opts,
				     int timeout_ms,
				     struct kedge_channel **channel);

/**
 * kedge_channel_open_fd() - a channel over a connected Unix socket
 * @fd:         a stream socket, of socketpair() for instance; on success the
 *              channel owns it, on failure it stays the caller's
 * @opts:       @opts->size set, or NULL for the defaults; copied
 * @timeout_ms: how long to wait for the peer's call of the same; -1 is for ever
 * @channel:    set on success, left untouched on failure
 *
 * Both sides call it. The socket shows when the peer is gone; where a third
 * process keeps the peer's end open, the peer's death alone shows it.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 * Ownership: the caller ends *@channel with kedge_channel_close().
 *
 * Return: as kedge_channel_open_shm(), and -EBADF if @fd is no Unix socket.
 */
KEDGE_API int kedge_channel_open_fd(int fd,
				    const struct kedge_channel_opts *opts,
				    int timeout_ms,
				    struct kedge_channel **channel);

/**
 * kedge_channel_close() - end a channel
 * @channel: owned, freed here; may be NULL
 *
 * Operations under way are over without a completion; their buffers are the
 * caller's again when this returns. What was sent and is complete here reaches
 * the peer. Memory of kedge_channel_alloc() ends with it.
 *
 * Threads: one, the last user.
 */
KEDGE_API void kedge_channel_close(struct kedge_channel *channel);

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
 *   -ECONNRESET the peer is gone
 *   -EPROTO     the peer broke the protocol
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
 * Receives are matched in the order in which they were posted. A completion
 * follows always.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 0, or a negative errno as kedge_channel_send(). Where the peer is
 * gone, messages that had arrived whole are still received.
 */
KEDGE_API int kedge_channel_recv(struct kedge_channel *channel, void *buf,
				 size_t len, uint64_t tag, uint64_t mask,
				 uint64_t user, uint64_t *op);

/**
 * kedge_channel_cancel() - end an operation early
 * @channel: borrowed
 * @op:      as the send or receive gave it
 *
 * A completion follows in any case: with -ECANCELED, or as it was about to
 * complete anyway. A message that the peer has matched is over there, too, with
 * -ECANCELED, unless it is complete there already.
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
 * again, or waits on kedge_channel_fd().
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: completions written to @out; or a negative errno, and there are none
 * left and none will come:
 *   -EINVAL     an argument is NULL
 *   -ECONNRESET the peer is gone
 *   -EPROTO     the peer broke the protocol
 *   -ECHILD     the channel is of the parent process
 */
KEDGE_API ssize_t kedge_channel_poll(struct kedge_channel *channel,
				     struct kedge_completion *out, size_t n);

/**
 * kedge_channel_fd() - a descriptor to wait on
 * @channel: borrowed
 *
 * Readable when the peer has done something since kedge_channel_arm() returned
 * 0, when it is gone, or when an operation's time is up. For poll(), select(),
 * epoll and io_uring; never read from it.
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
 * @timeout_ms: at most so long; -1 is for ever
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

/**
 * kedge_channel_alloc() - memory that the peer's data lands in directly
 * @channel: borrowed
 * @len:     bytes, rounded up to whole pages
 *
 * The pages are shared with the peer, who can write to them as long as the
 * channel is open: for peers that are trusted with this memory. A receive into
 * it needs neither registration nor copy.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: memory aligned to a page, of any content, that ends with
 * kedge_channel_free() or the channel; or NULL if @channel is, @len is 0, or
 * kedge_channel_opts.heap_bytes are used up.
 */
KEDGE_API void *kedge_channel_alloc(struct kedge_channel *channel, size_t len);

/**
 * kedge_channel_free() - give memory back
 * @channel: borrowed
 * @p:       of kedge_channel_alloc(), in no operation; NULL does nothing
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 */
KEDGE_API void kedge_channel_free(struct kedge_channel *channel, void *p);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_CHANNEL_H */
