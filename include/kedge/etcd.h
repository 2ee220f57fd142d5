/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A directory (kedge/directory.h) that is kept in etcd, version 3.4 or later, by its JSON
 * interface over HTTP. In libkedge-etcd.
 */
#ifndef KEDGE_ETCD_H
#define KEDGE_ETCD_H

#include <kedge/directory.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct kedge_etcd_opts - how etcd is reached; 0 is the default in each field but @endpoints
 * @size:      sizeof(struct kedge_etcd_opts)
 * @flags:     0
 * @endpoints: URLs of members of one etcd, "http://" or "https://", with a comma between them;
 *             at most 16. They are tried one after the other, first the one that answered last
 * @prefix:    what keys begin with; the region's id follows, as 16 hexadecimal digits. NULL:
 *             "/kedge/regions/". At most 240 bytes
 * @user:      NULL: no name; with it @password, each at most 256 bytes
 * @password:  its password. Over "http://" it is sent as it is
 * @ca:        a PEM file of the authorities that sign etcd's certificates; NULL: the system's
 * @cert:      a PEM file of this process's certificate; NULL: none
 * @key:       a PEM file of its key; with @cert
 * @ttl_s:     seconds after which etcd drops the entries of a process that has ended; 0: 30. At
 *             most 86400. etcd may take more, where its members take longer to elect a leader
 * @pad:       0
 */
struct kedge_etcd_opts {
	uint32_t size;
	uint32_t flags;
	const char *endpoints;
	const char *prefix;
	const char *user;
	const char *password;
	const char *ca;
	const char *cert;
	const char *key;
	uint32_t ttl_s;
	uint32_t pad;
};

/**
 * kedge_directory_open_etcd() - a directory that is kept in etcd
 * @opts: options with @opts->size set; copied
 * @out:  set on success, left untouched on failure
 *
 * Nothing is sent yet. Each call afterwards makes a connection of its own to an endpoint, and
 * goes to the next one if that cannot be reached; with a time it has its share of that, without
 * one (-1) ten seconds. Proxies that the environment names are not used. What an endpoint answers
 * is checked; endpoints of "https://" show a certificate of @opts->ca for their name.
 *
 * The first kedge_directory_replace() with a place takes a lease of etcd's, for @opts->ttl_s
 * seconds, and starts a thread that renews it at a third of that. Each entry that this directory
 * writes is bound to the lease, also one that was another's. kedge_directory_close() gives the
 * lease back, for which it waits three seconds at most: the entries are gone then. If the process
 * ends without that, by whatever signal, they are gone when the seconds are over.
 *
 * A process that does not run for longer than that (it is stopped, or its machine is), or
 * cannot reach etcd, loses its entries, and others may take their places. The next call with the
 * directory then fails with -EKEYEXPIRED, on one thread, and does nothing else: entries that
 * were written by it before are gone, those that should be there are put back by
 * kedge_directory_replace() with a @from of NULL, for which a new lease is taken. -ESTALE says
 * that another owner was faster. Other calls go on.
 *
 * Beside the errors of their pages, kedge_directory_find() and kedge_directory_replace() fail
 * with -EKEYEXPIRED (the lease was lost; told once for each), -EKEYREJECTED (an endpoint's
 * certificate, or that of this process, is not accepted), -ENOSPC (etcd's database is full),
 * -EBUSY (it has too many requests), -EAGAIN (no thread is to be had that renews the lease),
 * -EMFILE or -ENFILE (no descriptor is left) and -ENOMEM.
 *
 * Threads: any. Fork: a child opens its own; the parent's entries stay when the child ends or
 * closes the directory.
 * Ownership: the caller ends *@out with kedge_directory_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @opts or @out is NULL, @opts->size is too small, a flag is unknown, there is no
 *           endpoint or one that is no such URL, a text is too long, or a user comes without a
 *           password or a certificate without its key, or the other way round
 *   -E2BIG  @opts is of a newer version and sets a field unknown here
 *   -ENOENT, -EACCES  a file is not there, or this process may not read it
 *   -ENOMEM no memory
 */
KEDGE_API int kedge_directory_open_etcd(const struct kedge_etcd_opts *opts,
					struct kedge_directory **out);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_ETCD_H */
