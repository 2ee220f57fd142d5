// SPDX-License-Identifier: BSD-2-Clause
/*
 * The calls of libkedge-ofi: channels, listeners, and a list of providers.
 */
#include <stdio.h>

#include <kedge/tcp.h>

#include "base/process/cancel.h"
#include "channel/connect/connector.h"
#include "channel/ofi/internal.h"
#include "channel/ofi/lib.h"

/* TCP is libkedge's own: libfabric 1.17 crashes on bytes of a stranger's. */
static bool is_tcp(const char *provider)
{
	return !provider || !strcmp(provider, "tcp");
}

KEDGE_API int kedge_channel_open_ofi(const char *provider, const char *node,
				     const char *service,
				     const struct kedge_channel_opts *user,
				     int timeout_ms,
				     struct kedge_channel **channel)
{
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	struct ofi *o;
	int rc;

	NO_CANCEL();
	if (!node || !service || !channel)
		return kedge_reason(-EINVAL, "the node, the service or the "
				    "result is NULL");
	if (is_tcp(provider))
		return kedge_channel_open_tcp(node, service, user, timeout_ms,
					      channel);
	rc = kedge__channel_opts(&opts, user);
	if (!rc)
		rc = kedge__ofi_load();
	if (rc)
		return rc;
	rc = kedge__ofi_connect(provider, node, service, &opts, timeout_ms, &o,
				&peer);
	if (rc)
		return rc;
	/* It is the caller's, and not kept. */
	opts.secret = NULL;
	rc = kedge__channel_open(&kedge__rdma_ops, &o->r, &opts, &peer, channel);
	if (rc)
		kedge__rdma_free(&o->r);
	return rc;
}

static int connect_ofi(const struct connect_to *to,
		       struct kedge_channel **channel)
{
	return kedge_channel_open_ofi(to->provider, to->node, to->service,
				      &to->opts, to->timeout_ms, channel);
}

KEDGE_API int kedge_connector_open_ofi(const char *provider, const char *node,
				       const char *service,
				       const struct kedge_channel_opts *opts,
				       int timeout_ms,
				       struct kedge_connector **connector)
{
	if (!node || !service || !connector)
		return kedge_reason(-EINVAL, "the node, the service or the "
				    "result is NULL");
	return kedge__connector_open(connect_ofi, provider, node, service, opts,
				     timeout_ms, connector);
}

/* ---- listeners ---- */

static int listener_accept(void *ctx, int timeout_ms,
			   struct kedge_channel **channel)
{
	struct transport_peer peer;
	struct ofi *o;
	int rc;

	rc = kedge__ofi_accept(ctx, timeout_ms, &o, &peer);
	if (rc)
		return rc;
	rc = kedge__channel_open(&kedge__rdma_ops, &o->r,
				 kedge__ofi_listener_opts(ctx), &peer, channel);
	if (rc)
		kedge__rdma_free(&o->r);
	return rc;
}

static int listener_fd(void *ctx)
{
	return kedge__ofi_listener_fd(ctx);
}

static int listener_address(void *ctx, char *text)
{
	return kedge__ofi_listener_address(ctx, text);
}

static void listener_close(void *ctx)
{
	kedge__ofi_listener_close(ctx);
}

static const struct listener_ops listener_ops = {
	.accept = listener_accept,
	.fd = listener_fd,
	.address = listener_address,
	.close = listener_close,
};

KEDGE_API int kedge_listener_open_ofi(const char *provider, const char *node,
				      const char *service,
				      const struct kedge_channel_opts *user,
				      struct kedge_listener **listener)
{
	struct kedge_channel_opts opts;
	struct ofi_listener *l;
	int rc;

	NO_CANCEL();
	if (!service || !listener)
		return kedge_reason(-EINVAL, "the service or the result is "
				    "NULL");
	if (is_tcp(provider))
		return kedge_listener_open_tcp(node, service, user, listener);
	rc = kedge__channel_opts(&opts, user);
	if (!rc)
		rc = kedge__ofi_load();
	if (rc)
		return rc;
	rc = kedge__ofi_listen(provider, node, service, &opts, &l);
	if (rc)
		return rc;
	rc = kedge__listener_open(&listener_ops, l, listener);
	if (rc)
		kedge__ofi_listener_close(l);
	return rc;
}

/* ---- what there is ---- */

static void describe(struct kedge_ofi_provider *p, const char *name)
{
	struct fi_info *info;
	bool rdm;

	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "%s", name);
	/* The same that a listener asks for. */
	if (kedge__ofi_getinfo_any(name, NULL, NULL, 0, &info, &rdm))
		return;
	if (rdm && kedge__ofi_getinfo_rdm(name, NULL, &info))
		return;
	p->flags = KEDGE_OFI_CHANNEL;
	if (info->domain_attr->mr_mode & (FI_MR_LOCAL | FI_MR_ALLOCATED))
		p->flags |= KEDGE_OFI_PINS;
	fi_freeinfo(info);
}

static bool named_before(const struct fi_info *first, const struct fi_info *i)
{
	for (; first != i; first = first->next)
		if (!strcmp(first->fabric_attr->prov_name,
			    i->fabric_attr->prov_name))
			return true;
	return false;
}

KEDGE_API ssize_t kedge_ofi_list(struct kedge_ofi_provider *list, size_t max)
{
	struct fi_info *all = NULL, *i;
	size_t cnt = 0;
	int rc;

	NO_CANCEL();
	if (!list && max)
		return kedge_reason(-EINVAL, "the list is NULL");
	rc = kedge__ofi_load();
	if (rc)
		return rc;
	rc = fi_getinfo(OFI_API, NULL, NULL, 0, NULL, &all);
	if (rc == -FI_ENOMEM)
		return kedge_reason(-ENOMEM, "no memory for libfabric");
	for (i = all; i; i = i->next) {
		if (named_before(all, i))
			continue;
		if (cnt < max)
			describe(&list[cnt], i->fabric_attr->prov_name);
		cnt++;
	}
	fi_freeinfo(all);
	return (ssize_t)cnt;
}
