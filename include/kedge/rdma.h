/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between hosts, over RDMA adapters: reliable connections of queue pairs,
 * made by librdmacm. In libkedge-rdma.
 */
#ifndef KEDGE_RDMA_H
#define KEDGE_RDMA_H

#include <kedge/connector.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * kedge_listener_open_rdma() - wait for processes that reach an RDMA adapter
 * @node:     address or name of an adapter's interface to listen at; NULL is any.
 *            Copied
 * @service:  port or its name; "0" is one that is free. Copied
 * @opts:     of each channel that is accepted; @opts->size set, or NULL for
 *            the defaults; copied
 * @listener: set on success, left untouched on failure
 *
 * Any process that reaches the address can open a channel and send messages: adapters
 * neither know nor encrypt anything. It is for networks whose hosts are trusted.
 * KEDGE_CHANNEL_ANY_USER and the secret change nothing.
 *
 * Handshakes run beside each other: a peer that is answered has three seconds to
 * say that it has heard of that, and holds nobody up. What comes to nothing, or is no
 * kedge, is logged and no error of kedge_listener_accept().
 *
 * Threads: a listener is one thread's at a time. Fork: it is of the process
 * that opened it, and a child opens none, nor a channel: see -ECHILD. A process that
 * changes its user opens listeners and channels after that, as the kernel refuses
 * what was opened before.
 * Ownership: the caller ends it with kedge_listener_close(); its channels live
 * on.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL        @service or @listener is NULL, @opts->size is too small, or
 *                  an option is out of range
 *   -E2BIG         @opts is of a newer version and sets a field unknown here
 *   -ENODEV        no RDMA device here, or its kernel modules are not loaded
 *   -EADDRNOTAVAIL no such address, name, service or port, or it is no RDMA
 *                  device's
 *   -EADDRINUSE    somebody listens there
 *   -EACCES        /dev/infiniband/rdma_cm may not be opened by this user
 *   -ECHILD        RDMA was used in this process's parent, and what was opened
 *                  there is the parent's: fork first, or execute a program
 *   -EMFILE        no descriptor is left
 *   -ENOMEM        no memory
 */
KEDGE_API int kedge_listener_open_rdma(const char *node, const char *service,
				       const struct kedge_channel_opts *opts,
				       struct kedge_listener **listener);

/**
 * kedge_channel_open_rdma() - connect to a process by an RDMA adapter
 * @node:       address or name of the peer's adapter; borrowed
 * @service:    port or its name; borrowed
 * @opts:       @opts->size set, or NULL for the defaults; copied
 * @timeout_ms: how long to wait for the listener to accept; below 0 is for ever
 * @channel:    set on success, left untouched on failure
 *
 * Channels are as kedge_channel_open_shm() describes them. A peer that is
 * killed is noticed within 20 ms; one whose host is gone, when the adapter gives up
 * what was sent to it. A cancelled receive completes when the peer has let go of
 * its buffer; one that does not answer for five seconds is cut off.
 *
 * A channel pins about 5 MiB for packets, 2 MiB for each message that is being copied
 * out (so large messages need 7 MiB at least), landing pages up to
 * kedge_channel_opts.pool_bytes, its heap_bytes, and what its messages register:
 * RLIMIT_MEMLOCK bounds it.
 *
 * Threads: a channel is one thread's at a time; channels are independent of
 * each other.
 * Fork: a channel is of the process that opened it. In a forked child every
 * call fails with -ECHILD and kedge_channel_close() only frees memory.
 * Ownership: the caller ends *@channel with kedge_channel_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL        @node, @service or @channel is NULL, @opts->size is too
 *                  small, or an option is out of range
 *   -E2BIG         @opts is of a newer version and sets a field unknown here
 *   -ENODEV        no RDMA device here, or its kernel modules are not loaded
 *   -EADDRNOTAVAIL no such address, name, service or port, or no RDMA device
 *                  here reaches it
 *   -ECONNREFUSED  nobody listens there
 *   -ECONNRESET    the listener left while it accepted
 *   -ETIMEDOUT     the listener did not accept in time
 *   -EPROTO        what answers is no kedge, or one of another version or byte
 *                  order
 *   -EACCES        /dev/infiniband/rdma_cm may not be opened by this user
 *   -ECHILD        RDMA was used in this process's parent: as above
 *   -EMFILE        no descriptor is left
 *   -ENOMEM        no memory, or RLIMIT_MEMLOCK is used up
 *   or what else the listener says
 */
KEDGE_API int kedge_channel_open_rdma(const char *node, const char *service,
				      const struct kedge_channel_opts *opts,
				      int timeout_ms,
				      struct kedge_channel **channel);

/**
 * kedge_connector_open_rdma() - begin what kedge_channel_open_rdma() does
 * @node:       as there. Copied
 * @service:    as there. Copied
 * @opts:       as there; copied
 * @timeout_ms: as there
 * @connector:  set on success, left untouched on failure
 *
 * As kedge_connector_open_shm().
 *
 * Threads: as kedge_connector_open_shm().
 * Ownership: the caller ends it with kedge_connector_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @node, @service or @connector is NULL, @opts->size is too small, or
 *           an option is out of range
 *   -E2BIG  @opts is of a newer version and sets a field unknown here
 *   -EAGAIN no room for another thread
 *   -EMFILE no descriptor is left
 *   -ENOMEM no memory
 *   All else kedge_connector_finish() says.
 */
KEDGE_API int kedge_connector_open_rdma(const char *node, const char *service,
					const struct kedge_channel_opts *opts,
					int timeout_ms,
					struct kedge_connector **connector);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_RDMA_H */
