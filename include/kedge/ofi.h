/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between hosts, over libfabric: TCP, RDMA, and whatever else it has
 * connected endpoints or reliable datagrams for. In libkedge-ofi.
 */
#ifndef KEDGE_OFI_H
#define KEDGE_OFI_H

#include <kedge/channel.h>

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
 * @provider: libfabric's name of it, "verbs" for instance; NULL is "tcp"
 * @node:     address or name of this host to listen at; NULL is any. Copied
 * @service:  port or its name. Copied
 * @opts:     of each channel that is accepted; @opts->size set, or NULL for
 *            the defaults; copied
 * @listener: set on success, left untouched on failure
 *
 * Whoever reaches the address can open a channel and send messages: the
 * providers neither know nor encrypt anything, and what reads the network for
 * them trusts it. It is for networks whose hosts are trusted.
 * KEDGE_CHANNEL_ANY_USER changes nothing.
 *
 * A provider without connections ("shm", "efa", "tcp;ofi_rxm") is met by "tcp":
 * that is what @node and @service are of, and that connection stays, as the sign
 * that the peer lives.
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
 *                  datagrams
 *   -EADDRNOTAVAIL no such address, name or service
 *   -EADDRINUSE    somebody listens there
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
 * @timeout_ms: how long to wait for the listener to accept; -1 is for ever
 * @channel:    set on success, left untouched on failure
 *
 * What kedge_channel_open_shm() says of channels holds here. A peer that is
 * killed is noticed at once; one whose host is gone, when the provider or the
 * kernel gives it up. A cancelled receive completes when the peer has let go of
 * its buffer; one that does not answer for five seconds is cut off.
 *
 * What was sent last over a provider without connections is lost if the peer
 * does not poll for two seconds while this side closes.
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
 *                  datagrams; or it is libfabric's "shm" and the listener is
 *                  in this process
 *   -EADDRNOTAVAIL no such address, name or service
 *   -ECONNREFUSED  nobody listens there
 *   -ETIMEDOUT     the listener did not accept in time
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

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_OFI_H */
