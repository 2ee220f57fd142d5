/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between hosts, over TCP. In libkedge itself.
 */
#ifndef KEDGE_TCP_H
#define KEDGE_TCP_H

#include <kedge/channel.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * kedge_listener_open_tcp() - wait for processes of any host
 * @node:     address or name of this host to listen at, an IPv6 address with or
 *            without brackets; NULL is any. Copied
 * @service:  port or its name; "7475" and ":7475" are the same. "0" is one that
 *            is free: kedge_listener_address() says which. Copied
 * @opts:     of each channel that is accepted; @opts->size set, or NULL for
 *            the defaults; copied
 * @listener: set on success, left untouched on failure
 *
 * With a secret (kedge_channel_opts.secret) only a peer that proves to know it
 * is accepted, and it is proved to the peer, too. Nothing is encrypted, and what
 * comes later is not authenticated: whoever can change what is under way can
 * change messages. Without a secret whoever reaches the port can open a channel:
 * that is for networks all of whose hosts are trusted, and for the loopback
 * interface where all users of this host are. docs/channel.md says what each can
 * do at worst.
 *
 * Handshakes run beside each other in kedge_listener_accept(), which no stranger
 * holds up, and which reports none: 128 at most (a quarter of what ulimit -n
 * allows), each for five seconds. Where there is no room for one more, the oldest
 * of the network that has most of them goes. KEDGE_CHANNEL_ANY_USER changes
 * nothing.
 *
 * kedge_listener_accept() fails with -EMFILE where the process has no descriptor
 * left for a peer, who is then turned away.
 *
 * Threads: a listener is one thread's at a time. Fork: it is of the process
 * that opened it.
 * Ownership: the caller ends it with kedge_listener_close(); its channels live
 * on.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL        @service or @listener is NULL, @opts->size is too small, or
 *                  an option is out of range
 *   -E2BIG         @opts is of a newer version and sets a field unknown here
 *   -EADDRNOTAVAIL no such address, name, service or port
 *   -EADDRINUSE    somebody listens there
 *   -EACCES        the port, or the file of the secret, is not this user's, or
 *                  this is a set-user-ID program whose caller names a secret
 *   -ENOMEM        no memory
 *   or what else socket(), bind(), listen(), or reading the secret, say
 */
KEDGE_API int kedge_listener_open_tcp(const char *node, const char *service,
				      const struct kedge_channel_opts *opts,
				      struct kedge_listener **listener);

/**
 * kedge_channel_open_tcp() - connect to a process of any host
 * @node:       address or name of the host, as there; NULL is this one. Borrowed
 * @service:    port or its name; "7475" and ":7475" are the same. Borrowed
 * @opts:       @opts->size set, or NULL for the defaults; copied
 * @timeout_ms: how long to wait for the listener to accept; below 0 is for ever.
 *              The C library may take longer to find an address for a name
 * @channel:    set on success, left untouched on failure
 *
 * The promises of kedge_channel_open_shm() about channels hold here. A cancelled
 * operation completes at once, whatever the peer does, but for a send whose data
 * the kernel has all of. A peer that is killed is noticed at once, one whose
 * host is gone after kedge_channel_opts.host_timeout_ms.
 *
 * kedge_channel_close() waits for nobody: what was sent goes out after it has
 * returned, if need be, for five seconds at most. So long exit() waits, too, where
 * the peer's kernel does not have all of it; a process that is killed, or ends by
 * _exit(), may lose messages that were complete.
 *
 * Threads: a channel is one thread's at a time; channels are independent of
 * each other.
 * Fork: a channel is of the process that opened it. In a forked child every
 * call fails with -ECHILD and kedge_channel_close() only frees memory; memory
 * of kedge_channel_alloc() is not mapped there.
 * Ownership: the caller ends *@channel with kedge_channel_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL        @service or @channel is NULL, @opts->size is too small, or an
 *                  option is out of range
 *   -E2BIG         @opts is of a newer version and sets a field unknown here
 *   -EADDRNOTAVAIL no such address, name, service or port
 *   -ECONNREFUSED  nobody listens there
 *   -ETIMEDOUT     the listener did not accept in time
 *   -EACCES        one end has a secret that the other does not have, or the
 *                  file of the secret is not this user's alone, or this is a
 *                  set-user-ID program whose caller names a secret
 *   -EPROTO        what answers is no kedge, or one of another version or byte
 *                  order
 *   -ECONNRESET    the listener closed the connection
 *   -ENOMEM        no memory
 *   or what else socket(), connect(), or reading the secret, say
 */
KEDGE_API int kedge_channel_open_tcp(const char *node, const char *service,
				     const struct kedge_channel_opts *opts,
				     int timeout_ms,
				     struct kedge_channel **channel);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_TCP_H */
