/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between hosts, over libfabric: RDMA, and whatever else it has connected
 * endpoints or reliable datagrams for. In libkedge-ofi. libfabric is loaded when
 * one of these is called for a provider of its.
 */
#ifndef KEDGE_OFI_H
#define KEDGE_OFI_H

#include <kedge/connector.h>

#ifdef __cplusplus
extern "C" {
#endif

/** KEDGE_OFI_CHANNEL - it can carry a channel: it has connected endpoints with
 *  RMA and ordered sends (FI_EP_MSG), or reliable datagrams with RMA that says
 *  when it has landed (FI_EP_RDM) */
#define KEDGE_OFI_CHANNEL (1u << 0)
/** KEDGE_OFI_PINS - it registers memory before it moves data there. Without it
 *  a peer's data goes straight into any buffer */
#define KEDGE_OFI_PINS (1u << 1)

/**
 * struct kedge_ofi_provider - a provider of libfabric's
 * @name:  "tcp", "verbs"
 * @flags: KEDGE_OFI_*
 */
struct kedge_ofi_provider {
	char name[60];
	uint32_t flags;
};

/**
 * kedge_ofi_list() - the providers that libfabric has here
 * @list: filled with at most @max entries; may be NULL if @max is 0
 * @max:  how many entries @list has room for
 *
 * Loads every provider and looks at the machine's interfaces, which takes some
 * milliseconds.
 *
 * Threads: any. Fork: works in the child.
 *
 * Return: how many there are, which may be more than @max; or a negative errno:
 *   -EINVAL @list is NULL and @max is not 0
 *   -ENOMEM no memory
 */
KEDGE_API ssize_t kedge_ofi_list(struct kedge_ofi_provider *list, size_t max);

/**
 * kedge_listener_open_ofi() - wait for processes of any host
 * @provider: libfabric's name of it, "verbs" for instance. NULL and "tcp" are
 *            kedge_listener_open_tcp(), which this then calls
 * @node:     address or name of this host to listen at; NULL is any. Copied
 * @service:  port or its name; "0" is one that is free. Copied
 * @opts:     of each channel that is accepted; @opts->size set, or NULL for
 *            the defaults; copied
 * @listener: set on success, left untouched on failure
 *
 * Over a provider with connections ("verbs") whoever reaches the address can
 * open a channel and send messages: the providers neither know nor encrypt
 * anything, and what reads the network for them trusts it. It is for networks
 * whose hosts are trusted. KEDGE_CHANNEL_ANY_USER changes nothing.
 *
 * Ends of a provider without connections ("shm", "efa", "tcp;ofi_rxm") meet over
 * TCP, by the handshake of kedge_listener_open_tcp() with its secret: that is
 * what @node and @service are of, and a stranger gets no further. The endpoints
 * have addresses of their own, which libfabric reads and which ask for nothing.
 * The connection stays, as the sign that the peer lives.
 *
 * An accepted peer is waited for until its endpoint is told, for ten seconds
 * at most; kedge_listener_accept() fails where it is not.
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
 *   -ENODEV        libfabric has no such provider here
 *   -EOPNOTSUPP    the provider has neither connected endpoints nor reliable
 *                  datagrams, or it is "udp;ofi_rxd" of a libfabric before 2.4,
 *                  which mixes up data
 *   -EADDRNOTAVAIL no such address, name, service or port
 *   -EADDRINUSE    somebody listens there
 *   -EACCES        the file of the secret is not this user's alone
 *   -ENOMEM        no memory
 *   or what else libfabric says
 */
KEDGE_API int kedge_listener_open_ofi(const char *provider, const char *node,
				      const char *service,
				      const struct kedge_channel_opts *opts,
				      struct kedge_listener **listener);

/**
 * kedge_channel_open_ofi() - connect to a process of any host
 * @provider:   as in kedge_listener_open_ofi(), and the same on both sides
 * @node:       address or name of the host; borrowed
 * @service:    port or its name; borrowed
 * @opts:       @opts->size set, or NULL for the defaults; copied
 * @timeout_ms: how long to wait for the listener to accept; below 0 is for ever
 * @channel:    set on success, left untouched on failure
 *
 * Channels are as kedge_channel_open_shm() describes them. A peer that is
 * killed is noticed at once; one whose host is gone, when the provider or the
 * kernel gives it up, over reliable datagrams after
 * kedge_channel_opts.host_timeout_ms. A cancelled receive completes when the peer has let go of
 * its buffer; one that does not answer for five seconds is cut off.
 *
 * What was sent last over a provider without connections is lost if the peer
 * takes no packet for two seconds while this side closes.
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
 *   -ENODEV        libfabric has no such provider here
 *   -EOPNOTSUPP    the provider has neither connected endpoints nor reliable
 *                  datagrams, or is one that mixes up data; or it is libfabric's
 *                  "shm" and the listener is in this process
 *   -EADDRNOTAVAIL no such address, name, service or port
 *   -ECONNREFUSED  nobody listens there
 *   -ETIMEDOUT     the listener did not accept in time
 *   -EACCES        one end has a secret that the other does not have, or the
 *                  file of the secret is not this user's alone
 *   -EPROTO        what answers is no kedge, or one of another version, byte
 *                  order or provider
 *   -ENOMEM        no memory
 *   or what else the listener or libfabric says
 */
KEDGE_API int kedge_channel_open_ofi(const char *provider, const char *node,
				     const char *service,
				     const struct kedge_channel_opts *opts,
				     int timeout_ms,
				     struct kedge_channel **channel);

/**
 * kedge_connector_open_ofi() - begin what kedge_channel_open_ofi() does
 * @provider:   as there. Copied
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
 *   -EINVAL @node, @service or @connector is NULL, @opts->size is too small, or
 *           an option is out of range
 *   -E2BIG  @opts is of a newer version and sets a field unknown here
 *   -EAGAIN no room for another thread
 *   -EMFILE no descriptor is left
 *   -ENOMEM no memory
 *   All else kedge_connector_finish() says.
 */
KEDGE_API int kedge_connector_open_ofi(const char *provider, const char *node,
				       const char *service,
				       const struct kedge_channel_opts *opts,
				       int timeout_ms,
				       struct kedge_connector **connector);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_OFI_H */
