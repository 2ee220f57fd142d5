/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Access to a region of another process (kedge/remote.h) that does not wait: operations are
 * submitted, several at once, and each has one completion in a queue. A queue takes those of
 * several remote regions, and has a descriptor for poll(), epoll and io_uring.
 *
 * Order. Operations that one thread submits to one remote take effect in their order, as the
 * synchronous calls of one thread do, whatever kind they are and wherever the region is, and also
 * when some of them fail: what failed has no effect but where its error says so, and those behind
 * it go on. Their completions come in the same order. Between threads, and between remotes, there
 * is no order; nor between an operation that has no completion yet and a synchronous call.
 *
 * Level. With status 0 the operation is done where the region is: bytes that were put are there,
 * for the owner and for all peers, and bytes that were got were there. It is not only that the
 * buffer can be used again, or that the bytes are on their way.
 *
 * Atomicity. Each operation is what the synchronous call of that name is: fetch-and-add and
 * compare-and-swap are atomic with regard to each other, by whatever way they come, and with regard
 * to the owner's processor; puts and gets are whole with regard to a suspension and not to each
 * other. Several operations are not one, also those of one call.
 *
 * No call here is a cancellation point (pthreads(7)), also those that wait.
 */
#ifndef KEDGE_COMPLETION_H
#define KEDGE_COMPLETION_H

#include <kedge/remote.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_queue;

/** KEDGE_QUEUE_DEPTH - operations that a queue has room for, where no other number is asked for */
#define KEDGE_QUEUE_DEPTH 256u
/** KEDGE_QUEUE_DEPTH_MAX - operations that a queue has room for at most */
#define KEDGE_QUEUE_DEPTH_MAX 65536u

/**
 * struct kedge_queue_opts - how a queue is
 * @size:  sizeof(struct kedge_queue_opts), set by the caller
 * @depth: operations that are under way, or whose completion was not read yet; 0:
 *         KEDGE_QUEUE_DEPTH
 */
struct kedge_queue_opts {
	uint32_t size;
	uint32_t depth;
};

/* Kinds of operations. */
#define KEDGE_REMOTE_PUT	  1u
#define KEDGE_REMOTE_GET	  2u
#define KEDGE_REMOTE_FETCH_ADD	  3u
#define KEDGE_REMOTE_COMPARE_SWAP 4u

/**
 * struct kedge_remote_op - an operation to be done
 * @size:       sizeof(struct kedge_remote_op), set by the caller, the same in all of an array
 * @op:         KEDGE_REMOTE_PUT, KEDGE_REMOTE_GET, KEDGE_REMOTE_FETCH_ADD or
 *              KEDGE_REMOTE_COMPARE_SWAP
 * @user:       comes back in the completion
 * @offset:     where, from the first byte that the handle gives; of a number, a multiple of 8
 * @data:       the bytes that are put, which are only read; or memory for those that are got
 * @len:        how many
 * @parts:      @part_cnt ranges that are put or got, in the place of @offset, @data and @len, as by
 *              kedge_remote_put_parts(), all or none within the same limit; or NULL
 * @part_cnt:   how many
 * @value:      what is added, or put in the place of @expected
 * @expected:   the number that is replaced
 * @timeout_ms: milliseconds to wait while the region is suspended, from the submission on; -1: no
 *              limit
 * @flags:      0
 */
struct kedge_remote_op {
	uint32_t size;
	uint32_t op;
	uint64_t user;
	uint64_t offset;
	void *data;
	size_t len;
	const struct kedge_remote_part *parts;
	size_t part_cnt;
	uint64_t value;
	uint64_t expected;
	int32_t timeout_ms;
	uint32_t flags;
};

/** KEDGE_REMOTE_REASON - bytes of an error's reason in a completion */
#define KEDGE_REMOTE_REASON 216

/**
 * struct kedge_remote_completion - an operation that is over
 * @size:     sizeof(struct kedge_remote_completion), set by the caller in the first of an array
 * @status:   0, or a negative errno as of the synchronous call, or -ECANCELED: the remote region
 *            was closed, and a put may have been done as a whole, in part or not at all
 * @user:     as the caller gave it
 * @old:      the number that was there
 * @len:      bytes that were put or got, 8 of a number; 0 if it failed
 * @op:       KEDGE_REMOTE_PUT and so on
 * @reserved: 0
 * @reason:   why it failed, see kedge_remote_strerror(); or empty
 */
struct kedge_remote_completion {
	uint32_t size;
	int32_t status;
	uint64_t user;
	uint64_t old;
	uint64_t len;
	uint32_t op;
	uint32_t reserved;
	char reason[KEDGE_REMOTE_REASON];
};

/**
 * kedge_queue_open() - make a queue of completions
 * @opts:  options with @opts->size set, or NULL for the defaults; copied
 * @queue: set on success, left untouched on failure
 *
 * Some 500 bytes of memory for each operation that it has room for.
 *
 * Threads: any. Fork: a child makes its own; with the parent's every call fails but
 * kedge_queue_close(). Ownership: the caller ends *@queue with kedge_queue_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @queue is NULL, or @opts->size is too small
 *   -E2BIG  @opts->depth is more than KEDGE_QUEUE_DEPTH_MAX, or @opts is of a newer version and
 *           sets a field unknown here
 *   -ENOMEM no memory
 */
KEDGE_API int kedge_queue_open(const struct kedge_queue_opts *opts, struct kedge_queue **queue);

