/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between hosts, and accesses to regions of other hosts, over libfabric:
 * RDMA, and whatever else it has connected endpoints or reliable datagrams for. In
 * libkedge-ofi. libfabric is loaded when one of these is called for a provider of
 * its.
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
 * A message sent last over a provider without connections is lost if the peer
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

/** KEDGE_REGION_OFI_WEAK_KEYS - also a provider whose keys of memory can be
 *  guessed: they have 32 bits, or are the provider's own and not random. A peer
 *  that tries keys may then reach regions of the owner's that it has no handle
 *  of. It is for networks all of whose processes are trusted */
#define KEDGE_REGION_OFI_WEAK_KEYS (1u << 0)

/**
 * struct kedge_region_ofi_opts - how to reach regions; 0 is the default
 * @size:  sizeof(struct kedge_region_ofi_opts)
 * @flags: KEDGE_REGION_OFI_*
 */
struct kedge_region_ofi_opts {
	uint32_t size;
	uint32_t flags;
};

/**
 * kedge_region_use_ofi() - reach regions by libfabric, and have them reached
 * @provider: libfabric's name of it: "efa", "psm3", "tcp". Copied
 * @opts:     @opts->size set, or NULL for the defaults; copied
 *
 * As kedge_region_use_verbs() with libfabric's RMA, for adapters that libibverbs
 * has no reliable connections for: from now on puts and gets by a handle that
 * names an address of this host (kedge_region_advertise()) go by the provider
 * where the peer has called this as well, with the same one. Atomics and all else
 * go as before, by the owner's thread, and so does what the provider fails at.
 * Nothing else changes: what a suspension, a move, a trim or a revocation promises
 * holds (docs/regions.md). kedge_remote_query() says KEDGE_REMOTE_RDMA then,
 * kedge_migrate_info.rdma is 1. A process calls this or kedge_region_use_verbs(),
 * not both; with another provider, it is for what is opened from then on.
 *
 * The provider has reliable datagrams (FI_EP_RDM) whose writes say when they have
 * landed (FI_DELIVERY_COMPLETE), and keys of 64 bits that libkedge chooses at
 * random, or "efa", whose endpoints have a random number besides. Providers with the
 * addresses of IP interfaces take the one that the handle names; others have
 * addresses of their own, and the first adapter is taken.
 *
 * A thread, "kedge-ofi", calls libfabric, in the owner and in the peer, and has its
 * descriptors: no other thread of the program has them, nor has a child. With "tcp",
 * and whatever has no adapter, it is also what moves the bytes on both sides, so
 * that is no faster than without this call; and each connection is one more open
 * port, which is read by libfabric (below).
 *
 * Each peer has an endpoint of its own at the owner, with some descriptors (nine of
 * "tcp", against RLIMIT_NOFILE, in that thread alone), and a registration of what its
 * handle gives; where the provider pins pages, they count once more for each
 * against RLIMIT_MEMLOCK of the owner's process. A region in huge pages (hugetlbfs)
 * is served by the owner's thread, as are handles that end by themselves, that are
 * KEDGE_HANDLE_SERVED, or that let peers write and not read.
 *
 * Keys are sent as they are, and nothing is encrypted: who can listen can read and
 * write the region as long as its peer has it. libfabric reads what comes to an
 * endpoint's port, and 1.17 crashes on some of what strangers may send. It is for
 * networks whose hosts are trusted.
 *
 * Threads: any. It is for remotes that are opened, and peers that come, after it.
 * Fork: a child opens its own remotes and regions, which this holds for as well; but
 * a provider with descriptors of the whole process ("efa") is of no use there.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @provider is NULL, empty or longer than a name, @opts->size is too
 *                small, or a flag is unknown
 *   -E2BIG       @opts is of a newer version and sets a field unknown here
 *   -ENODEV      libfabric is not installed, or has no such provider here
 *   -EOPNOTSUPP  the provider has no such endpoints, its keys are weak, or it is one
 *                that checks no keys ("shm"), mixes up data ("udp" before libfabric
 *                2.4), or breaks programs ("sockets", "verbs")
 *   -EBUSY       kedge_region_use_verbs() was called
 *   -EPERM, -ENOSYS  no table of descriptors for the thread: close_range() and
 *                unshare() are forbidden
 *   -EAGAIN      no room for another thread
 *   -EMFILE, -ENFILE  no descriptor is left
 *   -ENOMEM      no memory
 *   -ESHUTDOWN   the program's threads have ended
 */
KEDGE_API int kedge_region_use_ofi(const char *provider,
				   const struct kedge_region_ofi_opts *opts);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_OFI_H */
