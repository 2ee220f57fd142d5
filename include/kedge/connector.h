/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels that are opened while the program does other things: by any transport,
 * with a descriptor to wait on.
 */
#ifndef KEDGE_CONNECTOR_H
#define KEDGE_CONNECTOR_H

#include <kedge/channel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A connection that is being made. */
struct kedge_connector;

/**
 * kedge_connector_open_shm() - begin what kedge_channel_open_shm() does
 * @path:       as there. Copied
 * @opts:       as there; copied, with its secret
 * @timeout_ms: as there
 * @connector:  set on success, left untouched on failure
 *
 * Nothing is waited for, neither the listener nor, over TCP, a name's address. A
 * thread does that, with all signals blocked, which ends with the attempt. Where no
 * thread of the application is left (pthread_exit() in main), the attempt ends.
 *
 * Threads: a connector is one thread's at a time. Fork: it is of the process
 * that opened it.
 * Ownership: the caller ends it with kedge_connector_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @path or @connector is NULL, @opts->size is too small, or an option
 *           is out of range
 *   -E2BIG  @opts is of a newer version and sets a field unknown here
 *   -EAGAIN no room for another thread
 *   -EMFILE no two descriptors are left
 *   -ENOMEM no memory
 *   All else kedge_connector_finish() says.
 */
KEDGE_API int kedge_connector_open_shm(const char *path,
				       const struct kedge_channel_opts *opts,
				       int timeout_ms,
				       struct kedge_connector **connector);

/**
 * kedge_connector_open_tcp() - begin what kedge_channel_open_tcp() does
 * @node:       as there. Copied
 * @service:    as there. Copied
 * @opts:       as there; copied, with its secret
 * @timeout_ms: as there
 * @connector:  set on success, left untouched on failure
 *
 * As kedge_connector_open_shm().
 *
 * Threads: as kedge_connector_open_shm().
 * Ownership: the caller ends it with kedge_connector_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @service or @connector is NULL, @opts->size is too small, or an
 *           option is out of range
 *   -E2BIG  @opts is of a newer version and sets a field unknown here
 *   -EAGAIN no room for another thread
 *   -EMFILE no two descriptors are left
 *   -ENOMEM no memory
 *   All else kedge_connector_finish() says.
 */
KEDGE_API int kedge_connector_open_tcp(const char *node, const char *service,
				       const struct kedge_channel_opts *opts,
				       int timeout_ms,
				       struct kedge_connector **connector);

/**
 * kedge_connector_fd() - a descriptor to wait on for the connection
 * @connector: borrowed
 *
 * Threads: and Fork: as kedge_connector_open_shm().
 *
 * Return: a descriptor that is readable from when kedge_connector_finish() has
 * an answer, owned by the connector; -EINVAL if @connector is NULL.
 */
KEDGE_API int kedge_connector_fd(const struct kedge_connector *connector);

/**
 * kedge_connector_finish() - take the channel, if it is there
 * @connector: borrowed; still to be closed
 * @channel:   set on success, left untouched on failure
 *
 * Never waits. The channel is the caller's from then on and any thread's.
 *
 * Threads: as kedge_connector_open_shm().
 * Ownership: the caller ends *@channel with kedge_channel_close().
 *
 * Return: 0, or a negative errno:
 *   -EINPROGRESS not yet: wait for kedge_connector_fd()
 *   -EINVAL      an argument is NULL, or the channel was taken before
 *   -ECHILD      the connector is of the parent process
 *   or what the call that it stands for says, kedge_channel_open_shm() and so on
 */
KEDGE_API int kedge_connector_finish(struct kedge_connector *connector,
				     struct kedge_channel **channel);

/**
 * kedge_connector_close() - forget it
 * @connector: owned, freed here; may be NULL
 *
 * Never waits. An attempt that is under way ends, whatever its timeout: at once, or,
 * where its thread is in the C library's look-up of a name or in a provider of
 * libfabric's, when that returns. A connection that it still makes is closed, which
 * the listener sees. The end of the process (and dlclose() of what libkedge.a is
 * linked into) waits for such threads, for a second at most.
 *
 * Threads: one, the last user.
 */
KEDGE_API void kedge_connector_close(struct kedge_connector *connector);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_CONNECTOR_H */
