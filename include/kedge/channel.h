/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between two processes: tagged, whole, in order. Small ones are sent
 * at once (eager); for a large one the sender asks (RTS), the receiver says
 * where it may land (CTS), and the data goes there by the way that costs least.
 *
 * No call on a channel or a listener is a cancellation point (pthreads(7)), those
 * that wait included: a thread that is cancelled in one finishes it first.
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
 * @KEDGE_WAY_DIRECT:   straight into the buffer, as it is: into one of
 *                      kedge_channel_alloc() by the sender. On one host into any
 *                      other by process_vm_readv() in the receiver, or with no
 *                      system call if it is sent from a segment, by both sides if
 *                      the buffer is in one as well, unless
 *                      KEDGE_CHANNEL_NO_CMA or the system forbids it; between
 *                      hosts by TCP, and where the provider needs no registration
 * @KEDGE_WAY_SWAP:     into pages of the landing pool, which are then swapped
 *                      under the buffer's addresses; its ends are copied
 * @KEDGE_WAY_COPY:     piece by piece through pages that the channel has for it
 *                      (on one host the sender copies in while the receiver
 *                      copies out): every buffer allows it
 * @KEDGE_WAY_REGISTER: as @KEDGE_WAY_DIRECT, after the buffer's pages were all
 *                      made present in one call and, where the provider asks
 *                      for it, registered for this one message
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
 *  channel between processes of different effective users fails with -EACCES */
#define KEDGE_CHANNEL_ANY_USER (1u << 0)
/** KEDGE_CHANNEL_NO_CMA - data never goes by process_vm_readv() and
 *  process_vm_writev(), be they allowed or not, nor by segments */
#define KEDGE_CHANNEL_NO_CMA (1u << 1)
/** KEDGE_CHANNEL_NO_WAIT - where the peer takes no more messages before it
 *  receives some, kedge_channel_send() fails with -ENOBUFS. Without it the
 *  message waits here, and so do all that are sent after it */
#define KEDGE_CHANNEL_NO_WAIT (1u << 2)

/**
 * struct kedge_channel_opts - limits of a channel; 0 is the default
 * @size:             sizeof(struct kedge_channel_opts)
 * @flags:            KEDGE_CHANNEL_*
 * @way:              an enum kedge_way for what this side receives by
 *                    rendezvous (not KEDGE_WAY_EAGER), or KEDGE_WAY_COPY where a
 *                    buffer does not allow it; the completion names the one taken
 * @timeout_ms:       an operation that takes longer completes with -ETIMEDOUT,
 *                    and no process's memory is reached into; 0 is never. A send
 *                    whose data have all gone waits longer, for the peer to say
 *                    whether it has them: up to @peer_timeout_ms
 * @eager_max:        longest message sent eagerly, in bytes, at most 512 KiB;
 *                    0 is 512 KiB over shared memory and 8 KiB elsewhere. Of both
 *                    sides' values the smaller holds, and no more than 64 KiB over
 *                    TCP and in a process's 17th and later channels of shared
 *                    memory, 32 KiB over libfabric
 * @unexpected_cnt:   messages that the peer may have under way to this side
 *                    with no receive posted for them; 0 is as many as
 *                    @envelope_bytes allows. Further ones wait at the sender,
 *                    or KEDGE_CHANNEL_NO_WAIT refuses them
 * @unexpected_bytes: bytes of eager messages that this side buffers so; 0 is
 *                    4 MiB; at least twice @eager_max, at most 1 GiB. The data
 *                    of further ones stays at the sender until they are matched
 * @heap_bytes:       memory that kedge_channel_alloc() and the copying way
 *                    have in all, as they use it; 0 is 128 MiB
 * @pool_bytes:       share in the process's landing pool (KEDGE_WAY_SWAP), which
 *                    is at most twice its largest share; over RDMA what landing
 *                    pages may pin; 0 is 160 MiB
 * @envelope_bytes:   memory for messages that wait at this side for their
 *                    receives, beside @unexpected_bytes: 128 bytes each (of a
 *                    large one over RDMA up to 384); 0 is 128 MiB, which is
 *                    1,048,576 messages; at least 64 KiB, at most 2 GiB. It is
 *                    taken as it is used
 * @peer_timeout_ms:  a peer that does not say for so long that it has let go of
 *                    an operation that was cancelled here, or whose time was up,
 *                    is given up: the channel ends with -ETIMEDOUT. It answers
 *                    when it polls. 0 is 60,000, UINT32_MAX is never. See
 *                    kedge_channel_fd() for programs that sleep
 * @host_timeout_ms:  (TCP) a peer whose host does not answer for so long is
 *                    gone; 0 is 20 seconds, at least one second. A peer that
 *                    only does not read has time without end
 * @secret:           (TCP) what both ends prove that they know before anything
 *                    else is said: 16 to 4,096 bytes, of a random number
 *                    generator. Borrowed, and not kept: a key is made of it.
 *                    NULL is KEDGE_CHANNEL_SECRET of the environment, or the
 *                    file that KEDGE_CHANNEL_SECRET_FILE names, which must be
 *                    its owner's alone; they agree where both are set. Else there
 *                    is none, and whoever reaches the port may open a channel. In
 *                    a set-user-ID program either variable is -EACCES
 * @secret_len:       bytes of it
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
	uint64_t envelope_bytes;
	uint32_t peer_timeout_ms;
	uint32_t host_timeout_ms;
	const void *secret;
	uint64_t secret_len;
};

/**
 * kedge_listener_open_shm() - wait for processes of this host
 * @path:     of a Unix socket that is made, at most 107 bytes; a leading '@'
 *            stands for the abstract namespace. Copied
 * @opts:     of each channel that is accepted; @opts->size set, or NULL for
 *            the defaults; copied
 * @listener: set on success, left untouched on failure
 *
 * A socket that a process left there which has ended is replaced; of several that
 * try that at once one succeeds.
 *
 * Threads: a listener is one thread's at a time. Fork: it is of the process
 * that opened it, as kedge_channel_open_shm() says of channels.
 * Ownership: the caller ends it with kedge_listener_close(), which removes the
 * socket, wherever chdir() has led to since; but nothing else that has the name by
 * then, and nothing in a forked child.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL       @path or @listener is NULL, @opts->size is too small, or an
 *                 option is out of range
 *   -E2BIG        @opts is of a newer version and sets a field unknown here
 *   -ENAMETOOLONG @path is too long
 *   -EADDRINUSE   somebody has the name, listening or only bound; it is that of
 *                 something that is no socket; or of a socket whose process has
 *                 ended, in a directory that cannot be read or locked (flock)
 *   -ENOMEM       no memory
 *   or what socket(), bind() or listen() say
 */
