/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libfabric's domains as a device: what fi_mr_reg() makes, behind a coherent
 * cache. In libkedge-ofi.
 */
#ifndef KEDGE_OFI_DEVICE_H
#define KEDGE_OFI_DEVICE_H

#include <kedge/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fi_info;
struct fid_domain;
struct fid_ep;
struct fid_mr;

/**
 * struct kedge_ofi_device_opts - how to register; 0 is the default
 * @size:      sizeof(struct kedge_ofi_device_opts)
 * @flags:     0
 * @chunk_len: the piece in which large areas are registered, in bytes; 0 is
 *             2 MiB
 * @endpoint:  for FI_MR_ENDPOINT: registrations are bound to it. It is enabled
 *             before the first get, and closed after the device
 * @first_key: without FI_MR_PROV_KEY: the first key that is asked for, and then
 *             the numbers after it; 0 is a random one. The program's own keys in
 *             that domain are others
 */
struct kedge_ofi_device_opts {
	uint32_t size;
	uint32_t flags;
	uint64_t chunk_len;
	struct fid_ep *endpoint;
	uint64_t first_key;
};

/**
 * kedge_device_open_ofi() - a domain of libfabric's as a device
 * @domain: borrowed, must outlive the device
 * @info:   what the domain was opened with; borrowed for the call
 * @opts:   options with @opts->size set, or NULL for the defaults; copied
 * @dev:    set on success, left untouched on failure
 *
 * A registration is one memory region, of exactly the bytes that were asked for.
 * KEDGE_ACCESS_LOCAL_READ is FI_SEND and FI_WRITE, KEDGE_ACCESS_LOCAL_WRITE is
 * FI_RECV and FI_READ; the remote ones are FI_REMOTE_READ and FI_REMOTE_WRITE, and
 * KEDGE_ACCESS_REMOTE_ATOMIC is both. kedge_ofi_mr() has libfabric's object, whose
 * descriptor and key fi_mr_desc() and fi_mr_key() read; kedge_ofi_addr() has the
 * address for peers, with FI_MR_VIRT_ADDR or without.
 *
 * Some providers keep registrations in a cache of libfabric's, below this one.
 * That would make this one's as stale as it is, so the open tries whether it does,
 * with a page that changes, and refuses such a domain: set
 * FI_MR_CACHE_MONITOR=disabled before libfabric is first called, or have
 * libkedge-fi there (docs/libfabric.md), which sees the change. With FI_MR_ENDPOINT
 * it does not try, as the endpoint need not be enabled yet.
 *
 * A get on this device's caches may fail with -ENOMEM, -ENOSPC, -E2BIG,
 * -EFAULT, -EACCES as the provider says, and with -ECHILD in a forked child. Another error
 * of libfabric's is -EIO. kedge_strerror() has its number.
 *
 * Threads: any, several at once, as far as the domain's threading lets
 * registrations be made (FI_THREAD_SAFE). Fork: in a forked child it refuses with
 * -ECHILD, and kedge_device_close() only frees memory. Ownership:
 * kedge_device_close() ends it; @domain and the endpoint stay the caller's.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @domain, @info or @dev is NULL, @opts->size is too small, a flag
 *                is set, or FI_MR_ENDPOINT is asked for without an endpoint
 *   -E2BIG       @opts is of a newer version and sets a field unknown here
 *   -EOPNOTSUPP  keys are longer than 64 bits (FI_MR_RAW), or a cache below keeps
 *                registrations of pages that have gone
 *   -ENOMEM      no memory
 *   or what the provider says to the first registration
 */
KEDGE_API int kedge_device_open_ofi(struct fid_domain *domain, const struct fi_info *info,
				    const struct kedge_ofi_device_opts *opts,
				    struct kedge_device **dev);

/**
 * kedge_ofi_mr() - libfabric's object
 * @mr: borrowed; held, and of such a device's cache
 *
 * Threads: any. Fork: of no use in the child.
 *
 * Return: the region, for fi_mr_desc() and fi_mr_key(). It is the cache's, and is
 * not closed.
 */
static inline struct fid_mr *kedge_ofi_mr(const struct kedge_mr *mr)
{
	return (struct fid_mr *)(uintptr_t)mr->device_handle;
}

/**
 * kedge_ofi_addr() - the address that goes with the key
 * @mr:   borrowed; held, and of such a device's cache
 * @addr: a byte of it
 *
 * Threads: any. Fork: of no use in the child.
 *
 * Return: what a peer names for @addr: the address itself with FI_MR_VIRT_ADDR, else
 * how far it is from the region's first byte.
 */
static inline uint64_t kedge_ofi_addr(const struct kedge_mr *mr, const void *addr)
{
	return mr->offset + ((uint64_t)(uintptr_t)addr - mr->addr);
}

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_OFI_DEVICE_H */
