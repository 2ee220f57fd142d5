/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding each other: providers, connections, listeners, and a stand-in for a
 * connection where the provider has only datagrams. The end of internal.h.
 */
#ifndef CHANNEL_OFI_CONNECT_CONN_H
#define CHANNEL_OFI_CONNECT_CONN_H

/* ---- conn.c: endpoints ---- */

/* A libfabric error as a negative errno. */
int kedge__ofi_errno(ssize_t rc);
int kedge__ofi_fabric_open(const struct fi_info *info,
			   struct ofi_fabric **fabric);
void kedge__ofi_fabric_put(struct ofi_fabric *fabric);
/* An endpoint, not connected; with its buffers posted, if it will be. */
int kedge__ofi_open(struct ofi_fabric *fabric, struct fi_info *info,
		    struct ofi **out);
/* Wait for FI_CONNECTED until @deadline; what the peer said goes to @hello. */
int kedge__ofi_connected(struct ofi *o, uint64_t deadline,
			 struct rdma_hello *hello);
int kedge__ofi_eq_open(struct fid_fabric *fabric, struct fid_eq **eq, int *fd);
/* One event, or -EAGAIN; 0 and *@event, else what the error event says. */
int kedge__ofi_eq_read(struct fid_eq *eq, uint32_t *event,
		       struct fi_info **info, struct rdma_hello *hello);
int kedge__ofi_connect(const char *provider, const char *node,
		       const char *service,
		       const struct kedge_channel_opts *opts, int timeout_ms,
		       struct ofi **out, struct transport_peer *peer);

/*
 * Find connected endpoints of @provider, with an address as for fi_getinfo(): *@info;
 * or NULL and *@rdm, if it has only datagrams.
 */
int kedge__ofi_getinfo_any(const char *provider, const char *node,
			   const char *service, uint64_t flags,
			   struct fi_info **info, bool *rdm);

/* ---- rdm.c: reliable datagrams ---- */

int kedge__ofi_getinfo_rdm(const char *provider, const char *node,
			   struct fi_info **info);
/* An endpoint and its peer's, which meet over the connection @fd. On success it
 * owns that, else it is closed. */
int kedge__ofi_rdm(int fd, const char *provider,
		   const struct kedge_channel_opts *opts, uint64_t deadline,
		   struct ofi **out);
/* 0, or what the connection beside the endpoint says. */
int kedge__ofi_ctl_check(struct ofi *o);

/* ---- listen.c ---- */

struct ofi_listener;
int kedge__ofi_listen(const char *provider, const char *node,
		      const char *service,
		      const struct kedge_channel_opts *opts,
		      struct ofi_listener **out);
int kedge__ofi_accept(struct ofi_listener *l, int timeout_ms, struct ofi **out,
		      struct transport_peer *peer);
const struct kedge_channel_opts *
kedge__ofi_listener_opts(const struct ofi_listener *l);
int kedge__ofi_listener_fd(const struct ofi_listener *l);
/* The port that it listens on, of an IP address; 0 for any other. */
unsigned int kedge__ofi_listener_port(const struct ofi_listener *l);
/* The text that kedge_listener_address() returns. */
int kedge__ofi_listener_address(const struct ofi_listener *l, char *text);
void kedge__ofi_listener_close(struct ofi_listener *l);

#endif /* CHANNEL_OFI_CONNECT_CONN_H */