/**
 * kedge_queue_close() - give a queue up, and the completions in it
 * @queue: ended; may be NULL
 *
 * Operations under way are waited for, each as long as it may take: close their remote regions
 * before, with kedge_remote_close(), and they end at once. After that their buffers are the
 * program's again.
 *
 * Threads: no other thread uses it. Fork: works in the child, and does not wait there.
 */
KEDGE_API void kedge_queue_close(struct kedge_queue *queue);

/**
 * kedge_queue_fd() - a descriptor that is readable while the queue has completions
 * @queue: from kedge_queue_open()
 *
 * It is for poll(), select(), epoll (level-triggered, or edge-triggered where all completions are
 * read) and io_uring's IORING_OP_POLL_ADD; it is not to be read, written or closed, and is closed
 * with the queue. The first call makes it. From then on the first completion in an empty queue
 * costs a system call, and reading the last one, too.
 *
 * Threads: any. Fork: as kedge_queue_open(); a child does not have it.
 *
 * Return: the descriptor, or a negative errno:
 *   -EINVAL @queue is NULL
 *   -ECHILD the queue is of the parent process
 *   -EMFILE, -ENFILE  no descriptor is left; it takes two
 *   -EBADF  this process has closed the descriptor, as programs do that close what they do not know
 *   -ENOMEM no memory
 *   another the system refuses a socket: a filter of system calls (seccomp) forbids it
 */
KEDGE_API int kedge_queue_fd(struct kedge_queue *queue);

/**
 * kedge_queue_read() - take completions
 * @queue:       from kedge_queue_open()
 * @completions: filled, of @cnt elements; @completions->size is set, and is the size of each
 * @cnt:         at most so many
 * @timeout_ms:  milliseconds to wait for the first; -1: no limit
 *
 * The operation's buffers, parts included, are the program's again when its completion was read. A
 * signal that is handled meanwhile does not end the wait.
 *
 * Threads: any, at the same time; each completion is read once. Not in a signal handler. No
 * cancellation point: what waits for a completion with no limit is not cancelled until it has one.
 * Fork: as kedge_queue_open().
 *
 * Return: how many, 0 if its time went by, or a negative errno, and no completion was taken:
 *   -EINVAL an argument is NULL, @cnt is more than INT_MAX, or @completions->size is too small
 *   -ECHILD the queue is of the parent process
 */
KEDGE_API int kedge_queue_read(struct kedge_queue *queue,
			       struct kedge_remote_completion *completions, size_t cnt,
			       int timeout_ms);

/**
 * kedge_remote_strerror() - why an operation failed
 * @completion: from kedge_queue_read()
 *
 * kedge_strerror(@completion->status) says the same in this thread from then on.
 *
 * Threads: any. Fork: any process.
 *
 * Return: a text, which is this thread's until its next error; never NULL
 */
KEDGE_API const char *kedge_remote_strerror(const struct kedge_remote_completion *completion);

/**
 * kedge_remote_submit() - have operations done
 * @remote: from kedge_remote_open()
 * @queue:  where their completions go, from kedge_queue_open()
 * @ops:    @cnt operations; copied, but for what they point to
 * @cnt:    how many
 *
 * It does not wait for the region, its owner or a network. Where the region is mapped and open, and
 * no operation before is still under way, an operation is done within this call, by this thread,
 * and makes no more system calls than a synchronous one; its completion is there on return. Others
 * are done by a thread of the library's, "kedge-remote", one for each remote region that has had
 * such an operation, up to kedge_remote_close(). Over a connection (KEDGE_REMOTE_SERVED) up to 64
 * requests are sent before the first answer is there; synchronous calls take turns with them.
 *
 * Each operation that was taken has exactly one completion. What it points to, @ops->data, the
 * parts and their data, belongs to the library until that was read. kedge_remote_close() ends
 * those that are under way with -ECANCELED before it returns, and waits for no owner; where the
 * region has migrated, and is being looked for, it may take five seconds.
 *
 * An operation that waits for a region that is suspended keeps those behind it waiting. The time of
 * each counts from its submission, but is looked at when it is its turn, so that it ends then;
 * over a connection an operation that was sent behind one that waits may be given its time anew by
 * the owner.
 *
 * If the owner ends, each operation without an answer has -ECONNRESET, and may have been done, as
 * a whole or in part. If the region migrates they follow it, in their order. With
 * kedge_remote_open_in() the directory is asked by "kedge-remote", too.
 *
 * Threads: any, at the same time. Not in a signal handler. Cancellation: no cancellation
 * point. Fork: in a child no operation of the parent's is under way, and calls fail.
 *
 * Return: how many were taken, from the first on: less than @cnt if one of the following is true of
 *         the next; or a negative errno, if it is true of the first:
 *   -EINVAL    an argument is NULL, @cnt is more than INT_MAX, or its size is too small, or not
 *              that of the first; or its @op or @flags is unknown
 *   -E2BIG     it is of a newer version and sets a field unknown here
 *   -EAGAIN    the queue is full: read completions; or no thread can be made (RLIMIT_NPROC,
 *              pids.max; RLIMIT_AS for its stack), as the reason says
 *   -ENOMEM    no memory
 *   -ECHILD    this process is a child of the one that opened @remote or @queue
 *   -ESHUTDOWN the program's threads have ended, and exit() runs
 */
KEDGE_API int kedge_remote_submit(struct kedge_remote *remote, struct kedge_queue *queue,
				  const struct kedge_remote_op *ops, size_t cnt);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_COMPLETION_H */