KEDGE_API int kedge_listener_open_shm(const char *path,
				      const struct kedge_channel_opts *opts,
				      struct kedge_listener **listener);

/**
 * kedge_listener_accept() - take the next peer
 * @listener:   borrowed
 * @timeout_ms: how long to wait for one; 0 does not wait, below 0 is for ever
 * @channel:    set on success, left untouched on failure
 *
 * Handshakes run beside each other; a peer that comes to nothing is no error.
 *
 * Threads: as kedge_listener_open_shm().
 * Ownership: the caller ends *@channel with kedge_channel_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL    an argument is NULL
 *   -ETIMEDOUT nobody came that could be let in
 *   -ECHILD    the listener is of the parent process
 *   -ENODEV    the RDMA device whose address it listens at was removed: it accepts no
 *              more
 *   or what the system lacks (-EMFILE, -ENOMEM, or -EAGAIN: a thread)
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

/* So many bytes hold any address of a listener. */
#define KEDGE_ADDRESS_MAX 128

/**
 * kedge_listener_address() - where it listens
 * @listener: borrowed
 * @buf:      filled in with "127.0.0.1:7475", "[::]:7475", or the path as
 *            kedge_listener_open_shm() takes it, and a 0; untouched on failure
 * @len:      bytes of @buf: KEDGE_ADDRESS_MAX are enough
 *
 * One that was opened at port "0" listens at a port that was free. The text from
 * its last ':' on is what kedge_channel_open_tcp() takes as the service, and what
 * is before it as the node: the address of this host which was named, 0.0.0.0 or
 * [::] where it is any, which means this host to who connects.
 *
 * Threads: and Fork: as kedge_listener_open_shm().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL     @listener or @buf is NULL
 *   -ENOBUFS    @len is too small
 *   -EOPNOTSUPP the provider of libfabric has addresses of its own
 */
KEDGE_API int kedge_listener_address(struct kedge_listener *listener, char *buf,
				     size_t len);

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
 * @timeout_ms: how long to wait for the listener to accept; below 0 is for ever
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
 * of kedge_channel_alloc() is not mapped there, and the sockets of channels and
 * listeners are closed (over shared memory and TCP), so that peers see the
 * parent's end. Handlers of pthread_atfork() do that: a child of vfork(), _Fork()
 * or clone() keeps the sockets until it executes a program.
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
 *   -EAGAIN       no room for the thread that sees peers die, one for all channels
 *                 of the process
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
 * @timeout_ms: how long to wait for the peer's call of the same; below 0 is for
 *              ever
 * @channel:    set on success, left untouched on failure
 *
 * Both sides call it; the socket's maker is to be of their effective user, too.
 * It shows when the peer is gone, even where a third process keeps it open. From
 * the call on @fd is closed in children that this process forks.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 * Ownership: the caller ends *@channel with kedge_channel_close().
 *
 * Return: as kedge_channel_open_shm(), and -EBADF if @fd is no connected Unix
 * stream socket.
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
 * the peer, which is told of what was received here, too: where it has left no room
 * for that, it is waited for, up to a second; so is a peer that is stopped while it
 * copies, from which a buffer in a segment is taken away then (seconds, for a large
 * one). Memory of kedge_channel_alloc() ends with it.
 *
 * Threads: one, the last user.
 */
KEDGE_API void kedge_channel_close(struct kedge_channel *channel);

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

#include <kedge/message.h>

#endif /* KEDGE_CHANNEL_H */
